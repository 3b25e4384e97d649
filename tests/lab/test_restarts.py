"""Masters that stop, crash and lose their data on real hosts: whoever can't prove that nothing was
forgotten stays out."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lockd.guard.delay import NS_PER_S, quarantine_ns
from tests.harness.clock_shim import Clock
from tests.harness.disks import Disk, why_no_disks
from tests.lab import inventory
from tests.lab.conftest import Cluster
from tests.lab.holders import LOCKCTL, SOCKET, holding, said_by
from tests.lab.host import mounts_below
from tests.lab.lab import ADDRESSES, APPS, MASTER_SOCKET, MASTERS
from tests.lab.load import at_work
from tests.lab.looks import masters, votes
from tests.lab.waiting import PATIENCE_S, until

DELAY_S = quarantine_ns(inventory.MAX_TTL_MS) / NS_PER_S

READ = f"import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout={PATIENCE_S}).read().decode())"
LOG_OF_WATCH = "journalctl --no-pager -o cat --lines=20 -u lockd-guard-watch"


class Master:
    """A master's host, as the tests here look at it."""

    def __init__(self, cluster: Cluster, on: Any, name: str) -> None:
        self.host = cluster.lab.host(name)
        self.name = name
        self._on = on
        self._admin_password = (cluster.lab.folder / "secrets/admin.password").read_text().strip()

    def run(self, command: str) -> str:
        return self.host.run("sh", "-c", command)

    def guard(self) -> dict[str, Any]:
        said = self.run("lockd-guard status --json || true")
        # A host that is just booting has no answer yet.
        return json.loads(said) if said.strip() else {"state": "no answer"}

    def quarantines(self) -> int:
        return sum(self.guard()["quarantines"].values())

    def said(self, pattern: str) -> list[str]:
        """Lines of the master's journal since its latest start began, the guard's among them."""
        this_start = "_SYSTEMD_INVOCATION_ID=$(systemctl show --value -p InvocationID lockd-master)"
        return self.run(
            f"journalctl --no-pager -o cat {this_start} | grep -E '{pattern}' || true"
        ).splitlines()

    def counters(self) -> dict[int, int]:
        """The fence counters that it holds, by slot: they only grow, and are never forgotten."""
        words = self.redis("HGETALL lockd:fences").split()
        return dict(zip(map(int, words[::2]), map(int, words[1::2]), strict=True))

    def redis(self, command: str) -> str:
        cli = f"redis-cli --no-auth-warning --user lockd_admin -s {MASTER_SOCKET}"
        return self.run(f"REDISCLI_AUTH={self._admin_password} {cli} {command}")

    def main_pid(self) -> int:
        return int(self.run("systemctl show --value -p MainPID lockd-master"))

    def redis_began_s(self) -> float:
        """When the program that runs now was started, on CLOCK_MONOTONIC: hosts of a lab share that clock
        with us."""
        return int(self.run("systemctl show --value -p ExecMainStartTimestampMonotonic lockd-master")) / 1e6

    def kill(self) -> float:
        """kill -9, and when that was on CLOCK_MONOTONIC."""
        killed_s = time.clock_gettime(time.CLOCK_MONOTONIC)
        self.run(f"kill -9 {self.main_pid()}")
        return killed_s

    def wait_in_service(self) -> None:
        until(lambda: self.guard()["state"] == "in_service" and self.main_pid(), f"{self.name} in service")
        until(self.votes, f"{self.name} has its vote")

    def votes(self) -> bool:
        return bool(votes(self._on).get(self.name))


@pytest.fixture
def master(cluster: Cluster, on: Any) -> Iterator[Master]:
    one = Master(cluster, on, "m2")
    yield one
    one.run("systemctl start lockd-master")
    one.wait_in_service()


def test_an_agent_that_is_killed_ends_no_lock(cluster: Cluster, on: Any) -> None:
    with holding(cluster.lab, "kill -9 of both agents, three times") as held:
        for _ in range(3):
            for name in APPS:
                before = agent_pid(on, name)
                on(name).check_output(f"kill -9 {before}")
                until(lambda name=name, before=before: agent_pid(on, name) not in (0, before), "the next one")
                until(lambda name=name: on(name).run(f"{LOCKCTL} ping").rc == 0, "it answers")
    held.must_have_been_kept()


def test_what_the_next_agent_finds_no_journal_of_is_lost_and_seen_to_be(cluster: Cluster, on: Any) -> None:
    """Who holds and who tries for it would notice: so the tests with holders do."""
    name, other = APPS
    with holding(cluster.lab, f"a restart of the agent of {name} without its journal") as held:
        lost = [one for one in held.holders if one.host.name == name]
        without = f"systemctl stop lockd; rm {SOCKET}.journal; systemctl start lockd"
        on(name).check_output(without)
        rival = cluster.lab.host(other)
        granted = {f"GOT {one.resource}" for one in lost}
        until(lambda: granted <= set(said_by(rival, "rival")), "the others get them")
    assert [one.kept for one in held.holders] == [one not in lost for one in held.holders]
    assert len(held.ended) == len(lost) == 3
    with pytest.raises(AssertionError):
        held.must_have_been_kept()


