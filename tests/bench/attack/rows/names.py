"""Long names: a journal that is long to write anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from tests.bench.attack.asking import LINKS, Link, together
from tests.bench.attack.bounds import memory_held, memory_left
from tests.bench.attack.host import Host
from tests.bench.attack.people import GREEDY, Stage, connected, uid_of
from tests.bench.attack.row import Attack, Row, Sizes
from tests.harness.wire import as_map, request

_LEASE_MIB = 3.4 / 1024
_LONG = "n" * 506
_LONG_MS = 600_000


def _leases(sizes: Sizes) -> int:
    return sizes.of(22_000, 50_000)


def _take_and_take_again(sizes: Sizes, host: Host, stage: Stage) -> None:
    """While they are taken the journal is written anew several times already."""
    stage.ready()
    links = [Link(one) for one in connected(host.socket, LINKS)]
    names = [f"{_LONG}{number:06}" for number in range(_leases(sizes))]
    tokens: dict[str, bytes] = {}
    for some in _by_links(names):
        tokens |= _taken(links, some)
        stage.tell("taken", len(tokens))
    while True:
        for some in _by_links([*tokens]):
            for _ in together(links, [request("UNLOCK", name, tokens[name]) for name in some]):
                pass
            tokens |= _taken(links, some)


def _by_links(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[first : first + LINKS] for first in range(0, len(names), LINKS))


def _taken(links: Sequence[Link], names: Sequence[str]) -> dict[str, bytes]:
    """The tokens of those that were."""
    [replies] = together(links, [request("LOCK", name, _LONG_MS) for name in names])
    leases = {name: reply for name, reply in zip(names, replies, strict=True) if isinstance(reply, list)}
    return {name: as_map(lease)[b"token"] for name, lease in leases.items()}


HUGE_NAMES = Row(
    "huge names",
    "One user takes tens of thousands of leases with names of 512 bytes, which the journal writes anew.",
    lambda sizes: [Attack(uid_of(GREEDY), partial(_take_and_take_again, sizes))],
    lambda sizes: (memory_held(_leases(sizes) * _LEASE_MIB, "leases of 3.4 KiB"), memory_left()),
    seconds=40.0,
)
