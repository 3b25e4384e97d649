"""A master moves to another host and another address, under the name that it has: to a spare host, and back
after that one has died."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab import inventory
from tests.lab.conftest import Cluster
from tests.lab.holders import holding
from tests.lab.host import Host
from tests.lab.lab import ADDRESSES, MASTERS, Lab
from tests.lab.load import at_work
from tests.lab.looks import masters, votes
from tests.lab.plays import Played, play
from tests.lab.waiting import until

ALL = dict.fromkeys(MASTERS, 1)
MOVES, OLD = "m3", ADDRESSES["m3"]
ELSEWHERE = "elsewhere"


@pytest.fixture(scope="module")
def spare(cluster: Cluster) -> Iterator[Host]:
    """One that no inventory knows yet."""
    lab = Lab(cluster.lab.name, more=1)
    host = lab.host("w1")
    lab.start([host])
    document = inventory.document(cluster.lab, {})
    document["all"]["children"]["lock_masters"]["hosts"][MOVES]["ansible_host"] = host.address
    inventory.write_document(cluster.lab.folder / ELSEWHERE, document)
    yield host
    host.remove()


def move(cluster: Cluster, address: str, *words: str, name: str = "inventory") -> Played:
    named = ["-e", f"move_master={MOVES}", "-e", f"address={address}"]
    return play(cluster.lab, "move_master.yml", *named, *words, inventory_name=name, as_users_do=bool(words))


@pytest.fixture(scope="module")
def moved(cluster: Cluster, spare: Host) -> Cluster:
    with (
        at_work(cluster.lab, "move_master.yml, to another host") as work,
        holding(cluster.lab, "move_master.yml") as held,
    ):
        done = move(cluster, spare.address).must_work()
    work.must_be_flawless()
    held.must_have_been_kept()
    assert f"{MOVES} is at {spare.address} now" in done.said
    return cluster


def addresses(on: Any, host: str) -> dict[str, str]:
    return {row["name"]: row["address"].partition(":")[0] for row in masters(on, host)}


def test_a_master_moves_and_nobody_notices(moved: Cluster, on: Any, spare: Host) -> None:
    for host in ("a1", "a2"):
        assert addresses(on, host) == MASTERS | {MOVES: spare.address}
    assert votes(on) == ALL
    assert not on(MOVES).file("/etc/systemd/system/lockd-master.service").exists
    assert not on(MOVES).file("/var/lib/lockd-master/appendonlydir").exists


def test_the_other_plays_want_the_new_address_in_the_inventory(moved: Cluster) -> None:
    play(moved.lab, "rolling_restart.yml").must_stop_with(
        "with other addresses agents would ask different machines"
    )
    assert play(moved.lab, "site.yml", inventory_name=ELSEWHERE).must_work().changed_hosts == []


def test_it_moves_only_where_no_master_is(moved: Cluster) -> None:
    refused = move(moved, ADDRESSES["m4"], name=ELSEWHERE)
    refused.must_stop_with("ADDRESS one that no master has", "Nothing was changed")


def test_it_moves_away_from_a_host_that_is_dead_and_that_comes_back(
    moved: Cluster, on: Any, spare: Host
) -> None:
    """One agent is away meanwhile: it asks the old machine still, and finds it."""
    lab, late = moved.lab, moved.lab.host("a2")
    with at_work(lab, "move_master.yml, from a host that comes back later", ["a1"]) as work:
        spare.kill()
        late.kill()
        move(moved, OLD, "-e", "move_master_old=destroyed", "-e", "absent=a2", name=ELSEWHERE).must_work()
        assert votes(on) == ALL
        spare.start()
        late.start()
        for host in (spare, late):
            host.wait_booted()
        until(lambda: row_of(on, "a2")["state"] == "replaced", "the late agent has found the old machine")
        assert row_of(on, "a2")["vote"] == 0
        assert votes(on) == ALL
        done = play(lab, "site.yml").must_work()
    work.must_be_flawless()
    assert done.changed_hosts == ["a2"]
    assert row_of(on, "a2")["vote"] == 1
    assert addresses(on, "a2") == MASTERS


def test_a_host_that_it_left_earlier_takes_it_back_only_when_it_is_blank(
    moved: Cluster, on: Any, spare: Host
) -> None:
    """Its votes would count twice, and those of a copy of the old machine. With m5 down, and interrupted."""
    lab, dead = moved.lab, moved.lab.host("m5")
    inventory.write(lab, {"lockd_max_ttl_ms": inventory.MAX_TTL_MS - 1000}, "lower")
    refused = move(moved, spare.address, name="lower")
    refused.must_stop_with("may have granted leases of", "Nothing was changed")
    refused = move(moved, spare.address)
    refused.must_stop_with(f"{spare.address} has the data of a master", "Nothing was changed")
    assert votes(on) == ALL
    spare.run("systemctl", "stop", "lockd-master")
    spare.run("find", "/var/lib/lockd-master", "-mindepth", "1", "-delete")
    own, of_m4 = (host.run("cat", "/etc/machine-id") for host in (spare, lab.host("m4")))
    spare.run("sh", "-c", f"echo {of_m4.strip()} >/etc/machine-id")
    refused = move(moved, spare.address)
    refused.must_stop_with(of_m4.strip(), "as of m4", "Nothing was changed")
    spare.run("sh", "-c", f"echo {own.strip()} >/etc/machine-id")
    with at_work(lab, "move_master.yml, interrupted, while another master is down") as work:
        dead.kill()
        broken = move(moved, spare.address, "-e", "absent=m5", "-e", "lockd_serial=none")
        assert broken.status != 0
        assert votes(on) == ALL | {MOVES: 0, "m5": 0}
        assert spare.run("ls", "/var/lib/lockd-master/appendonlydir")
        move(moved, spare.address, "-e", "absent=m5").must_work()
        assert votes(on) == ALL | {"m5": 0}
        dead.start()
        dead.wait_booted()
        until(lambda: masters(on, "a1")[4]["state"] == "outdated", "m5 has found that it missed something")
        play(lab, "replace_master.yml", "-e", "replace_master=m5", inventory_name=ELSEWHERE).must_work()
        move(moved, OLD, name=ELSEWHERE).must_work()
    work.must_be_flawless()
    assert votes(on) == ALL


def row_of(on: Any, host: str) -> dict[str, Any]:
    return next(row for row in masters(on, host) if row["name"] == MOVES)
