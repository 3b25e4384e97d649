"""Long names: a journal that is long to write anew."""

from __future__ import annotations

import time
from functools import partial

from tests.bench.attack.asking import LONG_LEASE_MIB, links_to, rest, take_long_names
from tests.bench.attack.bounds import Bound, memory_held
from tests.bench.attack.host import Host
from tests.bench.attack.people import GREEDY, Stage, uid_of
from tests.bench.attack.row import Attack, Row, Sizes

_RECORD_MIB = 0.9 / 1024


def _leases(sizes: Sizes) -> int:
    return sizes.of(22_000, 50_000)


def _hold(sizes: Sizes, host: Host, stage: Stage) -> None:
    links = links_to(host.socket)
    stage.tell("taken", take_long_names(links, _leases(sizes)))
    stage.ready()
    rest()


def _clear_away(host: Host, stage: Stage) -> None:
    """What an attacker has to write for a minute, until the journal is three times what is live, somebody who
    clears out /run has at once: it is written anew, once a second."""
    stage.ready()
    while True:
        host.journal.unlink(missing_ok=True)
        time.sleep(1.0)


def _attacks(sizes: Sizes) -> list[Attack]:
    return [Attack(uid_of(GREEDY), partial(_hold, sizes)), Attack(None, _clear_away)]


_NO_LONG_STEP = Bound(
    "ping_max", 60, "ms: what goes over all leases is done in bites, and once a second no p99 shows", True
)


def _bounds(sizes: Sizes) -> list[Bound]:
    live_mib = _leases(sizes) * _RECORD_MIB
    why = "MiB: in memory, and charged to the agent: three times what is live, and the new one beside it"
    held = memory_held(_leases(sizes) * LONG_LEASE_MIB, "leases of 3.4 KiB")
    return [held, Bound("journal_mib", 5 * live_mib, why), _NO_LONG_STEP]


HUGE_NAMES = Row(
    "huge names",
    "One user holds thousands of leases with names of 512 bytes, and the journal is written anew.",
    _attacks,
    _bounds,
    seconds=8.0,
)
