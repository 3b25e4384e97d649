"""Where scenes play: two hosts, each with the socket that its apps lock at, and programs of one library."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lockd.dev.processes import LocalMaster
from tests.dropin.library import Library
from tests.dropin.program import Program
from tests.harness.cluster import AS_IS, Cluster, running_cluster
from tests.harness.masters import running_masters, short_folder

MASTERS = 5


class Hosts:
    """Two of them. agents: what serves their sockets; none where that is one plain Redis for both."""

    def __init__(self, sockets: tuple[Path, Path], agents: tuple[Cluster, ...] = ()) -> None:
        self.sockets = sockets
        self._agents = agents

    @property
    def plain(self) -> bool:
        return not self._agents

    @property
    def masters(self) -> list[LocalMaster]:
        return self._agents[0].masters

    def restart_agent(self, host: int) -> None:
        self._agents[host].agent.restart()


@contextmanager
def agents() -> Iterator[Hosts]:
    """An agent on each, over five masters."""
    with running_cluster(MASTERS, defaults=AS_IS) as first:
        second = first.add_agent()
        second.wait_voting(MASTERS)
        yield Hosts((first.socket, second.socket), (first, second))


@contextmanager
def agents_without_a_master() -> Iterator[Hosts]:
    """As that, and one of the masters was killed."""
    with agents() as hosts:
        hosts.masters[-1].kill()
        yield hosts


@contextmanager
def plain_redis(binary: Path) -> Iterator[Hosts]:
    """One plain Redis, and both hosts lock there: what libraries were written for."""
    with short_folder() as folder:
        socket = folder / "redis.sock"
        with running_masters(folder, 1, binary, {"unixsocket": str(socket)}):
            yield Hosts((socket, socket))


class Stage:
    """One library on these hosts. Its programs are started when they are asked for, and stay."""

    def __init__(self, library: Library, hosts: Hosts) -> None:
        self.library = library
        self.hosts = hosts
        self._standing: dict[tuple[int, str], Program] = {}
        self._fresh: list[Program] = []

    def on(self, host: int, app: str = "") -> Program:
        """The program of that host, or of another app there."""
        key = host, app
        if key not in self._standing:
            self._standing[key] = self.library.program(self.hosts.sockets[host])
        return self._standing[key]

    def one_more_on(self, host: int) -> Program:
        """A new one there, for this scene."""
        self._fresh.append(self.library.program(self.hosts.sockets[host]))
        return self._fresh[-1]

    def a_name(self) -> str:
        return f"dropin-{secrets.token_hex(4)}"

    def end_scene(self) -> None:
        while self._fresh:
            self._fresh.pop().kill()

    def close(self) -> None:
        self.end_scene()
        while self._standing:
            self._standing.popitem()[1].kill()
