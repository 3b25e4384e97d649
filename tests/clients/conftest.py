"""A cluster, and a program of each client on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.clients.languages import LIBRARIES, Library
from tests.clients.program import Program
from tests.harness.cluster import AS_IS, Cluster, running_cluster
from tests.harness.waiting import eventually
from tests.harness.wire import Wire


@pytest.fixture(scope="module")
def cluster(server_binary: Path) -> Iterator[Cluster]:
    with running_cluster(5, defaults=AS_IS) as running:
        yield running


@pytest.fixture
def wire(cluster: Cluster) -> Iterator[Wire]:
    """A connection of another app. When the test is over nothing is held, and nobody waits."""
    with Wire(cluster.socket) as other:
        yield other
    with Wire(cluster.socket) as other:
        eventually(lambda: other.info()["leases"] == other.info()["waiters"] == "0", "nothing is left")


def _each(library: Library) -> ParameterSet:
    """One is tried in `make test`, too: it needs nothing that the other tests don't."""
    return pytest.param(library, id=library.name, marks=[] if library.quick else [pytest.mark.thorough])


@pytest.fixture(scope="module", params=map(_each, LIBRARIES))
def library(request: pytest.FixtureRequest) -> Library:
    return request.param


@pytest.fixture(scope="module")
def command(library: Library, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> list[str | Path]:
    """How its program is started."""
    return [*library.made(tmp_path_factory.mktemp(library.name)), cluster.socket]


@pytest.fixture
def program(library: Library, command: list[str | Path], wire: Wire) -> Iterator[Program]:
    running = Program(command, library.environment, library.serial)
    yield running
    running.kill()