def agent_pid(on: Any, name: str) -> int:
    return int(on(name).check_output("systemctl show --value -p MainPID lockd"))


def test_a_clean_stop_and_start_has_no_delay(cluster: Cluster, master: Master) -> None:
    before = master.quarantines()
    with at_work(cluster.lab, "a master is stopped and started") as work:
        master.run("systemctl stop lockd-master && systemctl start lockd-master")
        master.wait_in_service()
    assert master.quarantines() == before
    work.must_be_flawless()


@pytest.mark.parametrize("stop", ["systemctl stop lockd-master", "redis-cli SHUTDOWN"])
def test_a_master_that_was_told_not_to_write_its_file_stays_out(
    cluster: Cluster, master: Master, stop: str
) -> None:
    """It ends with 0, as ever. A play would find all well again: systemd has started it anew."""
    before = master.guard()["quarantines"]["settings_unproven"]
    with at_work(cluster.lab, f"a master writes no file, then {stop}") as work:
        master.redis("CONFIG SET appendonly no")
        until(lambda: not master.votes(), "agents see it")
        stopped_s = time.clock_gettime(time.CLOCK_MONOTONIC)
        if stop.startswith("systemctl"):
            master.run(f"{stop} && systemctl start --no-block lockd-master")
        else:
            master.redis("SHUTDOWN NOSAVE || true")
        until(lambda: master.guard()["state"] == "quarantined", "the quarantine")
        master.wait_in_service()
    assert master.redis_began_s() - stopped_s >= DELAY_S
    assert master.guard()["quarantines"]["settings_unproven"] == before + 1
    assert master.redis("CONFIG GET appendonly").split() == ["appendonly", "yes"]
    work.must_be_flawless()


def test_a_shutdown_that_systemd_was_not_told_of_is_no_clean_stop(cluster: Cluster, master: Master) -> None:
    before = master.guard()["quarantines"]["settings_unproven"]
    stopped_s = time.clock_gettime(time.CLOCK_MONOTONIC)
    master.redis("SHUTDOWN NOSAVE || true")
    until(lambda: master.guard()["state"] == "quarantined", "the quarantine")
    master.wait_in_service()
    assert master.redis_began_s() - stopped_s >= DELAY_S
    assert master.guard()["quarantines"]["settings_unproven"] == before + 1


def test_a_stop_that_can_not_be_asked_for_is_no_clean_one(cluster: Cluster, master: Master) -> None:
    """As with a password that the master doesn't know, or a user that may not ask."""
    before = master.guard()["quarantines"]["settings_unproven"]
    master.redis("ACL SETUSER lockd_loader -client")
    master.run("systemctl stop lockd-master")
    assert "NOPERM" in master.guard()["detail"]
    master.run("systemctl start --no-block lockd-master")
    master.wait_in_service()
    assert master.guard()["quarantines"]["settings_unproven"] == before + 1


def none_forgotten(before: dict[int, int], after: dict[int, int]) -> bool:
    return bool(before) and all(after.get(slot, 0) >= counter for slot, counter in before.items())


@pytest.mark.parametrize("how", ["systemctl restart lockd-master", "systemctl kill -s KILL lockd-master"])
def test_a_master_that_starts_again_has_forgotten_nothing(cluster: Cluster, master: Master, how: str) -> None:
    before, pid = master.counters(), master.main_pid()
    master.run(how)
    until(lambda: master.main_pid() not in (0, pid), "another process")
    master.wait_in_service()
    assert none_forgotten(before, master.counters())
    # Redis only logs what it could not read of its own file.
    assert master.said("CRITICAL|NOPERM") == []


def test_a_killed_master_stays_out_for_the_whole_delay_and_locks_go_on(
    cluster: Cluster, master: Master
) -> None:
    before = master.quarantines()
    with at_work(cluster.lab, "a master is killed with -9") as work:
        killed_s = master.kill()
        until(lambda: master.guard()["state"] == "quarantined", "the quarantine")
        line = until(lambda: status_line(master), "systemctl status says how long")
        assert not master.votes()
        master.wait_in_service()
    assert master.redis_began_s() - killed_s >= DELAY_S
    assert "quarantine" in line.lower()
    assert any(digit.isdigit() for digit in line), line
    assert master.quarantines() == before + 1
    work.must_be_flawless()


def status_line(master: Master) -> str:
    lines = master.run("systemctl status lockd-master || true").splitlines()
    return next((line.strip() for line in lines if line.strip().startswith("Status:")), "")


