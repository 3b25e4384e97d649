"""What the agent's memory and another user's locks suffer from users who mean ill.

    python -m tests.bench.unread [--attack unread] [--connections 1000] [--users 1]

As root, since each attacker is a user of its own. Attacks: `unread` asks for long replies and never reads
one, `echo` does so with long words, `half` sends half of a long request, `behind` sends much behind a LOCK
that waits, `lost` loses leases and asks for no news, `unlock` gives back what was never taken, `connect`
comes and goes, `idle` only connects. Each is shown with the memory of the agent before, under attack and
after, and with the median and the 99th percentile of LOCK and UNLOCK by an ordinary user beside it. It
asserts nothing.
"""

from __future__ import annotations

import os
import resource
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from statistics import median, quantiles

import click
import hiredis

from lockd.dev.processes import default_server
from tests.harness.attackers import ATTACKS, attacker
from tests.harness.cluster import Cluster
from tests.harness.masters import ON_DISK, running_masters, short_folder
from tests.harness.processes import memory_kib
from tests.harness.wire import Wire, as_map

FIRST_UID = 20_000
SETTINGS = {"socket": {"mode": "0666"}, "log_level": "info"}


def pairs(wire: Wire, for_s: float) -> Iterator[float]:
    """How long each pair takes, in ms."""
    until_s = time.monotonic() + for_s
    while time.monotonic() < until_s:
        start_s = time.monotonic()
        reply = wire.ask("LOCK", name := secrets.token_hex(4), 10_000)
        if isinstance(reply, hiredis.ReplyError):
            click.echo(f"an ordinary LOCK failed: {reply}")
        else:
            wire.ask("UNLOCK", name, as_map(reply)[b"token"])
        yield (time.monotonic() - start_s) * 1e3


def show(what: str, pid: int, took_ms: list[float], before_kib: int, note: str = "") -> None:
    percentiles = quantiles(took_ms, n=100)
    mib = memory_kib(pid) / 1024
    click.echo(
        f"{what:<24} {mib:7.0f} MB ({mib - before_kib / 1024:+5.0f})   "
        f"lock and unlock: median {median(took_ms):6.2f} ms, 99th {percentiles[98]:7.2f} ms  {note}"
    )


@click.command(help=__doc__)
@click.option("--attack", type=click.Choice([*ATTACKS]), multiple=True, default=["unread"])
@click.option("--connections", default=1_000, show_default=True, help="Of all attackers together.")
@click.option("--users", default=1, show_default=True)
@click.option("--seconds", default=5.0, show_default=True)
def main(attack: tuple[str, ...], connections: int, users: int, seconds: float) -> None:
    if os.geteuid():
        raise click.UsageError("only root can be several users")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for each in attack:
        with short_folder(ON_DISK) as folder, running_masters(folder, 5, default_server()) as masters:
            run(each, Cluster(folder, masters, SETTINGS), connections, users, seconds)


def run(attack: str, cluster: Cluster, connections: int, users: int, seconds: float) -> None:
    cluster.folder.chmod(0o755)
    try:
        cluster.agent.start()
        cluster.form()
        cluster.wait_voting(5)
        measure(attack, cluster, connections, users, seconds)
    finally:
        cluster.close()


def measure(attack: str, cluster: Cluster, connections: int, users: int, seconds: float) -> None:
    pid = cluster.agent.pid
    with Wire(cluster.socket) as wire:
        took_ms = list(pairs(wire, seconds))
        before_kib = memory_kib(pid)
        show("before", pid, took_ms, before_kib)
        with ExitStack() as stack:
            for number in range(users):
                stack.enter_context(
                    attacker(FIRST_UID + number, cluster.socket, connections // users, attack)
                )
            took_ms = list(pairs(wire, seconds))
            here = int(wire.info()["connected_clients"]) - 1
            show(f"{attack}, {connections} of {users}", pid, took_ms, before_kib, f"{here} still connected")
        show("after", pid, list(pairs(wire, seconds)), before_kib)
    refusals = {
        series: int(count)
        for series, count in cluster.metrics().items()
        if series.startswith("lockd_limit_refusals_total") and count
    }
    click.echo(f"{'limits met':<24} {refusals}")


if __name__ == "__main__":
    sys.exit(main())
