"""Masters that lost their data or their machine for good: what the cluster does without them, the way back
that it names, and an old machine that comes back after another has taken its place."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.conftest import Cluster
from tests.lab.lab import APPS, MASTERS
from tests.lab.load import Work, at_work, lines_of
from tests.lab.looks import doctor, states, votes
from tests.lab.plays import play
from tests.lab.waiting import until

WIPED = ("m1", "m3", "m5")
KEPT = tuple(name for name in MASTERS if name not in WIPED)
WIPE = "systemctl stop lockd-master && find /var/lib/lockd-master -mindepth 1 -delete"

ALERTS = "http://127.0.0.1:9090/api/v1/alerts"
# What runbooks/LockdMajorityWiped.md promises of fences: an hour above the masters' clocks, in microseconds.
AHEAD_US = 3_600_000_000


def boottime_ns() -> int:
    """All hosts of a lab share it with this machine."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def wipe(on: Any) -> int:
    """Returns when certainly no quorum was left."""
    for name in WIPED:
        on(name).check_output(WIPE)
    until(lambda: sum(votes(on).values()) < 3, "the agent has seen that")
    for name in WIPED:
        on(name).check_output("systemctl start --no-block lockd-master")
    return boottime_ns()


def test_a_wiped_majority_grants_nothing_until_the_play_starts_anew(
    cluster: Cluster, on: Any, ask: Callable[[str], Any]
) -> None:
    with at_work(cluster.lab, "three of five wiped, recover_cluster.yml") as work:
        out_ns = wipe(on)
        wanted = {name: "blank" if name in WIPED else "up" for name in MASTERS}
        until(lambda: states(on) == wanted, "they are back, blank")
        status, said = doctor(on)
        assert status == 2
        assert "lockctl cluster recover" in said
        assert "too many masters lost their data to admit them one by one" in said
        assert "see LockdMajorityWiped.md" in said
        until(lambda: "LockdMajorityWiped" in firing(ask), "the alert fires")
        refused = play(
            cluster.lab, "replace_master.yml", "-e", "replace_master=m1", "-e", "all_well_patience_s=2"
        )
        refused.must_stop_with("Not all is well, so the play stops")
        refused = play(cluster.lab, "recover_cluster.yml")
        refused.must_stop_with("say -e recover_cluster=lab", "Nothing was changed")
        assert states(on) == wanted
        began_ns, began_us = boottime_ns(), time.time_ns() // 1_000
        play(cluster.lab, "recover_cluster.yml", "-e", "recover_cluster=lab").must_work()
        assert votes(on) == dict.fromkeys(MASTERS, 1)
        back_ns = boottime_ns()
        for host in APPS:
            until(
                lambda host=host: granted_since(cluster, host, back_ns), f"the app of {host} has locks again"
            )
        until(lambda: "LockdMajorityWiped" not in firing(ask), "the alert is over")
    assert between(work, out_ns, began_ns) == []
    assert {error.split(":")[0] for error in work.errors} <= {"NoQuorum"}
    work.must_exclude()
    after = [line["fence"] for line in work.grants if line["got_ns"] > back_ns]
    assert min(after) > max(line["fence"] for line in work.grants if line["got_ns"] < out_ns)
    assert min(after) > began_us + AHEAD_US
    assert doctor(on)[0] == 0
    until(lambda: play(cluster.lab, "health.yml").status == 0, "health.yml finds that all is well")


def firing(ask: Callable[[str], Any]) -> set[str]:
    return {one["labels"]["alertname"] for one in ask(ALERTS)["data"]["alerts"] if one["state"] == "firing"}


def granted_since(cluster: Cluster, host: str, since_ns: int) -> bool:
    return any(line.get("got_ns", 0) > since_ns for line in lines_of(cluster.lab.host(host)))


def between(work: Work, first_ns: int, last_ns: int) -> list[dict[str, Any]]:
    """What was granted then."""
    return [line for line in work.grants if first_ns < line["got_ns"] < last_ns]


GONE = "m4"
# A file beside the disk of the machine that took its place.
NEW = "new"


@pytest.fixture
def old_machine(cluster: Cluster) -> Iterator[Path]:
    """Where the machine that was replaced is put away. In the end the new one is in its place and runs, and
    there is no other."""
    shelf = cluster.lab.folder / f"{GONE}-on-the-shelf"
    yield shelf
    if (shelf / NEW).exists():
        boot(cluster, lambda: cluster.lab.swap_machines(GONE, shelf))
    # Otherwise the next test would find that this one is the new machine, after another has taken its place.
    (cluster.lab.host(GONE).folder / NEW).unlink(missing_ok=True)
    shutil.rmtree(shelf, ignore_errors=True)


def boot(cluster: Cluster, change: Callable[[], None]) -> None:
    """The power of the host goes; it starts again with what has changed then."""
    host = cluster.lab.host(GONE)
    host.kill()
    change()
    host.start()
    host.wait_booted()


