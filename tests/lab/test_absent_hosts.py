"""Hosts that are down while others have to be changed, masters of which two are lost, hosts that come and go:
what needs them not is done without them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab import inventory
from tests.lab.conftest import Cluster
from tests.lab.lab import MASTER_SOCKET, MASTERS
from tests.lab.load import at_work
from tests.lab.looks import masters, passwords, states, votes
from tests.lab.plays import play
from tests.lab.waiting import until

ALL = dict.fromkeys(MASTERS, 1)
WIPE = "systemctl stop lockd-master && find /var/lib/lockd-master -mindepth 1 -delete"


def all_have_votes(on: Any, host: str = "a1") -> bool:
    return {row["name"]: row["vote"] for row in masters(on, host)} == ALL


@pytest.fixture
def a2_is_down(cluster: Cluster, on: Any) -> Iterator[None]:
    host = cluster.lab.host("a2")
    host.kill()
    yield
    if not host.running:
        host.start()
        host.wait_booted()
    until(lambda: all_have_votes(on, "a2"), "its agent works with all masters again")


def test_an_app_host_that_is_down_is_left_out_by_name(cluster: Cluster, on: Any, a2_is_down: None) -> None:
    before = passwords(cluster.lab)
    refused = play(cluster.lab, "rotate_passwords.yml", as_users_do=True)
    refused.must_stop_with("No answer over ssh from a2", "-e absent=a2", "Nothing was changed")
    with at_work(cluster.lab, "rotate_passwords.yml, without a2", ["a1"]) as work:
        done = play(cluster.lab, "rotate_passwords.yml", "-e", "absent=a2", as_users_do=True).must_work()
    work.must_be_flawless()
    assert "Left out: a2" in done.said
    after = passwords(cluster.lab)
    assert {name for name in after if after[name] != before[name]} >= {"a1", "admin", "operator", "loader"}
    # It comes back with the password that it has, which is as good as before.
    assert after["a2"] == before["a2"]


def test_one_that_is_replaced_meanwhile_asks_for_no_host_that_is_down(
    cluster: Cluster, on: Any, a2_is_down: None
) -> None:
    on("m4").check_output(WIPE)
    on("m4").check_output("systemctl start --no-block lockd-master")
    play(
        cluster.lab, "replace_master.yml", "-e", "replace_master=m4", "-e", "absent=a2", as_users_do=True
    ).must_work()
    assert votes(on) == ALL


def test_a_share_of_the_app_hosts_may_be_down(cluster: Cluster, on: Any, a2_is_down: None) -> None:
    few = play(cluster.lab, "rolling_restart.yml", "-e", "absent=49%", "--tags", "agents", as_users_do=True)
    few.must_stop_with("No answer over ssh from a2")
    half = play(cluster.lab, "rolling_restart.yml", "-e", "absent=50%", "--tags", "agents", as_users_do=True)
    assert "Left out: a2" in half.must_work().said


@pytest.mark.parametrize(
    ("absent", "why"),
    [("a9", "not in the inventory: a9"), ("m2", "this play needs the master m2"),
     ("a1,a2", "at least one app host")],
)  # fmt: skip
def test_what_can_not_be_done_without_is_not_left_out(cluster: Cluster, absent: str, why: str) -> None:
    refused = play(cluster.lab, "rotate_passwords.yml", "-e", f"absent={absent}")
    refused.must_stop_with(why, "Nothing was changed")


def test_a_play_may_be_limited_to_app_hosts(cluster: Cluster, on: Any) -> None:
    assert play(cluster.lab, "site.yml", "--limit", "a1").must_work().changed_hosts == []
    inventory.write(cluster.lab, {"lockd_log_level": "debug"}, "debugging")
    done = play(cluster.lab, "site.yml", "--limit", "a1", inventory_name="debugging").must_work()
    assert done.changed_hosts == ["a1"]
    assert not on("a2").file("/etc/lockd/lockd.yml").contains('log_level: "debug"')
    refused = play(cluster.lab, "site.yml", "--limit", "a1,m1")
    refused.must_stop_with("or limit it to app hosts and nothing else")
    play(cluster.lab, "site.yml", "--limit", "a1").must_work()


def test_limited_to_app_hosts_it_gives_them_no_other_password(cluster: Cluster, on: Any) -> None:
    nowhere = cluster.lab.folder / "strange-secrets-of-an-app"
    inventory.write(cluster.lab, {"lockd_secrets_dir": str(nowhere)}, "strange-secrets")
    refused = play(cluster.lab, "site.yml", "--limit", "a1", inventory_name="strange-secrets")
    refused.must_stop_with("The agent of a1 has another password", "Nothing was changed")
    assert not nowhere.exists()


def test_two_blank_masters_are_let_in_by_one_play_that_is_named(cluster: Cluster, on: Any) -> None:
    with at_work(cluster.lab, "m4 and m5 lose their data; site.yml, replace_master.yml") as work:
        for name in ("m4", "m5"):
            on(name).check_output(WIPE)
        for name in ("m4", "m5"):
            on(name).check_output("systemctl start --no-block lockd-master")
        until(lambda: [states(on)[name] for name in ("m4", "m5")] == ["blank"] * 2, "both are back, blank")
        stopped = play(cluster.lab, "site.yml", "-e", "all_well_patience_s=2")
        assert stopped.status != 0
        assert "replace_master.yml -e replace_master=m4,m5" in stopped.said
        refused = play(
            cluster.lab, "replace_master.yml", "-e", "replace_master=m4", "-e", "all_well_patience_s=2"
        )
        refused.must_stop_with("m5 has no vote")
        play(cluster.lab, "replace_master.yml", "-e", "replace_master=m4,m5").must_work()
    work.must_be_flawless()
    assert votes(on) == ALL


def test_of_two_lost_masters_one_is_replaced_while_the_other_is_still_dead(cluster: Cluster, on: Any) -> None:
    dead = cluster.lab.host("m5")
    with at_work(cluster.lab, "m4 loses its data while m5 is dead; replace_master.yml") as work:
        dead.kill()
        on("m4").check_output(WIPE)
        on("m4").check_output("systemctl start --no-block lockd-master")
        refused = play(cluster.lab, "replace_master.yml", "-e", "replace_master=m4", as_users_do=True)
        refused.must_stop_with("No answer over ssh from m5", "-e absent=m5")
        play(
            cluster.lab, "replace_master.yml", "-e", "replace_master=m4", "-e", "absent=m5", as_users_do=True
        ).must_work()
        assert votes(on) == ALL | {"m5": 0}
        dead.start()
        dead.wait_booted()
        until(lambda: states(on)["m5"] == "outdated", "m5 is back with its data, and has missed something")
        stopped = play(cluster.lab, "rolling_restart.yml", "-e", "all_well_patience_s=2")
        stopped.must_stop_with("m5 has no vote", "replace_master.yml -e replace_master=m5")
        play(cluster.lab, "replace_master.yml", "-e", "replace_master=m5").must_work()
        assert votes(on) == ALL
    work.must_be_flawless()


def test_no_master_is_replaced_without_a_quorum_of_others(cluster: Cluster) -> None:
    refused = play(cluster.lab, "replace_master.yml", "-e", "replace_master=m1,m2", "-e", "absent=m3")
    refused.must_stop_with("Without m1, m2, m3 no quorum", "recover_cluster.yml", "Nothing was changed")


def as_admin(cluster: Cluster, on: Any, host: str, command: str) -> str:
    password = passwords(cluster.lab)["admin"]
    cli = f"redis-cli --no-auth-warning --user lockd_admin -s {MASTER_SOCKET}"
    return str(on(host).check_output(f"REDISCLI_AUTH={password} {cli} {command}"))


@pytest.mark.parametrize(("setting", "by_hand"), [("maxmemory", "99000000"), ("appendfsync", "everysec")])
def test_what_somebody_set_by_hand_on_a_master_is_taken_back(
    cluster: Cluster, on: Any, setting: str, by_hand: str
) -> None:
    before = as_admin(cluster, on, "m3", f"CONFIG GET {setting}")
    with at_work(cluster.lab, f"site.yml after CONFIG SET {setting} on m3") as work:
        as_admin(cluster, on, "m3", f"CONFIG SET {setting} {by_hand}")
        if setting == "appendfsync":
            until(lambda: votes(on)["m3"] == 0, "its agents give it no vote")
        done = play(cluster.lab, "site.yml").must_work()
    work.must_be_flawless()
    assert f"{setting} {by_hand}" in done.said
    assert done.changed_hosts == ["m3"]
    assert as_admin(cluster, on, "m3", f"CONFIG GET {setting}") == before
    assert votes(on) == ALL


def test_an_app_host_is_taken_out_and_brought_back(cluster: Cluster, on: Any) -> None:
    lab = cluster.lab
    before = passwords(lab)["a2"]
    on("a2").check_output(
        f"systemd-run --collect --unit=holds lockctl run --ttl {inventory.TTL} lab:held -- sleep infinity"
    )
    until(lambda: "lab:held" in on("a1").check_output("lockctl locks"), "a2 holds a lock")
    refused = play(lab, "remove_app.yml", "-e", "app=a2", "-e", "remove_app_patience_s=1")
    assert refused.status != 0
    assert "Held on a2: lab:held" in refused.said
    on("a2").check_output("systemctl stop holds")
    with at_work(lab, "remove_app.yml of a2, and add_apps.yml", ["a1"]) as work:
        gone = play(lab, "remove_app.yml", "-e", "app=a2").must_work()
        assert set(gone.changed_hosts) == {"a2", "mon1", *MASTERS}
        assert "Take a2 out of the inventory now" in gone.said
        assert on("a2").run("systemctl is-active lockd").rc != 0
        assert not on("a2").file("/opt/lockd").exists
        assert "agent-a2" not in as_admin(cluster, on, "m1", "ACL LIST")
        assert not on("m1").file("/etc/lockd/firewall.nft").contains("10.77.0.22")
        assert not on("mon1").file("/etc/prometheus/prometheus.yml").contains("10.77.0.22:9480")
        back = play(lab, "add_apps.yml", "-e", "apps=a2").must_work()
    work.must_be_flawless()
    assert "a1" not in back.changed
    assert passwords(lab)["a2"] != before
    assert all_have_votes(on, "a2")
    assert play(lab, "site.yml").must_work().changed_hosts == []


def test_new_app_hosts_are_named_and_not_limited_to(cluster: Cluster) -> None:
    for words in (
        ["--limit", "a2"],
        [],
        ["-e", "apps=a2", "--limit", "a2"],
        ["-e", "apps=a2", "--limit", "m1"],
    ):
        refused = play(cluster.lab, "add_apps.yml", *words)
        refused.must_stop_with("Say which: -e apps=NAME", "and no --limit", "Nothing was changed")
    for strange, why in (("m1", "of the hosts in lock_apps"), ("a9", "a9: not in the inventory")):
        play(cluster.lab, "add_apps.yml", "-e", f"apps={strange}").must_stop_with(why, "Nothing was changed")


def test_neither_are_those_that_go(cluster: Cluster) -> None:
    for words in (["--limit", "a2"], [], ["-e", "app=a2", "--limit", "a2"]):
        refused = play(cluster.lab, "remove_app.yml", *words)
        refused.must_stop_with("Say which: -e app=NAME", "and no --limit", "Nothing was changed")
    for those in ("a1,a2", "m1"):
        play(cluster.lab, "remove_app.yml", "-e", f"app={those}").must_stop_with("Nothing was changed")
