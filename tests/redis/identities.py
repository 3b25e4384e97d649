"""The identities that masters show, and how they get them over the wire."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lockd.clock import boottime_ns
from lockd.core.identities import Identity, Members
from lockd.core.validity import NS_PER_MS, settle_ns
from lockd.dev.processes import LocalMaster
from tests.harness.app import App
from tests.harness.cluster import Cluster
from tests.harness.on_masters import IDENTITY, MINUTE_MS, on
from tests.harness.waiting import PATIENCE_S, eventually
from tests.harness.wire import as_map

MAX_TTL_MS = 1_000
"""Short, since it is waited out here: no lease that was granted for it may be counted on."""
SETTLED_MS = settle_ns(MAX_TTL_MS) // NS_PER_MS
LOCK = (MAX_TTL_MS, "WAIT", MINUTE_MS)
"""For a grant on a machine that may stand still for that long."""


def made_blank(cluster: Cluster) -> None:
    """Its masters are as new ones, and its agent, which goes on, sees that."""
    cluster.end_others()
    for master in cluster.masters:
        master.kill()
        master.wipe()
        master.start(wait=False)
    for master in cluster.masters:
        master.wait_ready(PATIENCE_S)
    eventually(lambda: {one["state"] for one in cluster.master_states()} == {"blank"}, "all are blank")


def formed_anew(cluster: Cluster) -> None:
    made_blank(cluster)
    cluster.form()
    cluster.wait_voting(len(cluster.masters))


def identity_of(master: LocalMaster) -> dict[str, str]:
    return on(master, "HGETALL", IDENTITY)


def identity_on(master: LocalMaster) -> Identity:
    identity = Identity.parse(identity_of(master))
    assert identity is not None
    return identity


def have_identity(master: LocalMaster, identity: Identity) -> None:
    """Whoever wrote it."""
    words = [word for pair in identity.fields.items() for word in pair]
    on(master, "HSET", IDENTITY, *words)


def identify_by_hand(cluster: Cluster, masters: list[LocalMaster]) -> None:
    """What an agent that was interrupted while it formed the cluster has left."""
    members = Members.first(master.name for master in cluster.masters)
    for master in masters:
        have_identity(master, Identity("test", master.name, MAX_TTL_MS, cluster_id="7" * 32, members=members))


def state_of(cluster: Cluster, name: str) -> str:
    return next(one["state"] for one in cluster.master_states() if one["name"] == name)


def form(cluster: Cluster, *options: str) -> dict[str, Any]:
    return as_map(App(cluster).ask("FORM", *options))


def admit(cluster: Cluster, name: str) -> dict[str, Any]:
    return as_map(App(cluster).ask("ADMIT", name))


def waits_a_max_ttl(
    ask: Callable[[], dict[str, Any]], done: str, since_ns: int, blank: Sequence[LocalMaster] = ()
) -> None:
    """Ask until it is `done`, which is not before a max TTL is over since then; until then nothing is written
    on the masters that are blank. A slow machine may never see it wait."""
    waiting: list[int] = []
    sizes: list[int] = []

    def is_done() -> bool:
        said = ask()
        if said["status"] == "waiting":
            assert 0 < said["remaining_ms"] <= said["total_ms"]
            waiting.append(said["total_ms"])
            sizes.extend(on(master, "DBSIZE") for master in blank)
        return bool(said["status"] == done)

    eventually(is_done, f"it is {done}")
    assert boottime_ns() - since_ns >= SETTLED_MS * NS_PER_MS
    assert set(waiting) <= {SETTLED_MS}
    assert not any(sizes)
