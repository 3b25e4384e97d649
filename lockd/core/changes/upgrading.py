"""Bringing identities of an earlier format up to date."""

from lockd.core.changes.founding import first_identity
from lockd.core.changes.ground import Ground
from lockd.core.changes.steps import OLD, NotPossible, Progress, Steps
from lockd.core.link import Link
from lockd.core.membership import State


def upgrade(ground: Ground) -> Steps[Progress]:
    """All masters must be there. Raises NotPossible."""
    ground.heed_own_clock()
    yield from ground.look_again()
    old = [link for link in ground.links if _is_older(link)]
    wrong = [link for link in ground.links if link not in old and link.state is not State.UP]
    if wrong:
        raise NotPossible(
            "all masters must be there, with an identity of this format or an earlier one, nothing was "
            f"changed: {ground.reasons(wrong)}"
        )
    if not old:
        return Progress("already")
    done = next((of for link in ground.links if link not in old and (of := link.identity)), None)
    cluster_id = done.cluster_id if done is not None else ground.new_id()
    for link in old:
        yield from _upgrade(ground, link, cluster_id)
    yield from ground.look_again()
    return Progress("upgraded")


def _is_older(link: Link) -> bool:
    return link.state is State.OTHER_FORMAT and link.identity is not None and link.identity.is_older


def _upgrade(ground: Ground, link: Link, cluster_id: str) -> Steps[None]:
    before, name = link.identity, ground.name(link)
    assert before is not None
    if before.name != name:
        raise NotPossible(f"{name} is the master '{before.name}': correct its address first")
    new = first_identity(ground, link, cluster_id, before.max_ttl_ms)
    yield from ground.write(link, OLD, new.fields)
