"""Timers of one user that are due at one moment: renewals, and ends."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tests.bench.attack.asking import Link, links_to, rest, take_until_all_are_due, wait_until
from tests.bench.attack.bounds import Bound, memory_held
from tests.bench.attack.host import Host
from tests.bench.attack.people import FIRST_OF_MANY, GREEDY, Stage, connected_by, uid_of
from tests.bench.attack.row import Attack, Row, Sizes

_LEASE_MIB, _DETACHED_MIB, _CONNECTION_MIB = 2.6 / 1024, 1.7 / 1024, 9.5 / 1024
_A_MOMENT_S = 0.5
_RENEWED, _OVER = 1 / 3, 1.0
"""The share of its TTL after which a lease is renewed, or ends."""
_UIDS = 1_000


def count(sizes: Sizes) -> int:
    return sizes.of(20_000, 50_000)


def _bounds(sizes: Sizes) -> Sequence[Bound]:
    return (memory_held(count(sizes) * _LEASE_MIB, "leases of 2.6 KiB"),)


def _wait_for_it(links: Sequence[Link], sizes: Sizes, share: float, stage: Stage, *options: str) -> None:
    taken, due_s = take_until_all_are_due(links, count(sizes), share, *options)
    stage.tell("taken", taken)
    wait_until(due_s - _A_MOMENT_S)
    stage.ready()
    rest()


def _of_one(sizes: Sizes, share: float, options: Sequence[str], host: Host, stage: Stage) -> None:
    _wait_for_it(links_to(host.socket), sizes, share, stage, *options)


RENEWALS = Row(
    "renewals due together",
    "One user's session locks are all due for renewal at one moment.",
    lambda sizes: [Attack(uid_of(GREEDY), partial(_of_one, sizes, _RENEWED, ()))],
    _bounds,
)

ENDS = Row(
    "ends due together",
    "One user's DETACHED leases all end at one moment.",
    lambda sizes: [Attack(uid_of(GREEDY), partial(_of_one, sizes, _OVER, ("DETACHED",)))],
    lambda sizes: (memory_held(count(sizes) * _DETACHED_MIB, "DETACHED leases of 1.7 KiB"),),
)


def _of_many_uids(sizes: Sizes, host: Host, stage: Stage) -> None:
    uids = range(FIRST_OF_MANY, FIRST_OF_MANY + _UIDS)
    links = [Link(link) for uid in uids for link in connected_by(uid, host.socket, 1)]
    _wait_for_it(links, sizes, _RENEWED, stage)


RENEWALS_OF_MANY_UIDS = Row(
    "the same of 1,000 uids",
    "The same, of processes of 1,000 uids, which any user has by a user namespace.",
    lambda sizes: [Attack(None, partial(_of_many_uids, sizes))],
    lambda sizes: (
        memory_held(
            count(sizes) * _LEASE_MIB + _UIDS * _CONNECTION_MIB, "leases of 2.6 KiB, processes of 9.5 KiB"
        ),
    ),
)