def test_a_stop_during_the_quarantine_counts_for_nothing(cluster: Cluster, master: Master) -> None:
    master.kill()
    until(lambda: master.guard()["state"] == "quarantined", "the quarantine")
    master.run("systemctl stop lockd-master")
    started_s = time.clock_gettime(time.CLOCK_MONOTONIC)
    master.run("systemctl start lockd-master")
    master.wait_in_service()
    assert master.redis_began_s() - started_s >= DELAY_S


def test_a_changed_aof_behind_a_clean_marker_is_found(cluster: Cluster, master: Master) -> None:
    master.run("systemctl stop lockd-master")
    before = master.quarantines()
    master.run("touch /var/lib/lockd-master/appendonlydir/appendonly.aof.manifest")
    started_s = time.clock_gettime(time.CLOCK_MONOTONIC)
    master.run("systemctl start lockd-master")
    master.wait_in_service()
    assert master.quarantines() == before + 1
    assert master.redis_began_s() - started_s >= DELAY_S


def test_an_override_ends_the_quarantine_is_counted_and_is_used_up(cluster: Cluster, master: Master) -> None:
    before = master.guard()["overrides"]
    master.kill()
    until(lambda: master.guard()["state"] == "quarantined", "the quarantine")
    master.run("lockd-guard override --reason 'a test of the override'")
    master.wait_in_service()
    assert master.guard()["overrides"] == before + 1
    assert master.said("event=overridden.*a test of the override")
    killed_s = master.kill()
    master.wait_in_service()
    assert master.redis_began_s() - killed_s >= DELAY_S


def test_a_host_that_is_killed_and_booted_is_dirty(cluster: Cluster, on: Any, master: Master) -> None:
    with at_work(cluster.lab, "a host of a master is killed and booted") as work:
        master.host.kill()
        started_s = time.clock_gettime(time.CLOCK_MONOTONIC)
        master.host.start()
        until(lambda: master.host.leader() is not None, "the host boots")
        master.wait_in_service()
    assert master.redis_began_s() - started_s >= DELAY_S
    work.must_be_flawless()


def test_a_master_whose_data_is_gone_is_blank_and_has_no_vote(cluster: Cluster, on: Any) -> None:
    master = Master(cluster, on, "m5")
    with at_work(cluster.lab, "a master is wiped and admitted") as work:
        master.run("systemctl stop lockd-master")
        master.run("rm -r /var/lib/lockd-master/appendonlydir")
        master.run("systemctl start lockd-master")
        admit(cluster, on, master)
    work.must_be_flawless()


def admit(cluster: Cluster, on: Any, master: Master) -> None:
    """A blank master gets its vote."""
    until(lambda: state_of(on, master.name) == "blank", "the agent says that it is blank")
    words = f"lockctl master admit {master.name} --operator-user lockd_operator"
    admitted = on("a1").run(f"{_as_operator(cluster)} {words}")
    assert admitted.rc == 0, admitted.stderr
    until(master.votes, f"{master.name} has its vote")


def _as_operator(cluster: Cluster) -> str:
    """What to put before a `lockctl` that may write identities."""
    password = (cluster.lab.folder / "secrets/operator.password").read_text().strip()
    return f"LOCKD_OPERATOR_PASSWORD={shlex.quote(password)}"


def test_a_host_that_lost_power_is_dirty_and_has_kept_what_it_acknowledged(cluster: Cluster, on: Any) -> None:
    if reason := why_no_disks():
        pytest.skip(reason)
    master = Master(cluster, on, "m3")
    disk = Disk(master.host.folder, "disk")
    if not disk.path.is_mount():
        move_data_to(disk, master)
        # To the guard a copy is data of the past, whoever made it (rule 10).
        admit(cluster, on, master)
    with at_work(cluster.lab, "a host of a master loses power and is booted") as work:
        before = master.counters()
        disk.lose_power()
        master.host.kill()
        disk.come_back()
        started_s = time.clock_gettime(time.CLOCK_MONOTONIC)
        boot(master, disk)
        master.wait_in_service()
    assert master.redis_began_s() - started_s >= DELAY_S
    assert none_forgotten(before, master.counters())
    work.must_be_flawless()


def move_data_to(disk: Disk, master: Master) -> None:
    """The master's data is on a disk of its own from now on."""
    data = master.host.merged / "var/lib/lockd-master"
    master.run("systemctl stop lockd-master")
    disk.make()
    subprocess.run(["cp", "-a", f"{data}/.", str(disk.path)], check=True)
    # What Redis had synced on the old disk has to be on the new one as well, before that loses power.
    subprocess.run(["sync", "--file-system", str(disk.path)], check=True)
    master.host.kill()
    boot(master, disk)


