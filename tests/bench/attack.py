"""What a hostile neighbour costs everybody else: two connections of one user ask what costs the most, again
and again, or as many as one user may have ask all at once, while apps lock and unlock on the same host and on
another one.

    python -m tests.bench.attack [--seconds 5] [--leases 500] [--here 500] [--only LOCKS]

Shown for each attack are the times of the apps' LOCK and UNLOCK pairs, those that failed, and the longest
stall of either agent's event loop: how long it took to come back to a timer of 1 ms, in CPU time, which is
what the attack has cost, and in brackets by the clock, where the machine's other work is in it. Look at
`nothing` first. It asserts nothing.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import hiredis
import redis

from lockd.dev.processes import LOOPBACK, default_server
from lockd.masters import scripts
from tests.bench.contenders import RawLink, packed
from tests.harness.cluster import Cluster
from tests.harness.masters import ON_DISK, running_masters, short_folder
from tests.harness.users import NOBODY, become

_FORK = multiprocessing.get_context("fork")
_MASTERS = 5
_NAME_BYTES = 500
_TTL_MS = 60_000
_STARS = b"*" * 8
_PAUSE_S = 0.002

_TICK_S = 0.001
_LINE_S = 0.1

Words = tuple[bytes | str, ...]

ATTACKS: dict[str, Words] = {
    "nothing": (),
    "LOCKS, 8 stars and 250 letters": ("LOCKS", _STARS + b"a" * 250 + b"x"),
    "LOCKS, stars and letters in turn": ("LOCKS", b"*".join([b"a" * 30] * 8) + b"x"),
    "LOCKS, the worst of 128 bytes": ("LOCKS", b"*a" * 63 + b"?x"),
    "LOCKS LOCAL, 8 stars and 250 letters": ("LOCKS", _STARS + b"a" * 250 + b"x", "LOCAL"),
    "LOCKS LOCAL, stars and letters in turn": ("LOCKS", b"*".join([b"a" * 30] * 8) + b"x", "LOCAL"),
    "LOCKS LOCAL, the worst of 128 bytes": ("LOCKS", b"*a" * 63 + b"?x", "LOCAL"),
    "LOCKS": ("LOCKS",),
    "LOCKS LOCAL": ("LOCKS", "*", "LOCAL"),
    "HOLDER": ("HOLDER", "attacked"),
    "INFO classes": ("INFO", "classes"),
    "INFO": ("INFO",),
    "MASTERS": ("MASTERS",),
    "COMMAND": ("COMMAND",),
    "COMMAND DOCS": ("COMMAND", "DOCS"),
    "COMMAND LIST, a pattern": ("COMMAND", "LIST", "FILTERBY", "PATTERN", b"*" * 8 + b"[a-z]" * 20),
}

_CROWD = 500
CROWDS: dict[str, Words] = {
    "1,000 connections: PING": ("PING",),
    "1,000 connections: LOCK": ("LOCK", "crowd", _TTL_MS),
    "1,000 connections: UNLOCK": ("UNLOCK", "crowd", b"0" * 32),
    "1,000 connections: COMMAND DOCS": ("COMMAND", "DOCS"),
}
"""Each of two attackers has so many connections, and asks on all of them at one moment."""


@dataclass(slots=True)
class Times:
    """What one client saw, in seconds, and what went wrong."""

    took_s: list[float] = field(default_factory=list)
    failed: int = 0
    failure: str = ""

    def summary(self) -> str:
        """p50, p99 and the longest in ms, and what failed of how many."""
        if not self.took_s:
            return f"none worked of {self.failed}: {self.failure[:60]}"
        times = sorted(self.took_s)
        ms = [1e3 * times[int(share * (len(times) - 1))] for share in (0.5, 0.99, 1.0)]
        return f"{ms[0]:7.2f} {ms[1]:8.2f} {ms[2]:8.1f}  {self.failed} of {len(times) + self.failed} failed"


def a_pair(link: RawLink, number: int) -> None:
    """Lock and unlock what nobody else wants."""
    resource = f"app:{os.getpid()}:{number % 50}"
    reply = link.ask(packed("LOCK", resource, 10_000))
    if isinstance(reply, hiredis.ReplyError):
        raise reply
    reply = link.ask(packed("UNLOCK", resource, reply[1]))
    if isinstance(reply, hiredis.ReplyError):
        raise reply


def timed(socket: Path, seconds: float, to: Any) -> None:
    """In a process of its own, so that only the agents share anything."""
    times, link = Times(), RawLink.to_agent(str(socket))
    until_s = time.monotonic() + seconds
    number = 0
    while (began_s := time.monotonic()) < until_s:
        number += 1
        try:
            a_pair(link, number)
            times.took_s.append(time.monotonic() - began_s)
        except Exception as failure:
            times.failed += 1
            times.failure = times.failure or f"{type(failure).__name__}: {failure}"
        time.sleep(_PAUSE_S)
    to.send(times)


def attack(socket: Path, words: Words, seconds: float, to: Any) -> None:
    _as_nobody()
    times, link, request = Times(), RawLink.to_agent(str(socket)), packed(*words)
    until_s = time.monotonic() + seconds
    while (began_s := time.monotonic()) < until_s:
        try:
            reply = link.ask(request)
            times.took_s.append(time.monotonic() - began_s)
        except Exception as failure:
            times.failed, times.failure = times.failed + 1, repr(failure)
            with suppress(OSError):
                link = RawLink.to_agent(str(socket))
            continue
        if isinstance(reply, hiredis.ReplyError):
            times.failure = times.failure or str(reply)
    to.send(times)


def attack_together(socket: Path, words: Words, seconds: float, to: Any) -> None:
    _as_nobody()
    times, request = Times(), packed(*words)
    links = [RawLink.to_agent(str(socket)) for _ in range(_CROWD)]
    until_s = time.monotonic() + seconds
    while (began_s := time.monotonic()) < until_s:
        for link in links:
            link.send(request)
        for link in links:
            reply = link.hear()
            if isinstance(reply, hiredis.ReplyError):
                times.failure = times.failure or str(reply)
        times.took_s.append(time.monotonic() - began_s)
    to.send(times)


def _as_nobody() -> None:
    """Another user where that can be: operators and root see more, and pay more."""
    if os.geteuid() == 0:
        become(NOBODY)


# The agents, watched


def serve_watched(config_path: str) -> int:
    """`lockd serve`, and beside it the stalls of its event loop: a line for each tenth of a second."""
    from lockd.config import model as config
    from lockd.server import agent

    class Watched(agent.Agent):
        async def run(self) -> None:
            watch = asyncio.get_running_loop().create_task(_watch(Path(config_path).with_suffix(".stalls")))
            await super().run()
            watch.cancel()

    agent.Agent = Watched  # type: ignore[misc]
    return agent.serve(config.load(config_path))


async def _watch(to: Path) -> None:
    """When, and the longest stall until then in CPU time of this thread and by the clock, in seconds."""
    with to.open("w", buffering=1) as lines:
        cpu_s, clock_s = time.thread_time(), time.monotonic()
        written_s, most_cpu_s, most_s = clock_s, 0.0, 0.0
        while True:
            await asyncio.sleep(_TICK_S)
            now_cpu_s, now_s = time.thread_time(), time.monotonic()
            most_cpu_s, most_s = max(most_cpu_s, now_cpu_s - cpu_s), max(most_s, now_s - clock_s)
            cpu_s, clock_s = now_cpu_s, now_s
            if now_s - written_s > _LINE_S:
                print(now_s, most_cpu_s, most_s, file=lines)
                written_s, most_cpu_s, most_s = now_s, 0.0, 0.0


def longest_stall(cluster: Cluster, since_s: float) -> str:
    lines = cluster.config_path.with_suffix(".stalls").read_text().splitlines()
    stalls = [tuple(map(float, line.split())) for line in lines if line.count(" ") == 2]
    late = [(cpu_s, clock_s) for at_s, cpu_s, clock_s in stalls if at_s > since_s]
    cpu_ms, clock_ms = (1e3 * max((one[which] for one in late), default=0.0) for which in (0, 1))
    return f"{cpu_ms:6.1f} ({clock_ms:6.1f})"


def _watched(cluster: Cluster) -> Cluster:
    serve = "import sys; from tests.bench.attack import serve_watched; sys.exit(serve_watched(sys.argv[1]))"
    cluster.agent.command = (sys.executable, "-c", serve, str(cluster.config_path))
    cluster.agent.start()
    return cluster


@contextmanager
def hosts(leases: int, here: int) -> Iterator[tuple[Cluster, Cluster]]:
    """Two agents over five masters: so many leases with long names on the masters, so many held here."""
    settings: dict[str, Any] = {"log_level": "warning", "socket": {"mode": "0666"}}
    with ExitStack() as stack:
        folder = stack.enter_context(short_folder(ON_DISK))
        masters = stack.enter_context(running_masters(folder, _MASTERS, default_server()))
        folder.chmod(0o755)
        cluster = Cluster(folder, masters, settings)
        try:
            _watched(cluster).form()
            cluster.wait_voting(_MASTERS)
            other = _watched(Cluster(folder, masters, settings, "another"))
            stack.callback(other.close)
            other.wait_voting(_MASTERS)
            for master in masters:
                _put_leases(redis.Redis(LOOPBACK, master.port), leases)
            link = RawLink.to_agent(str(cluster.socket))
            for number in range(here):
                link.ask(packed("LOCK", _name(b"local", number), _TTL_MS))
            yield cluster, other
        finally:
            cluster.close()


def _name(kind: bytes, number: int) -> bytes:
    return b"a" * (_NAME_BYTES - 20) + b"%b%014d" % (kind, number)


def _put_leases(master: redis.Redis, leases: int) -> None:
    """As acquire.lua writes them."""
    for begin in range(0, leases, 5_000):
        pipeline = master.pipeline(transaction=False)
        for number in range(begin, min(begin + 5_000, leases)):
            value = b"%032x %d 0 elsewhere 4711 1000" % (number, time.time_ns() // 1000)
            pipeline.set(scripts.LEASE_PREFIX + _name(b"other", number), value, px=86_400_000)
        pipeline.execute()


def _started(target: Callable[..., None], *arguments: Any) -> tuple[Any, Any]:
    ours, theirs = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=target, args=(*arguments, theirs), daemon=True)
    process.start()
    return process, ours


def measure(here: Cluster, there: Cluster, words: Words, seconds: float) -> dict[str, Times]:
    """What everybody sees during one attack. The attackers are a moment earlier than the apps, and later."""
    how = attack_together if words in CROWDS.values() else attack
    attackers = [_started(how, here.socket, words, seconds + 1.5) for _ in range(2 if words else 0)]
    time.sleep(0.5)
    clients = {"here": _started(timed, here.socket, seconds), "there": _started(timed, there.socket, seconds)}
    try:
        times = {name: link.recv() for name, (_, link) in clients.items()}
        times["attack"] = Times()
        for _, link in attackers:
            if link.poll(20.0):
                one: Times = link.recv()
                times["attack"].took_s += one.took_s
                times["attack"].failed += one.failed
                times["attack"].failure = times["attack"].failure or one.failure
        return times
    finally:
        for process, _ in (*attackers, *clients.values()):
            process.kill()
            process.join()


def row(name: str, times: dict[str, Times], stalls: list[str]) -> str:
    asked = times["attack"]
    note = f"  ({len(asked.took_s)} answered{', ' + asked.failure[:70] if asked.failure else ''})"
    return (
        f"{name:40} here {times['here'].summary()} | there {times['there'].summary()}"
        f" | longest stall here {stalls[0]}, there {stalls[1]}{note if name != 'nothing' else ''}"
    )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seconds", default=5.0, show_default=True, help="For each attack.")
@click.option("--leases", default=500, show_default=True, help="With names of 500 bytes, on the masters.")
@click.option("--here", default=500, show_default=True, help="Held on the attacked host, beside them.")
@click.option("--only", default="", help="Attacks whose name has this in it.")
def main(seconds: float, leases: int, here: int, only: str) -> None:
    """Attack, measure, and print a line for each: p50, p99 and the longest pair; stalls. In ms."""
    click.echo(f"load before {os.getloadavg()[0]:.1f}; {leases} leases on the masters, {here} held here")
    with hosts(leases, here) as (attacked, another):
        for name, words in {**ATTACKS, **CROWDS}.items():
            if only in name or name == "nothing":
                since_s = time.monotonic()
                times = measure(attacked, another, words, seconds)
                click.echo(row(name, times, [longest_stall(one, since_s) for one in (attacked, another)]))


if __name__ == "__main__":
    main()
