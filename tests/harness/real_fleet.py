"""The masters of an agent as they are made at its start, before any is connected; they tell nobody."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lockd.config.model import Config
from lockd.core.ballots.ballot import Ballot
from lockd.core.stakes import Stock
from lockd.masters.fleet import Fleet


class NoGauge:
    def connected(self, master: int) -> None: ...

    def votes_of(self, master: int) -> Callable[[int], None]:
        return lambda _ns: None

    def probed(self, master: int, ns: int) -> None: ...

    def not_counted(self, master: int, why: str) -> None: ...

    def nonsense(self, master: int) -> None: ...

    def counter_fell(self, master: int, slot: int) -> None: ...


Broke = Callable[[Ballot, Exception, int], None]


def _raise(_ballot: Ballot, failure: Exception, _now_ns: int) -> None:
    raise failure


def a_fleet(
    *addresses: str, gauge: Any = None, broke: Broke = _raise, room: Stock | None = None, **settings: Any
) -> Fleet:
    """Masters m1, m2, … at these addresses; three at none that answers, when none is said."""
    known = addresses or ("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3")
    entries = [{"name": f"m{number}", "address": address} for number, address in enumerate(known, 1)]
    config = Config.read({"cluster": "test", "masters": entries, **settings})
    return Fleet(
        config, gauge or NoGauge(), lambda _link: None, broke, lambda _now_ns: None, lambda *_: None, b"host",
        room,
    )  # fmt: skip