def test_an_old_machine_that_comes_back_in_place_of_the_new_one_has_no_vote(
    cluster: Cluster, on: Any, old_machine: Path
) -> None:
    lab, others = cluster.lab, dict.fromkeys(set(MASTERS) - {GONE}, 1)
    with at_work(lab, f"{GONE} replaced by another machine, and the old one comes back") as work:
        boot(cluster, lambda: lab.new_machine(GONE, old_machine))
        (lab.host(GONE).folder / NEW).touch()
        until(lambda: on(GONE).check_output("hostname") == GONE, "the new machine lets us in")
        play(lab, "replace_master.yml", "-e", f"replace_master={GONE}").must_work()
        assert votes(on) == dict.fromkeys(MASTERS, 1)
        boot(cluster, lambda: lab.swap_machines(GONE, old_machine))
        until(lambda: states(on)[GONE] == "replaced", "agents have found the old one")
        assert votes(on) == others | {GONE: 0}
        # The other agent may have met it before its unit had loaded the scripts.
        until(lambda: states(on, "a2")[GONE] == "replaced", "the other agent has found that, too")
        status, said = doctor(on)
        assert status == 1
        assert f"{GONE} has no vote: replaced" in said
        assert "it is an old machine or has old data: switch it off, or wipe it and admit it" in said
        refused = play(lab, "rolling_restart.yml", "-e", "all_well_patience_s=2")
        refused.must_stop_with(f"{GONE} has no vote (replaced", "the play stops")
        boot(cluster, lambda: lab.swap_machines(GONE, old_machine))
        until(lambda: votes(on) == dict.fromkeys(MASTERS, 1), "the new one has its vote again")
    work.must_be_flawless()
    assert doctor(on)[0] == 0


def test_secrets_that_are_lost_come_back_from_the_hosts_and_another_authority_signs(
    cluster: Cluster, on: Any
) -> None:
    secrets = cluster.lab.folder / "secrets"
    lost = secrets.rename(secrets.with_name("secrets-lost"))
    refused = play(cluster.lab, "rolling_restart.yml")
    refused.must_stop_with("recover_secrets.yml -e recover_secrets=lab", "Nothing was changed")
    refused = play(cluster.lab, "recover_secrets.yml")
    refused.must_stop_with("say -e recover_secrets=lab", "Nothing was changed")
    with at_work(cluster.lab, "secrets lost, recover_secrets.yml") as work:
        said = play(cluster.lab, "recover_secrets.yml", "-e", "recover_secrets=lab").must_work().said
    work.must_be_flawless()
    assert "no certificate can be made yet" in said
    assert "rotate_ca.yml, which replaces the lost authority" in said
    for name in (
        "loader.password",
        "agents/a1.password",
        "tls/m1.pem",
        "tls/m1.key",
        "tls/a2.pem",
        "tls/a2.key",
    ):
        assert (secrets / name).read_bytes() == (lost / name).read_bytes(), name
    assert (secrets / "admin.password").read_text() != (lost / "admin.password").read_text()
    again = play(cluster.lab, "recover_secrets.yml", "-e", "recover_secrets=lab").must_work()
    assert again.changed_hosts == []
    with at_work(cluster.lab, "and another authority, rotate_ca.yml") as work:
        play(cluster.lab, "rotate_ca.yml").must_work()
    work.must_be_flawless()
    assert not (secrets / "tls/ca.next.key").exists()
    assert (secrets / "tls/ca.pem").read_text().count("BEGIN") == 1
    assert set(votes(on).values()) == {1}
    shutil.rmtree(lost)


def test_lost_secrets_come_back_while_a_master_and_an_app_host_are_dead(
    cluster: Cluster, on: Any, old_machine: Path
) -> None:
    """And so does what is left of the two: another machine for the master, and the app host as it was."""
    lab, all_vote = cluster.lab, dict.fromkeys(MASTERS, 1)
    dead_app, without = lab.host("a2"), ("-e", f"absent={GONE},a2")
    lost = (lab.folder / "secrets").rename(lab.folder / "secrets-lost")
    with at_work(lab, f"secrets lost while {GONE} and a2 are dead", ["a1"]) as work:
        dead_app.kill()
        lab.host(GONE).kill()
        play(lab, "recover_secrets.yml", "-e", "recover_secrets=lab", *without).must_work()
        play(lab, "rotate_ca.yml", *without).must_work()
        boot(cluster, lambda: lab.new_machine(GONE, old_machine))
        until(lambda: on(GONE).check_output("hostname") == GONE, "the new machine lets us in")
        play(lab, "replace_master.yml", "-e", f"replace_master={GONE}", "-e", "absent=a2").must_work()
        dead_app.start()
        dead_app.wait_booted()
        play(lab, "site.yml").must_work()
    work.must_be_flawless()
    for host in APPS:
        assert votes(on, host) == all_vote
    shutil.rmtree(lost)


def test_a_dead_monitoring_host_stops_no_play_and_another_takes_its_place(
    cluster: Cluster, ask: Callable[[str], Any]
) -> None:
    lab, shelf = cluster.lab, cluster.lab.folder / "mon1-on-the-shelf"
    host = lab.host("mon1")
    with at_work(lab, "the monitoring host is dead, another takes its place") as work:
        host.kill()
        refused = play(lab, "site.yml")
        refused.must_stop_with("No answer over ssh from mon1", "-e absent=mon1", "Nothing was changed")
        assert play(lab, "site.yml", "-e", "absent=mon1").must_work().changed_hosts == []
        play(lab, "rotate_passwords.yml").must_work()
        lab.new_machine("mon1", shelf)
        host.start()
        host.wait_booted()
        assert play(lab, "site.yml").must_work().changed_hosts == ["mon1"]
        until(lambda: firing(ask) == {"LockdWatchdog"}, "it watches, and finds that all is well")
    work.must_be_flawless()
    assert play(lab, "health.yml").status == 0
    shutil.rmtree(shelf)
