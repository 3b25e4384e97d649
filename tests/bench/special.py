"""What takes more than clients that lock: a master that stops or is slow, and an agent that holds much."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from statistics import median

import hiredis
import redis

from lockd.dev.processes import LOOPBACK
from tests.bench.contenders import LockdRaw, Make, RawLink, packed
from tests.bench.driver import Load, Tally, Wants, run
from tests.bench.ground import MAX_TTL_S, Ground
from tests.harness.processes import memory_kib

WHOLE = "all five run"
FAULTS = STOPS, STOPPED, LOST, CUT_OFF, SLOW = (
    "one stops meanwhile", "one was stopped before", "one is cut off meanwhile", "one was cut off before",
    "one is 100 ms slow",
)  # fmt: skip
_SLOW_S = 0.1
_HOLDERS = 64
_AT_A_TIME = 512
_WAITERS = 2_000
_RECALLS = 200


def faults(load: Load, make: Make, where: Ground) -> Iterator[tuple[str, Load, Callable[[], Tally]]]:
    """One after the other, each to be measured before the next is asked for: with five good masters, while
    one of them stops, so that it refuses connections, and then without it; the same of one that is cut off,
    so that nothing is answered (SIGSTOP); and with one that answers 100 ms late."""
    long = replace(load, seconds=2 * load.seconds)

    def clients() -> Tally:
        return run(make, where.addresses, long)

    def until(fault: Callable[[], object]) -> Callable[[], Tally]:
        return lambda: run(make, where.addresses, long, ((long.seconds / 4, fault),))

    victim = where.victim
    yield WHOLE, long, clients
    for meanwhile, before, fault, mend in (
        (STOPS, STOPPED, victim.terminate, victim.start),
        (LOST, CUT_OFF, victim.pause, victim.resume),
    ):
        try:
            yield meanwhile, long, until(fault)
            where.without_victim()
            yield before, long, clients
        finally:
            mend()
        where.whole()
    with _slowed(where.victim.port):
        yield SLOW, long, clients
    where.whole()


@contextmanager
def _slowed(port: int) -> Iterator[None]:
    """It does nothing for 100 ms, answers what has come, and so on."""
    done = threading.Event()

    def keep_busy() -> None:
        with redis.Redis(LOOPBACK, port, socket_timeout=30) as master, suppress(redis.RedisError):
            while not done.is_set():
                master.execute_command("DEBUG", "SLEEP", _SLOW_S)

    busy = threading.Thread(target=keep_busy)
    busy.start()
    try:
        time.sleep(_SLOW_S)
        yield
    finally:
        done.set()
        busy.join()


@dataclass(frozen=True, slots=True)
class Held:
    """The agent while it holds so many leases. pairs_us: its CPU per pair of others; lease_kib: what each has
    added to its memory."""

    leases: int
    pairs_us: float
    lease_kib: float


@dataclass(frozen=True, slots=True)
class Memory:
    """What the agent has of memory for each, in KiB."""

    idle_connection: float
    waiter: float


@dataclass(frozen=True, slots=True)
class Recalls:
    """LOCKs without WAIT of what another host keeps. granted: as a part of 1. round_ms: of a LOCK of what is
    free, one round over the masters, at p50."""

    granted: float
    p99_ms: float
    round_ms: float


def recalls(where: Ground) -> Recalls:
    """An app of one host locks and releases, so that its agent keeps it; then one of another asks for it."""
    where.have_agents(2)
    keeper = LockdRaw(where.addresses.on(1), 0.0)
    asker = LockdRaw(where.addresses, 0.0)
    granted, times_s, rounds_s = 0, [], []
    for number in range(_RECALLS):
        resource = f"bench:kept:{number % 8}"
        for _ in range(2):
            kept = keeper.acquire(resource)
            if kept is not None:
                keeper.release(kept)
        begun_s = time.monotonic()
        held_now = asker.acquire(resource)
        times_s.append(time.monotonic() - begun_s)
        if held_now is not None:
            granted += 1
            asker.release(held_now)
        begun_s = time.monotonic()
        free = asker.acquire(f"bench:free:{number}")
        rounds_s.append(time.monotonic() - begun_s)
        asker.release(free)
    where.have_agents(1)
    p99_s = sorted(times_s)[_RECALLS * 99 // 100]
    return Recalls(granted / _RECALLS, p99_s * 1000, median(rounds_s) * 1000)


def held(counts: Sequence[int], seconds: float, processes: int, where: Ground) -> Iterator[Held]:
    """With more and more held, 16 clients lock and release what is their own. Nothing is renewed meanwhile:
    that costs in proportion to what is held, whoever locks."""
    load = Load(16, Wants.OWN, seconds, processes=processes)
    links = [RawLink.to_agent(where.addresses.socket) for _ in range(_HOLDERS)]
    before_kib, have = _resident_kib(where), 0
    for count in counts:
        _hold(links, range(have, count))
        have = count
        now_kib = _resident_kib(where)
        cpu_s = where.agents_cpu_s()
        tally = run(LockdRaw, where.addresses, load)
        cpu_s = where.agents_cpu_s() - cpu_s
        yield Held(count, cpu_s / max(1, tally.pairs) * 1e6, (now_kib - before_kib) / count)
    where.restart_agent()


def _hold(links: Sequence[RawLink], numbers: Sequence[int]) -> None:
    """Whatever is not granted at once is asked for again: the machine is busy with it."""
    while numbers:
        asked = [(links[n % len(links)], n) for n in numbers[:_AT_A_TIME]]
        for link, n in asked:
            link.send(packed("LOCK", f"bench:held:{n}", MAX_TTL_S * 1000))
        again = [n for link, n in asked if isinstance(link.hear(), hiredis.ReplyError)]
        numbers = [*again, *numbers[_AT_A_TIME:]] if again else numbers[_AT_A_TIME:]


def memory(where: Ground) -> Memory:
    """Of idle connections, and of LOCKs of one resource that wait, each on a connection of its own."""
    with ExitStack() as open_now:

        def connect() -> RawLink:
            link = RawLink.to_agent(where.addresses.socket)
            open_now.callback(link.close)
            link.ask(packed("PING"))
            return link

        connect()
        before_kib = _resident_kib(where)
        links = [connect() for _ in range(_WAITERS)]
        idle_kib = _resident_kib(where)
        _hold(links[:1], range(1))
        for link in links[1:]:
            link.send(packed("LOCK", "bench:held:0", 10_000, "WAIT", 60_000))
        where.wait_for_waiters(len(links) - 1)
        waiting_kib = _resident_kib(where)
        return Memory((idle_kib - before_kib) / len(links), (waiting_kib - idle_kib) / (len(links) - 1))


def _resident_kib(where: Ground) -> float:
    return float(memory_kib(where.cluster.agent.pid))
