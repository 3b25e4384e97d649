"""Listings of everything, by everybody."""

from __future__ import annotations

from tests.bench.attack.asking import Link
from tests.bench.attack.bounds import Bound, memory_held
from tests.bench.attack.host import Host
from tests.bench.attack.people import GREEDY_USERS, Stage, connected, uid_of
from tests.bench.attack.row import Attack, Row
from tests.bench.attack.victims import Seen, lists
from tests.harness.wire import request

_LISTING_MIB = 20
_LISTED = 9_000
"""LOCKS lists 10,000 at most."""
OPERATOR_S = Bound(
    "operator_s", 5, "s: the longest LOCKS of an operator. Alone it takes two, and one that is under way is "
    "waited for",
)  # fmt: skip


def _list_in_a_loop(host: Host, stage: Stage) -> None:
    link = Link(connected(host.socket, 1)[0])
    link.socket.settimeout(None)
    stage.ready()
    while True:
        link.socket.sendall(request("LOCKS"))
        link.hear()


def _figures(seen: dict[str, Seen], _: Host) -> dict[str, float]:
    """Nothing where not one came back in time."""
    took_s = [took_s for _, took_s in seen["operator"].times]
    return {"operator_s": max(took_s), "operator_lists": len(took_s)} if took_s else {}


LISTINGS = Row(
    "listings",
    "Twelve users ask LOCKS in a loop, and an operator asks, too.",
    lambda _: [Attack(uid_of(user), _list_in_a_loop) for user in GREEDY_USERS],
    lambda _: (
        OPERATOR_S,
        memory_held(_LISTING_MIB * 4, "a listing for each reading that is under way"),
    ),
    besides={"operator": (None, lists)},
    figures_of=_figures,
    leases=lambda sizes: sizes.of(_LISTED, _LISTED),
    seconds=12.0,
)
