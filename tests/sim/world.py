"""Virtual time: events in their order, the clocks of machines, and processes that may stop, go on and die.

A run is a function of its seed: there is one thread, one heap of events, and no look at a real clock.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from tests.harness.clocks import S
from tests.harness.history import Event, Stopped, WentOn

_EPOCH_NS = 1_700_000_000 * S


class World:
    """True time, and all that is yet to happen in it. `history` is what the checker reads."""

    def __init__(self, seed: str) -> None:
        self.now_ns = 0
        self.history: list[Event] = []
        self.handled = 0
        self._seed = seed
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = 0

    def dice(self, name: str) -> random.Random:
        """Randomness of its own for each part: what one part draws changes nothing for the others, so that a
        run with one fault less is still much the same run."""
        return random.Random(f"{self._seed} {name}")

    def at(self, when_ns: int, do: Callable[..., None], *what: Any) -> None:
        assert when_ns >= self.now_ns, "nothing can be done in the past"
        self._order += 1
        heappush(self._heap, (when_ns, self._order, do, what))

    def after(self, delay_ns: int, do: Callable[..., None], *what: Any) -> None:
        self.at(self.now_ns + delay_ns, do, *what)

    def note(self, event: Event) -> None:
        self.history.append(event)

    def run(self, until_ns: int) -> None:
        heap = self._heap
        while heap and heap[0][0] <= until_ns:
            self.now_ns, _, do, what = heappop(heap)
            self.handled += 1
            do(*what)
        self.now_ns = until_ns


class Clock:
    """What a machine's clocks show: CLOCK_BOOTTIME, which may drift and be slewed but is never set, the wall
    clock, which may be stepped too, and what nobody slews. While the machine stands still, all do."""

    def __init__(self, world: World, drift_ppm: int = 0, wall_off_ns: int = 0) -> None:
        self._world = world
        self._drift_ppm = drift_ppm
        self.wall_off_ns = wall_off_ns
        self._stopped_ns: int | None = None
        self._not_counted_ns = 0
        self._stops: list[tuple[int, int]] = []
        self._rates = [(0, 0, drift_ppm)]
        """How fast it goes: from when (as it was counted here), what it showed then, and by how much more."""

    def stop(self) -> None:
        assert self._stopped_ns is None
        self._stopped_ns = self._world.now_ns

    def go_on(self) -> int:
        """Returns for how long it stood still."""
        assert self._stopped_ns is not None
        stood_ns = self._world.now_ns - self._stopped_ns
        self._stops.append((self._stopped_ns - self._not_counted_ns, stood_ns))
        self._not_counted_ns += stood_ns
        self._stopped_ns = None
        return stood_ns

    def slew(self, ppm: int) -> None:
        """From now on time synchronisation makes it so much faster; slower below 0."""
        self._rates.append((self._counted_ns(), self.boot_ns(), self._drift_ppm + ppm))

    def slewed_by_now_ns(self) -> tuple[int, int]:
        """How far it was slewed, and what the clock shows that was not."""
        counted_ns = self._counted_ns()
        raw_ns = counted_ns + counted_ns * self._drift_ppm // 1_000_000
        return self.boot_ns() - raw_ns, raw_ns

    def _counted_ns(self) -> int:
        now_ns = self._world.now_ns if self._stopped_ns is None else self._stopped_ns
        return now_ns - self._not_counted_ns

    def boot_ns(self) -> int:
        since_ns, shown_ns, ppm = self._rates[-1]
        passed_ns = self._counted_ns() - since_ns
        return shown_ns + passed_ns + passed_ns * ppm // 1_000_000

    def wall_ns(self) -> int:
        return self.boot_ns() + _EPOCH_NS + self.wall_off_ns

    def wall_ahead_ns(self) -> int:
        return _EPOCH_NS + self.wall_off_ns

    def true_ns(self, boot_ns: int) -> int:
        """The first moment at which CLOCK_BOOTTIME here shows that."""
        since_ns, shown_ns, ppm = next((r for r in reversed(self._rates) if r[1] <= boot_ns), self._rates[0])
        counted_ns = since_ns - (-(boot_ns - shown_ns) * 1_000_000 // (1_000_000 + ppm))
        return counted_ns + sum(stood_ns for at_ns, stood_ns in self._stops if at_ns < counted_ns)


class Process:
    """Something that handles one event at a time. While it is paused, events wait: those of one source in
    their order, those of different sources in any."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.life = 1
        self.running = True
        self.paused = False
        self.host_stands_still = False
        self.dice = world.dice(name)
        self._waiting: dict[object, list[tuple[Callable[..., None], tuple[Any, ...]]]] = defaultdict(list)

    def take(self, source: object, do: Callable[..., None], *what: Any) -> None:
        """An event has come for this process."""
        if not self.running:
            return
        if self.still:
            self._waiting[source].append((do, what))
            return
        do(*what)
        self.turn_ends()

    def turn_ends(self) -> None:
        """Called after each event that was handled."""

    def wake_after(self, delay_ns: int, do: Callable[..., None], *what: Any) -> None:
        """A timer of this process: gone with it when it dies."""
        self.world.after(delay_ns, self._wake, self.life, do, what)

    def wake_at(self, when_ns: int, do: Callable[..., None], *what: Any) -> None:
        self.world.at(max(when_ns, self.world.now_ns), self._wake, self.life, do, what)

    def _wake(self, life: int, do: Callable[..., None], what: tuple[Any, ...]) -> None:
        if life == self.life:
            self.take(None, do, *what)

    def pause(self) -> None:
        self.world.note(Stopped(self.world.now_ns, self.name))
        self.paused = True

    def host_stops(self) -> None:
        self.world.note(Stopped(self.world.now_ns, self.name))
        self.host_stands_still = True

    @property
    def still(self) -> bool:
        return self.paused or self.host_stands_still

    def resume(self) -> None:
        if self.paused:
            self.paused = False
            self._goes_on()

    def host_goes_on(self) -> None:
        self.host_stands_still = False
        self._goes_on()

    def resumed(self) -> None:
        """Called when it goes on, before anything that has come meanwhile."""

    def _goes_on(self) -> None:
        if self.still or not self.running:
            return
        self.world.note(WentOn(self.world.now_ns, self.name))
        self.resumed()
        while self._waiting and not self.still and self.running:
            source = self.dice.choice(list(self._waiting))
            do, what = self._waiting[source].pop(0)
            if not self._waiting[source]:
                del self._waiting[source]
            self.take(source, do, *what)

    def die(self) -> None:
        self.life += 1
        self.running = False
        self.paused = False
        self._waiting.clear()
