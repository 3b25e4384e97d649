"""Runs N clients at once and times them: the same code for every library.

Clients are threads, spread evenly over a process for each CPU. Tried for 16 clients on two CPUs were 1, 2, 4
and 16 processes: a process for each client costs every library 15 to 45 % more CPU a pair (lockd 30 %), and
with a single one all threads stand in line for one interpreter lock. `--processes` shows it.

A client connects and locks once before the clock starts. It then locks and releases until the time is up;
what it has begun by then it ends, so that no wait is cut short: its times count, the pair doesn't.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import count, pairwise, repeat
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from tests.bench.contenders import Addresses, Contender, Make

_FORK = multiprocessing.get_context("fork")
_HEAD_START_S = 0.05
_WARM_UP_S = 30.0


class Wants(Enum):
    """What each client locks: one of its own again and again, a new one each time, or all the same."""

    OWN = "own"
    NEW = "new"
    SAME = "same"


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked of a library: how many clients for how long, and what of. hold_s: each holds it for so
    long. hosts: on which agent's host each client is, all on the first one when none is said. kept: what they
    lock is of the class that keeps tenures."""

    clients: int
    wants: Wants
    seconds: float
    wait_s: float = 0.0
    processes: int = 1
    hold_s: float = 0.0
    hosts: tuple[int, ...] = ()
    kept: bool = False

    @property
    def contended(self) -> bool:
        return self.wants is Wants.SAME

    @property
    def agents(self) -> int:
        return max(self.hosts, default=0) + 1

    def host_of(self, client: int) -> int:
        return self.hosts[client] if self.hosts else 0

    def resources_of(self, client: int) -> Iterator[str]:
        """What it locks, one after the other."""
        if self.wants is Wants.NEW:
            return map(f"bench:new:{client}:{time.monotonic_ns():x}:{{}}".format, count())
        own = f"bench:{'kept' if self.kept else 'free'}:{client}"
        return repeat("bench:contended" if self.contended else own)


@dataclass(slots=True)
class Tally:
    """What some clients did. Times in seconds; `holds`: begin and end of each, in turn (CLOCK_MONOTONIC);
    `whose`: the client, and when it asked for that. in_vain: the client, begin and end of each wait that was
    given up."""

    acquires_s: array[float] = field(default_factory=lambda: array("d"))
    holds: array[float] = field(default_factory=lambda: array("d"))
    whose: array[float] = field(default_factory=lambda: array("d"))
    in_vain: array[float] = field(default_factory=lambda: array("d"))
    pairs: int = 0
    pairs_in_time: int = 0
    given_up: int = 0
    failed: int = 0
    failure: str = ""
    cpu_s: float = 0.0

    def add(self, other: Tally) -> None:
        self.acquires_s.extend(other.acquires_s)
        self.holds.extend(other.holds)
        self.whose.extend(other.whose)
        self.in_vain.extend(other.in_vain)
        self.pairs += other.pairs
        self.pairs_in_time += other.pairs_in_time
        self.given_up += other.given_up
        self.failed += other.failed
        self.failure = self.failure or other.failure
        self.cpu_s += other.cpu_s

    def overlaps(self) -> int:
        """How often two held the same resource at once, given that all of them locked the same."""
        spans = sorted(zip(self.holds[::2], self.holds[1::2], strict=True))
        return sum(later[0] < earlier[1] for earlier, later in pairwise(spans))

    def grants_of(self) -> Counter[int]:
        """How many each client got."""
        return Counter(map(int, self.whose[::2]))

    def grants_waited(self, client: int) -> list[int]:
        """For each wait of this one, how many others got it meanwhile."""
        begun = sorted(self.holds[::2])
        return sorted(
            max(0, bisect_left(begun, end_s) - bisect_right(begun, asked_s))
            for who, asked_s, end_s in self._waits()
            if who == client
        )

    def turns_waited(self, load: Load) -> list[int]:
        """For each wait, how many turns of hosts began meanwhile, its own not counted."""
        turns = [
            (begun_s, host)
            for (_, before), (begun_s, host) in pairwise(
                sorted(
                    (begun_s, load.host_of(int(who)))
                    for who, begun_s in zip(self.whose[::2], self.holds[::2], strict=True)
                )
            )
            if host != before
        ]
        return sorted(
            sum(
                host != load.host_of(int(who))
                for _, host in turns[bisect_right(turns, (asked_s, -1)) : bisect_left(turns, (end_s, -1))]
            )
            for who, asked_s, end_s in self._waits()
        )

    def _waits(self) -> Iterator[tuple[float, float, float]]:
        """The client, begin and end of each."""
        yield from zip(self.whose[::2], self.whose[1::2], self.holds[::2], strict=True)
        yield from zip(self.in_vain[::3], self.in_vain[1::3], self.in_vain[2::3], strict=True)


