"""The restart guard as it is run: a process of the distribution's Python, around a real Redis that is killed,
stopped and wiped. The part of systemd is played by `Unit`."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from lockd.clock import boottime_ns
from lockd.dev.processes import LOOPBACK, LocalMaster, StartFailed, free_ports
from lockd.guard import errors
from lockd.guard.delay import NS_PER_S, quarantine_ns
from lockd.guard.one_file import shipped
from lockd.guard.state_folder import MARK
from tests.redis.clock_shim import Clock
from tests.redis.masters import NOHUP, eventually, ignored_signals

MAX_TTL_MS = 1_000
DELAY_NS = quarantine_ns(MAX_TTL_MS)


class Unit:
    """A master's unit: `enter`, then Redis, then `leave` with what systemd would say in its environment."""

    def __init__(self, folder: Path, binary: Path) -> None:
        self.folder = folder
        [port] = free_ports(1)
        self.master = LocalMaster("m1", folder / "data", port, binary)
        self.master.folder.mkdir()
        self.socket = folder / "redis.sock"
        self.master.settings["unixsocket"] = str(self.socket)
        self.program = folder / "guard.py"
        self.program.write_text(shipped())
        self.config = folder / "guard.conf"
        self.textfile = folder / "guard.prom"
        self.configure(MAX_TTL_MS)
        self.heard: list[str] = []
        self.environment = {
            "PATH": os.environ["PATH"],
            "NOTIFY_SOCKET": str(folder / "notify"),
            "INVOCATION_ID": "0" * 32,
        }
        self._notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notified.bind(str(folder / "notify"))
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self._started: list[subprocess.Popen[bytes]] = []

    def configure(self, max_ttl_ms: int) -> None:
        self.config.write_text(
            f"[guard]\nmax_ttl_ms = {max_ttl_ms}\ndata_dir = {self.master.folder}\nunit = m1.service\n"
            f"state_dir = {self.folder}/state\ntextfile = {self.textfile}\n"
            f"socket = {self.socket}\npassword_file =\n"
        )

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()
        self.master.kill()
        self._notified.sendto(b"END", self._notified.getsockname())
        self._listener.join()
        self._notified.close()

    def _listen(self) -> None:
        while (message := self._notified.recv(65_536)) != b"END":
            self.heard += message.decode().splitlines()

    def run(
        self, command: str, *arguments: str, behind: tuple[str, ...] = (), **environ: str
    ) -> subprocess.Popen[bytes]:
        """Start the guard with that command, by the program that is named in `behind`."""
        with (self.folder / "guard.log").open("ab") as log:
            process = subprocess.Popen(
                [*behind, sys.executable, "-I", self.program, command, "--config", self.config, *arguments],
                env=self.environment | environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self._started.append(process)
        return process

    def log(self) -> str:
        return (self.folder / "guard.log").read_text()

    def start(self) -> int:
        """A start that succeeds: returns for how long `enter` kept Redis out, in nanoseconds."""
        before_ns = boottime_ns()
        assert self.run("enter").wait(60) == 0, self.log()
        waited_ns = boottime_ns() - before_ns
        self.start_redis()
        return waited_ns

    def start_redis(self) -> None:
        try:
            self.master.start(wait=False)
            self.master.wait_ready(60)
        except StartFailed as error:
            # Another test run on this machine may have taken the port since it was found free: take another.
            if "in use" not in str(error):
                raise
            [self.master.port] = free_ports(1)
            self.master.start()

    def ended(self) -> None:
        """Redis has ended, by itself or not: systemd runs `leave`."""
        status = self.master.exit_status
        assert status is not None
        if status < 0:
            says = {"EXIT_CODE": "killed", "EXIT_STATUS": signal.Signals(-status).name.removeprefix("SIG")}
            result = "success" if -status == signal.SIGTERM else "signal"
        else:
            says = {"EXIT_CODE": "exited", "EXIT_STATUS": str(status)}
            result = "exit-code" if status else "success"
        self.leave(SERVICE_RESULT=result, **says)

    def leave(self, **environ: str) -> None:
        assert self.run("leave", **environ).wait(60) == 0, self.log()

    def stop(self) -> None:
        """`systemctl stop`."""
        self.ask_before_stop()
        assert self.master.stop(within_s=60) == 0, self.master.log_tail()
        self.ended()

    def ask_before_stop(self) -> None:
        """ExecStop= while Redis runs: the guard's `stop`."""
        assert self.run("stop", MAINPID=str(self.master.pid)).wait(60) == 0, self.log()

    def ends_by_itself(self) -> None:
        """systemd then runs ExecStop= without a main process."""
        assert self.master.wait(60)
        assert self.run("stop").wait(60) == 0, self.log()
        self.ended()

    def kill(self) -> None:
        self.master.kill()
        self.ended()

    def quarantines(self) -> dict[str, int]:
        """How many there were, by reason, as Prometheus would see it."""
        found: dict[str, int] = {}
        if not self.textfile.exists():
            return found
        for line in self.textfile.read_text().splitlines():
            name, _, count = line.rpartition(" ")
            if name.startswith("redis_lock_guard_quarantines_total{") and count != "0":
                found[name.split('"')[1]] = int(count)
        return found

    def starts_for(self, reason: str) -> None:
        """It starts only after a whole quarantine, for that reason."""
        before = self.quarantines()
        assert self.start() >= DELAY_NS
        assert self.quarantines() == before | {reason: before.get(reason, 0) + 1}

    def starts_at_once(self) -> None:
        """It starts without any quarantine, however slow this machine is."""
        before = self.quarantines()
        self.start()
        assert self.quarantines() == before

    def waits(self, why: str = "") -> bool:
        """True once systemd has heard how long the quarantine still is, and why."""
        pattern = re.compile(rf"STATUS=quarantined: \d+ s left .*{re.escape(why)}")
        return any(pattern.fullmatch(status) for status in self.heard)

    def client(self) -> redis.Redis:
        return redis.Redis(host=LOOPBACK, port=self.master.port, retry=None)


@pytest.fixture
def make_unit(folder: Path) -> Iterator[Callable[[Path], Unit]]:
    if not Path("/etc/machine-id").exists():
        pytest.skip("no /etc/machine-id: without it the guard takes no stop for a clean one")
    units: list[Unit] = []

    def make(binary: Path) -> Unit:
        units.append(Unit(folder, binary))
        return units[-1]

    yield make
    for unit in units:
        unit.close()


@pytest.fixture
def unit(make_unit: Callable[[Path], Unit], server_binary: Path) -> Unit:
    """A unit that was never started."""
    return make_unit(server_binary)


def grant_beside_the_file(client: redis.Redis) -> None:
    """What is granted from now on is in memory only."""
    client.config_set("appendonly", "no")
    client.set("lockd:lease:a", "1")


def test_a_master_is_out_for_the_whole_delay_after_kill_9_and_says_so(unit: Unit) -> None:
    unit.starts_for("first_start")
    unit.stop()
    unit.starts_at_once()
    with unit.client() as client:
        client.set("lockd:lease:a", "1", px=60_000)
    unit.kill()
    unit.heard.clear()
    unit.starts_for("unclean_stop")
    eventually(lambda: unit.waits("(unclean stop: killed by SIGKILL)"))
    eventually(lambda: unit.heard[-1] == "STATUS=let start: quarantine is over")
    with unit.client() as client:
        assert client.get("lockd:lease:a") == b"1"


def test_a_clean_stop_of_each_server_is_known_by_its_aof(
    make_unit: Callable[[Path], Unit], any_server: Path
) -> None:
    unit = make_unit(any_server)
    unit.start()
    for _ in range(2):
        with unit.client() as client:
            client.set("lockd:lease:a", "1")
            client.bgrewriteaof()
            eventually(lambda client=client: not client.info("persistence")["aof_rewrite_in_progress"])
        unit.stop()
        unit.starts_at_once()
    unit.stop()
    for path in unit.master.folder.rglob("appendonly.aof*"):
        os.utime(path)
    unit.starts_for("data_changed")


def test_a_master_whose_data_was_restored_comes_up_blank_and_what_was_there_is_kept(unit: Unit) -> None:
    unit.start()
    with unit.client() as client:
        client.set("lockd:fences", "old")
    unit.stop()
    backup = unit.folder / "backup"
    shutil.copytree(unit.master.folder, backup)
    unit.starts_at_once()
    with unit.client() as client:
        client.set("lockd:fences", "new")
    unit.kill()
    for path in unit.master.folder.glob("appendonly*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in backup.glob("appendonly*"):
        target = unit.master.folder / path.name
        shutil.copytree(path, target) if path.is_dir() else shutil.copy(path, target)
    unit.starts_for("unclean_stop")
    with unit.client() as client:
        assert client.dbsize() == 0
    assert len(list(unit.master.folder.glob("*.aside-*"))) == 1
    assert "event=data_moved_aside" in unit.log()
    eventually(lambda: any("its data was moved aside" in status for status in unit.heard))
    assert "redis_lock_guard_data_moved_aside_total 1" in unit.textfile.read_text()


def test_a_watch_notes_what_redis_writes_so_that_a_power_cut_is_told_from_a_restore(unit: Unit) -> None:
    """Nobody runs `leave` when power is cut: the note of the watch is the last one."""
    unit.start()
    watching = unit.run("watch")
    marks = unit.folder / "state" / MARK
    eventually(marks.exists)
    before = marks.read_text()
    with unit.client() as client:
        client.set("lockd:lease:a", "1")
    eventually(lambda: marks.read_text() != before)
    unit.master.kill()
    unit.starts_for("no_marker")
    with unit.client() as client:
        assert client.get("lockd:lease:a") == b"1"
    watching.terminate()
    assert watching.wait(60) == 0, unit.log()


def test_a_redis_that_was_told_not_to_write_its_file_has_no_clean_stop(
    make_unit: Callable[[Path], Unit], any_server: Path
) -> None:
    """It exits with 0, as always, and its file is as it left it; what it granted since is not in it."""
    unit = make_unit(any_server)
    unit.start()
    with unit.client() as client:
        grant_beside_the_file(client)
        with suppress(redis.ConnectionError):
            client.shutdown(nosave=True)
    unit.ends_by_itself()
    unit.starts_for("settings_unproven")
    with unit.client() as client:
        grant_beside_the_file(client)
    unit.stop()
    unit.heard.clear()
    unit.starts_for("settings_unproven")
    eventually(lambda: unit.waits("(settings unproven: appendonly is no, not yes)"))
    unit.stop()
    unit.starts_at_once()


def test_settings_that_were_put_right_in_time_are_right(
    make_unit: Callable[[Path], Unit], any_server: Path
) -> None:
    """Redis writes its file anew then; its stop waits for that."""
    unit = make_unit(any_server)
    unit.start()
    with unit.client() as client:
        grant_beside_the_file(client)
        # Microseconds, for the one key.
        client.config_set("rdb-key-save-delay", 1_000_000)
        client.config_set("appendonly", "yes")
        assert client.info("persistence")["aof_rewrite_in_progress"]
    unit.stop()
    unit.starts_at_once()
    with unit.client() as client:
        assert client.get("lockd:lease:a") == b"1"


FROM_NOW_ON = [
    ("SET", "lockd:lease:a", "1"),
    ("CONFIG", "SET", "appendonly", "no"),
    ("CLIENT", "UNPAUSE"),
    ("CLIENT", "PAUSE", "1"),
    ("SHUTDOWN", "NOSAVE"),
    ("BGREWRITEAOF",),
    ("MULTI",),
]


def test_once_it_was_asked_nobody_has_a_command_run_before_it_ends(
    make_unit: Callable[[Path], Unit], any_server: Path
) -> None:
    unit = make_unit(any_server)
    unit.start()
    unit.ask_before_stop()
    waiting = [socket.create_connection((LOOPBACK, unit.master.port)) for _ in FROM_NOW_ON]
    for link, words in zip(waiting, FROM_NOW_ON, strict=True):
        link.sendall(f"{' '.join(words)}\r\n".encode())
    eventually(lambda: all(has_read_all_from(link) for link in waiting))
    assert unit.master.running
    assert unit.master.stop(within_s=60) == 0, unit.master.log_tail()
    for link in waiting:
        with link, suppress(ConnectionResetError):
            assert link.recv(100) == b""
    unit.ended()
    unit.starts_at_once()
    with unit.client() as client:
        assert client.get("lockd:lease:a") is None
        assert client.config_get("appendonly") == {"appendonly": "yes"}


def has_read_all_from(link: socket.socket) -> bool:
    """True once the server at the other end has read what it was sent there."""
    ends = [f"0100007F:{address[1]:04X}" for address in (link.getpeername(), link.getsockname())]
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    return [line[4].partition(":")[2] for line in lines if line[1:3] == ends] == ["00000000"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_stop_during_quarantine_never_lets_redis_start(unit: Unit, number: signal.Signals) -> None:
    unit.configure(60_000)
    entering = unit.run("enter")
    eventually(unit.waits)
    assert unit.run("status").wait(60) == errors.EXIT_QUARANTINED
    entering.send_signal(number)
    # 0 would start Redis, and so might SIGTERM: systemd calls that a success of some processes.
    assert entering.wait(60) == (-9 if number == signal.SIGKILL else errors.EXIT_INTERRUPTED)
    unit.leave(SERVICE_RESULT="success")
    assert unit.run("status").wait(60) == errors.EXIT_STOPPED
    unit.heard.clear()
    unit.run("enter")
    eventually(lambda: unit.waits("(quarantine interrupted: it begins anew; it was for: first start)"))


def test_what_it_was_started_to_ignore_ends_no_quarantine(unit: Unit) -> None:
    unit.configure(60_000)
    entering = unit.run("enter", behind=NOHUP)
    eventually(unit.waits)
    assert {signal.SIGHUP, signal.SIGINT} <= ignored_signals(entering.pid)


def test_an_operator_may_end_a_quarantine(unit: Unit) -> None:
    unit.configure(60_000)
    entering = unit.run("enter")
    eventually(unit.waits)
    assert unit.run("override", "--reason", "all agents are stopped").wait(60) == 0
    assert entering.wait(60) == 0
    assert 'event=overridden by="uid 0" reason="all agents are stopped"' in unit.log().replace(
        f"uid {os.getuid()}", "uid 0"
    )
    assert "redis_lock_guard_overrides_total 1" in unit.textfile.read_text()
    status = unit.run("status", "--json")
    assert json.loads(status.communicate(timeout=60)[0])["state"] == "in_service"


def put_fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def test_fifos_of_a_master_that_was_taken_over_hold_up_neither_its_stop_nor_its_start(unit: Unit) -> None:
    """Opened as other files are, each waits for ever for somebody who writes."""
    unit.start()
    unit.stop()
    unit.starts_at_once()
    manifest = next(unit.master.folder.rglob("*.manifest"), unit.master.folder / "appendonly.aof")
    put_fifo(manifest)
    unit.stop()
    assert unit.run("enter").wait(60) == 0, unit.log()
    assert unit.quarantines() == {"first_start": 1, "data_changed": 1}
    # What can't be read was moved aside with all of its folder.
    assert not manifest.exists()
    unit.start_redis()
    unit.stop()
    assert manifest.is_file()
    put_fifo(manifest)
    assert unit.run("enter").wait(60) == 0, unit.log()
    assert unit.quarantines() == {"first_start": 1, "data_changed": 2}


def fake_systemctl(unit: Unit) -> None:
    """`systemctl kill` that finds the main process of a unit in a file, and no unit is active."""
    programs = unit.folder / "bin"
    programs.mkdir()
    (programs / "systemctl").write_text(
        f'#!/bin/sh\n[ "$1" = kill ] || exit 3\necho "$*" >>{unit.folder}/systemctl.log\n'
        f"pid=$(cat {unit.folder}/main.pid) || exit 1\nexec kill -9 $pid\n"
    )
    (programs / "systemctl").chmod(0o755)
    unit.environment["PATH"] = f"{programs}:{unit.environment['PATH']}"


def test_a_forward_step_of_the_clock_puts_a_master_into_quarantine(unit: Unit, wall_clock: Clock) -> None:
    fake_systemctl(unit)
    unit.environment |= wall_clock.environment()
    unit.master.environment = wall_clock.environment()
    unit.start()
    watching = unit.run("watch")
    eventually(lambda: "READY=1" in unit.heard and "WATCHDOG=1" in unit.heard)
    wall_clock.step(-5 * NS_PER_S)
    backward = 'clock_steps_total{direction="backward"} 1'
    eventually(lambda: backward in unit.textfile.read_text())
    assert unit.master.running
    wall_clock.step(NS_PER_S)
    # Redis can't be found yet: the watch goes on until it can.
    calls = unit.folder / "systemctl.log"
    eventually(lambda: calls.read_text().count("\n") > 2)
    assert set(calls.read_text().splitlines()) == {"kill --kill-who=main --signal=KILL m1.service"}
    (unit.folder / "main.pid").write_text(str(unit.master.pid))
    eventually(lambda: unit.master.exit_status == -9)
    unit.ended()
    unit.starts_for("clock_step")
    watching.terminate()
    assert watching.wait(60) == 0, unit.log()
