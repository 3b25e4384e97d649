"""Connections between agents and masters: in order within one, and in no order across them.

Loss shows as lateness, as it does above TCP. A path that is cut holds what is sent on it, and delivers it
seconds later when it is mended, if anybody still listens at the other end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.harness.clocks import MS
from tests.sim.world import World


class Path:
    """One direction between two hosts, for all connections that go that way."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.dice = world.dice(f"path {name}")
        self.extra_ns = 0
        self.loss = 0.0
        self._cut = 0
        self._held: list[Callable[[], None]] = []

    @property
    def is_cut(self) -> bool:
        return self._cut > 0

    def cut(self) -> None:
        """Cuts add up: two faults that cut the same path have both to be mended."""
        self._cut += 1

    def mend(self) -> None:
        self._cut -= 1
        if not self._cut:
            held, self._held = self._held, []
            for send in held:
                send()

    def hold(self, send: Callable[[], None]) -> None:
        self._held.append(send)

    def delay_ns(self) -> int:
        dice = self.dice.random()
        delay_ns = 100_000 + int(dice * dice * dice * 2 * MS) + self.extra_ns
        if self.loss and self.dice.random() < self.loss:
            delay_ns += int(self.dice.uniform(200, 1200) * MS)  # a retransmission, or a few
        return delay_ns


class Lane:
    """One direction of one connection: what is sent arrives in its order, or not at all."""

    def __init__(self, path: Path, arrive: Callable[[Any], None]) -> None:
        self._path = path
        self._arrive = arrive
        self._last_ns = 0
        self._stuck_until_ns = 0

    def stick(self, until_ns: int) -> None:
        """This connection alone is late: others, also newer ones, overtake it."""
        self._stuck_until_ns = until_ns

    def send(self, message: Any) -> None:
        path = self._path
        if path.is_cut:
            path.hold(lambda: self.send(message))
            return
        world = path.world
        when_ns = max(world.now_ns + path.delay_ns(), self._last_ns, self._stuck_until_ns)
        self._last_ns = when_ns
        world.at(when_ns, self._arrive, message)


class Connection:
    """Both directions, and whether each end still takes part. host: whose agent made it; `number` is its id
    on the master."""

    def __init__(
        self,
        host: str,
        there: Path,
        back: Path,
        to_master: Callable[..., None],
        to_agent: Callable[..., None],
    ) -> None:
        self.host = host
        self.there = Lane(there, lambda message: to_master(self, message))
        self.back = Lane(back, lambda message: to_agent(self, message))
        self.agent_listens = True
        self.master_listens = True
        self.number = 0
        self.hears = b""
        """The host whose notices are given on it."""

    def send(self, message: Any) -> None:
        self.there.send(message)

    def reply(self, message: Any) -> None:
        self.back.send(message)
