"""What is on the masters, seen past the agent, and what is done to them behind its back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import redis

from lockd.dev.processes import LOOPBACK, Child, LocalMaster
from lockd.masters import scripts
from tests.harness.clock_shim import Clock
from tests.harness.cluster import AgentProcess

ANOTHERS = "f" * 32
MINUTE_MS = 60_000
IDENTITY, FENCES = scripts.IDENTITY_KEY.decode(), scripts.FENCES_KEY.decode()


def on(master: LocalMaster, *words: str | int) -> Any:
    """What a master itself answers."""
    with redis.Redis(LOOPBACK, master.port, decode_responses=True, retry=None) as link:
        return link.execute_command(*words)


def lease_key(resource: str) -> str:
    return scripts.LEASE_PREFIX.decode() + resource


def lease_on(master: LocalMaster, resource: str) -> str | None:
    return on(master, "GET", lease_key(resource))


def holding(masters: list[LocalMaster], resource: str, token: str = "") -> list[str]:
    """The names of the masters that show a lease of that resource (with that nonce or token)."""
    leases = {master.name: lease_on(master, resource) for master in masters}
    return [name for name, lease in leases.items() if lease is not None and _is_named(lease, token)]


def _is_named(lease: str, token: str) -> bool:
    return lease.startswith(token) or lease.endswith(f" ={token}")


def plant(masters: list[LocalMaster], resource: str, ttl_ms: int = MINUTE_MS) -> None:
    """Let these masters show a lease of somebody else's."""
    for master in masters:
        lease = f"{ANOTHERS} 1790000000000000 3600000 elsewhere 1 0"
        on(master, "SET", lease_key(resource), lease, "PX", ttl_ms)


@contextmanager
def paused(processes: Sequence[Child]) -> Iterator[None]:
    """These masters, or agents, don't run: what is sent to them waits, and no answer comes."""
    for process in processes:
        process.pause()
    try:
        yield
    finally:
        for process in processes:
            process.resume()


@contextmanager
def holding_back_writes(masters: list[LocalMaster]) -> Iterator[None]:
    """These masters answer questions, and keep commands that may write for later; they forget those of a
    connection that closes meanwhile."""
    for master in masters:
        on(master, "CLIENT", "PAUSE", MINUTE_MS, "WRITE")
    try:
        yield
    finally:
        for master in masters:
            on(master, "CLIENT", "UNPAUSE")


def cut_connections(masters: list[LocalMaster]) -> int:
    """Close what the agents have open to these masters; how many connections that were."""
    closed = 0
    for master in masters:
        for client in on(master, "CLIENT", "LIST").splitlines():
            fields = dict(field.split("=", 1) for field in client.split())
            if fields["name"] == "lockd":
                closed += on(master, "CLIENT", "KILL", "ID", fields["id"])
    return closed


def blocked_on(master: LocalMaster) -> int:
    """How many connections have a command that this master holds back."""
    return on(master, "INFO", "clients")["blocked_clients"]


def restart_under(clock: Clock, processes: Iterable[LocalMaster | AgentProcess]) -> None:
    """From now on they go by that clock."""
    for process in processes:
        process.environment = clock.environment()
        process.restart()
