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

pytestmark = pytest.mark.thorough

WIPED = ("m1", "m3", "m5")
KEPT = tuple(name for name in MASTERS if name not in WIPED)
WIPE = "systemctl stop lockd-master && find /var/lib/lockd-master -mindepth 1 -delete"

ALERTS = "http://127.0.0.1:9090/api/v1/alerts"
# What runbooks/LockMajorityWiped.md promises of fences: an hour above the masters' clocks, in microseconds.
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
        assert "lockctl cluster recover: too many lost their data to admit them" in said
        assert "see LockMajorityWiped.md" in said
        until(lambda: "LockMajorityWiped" in firing(ask), "the alert fires")
        refused = play(
            cluster.lab, "replace_master.yml", "-e", "replace_master=m1", "-e", "all_well_patience_s=2"
        )
        refused.must_stop_with("Not all is well, so nothing more is done")
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
        until(lambda: "LockMajorityWiped" not in firing(ask), "the alert is over")
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
        assert "an old machine or old data: switch it off, or wipe it and admit it" in said
        refused = play(lab, "rolling_restart.yml", "-e", "all_well_patience_s=2")
        refused.must_stop_with(f"{GONE} has no vote (replaced", "nothing more is done")
        boot(cluster, lambda: lab.swap_machines(GONE, old_machine))
        until(lambda: votes(on) == dict.fromkeys(MASTERS, 1), "the new one has its vote again")
    work.must_be_flawless()
    assert doctor(on)[0] == 0
