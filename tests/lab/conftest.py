"""The lab of a test run: eight bare hosts, then the cluster that `site.yml` makes of them, and what is done
to it. All files share it, so they have an order.

    pytest tests/lab -m "not thorough"      the smoke of `make test`: minutes
    pytest tests/lab                        every play, as in `make test-all`: two hours

The smoke shows on one cluster that site.yml works on bare hosts, that a second run changes nothing, what is
then on the hosts, and that apps don't notice a rolling restart. With it come the tests that need neither
hosts nor Ansible. A test that does is thorough unless it is marked `smoke`: so the smoke stays small by
itself.

LOCKD_LAB=NAME     another lab than that of other runs, which wait for each other
LOCKD_LAB_KEEP=1   for whoever writes tests: hosts and cluster are left standing, and the next run takes them
                   as they are
LOCKD_LAB_PLAIN=1  all plays as users have them, without Mitogen
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.lab import ground, inventory, local_ansible
from tests.lab.lab import Lab
from tests.lab.plays import play
from tests.lab.report import REPORT
from tests.lab.waiting import LIMIT_S, PATIENCE_S

NAME = os.environ.get("LOCKD_LAB", "lockdlab-test")
KEEP = bool(os.environ.get("LOCKD_LAB_KEEP"))

# Labs of tests that need hosts of their own.
OF_DEBIAN_13, WITHOUT_TLS, LEFT_BEHIND = f"{NAME}-13", f"{NAME}-tls", f"{NAME}-left"

# Bare hosts first, and last the end of the cluster; what isn't named comes before all. A machine that takes
# another's place has the Redis of the image: so that is before there is a newer one.
ORDER = (
    "test_bare_hosts", "test_cluster", "test_hosts", "test_monitoring", "test_neighbours", "test_collection",
    "test_debian_package", "test_air_gap", "test_restarts", "test_lost_for_good", "test_reload",
    "test_day2", "test_prechecks", "test_absent_hosts", "test_moves", "test_interrupted",
    "test_revoke", "test_removal", "test_debian_13", "test_tls_later",
)  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "smoke: needs hosts or runs Ansible, and is in `make test` all the same"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if item.path.parent == Path(__file__).parent]
    for item in ours:
        item.add_marker(pytest.mark.timeout(LIMIT_S))
        if takes_long(item) and item.get_closest_marker("smoke") is None:
            item.add_marker(pytest.mark.thorough)
    ours.sort(key=lambda item: ORDER.index(item.path.stem) if item.path.stem in ORDER else -1)
    items[:] = [item for item in items if item not in ours] + ours


def takes_long(item: pytest.Item) -> bool:
    """Each start of Ansible is two seconds of a processor."""
    return isinstance(item, pytest.Function) and bool({"make_lab", "ansible"} & set(item.fixturenames))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if lines := REPORT.lines():
        terminalreporter.section("the lab")
        for line in lines:
            terminalreporter.line(line)


@contextmanager
def standing(lab: Lab, *, keep: bool = False) -> Iterator[Lab]:
    """Its bare hosts run inside the `with`; or those that are there, where they are kept."""
    with lab.locked(wait=True):
        try:
            if not (keep and all(host.running for host in lab.hosts.values())):
                lab.up()
            inventory.write(lab)
            yield lab
        finally:
            if not keep:
                lab.down()


MakeLab = Callable[..., AbstractContextManager[Lab]]


@pytest.fixture(scope="session")
def ansible() -> None:
    """For what runs Ansible on this machine."""
    if not (local_ansible.PROGRAMS / "ansible-playbook").exists():
        pytest.skip("no Ansible here: make test-lab")


@pytest.fixture(scope="session")
def make_lab() -> MakeLab:
    """For bare hosts: skips where there can be none. What a run left that was killed is removed first; of the
    lab that most tests share, when that is made."""
    pytest.importorskip("testinfra", reason="no Ansible and testinfra here: make test-lab")
    try:
        ground.require()
    except ground.Unfit as why:
        pytest.skip(f"no lab of real hosts here: {why}")
    for name in (OF_DEBIAN_13, WITHOUT_TLS, LEFT_BEHIND):
        Lab(name).remove_if_dead()
    return standing


@pytest.fixture(scope="session")
def lab(make_lab: MakeLab) -> Iterator[Lab]:
    with make_lab(Lab(NAME), keep=KEEP) as lab:
        yield lab


@dataclass(frozen=True)
class Cluster:
    """A lab on which `site.yml` ran."""

    lab: Lab


@pytest.fixture(scope="session")
def cluster(lab: Lab, request: pytest.FixtureRequest) -> Cluster:
    """The first site.yml is as users have it where there is time for that: in each run but the smoke's."""
    if not (KEEP and "running" in lab.host("a1").run("systemctl", "list-units", "lockd.service")):
        thorough = any(item.get_closest_marker("thorough") for item in request.session.items)
        played = play(lab, "site.yml", as_users_do=thorough).must_work()
        REPORT.ran("site.yml, on bare hosts", played.took_s, played.recap)
    return Cluster(lab)


READ = f"import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout={PATIENCE_S}).read().decode())"


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
