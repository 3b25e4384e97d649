"""Making masters a new cluster, in which nothing counts that was admitted to another.

If a quorum may have lost its data, nobody knows what the last fences were (rule 6). But fences are
microseconds of clocks. A fence can be ahead of the masters' clocks only by as much as a host's clock may be
before the masters' clocks are used instead (fences.py). By the time that all leases are over, the masters'
clocks have advanced. So all counters begin above that, and above the counters of masters that still have
theirs.

That may be below an earlier fence in two cases. One: a counter was further ahead than that, and no master is
left that shows it (somebody wrote it there, or 15,000 grants a second shared it for a long time). Two: the
clocks of most masters were set back since.
"""

from collections.abc import Mapping, Sequence

from lockd.core.changes.ground import Ground
from lockd.core.changes.steps import NO_COUNTERS, Progress, Steps
from lockd.core.fences import CLOCKS_APART_US, SLOTS, largest_known
from lockd.core.identities import Identity, Members
from lockd.core.link import Link
from lockd.core.membership import wait_for_blank

NOTHING_MORE: Mapping[str, str] = {}


def first_identity(ground: Ground, link: Link, cluster_id: str, max_ttl_ms: int) -> Identity:
    configured = ground.fleet.configured
    return Identity(
        configured.cluster, ground.name(link), max_ttl_ms,
        cluster_id=cluster_id, members=Members.first(configured.names),
    )  # fmt: skip


def write_all(
    ground: Ground,
    links: Sequence[Link],
    cluster_id: str,
    max_ttl_ms: int,
    counters: Mapping[int, int] = NO_COUNTERS,
    more: Mapping[str, str] = NOTHING_MORE,
) -> Steps[None]:
    """Make these a new cluster, in this order. more: additional fields of their identities."""
    for link in links:
        new = first_identity(ground, link, cluster_id, max_ttl_ms)
        yield from ground.write(link, {**new.fields, **more}, counters)
    yield from ground.look_again()


def counters_above_all(
    ground: Ground, links: Sequence[Link], known: Mapping[int, int]
) -> Steps[dict[int, int]]:
    """The first values of all masters' counters, by slot. links: the masters that have data. known: what this
    agent has seen of counters. Values that can't be right are left out. Raises NotPossible."""
    readings = yield from ground.counters_of(links)
    clocks, now_ns = ground.fleet.clocks, ground.now_ns()
    floor = clocks.median_us(now_ns) + CLOCKS_APART_US
    begin_with = [dict.fromkeys(range(SLOTS), floor), known, *readings]
    return largest_known(begin_with, clocks.largest_sane_fence(now_ns))


def wait_for(ground: Ground, silent_since_ns: Sequence[int | None], max_ttl_ms: int) -> Progress:
    """Wait until every lease is over that the masters helped to grant before they fell silent. Each has its
    time of that (None: it may have voted just now)."""
    if not silent_since_ns:
        return Progress("waiting")
    now_ns = ground.now_ns()
    wait = wait_for_blank(
        [now_ns if since is None else since for since in silent_since_ns], max_ttl_ms, now_ns
    )
    return Progress("waiting", wait.remaining_ms, wait.total_ms)