def boot(master: Master, disk: Disk) -> None:
    """Start the host with that disk where its data is."""
    data = master.host.merged / "var/lib/lockd-master"
    for point in mounts_below(data.parent):
        subprocess.run(["umount", point], check=True)
    subprocess.run(["mount", "--bind", str(disk.path), str(data)], check=True)
    master.host.start()
    until(lambda: master.host.leader() is not None, "the host boots")


@pytest.fixture
def wall_clock(master: Master) -> Iterator[Clock]:
    """A wall clock of the host's own, for the master and the guard; the rest of it keeps the machine's."""
    folder = master.host.merged / "var/lib/lab-clock"
    folder.mkdir(exist_ok=True)
    clock = Clock(folder / "clock")
    units = master.host.merged / "etc/systemd/system"
    folders = [units / f"{unit}.service.d" for unit in ("lockd-master", "lockd-guard-watch")]
    inside = Path("/var/lib/lab-clock")
    variables = {name: inside / Path(path).name for name, path in clock.environment().items()}
    lines = "".join(f"Environment={name}={path}\n" for name, path in variables.items())
    for additions in folders:
        additions.mkdir()
        (additions / "lab-clock.conf").write_text(f"[Service]\n{lines}")
    master.run("systemctl daemon-reload && systemctl restart lockd-guard-watch lockd-master")
    master.wait_in_service()
    yield clock
    clock.ahead_ns = 0
    for additions in folders:
        shutil.rmtree(additions)
    master.run("systemctl daemon-reload && systemctl restart lockd-guard-watch lockd-master")


def test_a_step_of_the_clock_puts_the_master_into_quarantine(
    cluster: Cluster, master: Master, wall_clock: Clock
) -> None:
    before = master.guard()
    with at_work(cluster.lab, "a master's clock is stepped forward") as work:
        stepped_s = time.clock_gettime(time.CLOCK_MONOTONIC)
        wall_clock.step(30 * 10**9)
        until(lambda: master.guard()["state"] == "quarantined", "the quarantine")
        master.wait_in_service()
    after = master.guard()
    assert after["clock_steps"]["forward"] == before["clock_steps"]["forward"] + 1
    assert after["quarantines"]["clock_step"] == before["quarantines"]["clock_step"] + 1
    assert master.redis_began_s() - stepped_s >= DELAY_S
    work.must_be_flawless()


def state_of(on: Any, name: str) -> str:
    return str(next(row["state"] for row in masters(on) if row["name"] == name))


def test_metrics_of_the_guard_are_there_for_the_exporter(cluster: Cluster, master: Master) -> None:
    """From a folder that is root's alone; what others tell in the distribution's is told as well."""
    assert master.run("stat -c %U:%a /var/lib/lockd /var/lib/lockd/node-exporter").split() == ["root:755"] * 2
    others = "/var/lib/prometheus/node-exporter/others.prom"
    master.run(f"echo others_metric 1 >{others}")
    try:
        text = master.run(f"python3 -c '{READ}' http://{ADDRESSES[master.name]}:9100/metrics")
    finally:
        master.run(f"rm {others}")
    assert f"lockd_guard_delay_seconds {DELAY_S:g}" in text
    assert "others_metric 1" in text


def test_what_a_running_master_has_written_is_noted_again_and_again(cluster: Cluster, master: Master) -> None:
    """After a power cut its data is known by the last note: that is to be no older than seconds."""
    master.wait_in_service()
    began_s = noted_s(master)
    until(
        lambda: noted_s(master) > began_s and now_s(master) - noted_s(master) < 10, "a fresh note of its data"
    )


def noted_s(master: Master) -> int:
    return int(json.loads(master.run("cat /var/lib/lockd-guard/mark.json"))["at_s"])


def now_s(master: Master) -> int:
    return int(master.run("date +%s"))


def test_a_fifo_among_what_a_unit_is_started_with_holds_up_no_start(cluster: Cluster, master: Master) -> None:
    """Nor is it taken for what is written down: the play restarts it."""
    note = "sha256sum --check --status /run/lockd-guard-watch.started-with"
    master.run(f"systemctl restart lockd-guard-watch && {note}")
    conf = "/etc/lockd/guard.conf"
    master.run(f"mv {conf} {conf}.kept && mkfifo {conf}")
    try:
        master.run("systemctl restart --no-block lockd-guard-watch")
        until(lambda: "guard.conf: [Errno 22] Not a plain file" in master.run(LOG_OF_WATCH), "its refusal")
    finally:
        master.run(f"mv {conf}.kept {conf}")
    master.run(
        f"! test -e /run/lockd-guard-watch.started-with && systemctl restart lockd-guard-watch && {note}"
    )


def test_all_masters_are_well_again(cluster: Cluster, on: Any) -> None:
    for name in MASTERS:
        Master(cluster, on, name).wait_in_service()
