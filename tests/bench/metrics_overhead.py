"""What metrics cost: the agent's CPU per lock/unlock pair with them and without.

    python -m tests.bench.metrics_overhead [--rounds 8] [--seconds 2] [--clients 16]

Two agents over the same five masters (fsync=always), one as it is shipped and scraped every second, the
other with every counting call taken out and never scraped. They take turns, round after round, so that what
else the machine does falls on both. It asserts nothing.
"""

from __future__ import annotations

import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from types import SimpleNamespace
from typing import Any

import click

from lockd.config.current import Current
from lockd.config.model import Config
from lockd.dev.processes import LOOPBACK, default_server
from lockd.metrics.agent import AgentMetrics
from lockd.metrics.collector import Metrics
from lockd.metrics.leases import LeaseMetrics
from lockd.metrics.masters import MasterMetrics
from tests.bench.contenders import LockdRaw
from tests.bench.driver import Load, Wants, run
from tests.bench.ground import Ground
from tests.bench.peers import Peers
from tests.harness.cluster import Cluster
from tests.harness.masters import ON_DISK, running_masters, short_folder

COUNTING = (
    *((LeaseMetrics, name) for name in ("granted", "refused", "lost", "released", "renewed", "fence_round")),
    *((MasterMetrics, name) for name in ("probed", "not_counted", "connected")),
    (AgentMetrics, "loop_lag"),
)
WITH, WITHOUT = "with metrics", "without"
SERVE = """
import sys
from tests.bench.metrics_overhead import serve_without_counting
sys.exit(serve_without_counting(sys.argv[1]))
"""
_MASTERS = 5


def serve_without_counting(config_path: str) -> int:
    """`lockd serve`, but nothing is counted."""
    from lockd.config import model as config
    from lockd.server import agent

    for counts, name in COUNTING:
        setattr(counts, name, lambda *_: None)
    setattr(MasterMetrics, "votes_of", lambda *_: lambda _ns: None)  # noqa: B010
    return agent.serve(config.load(config_path))


@contextmanager
def scraped_every_second(cluster: Cluster) -> Iterator[None]:
    """As Prometheus would, only more often."""
    over = threading.Event()

    def scrape() -> None:
        while not over.wait(1.0):
            urllib.request.urlopen(f"http://{LOOPBACK}:{cluster.metrics_port}/metrics", timeout=5).read()

    scraper = threading.Thread(target=scrape)
    scraper.start()
    try:
        yield
    finally:
        over.set()
        scraper.join()


@contextmanager
def agents() -> Iterator[dict[str, Cluster]]:
    """Both agents over the same masters, idle."""
    with short_folder(ON_DISK) as folder, running_masters(folder, _MASTERS, default_server()) as masters:
        both = {}
        try:
            for name in (WITH, WITHOUT):
                cluster = both[name] = Cluster(folder, masters, {"log_level": "warning"}, name.split()[0])
                if name == WITHOUT:
                    cluster.agent.command = (sys.executable, "-c", SERVE, str(cluster.config_path))
                cluster.agent.start()
            both[WITH].form()
            for cluster in both.values():
                cluster.wait_voting(_MASTERS)
            yield both
        finally:
            for cluster in both.values():
                cluster.close()


def us_per_pair(cluster: Cluster, load: Load) -> float:
    """The agent's CPU for each lock and unlock, in µs."""
    ground = Ground(cluster, Peers(), "")
    before_s = ground.agents_cpu_s()
    tally = run(LockdRaw, ground.addresses, load)
    assert not tally.failed, tally.failure
    return 1e6 * (ground.agents_cpu_s() - before_s) / tally.pairs


def counting_us(pairs: int = 50_000) -> float:
    """What a pair's counting calls take by themselves: a grant, its end, and a vote of each master."""
    config = Config.read(
        {"cluster": "x", "masters": [{"name": f"m{i}", "address": f"10.0.0.{i}:1"} for i in range(_MASTERS)]}
    )
    metrics = Metrics(Current(config))
    lease: Any = SimpleNamespace(
        holder=SimpleNamespace(label="other"), fence=1, granted_ns=0, deadline_ns=9_000_000_000
    )
    began_s = time.process_time()
    for number in range(pairs):
        for master in range(_MASTERS):
            metrics.masters.votes_of(master)(900_000 + number)
        metrics.leases.granted(lease, 1_000_000 + number)
        metrics.leases.released(lease, "released", 2_000_000 + number)
    return 1e6 * (time.process_time() - began_s) / pairs


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--rounds", default=8, show_default=True)
@click.option("--seconds", default=2.0, show_default=True)
@click.option("--clients", default=16, show_default=True)
def main(rounds: int, seconds: float, clients: int) -> None:
    """Measure, and print a line for each round."""
    load = Load(clients, Wants.OWN, seconds, processes=2)
    costs: dict[str, list[float]] = {WITH: [], WITHOUT: []}
    with agents() as both:
        for number in range(1, rounds + 1):
            order = (WITH, WITHOUT) if number % 2 else (WITHOUT, WITH)
            for name in order:
                if name == WITH:
                    with scraped_every_second(both[name]):
                        costs[name].append(us_per_pair(both[name], load))
                else:
                    costs[name].append(us_per_pair(both[name], load))
            click.echo(f"round {number}: " + ", ".join(f"{name} {costs[name][-1]:.1f} µs" for name in costs))
    more = median(a / b - 1 for a, b in zip(costs[WITH], costs[WITHOUT], strict=True))
    middle = {name: median(each) for name, each in costs.items()}
    click.echo(
        f"agent's CPU per pair, {clients} clients, median of {rounds}: "
        f"{middle[WITH]:.1f} µs with metrics and a scrape a second, {middle[WITHOUT]:.1f} µs without; "
        f"median of the rounds' differences: {100 * more:+.1f} %"
    )
    click.echo(f"the counting calls of a pair alone, in a loop: {counting_us():.1f} µs")


if __name__ == "__main__":
    main()
