"""The lab of a test run: eight bare hosts, then the cluster that `site.yml` makes of them, and what is done
to it. All files share it, so they have an order."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.lab import ground, inventory
from tests.lab.lab import Busy, Lab
from tests.lab.plays import play
from tests.lab.report import REPORT

NAME = os.environ.get("LOCKD_LAB", "lockdlab-test")

# For whoever writes tests: hosts and cluster are left standing, and the next run takes them as they are.
KEEP = bool(os.environ.get("LOCKD_LAB_KEEP"))

# The first site.yml by Mitogen too, as all others: `make test` has little time.
QUICK = bool(os.environ.get("LOCKD_LAB_QUICK"))

# A play on a busy machine takes minutes. This only ends what hangs.
LIMIT_S = 3600


# Bare hosts first, and last the end of the cluster; what isn't named comes before all. A machine that takes
# another's place has the Redis of the image: so that is before there is a newer one.
ORDER = (
    "test_bare_hosts", "test_cluster", "test_hosts", "test_monitoring", "test_neighbours", "test_collection",
    "test_debian_package", "test_air_gap", "test_restarts", "test_lost_for_good", "test_reload",
    "test_day2", "test_prechecks", "test_absent_hosts", "test_moves", "test_interrupted",
    "test_revoke", "test_removal", "test_debian_13", "test_tls_later",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if item.path.parent == Path(__file__).parent]
    for item in ours:
        item.add_marker(pytest.mark.timeout(LIMIT_S))
    ours.sort(key=lambda item: ORDER.index(item.path.stem) if item.path.stem in ORDER else -1)
    items[:] = [item for item in items if item not in ours] + ours


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if lines := REPORT.lines():
        terminalreporter.section("the lab")
        for line in lines:
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Bare hosts, or with LOCKD_LAB_KEEP=1 those that are there."""
    pytest.importorskip("testinfra", reason="no Ansible and testinfra here: make test-lab")
    try:
        ground.require()
    except ground.Unfit as why:
        pytest.skip(f"no lab of real hosts here: {why}")
    lab = Lab(NAME)
    try:
        with lab.locked():
            try:
                if not (KEEP and all(host.running for host in lab.hosts.values())):
                    lab.up()
                inventory.write(lab)
                yield lab
            finally:
                if not KEEP:
                    lab.down()
    except Busy as why:
        pytest.skip(str(why))


@dataclass(frozen=True)
class Cluster:
    """A lab on which `site.yml` ran."""

    lab: Lab


@pytest.fixture(scope="session")
def cluster(lab: Lab) -> Cluster:
    if not (KEEP and "running" in lab.host("a1").run("systemctl", "list-units", "lockd.service")):
        played = play(lab, "site.yml", as_users_do=not QUICK).must_work()
        REPORT.ran("site.yml, on bare hosts", played.took_s, played.recap)
    return Cluster(lab)


READ = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=20).read().decode())"


@pytest.fixture(scope="session")
def ask(cluster: Cluster) -> Callable[[str], Any]:
    """What an address on the monitoring host answers, as it is asked there."""
    return lambda url: json.loads(cluster.lab.host("mon1").run("python3", "-c", READ, url))


@pytest.fixture(scope="session")
def on(lab: Lab) -> Callable[[str], Any]:
    """A host as root, over ssh, the way that testinfra has it."""
    import testinfra

    os.environ["PATH"] = lab.environment()["PATH"]
    config = lab.folder / "ssh_config.root"
    return lambda name: testinfra.get_host(f"ssh://{name}?ssh_config={config}")
