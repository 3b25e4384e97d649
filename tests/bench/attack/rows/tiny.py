"""Leases of the shortest TTL: each is renewed thirty times a second."""

from __future__ import annotations

import time
from functools import partial

from tests.bench.attack.asking import links_to, together, worked
from tests.bench.attack.bounds import memory_held
from tests.bench.attack.host import Host
from tests.bench.attack.people import GREEDY, Stage, uid_of
from tests.bench.attack.row import Attack, Row, Sizes
from tests.harness.wire import request

_TTL_MS = 100
_LEASE_MIB = 2.6 / 1024


def _count(sizes: Sizes) -> int:
    return sizes.of(3_000, 20_000)


def _take_all_again_and_again(sizes: Sizes, host: Host, stage: Stage) -> None:
    """Once a second: many have been lost meanwhile, and what is held already answers TAKEN."""
    links = links_to(host.socket)
    requests = [request("LOCK", f"tiny:{number}", _TTL_MS) for number in range(_count(sizes))]
    while True:
        began_s = time.monotonic()
        taken = sum(worked(replies) for replies in together(links, requests))
        stage.tell("taken", taken)
        stage.ready()
        time.sleep(max(0.0, began_s + 1.0 - time.monotonic()))


TINY_TTLS = Row(
    "tiny TTLs",
    "One user takes thousands of session locks of 100 ms, and takes again what it loses.",
    lambda sizes: [Attack(uid_of(GREEDY), partial(_take_all_again_and_again, sizes))],
    lambda sizes: [memory_held(_count(sizes) * _LEASE_MIB, "leases of 2.6 KiB")],
)