Meanwhile = Sequence[tuple[float, Callable[[], None]]]
"""What is done while the clients run, in order, each with how many seconds after their start."""


def run(make: Make, addresses: Addresses, load: Load, meanwhile: Meanwhile = ()) -> Tally:
    workers = [
        _start(make, addresses, load, range(first, load.clients, load.processes))
        for first in range(min(load.processes, load.clients))
    ]
    try:
        return _gather(workers, load, meanwhile)
    finally:
        for process, link in workers:
            link.close()
            process.join(5.0)
            if process.is_alive():
                process.kill()
                process.join()


def _start(make: Make, addresses: Addresses, load: Load, clients: range) -> tuple[BaseProcess, Connection]:
    ours, theirs = _FORK.Pipe()
    process = _FORK.Process(target=_work, args=(make, addresses, load, clients, theirs), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _gather(workers: list[tuple[BaseProcess, Connection]], load: Load, meanwhile: Meanwhile) -> Tally:
    for _, link in workers:
        _hear(link, _WARM_UP_S)
    begin_s = time.monotonic() + _HEAD_START_S
    for _, link in workers:
        link.send(begin_s)
    for offset_s, action in meanwhile:
        _sleep_until(begin_s + offset_s)
        action()
    tally = Tally()
    for _, link in workers:
        tally.add(_hear(link, _HEAD_START_S + load.seconds + load.wait_s + _WARM_UP_S))
    return tally


def _hear(link: Connection, within_s: float) -> Tally:
    """What a worker says: a Tally, empty when it is ready. RuntimeError when it failed or says nothing."""
    if not link.poll(within_s):
        raise RuntimeError(f"a client did not answer within {within_s:.0f} s")
    word = link.recv()
    if isinstance(word, Tally):
        return word
    raise RuntimeError(f"a client could not start: {word}")


# In the worker


def _work(make: Make, addresses: Addresses, load: Load, clients: range, link: Connection) -> None:
    try:
        contenders = [make(addresses.on(load.host_of(client)), load.wait_s) for client in clients]
        for client, contender in zip(clients, contenders, strict=True):
            _warm_up(contender, f"bench:warm-up:{client}")
    except Exception as failure:
        link.send(repr(failure))
        return
    link.send(Tally())
    begin_s: float = link.recv()
    end_s = begin_s + load.seconds
    tallies = [Tally() for _ in clients]
    threads = [
        threading.Thread(target=_drive, args=(contender, load, client, begin_s, end_s, tally))
        for client, contender, tally in zip(clients, contenders, tallies, strict=True)
    ]
    cpu_s = time.process_time()
    if len(threads) == 1:
        _drive(contenders[0], load, clients[0], begin_s, end_s, tallies[0])
    else:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    total = Tally(cpu_s=time.process_time() - cpu_s)
    for tally in tallies:
        total.add(tally)
    link.send(total)


def _warm_up(contender: Contender, resource: str) -> None:
    held = contender.acquire(resource)
    if held is None:
        raise RuntimeError(f"{resource} should be free")
    contender.release(held)


def _drive(contender: Contender, load: Load, client: int, begin_s: float, end_s: float, tally: Tally) -> None:
    clock, hold_s = time.monotonic, load.hold_s
    acquire, release = contender.acquire, contender.release
    took, holds, whose = tally.acquires_s.append, tally.holds.append, tally.whose.append
    next_resource = load.resources_of(client).__next__
    _sleep_until(begin_s)
    now_s = clock()
    while now_s < end_s:
        asked_s = now_s
        try:
            held = acquire(next_resource())
            held_s = clock()
            took(held_s - now_s)
            if held is None:
                tally.given_up += 1
                tally.in_vain.extend((client, asked_s, held_s))
                now_s = held_s
                continue
            if hold_s:
                time.sleep(hold_s)
            freed_s = clock()
            release(held)
            now_s = clock()
        except Exception as failure:
            tally.failed += 1
            tally.failure = tally.failure or f"{type(failure).__name__}: {failure}"
            now_s = clock()
            continue
        holds(held_s)
        holds(freed_s)
        whose(client)
        whose(asked_s)
        tally.pairs += 1
        tally.pairs_in_time += now_s <= end_s


def _sleep_until(when_s: float) -> None:
    left_s = when_s - time.monotonic()
    if left_s > 0:
        time.sleep(left_s)
