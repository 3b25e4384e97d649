"""The restart guard as it is run: a process of the distribution's Python, around a real Redis that is killed,
stopped and wiped. The part of systemd is played by `Unit`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
import redis

from lockd.dev.processes import LOOPBACK
from lockd.guard import errors
from lockd.guard.delay import NS_PER_S
from lockd.guard.state_folder import MARK
from tests.harness.clock_shim import Clock
from tests.harness.guard_unit import Unit
from tests.harness.processes import NOHUP, ignored_signals
from tests.harness.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.skipif(
    not Path("/etc/machine-id").exists(), reason="without /etc/machine-id the guard takes no stop for clean"
)


@pytest.fixture
def unit(folder: Path, server_binary: Path) -> Iterator[Unit]:
    """A unit that was never started."""
    with closing(Unit(folder, server_binary)) as unit:
        yield unit


@pytest.fixture
def any_unit(folder: Path, any_server: Path) -> Iterator[Unit]:
    """One of each flavour of server in turn."""
    with closing(Unit(folder, any_server)) as unit:
        yield unit


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


def test_a_clean_stop_of_each_server_is_known_by_its_aof(any_unit: Unit) -> None:
    any_unit.start()
    for _ in range(2):
        with any_unit.client() as client:
            client.set("lockd:lease:a", "1")
            client.bgrewriteaof()
            eventually(lambda client=client: not client.info("persistence")["aof_rewrite_in_progress"])
        any_unit.stop()
        any_unit.starts_at_once()
    any_unit.stop()
    for path in any_unit.master.folder.rglob("appendonly.aof*"):
        os.utime(path)
    any_unit.starts_for("data_changed")


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
    assert "lockd_guard_data_moved_aside_total 1" in unit.textfile.read_text()


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
    assert watching.wait(PATIENCE_S) == 0, unit.log()


def test_a_redis_that_was_told_not_to_write_its_file_has_no_clean_stop_until_that_is_put_right(
    any_unit: Unit,
) -> None:
    """It exits with 0, as always, and its file is as it left it; what it granted since is not in it."""
    any_unit.start()
    with any_unit.client() as client:
        grant_beside_the_file(client)
        with suppress(redis.ConnectionError):
            client.shutdown(nosave=True)
    any_unit.ends_by_itself()
    any_unit.starts_for("settings_unproven")
    with any_unit.client() as client:
        grant_beside_the_file(client)
    any_unit.stop()
    any_unit.heard.clear()
    any_unit.starts_for("settings_unproven")
    eventually(lambda: any_unit.waits("(settings unproven: appendonly is no, not yes)"))
    with any_unit.client() as client:
        grant_beside_the_file(client)
        # Microseconds, for the one key.
        client.config_set("rdb-key-save-delay", 1_000_000)
        # Redis writes its file anew then; its stop waits for that. Both are answered before it can be done.
        with client.pipeline(transaction=True) as at_once:
            at_once.config_set("appendonly", "yes")
            at_once.info("persistence")
            _, persistence = at_once.execute()
        assert persistence["aof_rewrite_in_progress"] or persistence["aof_rewrite_scheduled"]
    any_unit.stop()
    any_unit.starts_at_once()
    with any_unit.client() as client:
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


def test_once_it_was_asked_nobody_has_a_command_run_before_it_ends(any_unit: Unit) -> None:
    any_unit.start()
    any_unit.ask_before_stop()
    waiting = [socket.create_connection((LOOPBACK, any_unit.master.port)) for _ in FROM_NOW_ON]
    for link, words in zip(waiting, FROM_NOW_ON, strict=True):
        link.sendall(f"{' '.join(words)}\r\n".encode())
    eventually(lambda: all(has_read_all_from(link) for link in waiting))
    assert any_unit.master.running
    assert any_unit.master.stop(within_s=PATIENCE_S) == 0, any_unit.master.log_tail()
    for link in waiting:
        with link, suppress(ConnectionResetError):
            assert link.recv(100) == b""
    any_unit.ended()
    any_unit.starts_at_once()
    with any_unit.client() as client:
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
    assert unit.run("status").wait(PATIENCE_S) == errors.EXIT_QUARANTINED
    entering.send_signal(number)
    # 0 would start Redis, and so might SIGTERM: systemd calls that a success of some processes.
    assert entering.wait(PATIENCE_S) == (-9 if number == signal.SIGKILL else errors.EXIT_INTERRUPTED)
    unit.leave(SERVICE_RESULT="success")
    assert unit.run("status").wait(PATIENCE_S) == errors.EXIT_STOPPED
    unit.heard.clear()
    unit.run("enter")
    eventually(lambda: unit.waits("(quarantine interrupted: it starts again; it was for: first start)"))


def test_what_it_was_started_to_ignore_ends_no_quarantine(unit: Unit) -> None:
    unit.configure(60_000)
    entering = unit.run("enter", behind=NOHUP)
    eventually(unit.waits)
    assert {signal.SIGHUP, signal.SIGINT} <= ignored_signals(entering.pid)


def test_an_operator_may_end_a_quarantine(unit: Unit) -> None:
    unit.configure(60_000)
    entering = unit.run("enter")
    eventually(unit.waits)
    assert unit.run("override", "--reason", "all agents are stopped").wait(PATIENCE_S) == 0
    assert entering.wait(PATIENCE_S) == 0
    assert f'event=overridden by="uid {os.getuid()}" reason="all agents are stopped"' in unit.log()
    assert "lockd_guard_overrides_total 1" in unit.textfile.read_text()
    status = unit.run("status", "--json")
    assert json.loads(status.communicate(timeout=PATIENCE_S)[0])["state"] == "in_service"


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
    assert watching.wait(PATIENCE_S) == 0, unit.log()
