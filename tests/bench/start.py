"""What a start costs: of an agent until it answers a PING, of lockctl's commands, of `lockd check-config`.

    python -m tests.bench.start [--rounds 9] [--only serve]

Tests start agents and commands by the hundred, and scripts call lockctl for each lock. Processor time is the
process's own; other work on the machine adds to wall time above all. It asserts nothing: that an agent loads
nothing that it doesn't need is in tests/unit/test_starts.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import click
import yaml

from lockd.dev.processes import Child, default_server
from tests.harness.cluster import AgentProcess, running_cluster
from tests.harness.masters import short_folder
from tests.harness.processes import memory_kib
from tests.harness.starts import LISTED, loaded_by
from tests.harness.waiting import eventually
from tests.harness.wire import answers_ping

_LOCKD, _LOCKCTL = (sys.executable, "-m", "lockd"), (sys.executable, "-m", "lockd.lockctl")
_FROM_A_SMALL_PROCESS = """
import os, sys, time
began_s = time.perf_counter()
nowhere = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[nowhere])
_, status, used = os.wait4(pid, 0)
print(used.ru_utime + used.ru_stime, time.perf_counter() - began_s, used.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""What a process has used at most begins with what the one that started it has."""


class Start(NamedTuple):
    """What one start took. `loaded`: what it wrote on stderr, with the modules if that was asked for."""

    processor_ms: float
    wall_ms: float
    rss_mib: float
    loaded: str = ""


Starts = Callable[[], Start]


def finished(*command: str | Path) -> Starts:
    """The start of a command that ends by itself."""
    words = (sys.executable, "-S", "-c", _FROM_A_SMALL_PROCESS, *map(str, command))

    def once() -> Start:
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        processor_s, wall_s, rss_kib = map(float, done.stdout.split())
        return Start(processor_s * 1e3, wall_s * 1e3, rss_kib / 1024, done.stderr)

    return once


def answering(child: Child, socket: Path) -> Starts:
    """The start of a program that serves, until its socket answers a PING."""

    def once() -> Start:
        began_s = time.perf_counter()
        Child.start(child)
        eventually(lambda: answers_ping(socket), "it answers a PING", every_s=0.002)
        wall_ms = (time.perf_counter() - began_s) * 1e3
        used_ms, rss_mib = time.clock_gettime(_clock_of(child.pid)) * 1e3, memory_kib(child.pid) / 1024
        child.stop()
        return Start(used_ms, wall_ms, rss_mib, child.log().decode(errors="replace"))

    return once


def _clock_of(pid: int) -> int:
    """The clock that counts what a process has used (clock_getcpuclockid(3))."""
    return (~pid << 3) | 2


@contextmanager
def ground() -> Iterator[dict[str, Starts]]:
    """Everything that is measured, by name. Over one master, which votes."""
    with running_cluster(masters=1) as cluster, short_folder() as folder:
        first = ("--socket", cluster.socket)
        config = folder / "lockd.yml"
        document = cluster.config() | {"socket": {"path": str(folder / "a.sock")}, "metrics": None}
        config.write_text(yaml.safe_dump(document))
        agent = AgentProcess(config, folder / "a.sock", folder / "agent.log")
        dev_command = (*_LOCKD, "dev", "--dir", folder / "dev", "--masters", "1", "--metrics", "off")
        dev = Child("dev", dev_command, folder / "dev.log")
        yield {
            "python": finished(sys.executable, "-c", "pass"),
            "lockd serve, until PING": answering(agent, folder / "a.sock"),
            "lockd check-config": finished(*_LOCKD, "check-config", config),
            "lockd dev, until PING": answering(dev, folder / "dev" / "lockd.sock"),
            "lockctl --help": finished(*_LOCKCTL, "--help"),
            "lockctl ping": finished(*_LOCKCTL, *first, "ping"),
            "lockctl run": finished(*_LOCKCTL, *first, "run", "backup", "--", "true"),
        }


def modules(starts: Starts) -> int:
    os.environ.update(LISTED)
    try:
        return len(loaded_by(starts().loaded))
    finally:
        for name in LISTED:
            del os.environ[name]


def row(name: str, starts: Starts, rounds: int) -> str:
    count = modules(starts)  # the first start also writes the bytecode, where it is not there yet
    took = [starts() for _ in range(rounds)]
    processor_ms = [one.processor_ms for one in took]
    wall_ms, rss_mib = median(one.wall_ms for one in took), median(one.rss_mib for one in took)
    figures = f"{median(processor_ms):.0f} | {min(processor_ms):.0f} | {wall_ms:.0f} | {rss_mib:.1f}"
    return f"| {name} | {figures} | {count} |"


@click.command()
@click.option("--rounds", default=9, show_default=True, help="Starts of each.")
@click.option("--only", default="", help="What has this in its name.")
def main(rounds: int, only: str) -> None:
    """What a start costs."""
    click.echo(f"{default_server()}, Python {sys.version.split()[0]}, median of {rounds} starts\n")
    click.echo("| start | processor ms | least | wall ms | RSS MiB | modules |")
    click.echo("|---|--:|--:|--:|--:|--:|")
    with ground() as all_starts:
        for name, starts in all_starts.items():
            if only in name:
                click.echo(row(name, starts, rounds))


if __name__ == "__main__":
    main()
