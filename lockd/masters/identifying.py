"""Writing identities, for forming a cluster and admitting a master: nothing else writes them (rule 8).

`writer` is whose right it is. Agents may only read identities, so that a lost app host can't wipe who the
masters are; without a writer the agent tries it as itself, which works where no ACL says otherwise.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType

from lockd.clock import boottime_ns
from lockd.core.fences import SLOTS
from lockd.core.identities import Identity
from lockd.core.membership import State, highest_counters
from lockd.masters import replies, scripts
from lockd.masters.aside import Credentials, ask_as
from lockd.masters.failures import MasterError
from lockd.masters.fleet import Fleet
from lockd.masters.link import Link

_GLANCE_S = 0.01
BLANK = ""
OLD = "old"
"""What a master shows in the place of an electorate, see identify.lua."""


class NotPossible(Exception):
    """Why a master can't be formed or admitted now, and what to do."""


@dataclass(frozen=True, slots=True)
class Progress:
    """status: 'formed', 'admitted', 'updated', 'recovered', 'upgraded', 'already', or 'waiting': ask
    again."""

    status: str
    remaining_ms: int = 0
    total_ms: int = 0


def identity_of(link: Link) -> Identity | None:
    return link.facts.identity if link.facts is not None else None


async def look_again(fleet: Fleet) -> None:
    """The facts may be seconds old: what is decided now rests on fresh ones."""
    with suppress(TimeoutError):
        async with asyncio.timeout(fleet.config.timeouts.connect_ms / 1000):
            await _blank_ones_introduced(fleet)
    looks = (
        asyncio.wait_for(link.inspect_now(), fleet.config.timeouts.connect_ms / 1000)
        for link in fleet.links
        if link.introduced
    )
    await asyncio.gather(*looks, return_exceptions=True)


async def _blank_ones_introduced(fleet: Fleet) -> None:
    """Right after a start they are known to be blank, and may not be asked yet: their scripts are being
    loaded."""
    # Seldom awaited, and an event of each link's: it is looked for.
    while any(link.state is State.BLANK and not link.introduced for link in fleet.links):  # noqa: ASYNC110
        await asyncio.sleep(_GLANCE_S)


def twins(links: Sequence[Link]) -> str:
    by_run_id: dict[str, list[str]] = {}
    for link in links:
        if link.facts is not None:
            by_run_id.setdefault(link.facts.run_id, []).append(link.master.name)
    return ", ".join(" and ".join(names) for names in by_run_id.values() if len(names) > 1)


async def write(
    fleet: Fleet,
    link: Link,
    writer: Credentials | None,
    shown: str,
    fields: Mapping[str, str],
    counters: Mapping[int, int] = MappingProxyType({}),
) -> None:
    """Only where the master still shows that. Raises NotPossible."""
    words = scripts.identify(shown, fields, counters)
    try:
        if writer is None:
            written = await link.call(*words)
        else:
            written = await ask_as(writer, fleet.config, link.master, *words)
    except MasterError as failure:
        raise NotPossible(_not_written(link, writer, str(failure))) from failure
    if not written:
        raise NotPossible(
            f"{link.master.name} is not as it was a moment ago, it was left alone: somebody else is at work "
            "on it"
        )


def _not_written(link: Link, writer: Credentials | None, why: str) -> str:
    name = link.master.name
    if not why.startswith(("NOPERM", "WRONGPASS", "NOAUTH")):
        return f"{name} failed while its identity was written ({why}): do the same again"
    if writer is None:
        return (
            f"{name} lets this agent not write identities ({why}): they are for operators. Do the same with "
            "AUTH user password (lockctl … --operator-user lockd_operator)"
        )
    return f"{name} lets '{writer.username}' not write identities ({why}): give the user who may"


def begin_from(fleet: Fleet, readings: Sequence[Mapping[int, int]]) -> dict[int, int]:
    """The counters of a master that is admitted, by what the others show. Raises TooFewReadings."""
    most = fleet.clocks.largest_sane_fence(boottime_ns())
    return highest_counters(readings, fleet.config.quorum, most)


async def counters_of(link: Link) -> dict[int, int]:
    shown = replies.pairs(await link.call("HGETALL", scripts.FENCES_KEY))
    return {replies.digits(slot, SLOTS - 1): replies.digits(value, 10**16) for slot, value in shown}
