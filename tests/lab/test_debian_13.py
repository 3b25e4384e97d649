"""All hosts run Debian 13: what site.yml makes of them, a restart of all of it, and another version."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.conftest import OF_DEBIAN_13, MakeLab
from tests.lab.lab import APPS, MASTERS, Lab
from tests.lab.load import at_work
from tests.lab.plays import play


@pytest.fixture(scope="module")
def hosts(make_lab: MakeLab) -> Iterator[Lab]:
    with make_lab(Lab(OF_DEBIAN_13, release="trixie")) as lab:
        yield lab


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
