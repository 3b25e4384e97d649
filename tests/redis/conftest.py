"""Fixtures with real servers: a binary, masters, and clusters with a running agent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lockd.dev.processes import LocalMaster, find_servers
from tests.harness.clock_shim import Clock
from tests.harness.cluster import AS_IS, Cluster, running_cluster
from tests.harness.masters import KNOWN_FLAVOURS, running_masters, short_folder
from tests.harness.users import Connect, connecting
from tests.harness.waiting import eventually
from tests.harness.wire import Wire
from tests.redis.scripted import Scripted


@pytest.fixture(scope="session", params=KNOWN_FLAVOURS)
def any_server(request: pytest.FixtureRequest) -> Path:
    """Each flavour of server in turn; one that is not on this machine shows as a skip."""
    binary = find_servers().get(request.param)
    if binary is None:
        pytest.skip(f"no {request.param} server on this machine")
    return binary


@pytest.fixture
def wall_clock(tmp_path: Path) -> Clock:
    """A wall clock that can be stepped; it counts for processes that are started under it."""
    return Clock(tmp_path / "clock")


@pytest.fixture
def masters(folder: Path, server_binary: Path) -> Iterator[list[LocalMaster]]:
    """Five running masters on fresh folders."""
    with running_masters(folder, 5, server_binary) as running:
        yield running


@pytest.fixture
def make_cluster(server_binary: Path) -> Iterator[Callable[..., Cluster]]:
    """`make_cluster(masters=5, **config_overrides)`: a cluster on fresh masters with a running agent.

    It is formed and all its masters vote, unless `form=False`; `start=False` leaves the agent to the test.
    The masters run `server` (a binary) with `master_settings` over the usual ones.
    """
    with ExitStack() as stack:

        def make(
            masters: int = 5,
            server: Path | None = None,
            master_settings: dict[str, str | None] | None = None,
            form: bool = True,
            start: bool = True,
            **config_overrides: Any,
        ) -> Cluster:
            folder = stack.enter_context(short_folder())
            running = stack.enter_context(
                running_masters(folder, masters, server or server_binary, master_settings)
            )
            cluster = Cluster(folder, running, config_overrides)
            stack.callback(cluster.close)
            if start:
                cluster.agent.start()
            if start and form:
                cluster.form()
                cluster.wait_voting(masters)
            return cluster

        yield make


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    """Five masters and a running agent, formed and with all of them voting."""
    return make_cluster()


@pytest.fixture(scope="module")
def shared(server_binary: Path) -> Iterator[Cluster]:
    """One cluster for all the tests of a module that do it no harm."""
    with running_cluster(5, defaults=AS_IS) as cluster:
        yield cluster


@pytest.fixture
def connect() -> Iterator[Connect]:
    """`connect(cluster, uid, *gids)`: a connection of that user, with these groups besides its own."""
    with ExitStack() as stack:
        yield connecting(stack)


@pytest.fixture
def connect_here(cluster: Cluster) -> Iterator[Connect]:
    """`connect_here(protocol=2)`: a new connection to the agent of `cluster`, closed after the test. Then
    nothing is held or waited for."""
    with ExitStack() as stack:
        yield lambda protocol=2: stack.enter_context(Wire(cluster.socket, protocol))
    with Wire(cluster.socket) as last:
        eventually(lambda: last.info()["leases"] == last.info()["waiters"] == "0", "nothing is left")
        # What nobody waits for is given back a little later.
        eventually(lambda: not isinstance(all_of := last.ask("LOCKS"), list) or not all_of, "all is back")


@pytest.fixture
def wire(connect_here: Connect) -> Wire:
    return connect_here()


@pytest.fixture
def other(connect_here: Connect) -> Wire:
    """Another connection."""
    return connect_here()


@pytest.fixture(scope="module")
def one_server(any_server: Path) -> Iterator[Scripted]:
    with short_folder() as folder, running_masters(folder, 1, any_server) as [running]:
        yield Scripted(running)


@pytest.fixture
def blank(one_server: Scripted) -> Scripted:
    """A master with an empty data set."""
    one_server.reset()
    return one_server


@pytest.fixture
def resource(request: pytest.FixtureRequest) -> str:
    """A resource of the test's own; another one when it is run once more (tests/harness/stalls.py)."""
    run = getattr(request.node, "execution_count", 1)
    name = str(request.node.name).removeprefix("test_")
    return name if run == 1 else f"{name}/{run}"
