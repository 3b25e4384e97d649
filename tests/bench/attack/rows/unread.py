"""Replies that are asked for and never read."""

from __future__ import annotations

from functools import partial

from tests.bench.attack.asking import rest
from tests.bench.attack.bounds import Bound, memory_held
from tests.bench.attack.host import Host
from tests.bench.attack.people import GREEDY, VICTIMS, Stage, connected, uid_of
from tests.bench.attack.row import Attack, Row, Sizes, spread
from tests.bench.attack.victims import Seen, reads
from tests.harness.attackers import say
from tests.harness.wire import request

READ_P99 = Bound("read_p99", 100, "ms: HOLDER and GET ask the masters, twice what a pair does")
_BUFFERED_MIB = 32
_LISTED_MIB = 20


def _ask_and_read_nothing(sizes: Sizes, host: Host, stage: Stage) -> None:
    links = connected(host.socket, sizes.of(200, 1_000))
    stage.ready()
    for link in links:
        say(link, (request("INFO") + request("LOCKS")) * 20)
    rest()


def _figures(seen: dict[str, Seen], _: Host) -> dict[str, float]:
    return spread("read", [took_s for _, took_s in seen["reads"].times])


UNREAD = Row(
    "unread replies",
    "One user asks LOCKS and INFO on many connections, and never reads.",
    lambda sizes: [Attack(uid_of(GREEDY), partial(_ask_and_read_nothing, sizes))],
    lambda _: (
        READ_P99,
        memory_held(_BUFFERED_MIB + _LISTED_MIB, "32 MiB of replies, and a listing"),
    ),
    besides={"reads": (uid_of(VICTIMS[0]), reads)},
    figures_of=_figures,
    leases=lambda sizes: sizes.of(2_000, 15_000),
)
