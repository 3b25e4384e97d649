"""What a row is, and how it is measured."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from tests.bench.attack import victims
from tests.bench.attack.bounds import EVERYWHERE, Bound, Figures
from tests.bench.attack.host import Host
from tests.bench.attack.people import VICTIMS, Person, Stage, start, uid_of
from tests.bench.attack.victims import Seen, Victim

_STARTS_S, _READY_S, _ENDS_S = 60.0, 180.0, 60.0
_SAMPLE_S = 0.1
_POLITE = 10
"""How nice an attacker is: processors outside of the agent are not what is shared here (CPUWeight is)."""

_HELD, _PAIRS, _PINGS, _MACHINE = "held", "pairs", "pings", "machine"
ORDINARY: dict[str, Victim] = {
    _HELD: victims.holds, _PAIRS: victims.locks_and_unlocks, _PINGS: victims.pings,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sizes:
    """full: those of the issue, else such that the whole takes about ten minutes."""

    full: bool = False
    scale: float = 1.0

    def of(self, usual: int, full: int) -> int:
        return max(1, round((full if self.full else usual) * self.scale))


@dataclass(frozen=True, slots=True)
class Attack:
    """uid: whose process it is; None: root's, which makes connections of many users. works: until it is
    ended, or returns."""

    uid: int | None
    works: Callable[[Host, Stage], None]


@dataclass(frozen=True, slots=True)
class Row:
    """sentence: what the attacker does. attacks: of sizes, each in a process of its own. besides: more
    victims, by a name. figures_of: what of them is a figure, and of the log. files: how many the agent may
    open. leases: so many of other hosts lie on the masters. seconds: how long is measured."""

    name: str
    sentence: str
    attacks: Callable[[Sizes], Sequence[Attack]]
    bounds: Callable[[Sizes], Sequence[Bound]] = lambda _: ()
    besides: dict[str, tuple[int | None, Victim]] = field(default_factory=dict)
    figures_of: Callable[[dict[str, Seen], Host], Figures] = lambda _seen, _host: {}
    files: int | None = None
    leases: Callable[[Sizes], int] = lambda _: 0
    seconds: float = 5.0

    def all_bounds(self, sizes: Sizes) -> list[Bound]:
        """One of the row's own takes the place of the one that holds everywhere."""
        own = {bound.figure: bound for bound in self.bounds(sizes)}
        return list(({bound.figure: bound for bound in EVERYWHERE} | own).values())


@dataclass(slots=True)
class Measured:
    figures: Figures
    failures: Counter[str]
    load: float


def measure(row: Row, host: Host, sizes: Sizes) -> Measured:
    """A fresh agent, victims, then attackers, and what they have left."""
    host.fresh(row.files)
    host.put_leases(row.leases(sizes))
    with ExitStack() as stack:
        sufferers = _start_victims(row, host, stack)
        memory = _Memory(host)
        with ExitStack() as greedy:
            attackers = _start_attackers(row, host, sizes, greedy)
            began_s = _all_ready(attackers, memory)
            _watch(row.seconds, memory)
            seen = _results(sufferers)
            figures = _told(attackers)
        memory.attack_is_over(host.wait_quiet())
    figures |= _figures(seen, began_s) | memory.figures() | row.figures_of(seen, host)
    failures = sum((one.failures for one in seen.values()), Counter[str]())
    return Measured(figures, failures, os.getloadavg()[0])


def _start_victims(row: Row, host: Host, stack: ExitStack) -> dict[str, Person]:
    wanted: dict[str, tuple[int | None, Callable[[Stage], None]]] = {
        _MACHINE: (None, victims.watches_the_machine)
    }
    for (name, victim), user in zip(ORDINARY.items(), VICTIMS, strict=True):
        wanted[name] = uid_of(user), victims.at(host.socket, victim)
    for name, (uid, victim) in row.besides.items():
        wanted[name] = uid, victims.at(host.socket, victim)
    people = {name: start(stack, uid, works) for name, (uid, works) in wanted.items()}
    for name, person in people.items():
        if person.hear("ready", _STARTS_S) is None:
            raise RuntimeError(f"the victim '{name}' did not begin")
    return people


def _start_attackers(row: Row, host: Host, sizes: Sizes, stack: ExitStack) -> list[Person]:
    return [start(stack, attack.uid, partial(attack.works, host), _POLITE) for attack in row.attacks(sizes)]


def _all_ready(attackers: Sequence[Person], memory: _Memory) -> float:
    until_s = time.monotonic() + _READY_S
    while any(one.hear("ready", _SAMPLE_S) is None for one in attackers):
        memory.look()
        if time.monotonic() > until_s:
            raise RuntimeError("an attacker did not get ready")
    memory.attack_is_ready()
    return max((one.said["ready"] for one in attackers), default=time.monotonic())


def _watch(seconds: float, memory: _Memory) -> None:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        time.sleep(_SAMPLE_S)
        memory.look()


def _results(people: dict[str, Person]) -> dict[str, Seen]:
    """One that hangs has failed."""
    for person in people.values():
        person.stop()
    hung = Seen(failures=Counter({"hung": 1}))
    return {name: person.hear("result", _ENDS_S) or hung for name, person in people.items()}


def _told(attackers: Sequence[Person]) -> Figures:
    """What they have said of themselves, summed."""
    figures: Counter[str] = Counter()
    for one in attackers:
        one.listen()
        figures.update({name: value for name, value in one.said.items() if name != "ready"})
    return dict(figures)


def _figures(seen: dict[str, Seen], began_s: float) -> Figures:
    figures: Figures = {
        "lost": seen[_HELD].lost,
        "of": seen[_HELD].of or len(victims.HELD_MS),
        "failed": sum(one.failures.total() for one in seen.values()),
    }
    if seen[_HELD].failures:
        figures["lost"] = figures["of"]
    for name, one in (("pair", seen[_PAIRS]), ("ping", seen[_PINGS]), ("machine", seen[_MACHINE])):
        figures |= spread(name, one.since(began_s))
    return figures


def spread(name: str, took_s: Sequence[float]) -> Figures:
    """p50, p99 and the longest, in ms; nothing where there was nothing."""
    if not took_s:
        return {}
    times = sorted(took_s)
    places = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {f"{name}_{place}": 1e3 * times[int(share * (len(times) - 1))] for place, share in places.items()}


class _Memory:
    """The agent's, in MiB."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._before = self._peak = self._ready = host.memory_mib()
        self._after = self._journal = 0.0
        self._quiet = False

    def look(self) -> None:
        self._peak = max(self._peak, self._host.memory_mib())
        self._journal = max(self._journal, self._host.journal_mib())

    def attack_is_ready(self) -> None:
        self._ready = self._host.memory_mib()

    def attack_is_over(self, quiet: bool) -> None:
        self.look()
        self._after, self._quiet = self._host.memory_mib(), quiet

    def figures(self) -> Figures:
        """rss_left: since the attack was ready; what it does first may be a round that isn't counted."""
        return {
            "rss_before": self._before,
            "rss_peak": self._peak,
            "rss_after": self._after,
            "rss_grown": self._peak - self._before,
            "rss_left": self._after - self._ready,
            "journal_mib": self._journal,
            "still_busy": float(not self._quiet),
        }
