"""All hosts run Debian 13: what site.yml makes of them, a restart of all of it, and another version."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab import ground, inventory
from tests.lab.conftest import NAME
from tests.lab.lab import APPS, MASTERS, Lab
from tests.lab.load import at_work
from tests.lab.plays import play

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def hosts() -> Iterator[Lab]:
    pytest.importorskip("testinfra", reason="no Ansible and testinfra here: make test-lab")
    try:
        ground.require()
    except ground.Unfit as why:
        pytest.skip(f"no lab of real hosts here: {why}")
    lab = Lab(f"{NAME}-13", release="trixie")
    with lab.locked():
        lab.up()
        inventory.write(lab)
        yield lab
        lab.down()


def test_a_cluster_is_made_and_worked_on(hosts: Lab) -> None:
    assert 'VERSION_ID="13"' in hosts.host("m1").run("cat", "/etc/os-release")
    play(hosts, "site.yml").must_work()
    assert play(hosts, "site.yml").must_work().changed_hosts == []
    with at_work(hosts, "rolling_restart.yml on Debian 13") as work:
        play(hosts, "rolling_restart.yml").must_work()
    work.must_be_flawless()
    play(hosts, "upgrade_redis.yml").must_work()
    said = play(hosts, "health.yml").said
    for host in (*MASTERS, *APPS, "mon1"):
        assert f"{host} " in said
