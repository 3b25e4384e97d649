"""What readers of the agent's HTTP port cost those who lock: LOCK's median and p99 with 0, 1, 16, 64 readers.

    python -m tests.bench.readers [--readers 0,1,16,64] [--page /metrics] [--leases 0] [--classes 10]

Readers ask again as soon as they were answered, or turned away. The machine has to run them, too: so as many
read the same bytes from a process that has nothing to do with the agent, and that is what the agent's column
has to be compared with. It asserts nothing.
"""

from __future__ import annotations

import multiprocessing
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.sharedctypes import Synchronized
from statistics import median, quantiles

import click
import redis

from lockd.dev.processes import LOOPBACK, free_ports
from tests.bench.contenders import LockdRaw
from tests.bench.driver import Load, Wants, run
from tests.bench.ground import Ground
from tests.bench.peers import Peers
from tests.harness.cluster import Cluster, running_cluster

_FORK = multiprocessing.get_context("fork")
_MASTERS = 5
_TTL_MS = 3_600_000
_PIPELINED = 500


@contextmanager
def agent(leases: int, classes: int) -> Iterator[Cluster]:
    settings = {
        "log_level": "warning",
        "classes": [{"name": f"class{number}", "match": f"class{number}:*"} for number in range(classes)],
        "max_ttl_ms": _TTL_MS,
        "limits": {"memory_mib": 8_192, "share_percent": 10_000},
    }
    with running_cluster(_MASTERS, **settings) as cluster:
        _hold(cluster, leases)
        yield cluster


def _hold(cluster: Cluster, leases: int) -> None:
    with redis.Redis(unix_socket_path=str(cluster.socket), socket_timeout=120) as client:
        for first in range(0, leases, _PIPELINED):
            pipeline = client.pipeline(transaction=False)
            for number in range(first, min(leases, first + _PIPELINED)):
                pipeline.execute_command("LOCK", f"class{number % 10}:{number}", _TTL_MS, "DETACHED")
            pipeline.execute()


@contextmanager
def elsewhere(body: bytes) -> Iterator[int]:
    """The port of another process that answers everybody with these bytes."""
    [port] = free_ports(1)
    listening = socket.create_server((LOOPBACK, port), backlog=128)
    server = _FORK.Process(target=_serve, args=(listening, body), daemon=True)
    server.start()
    try:
        yield port
    finally:
        server.kill()
        server.join()
        listening.close()


def _serve(listening: socket.socket, body: bytes) -> None:
    while True:
        with suppress(OSError), listening.accept()[0] as reader:
            reader.recv(65_536)
            reader.sendall(body)


@contextmanager
def reading(port: int, page: str, readers: int) -> Iterator[Synchronized[int]]:
    """That many readers, in a process of their own; how many answers they got."""
    answers: Synchronized[int] = _FORK.Value("q", 0)
    process = _FORK.Process(target=_read_on, args=(port, page, readers, answers), daemon=True)
    process.start()
    try:
        yield answers
    finally:
        process.kill()
        process.join()


def _read_on(port: int, page: str, readers: int, answers: Synchronized[int]) -> None:
    threads = [threading.Thread(target=_read, args=(port, page, answers)) for _ in range(readers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _read(port: int, page: str, answers: Synchronized[int]) -> None:
    asked = f"GET {page} HTTP/1.1\r\nHost: {LOOPBACK}\r\nAccept: */*\r\n\r\n".encode()
    while True:
        with suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=30) as connection:
            connection.sendall(asked)
            heard = 0
            while some := connection.recv(65_536):
                heard += len(some)
            with answers.get_lock():
                answers.value += heard > 0


def measured(ground: Ground, load: Load, port: int, page: str, readers: int) -> str:
    """LOCK's median and p99 while so many read there, and how often they were answered."""
    with reading(port, page, readers) as answers:
        time.sleep(0.5)  # they have all begun
        before, began_s = answers.value, time.monotonic()
        tally = run(LockdRaw, ground.addresses, load)
        per_s = (answers.value - before) / (time.monotonic() - began_s)
    took_ms = [1e3 * took_s for took_s in tally.acquires_s]
    return f"{median(took_ms):7.2f} {quantiles(took_ms, n=100)[98]:7.2f} ms {per_s:7.0f} reads/s"


def _numbers(_context: object, _parameter: object, text: str) -> Sequence[int]:
    return [int(word) for word in text.split(",")]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--readers", default="0,1,16,64", show_default=True, callback=_numbers)
@click.option("--page", default="/metrics", show_default=True)
@click.option("--leases", default=0, show_default=True, help="Held meanwhile, by others.")
@click.option("--classes", default=10, show_default=True)
@click.option("--clients", default=2, show_default=True, help="Who lock and unlock.")
@click.option("--seconds", default=3.0, show_default=True)
def main(readers: Sequence[int], page: str, leases: int, classes: int, clients: int, seconds: float) -> None:
    """Measure, and print a line for each number of readers."""
    load = Load(clients, Wants.OWN, seconds)
    with agent(leases, classes) as cluster:
        ground = Ground(cluster, Peers(), "")
        url = f"http://{LOOPBACK}:{cluster.metrics_port}{page}"
        with urllib.request.urlopen(url, timeout=60) as reply:
            body = reply.read()
        click.echo(f"LOCK of {clients} clients, {leases} leases held; {page}, {len(body)} bytes")
        click.echo(f"{'readers':>7}   {'median, p99: of the agent':<33}   of another process")
        with elsewhere(body) as other:
            for number in readers:
                ours, theirs = (
                    measured(ground, load, port, page, number) for port in (cluster.metrics_port, other)
                )
                click.echo(f"{number:>7}   {ours}   {theirs}")


if __name__ == "__main__":
    main()
