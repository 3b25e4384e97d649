"""What operators see of the guard and tell it: metrics, status, configuration, command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lockd.guard import __main__ as head
from lockd.guard.cli import main
from lockd.guard.config import GuardConfig, read_config
from lockd.guard.delay import NS_PER_MS, NS_PER_S, quarantine_ns
from lockd.guard.enter import enter
from lockd.guard.errors import EXIT_REFUSED, GuardError
from lockd.guard.guard import Guard
from lockd.guard.host import Host
from lockd.guard.leave import leave
from lockd.guard.reasons import Reason
from lockd.guard.state_folder import PERMIT, STATE
from lockd.guard.status import status
from tests.unit.guard.world import CLEAN, DELAY_NS, KILLED, NEVER_RAN, Watched, World

# Metrics


def test_every_series_is_there_from_the_start(world: World) -> None:
    Watched(world)
    metrics = world.metrics()
    for reason in Reason:
        assert metrics.pop(f'lockd_guard_quarantines_total{{reason="{reason.value}"}}') == 0
    assert metrics == {
        "lockd_guard_quarantined": 0,
        "lockd_guard_quarantine_until_timestamp_seconds": 0,
        "lockd_guard_delay_seconds": 61.6,
        "lockd_guard_overrides_total": 0,
        'lockd_guard_clock_steps_total{direction="forward"}': 0,
        'lockd_guard_clock_steps_total{direction="backward"}': 0,
        "lockd_guard_data_moved_aside_total": 0,
        "lockd_guard_data_marked_timestamp_seconds": 0,
    }
    text = world.textfile.read_text()
    assert text.count("# HELP ") == text.count("# TYPE ") == 8
    # node_exporter may read it, and finds no other.
    assert world.textfile.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in world.textfile.parent.glob("*.prom*")] == ["guard.prom"]


def test_the_metrics_say_when_the_quarantine_ends(world: World) -> None:
    ends_s = (world.host.wall_ns() + DELAY_NS) / NS_PER_S
    quarantined, until = "lockd_guard_quarantined", "lockd_guard_quarantine_until_timestamp_seconds"
    seen = []
    world.host.while_waiting = lambda: seen.append(world.metrics())
    world.enter()
    assert {one[quarantined] for one in seen} == {1}
    assert [one[until] for one in seen] == pytest.approx([ends_s] * len(seen), abs=0.01)
    after = world.metrics()
    assert (after[quarantined], after[until]) == (0, 0)
    assert after['lockd_guard_quarantines_total{reason="first_start"}'] == 1


@pytest.mark.parametrize("died", [True, False], ids=["with its host", "stopped"])
def test_a_quarantine_that_was_cut_short_is_no_longer_shown(world: World, died: bool) -> None:
    world.interrupted_after(seconds=10)
    assert status(world.guard())["state"] == "stopped"
    if died:
        world.host.reboot()
        Watched(world)
    else:
        world.leave(NEVER_RAN)
    assert world.metrics()["lockd_guard_quarantined"] == 0


def test_the_watch_keeps_the_file_young(world: World) -> None:
    watched = Watched(world)
    world.textfile.unlink()
    watched.after(14)
    assert not world.textfile.exists()
    watched.after(1)
    assert world.textfile.exists()


# Status


def test_status_tells_how_things_are(world: World) -> None:
    assert status(world.guard())["next_start"] == "after a quarantine"
    seen = []
    world.host.while_waiting = lambda: seen.append(status(world.guard()))
    world.enter()
    assert [one["left_s"] for one in seen] == list(range(62, 0, -1))
    assert seen[0]["state"] == "quarantined"
    assert seen[0]["reason"] == "first_start"
    assert status(world.guard())["state"] == "in_service"
    world.host.reboot()
    assert status(world.guard())["state"] == "stopped"
    world.enter()
    world.leave(CLEAN)
    assert status(world.guard())["state"] == "stopped"
    assert status(world.guard())["next_start"] == "at once"
    world.enter()
    world.leave(KILLED)
    found = status(world.guard())
    assert (found["state"], found["next_start"]) == ("stopped", "after a quarantine")
    assert (found["reason"], found["detail"]) == ("unclean_stop", "killed by SIGKILL")


def test_a_record_that_can_not_be_read_is_said_so(running: World) -> None:
    (running.state / STATE).write_bytes(b"{")
    with pytest.raises(GuardError, match="try it as root"):
        status(running.guard())


def test_the_status_is_an_exit_status_too(
    config: Path, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    guard = Guard(read_config(str(config)), world.host)
    exits: list[int] = []
    world.host.while_waiting = lambda: exits.append(main(["status", "--config", str(config)]))
    world.host.boot = Host().boot_id()
    enter(guard)
    assert set(exits) == {3}
    assert "quarantined" in capsys.readouterr().out
    assert main(["status", "--json", "--config", str(config)]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "in_service"
    world.host.environ = KILLED
    leave(guard)
    assert main(["status", "--config", str(config)]) == 4
    assert "unclean stop: killed by SIGKILL" in capsys.readouterr().out


def test_it_shows_playbooks_what_it_goes_by(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--json", "--config", str(config)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["max_ttl_ms"], shown["leases_over_ms"], shown["textfile"]) == (60_000, 61_600, None)
    assert main(["show", "--config", str(config)]) == 0
    assert "max_ttl_ms = 60000\n" in capsys.readouterr().out


def test_a_playbook_asks_what_it_shows_and_reckons_alike_where_there_is_no_guard_yet() -> None:
    ansible = Path(__file__).parents[3] / "ansible"
    told = re.findall(r"from_json\)\.(\w+)", (ansible / "change_max_ttl.yml").read_text())
    assert set(told) == {"max_ttl_ms", "leases_over_ms"}
    role = (ansible / "roles/restart_guard/vars/main.yml").read_text()
    [formula] = re.findall(
        r'^lockd_restart_guard_quarantine_ms: "{{ lockd_restart_guard_max_ttl_ms \| int (.*) }}"$', role, re.M
    )
    assert formula == "* 1.01 + 1000"
    assert quarantine_ns(60_000) == (60_000 * 1.01 + 1000) * NS_PER_MS


# Configuration


def test_every_mistake_of_the_configuration_is_said_at_once(
    config: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config.write_text(
        "[guard]\nmax_ttl_ms = 60 s\nunit = redis\nstate_dir = here\ntextfile = /tmp/x\n"
        "append_dir = a/b\nclock_step_ms = 3\nmax_tll_ms = 1\n"
    )
    assert main(["check", "--config", str(config)]) == 78
    said = capfd.readouterr().err
    for key in ("data_dir", "max_ttl_ms", "unit", "state_dir", "textfile", "append_dir", "clock_step_ms"):
        assert f"{key}: " in said, key
    assert "max_tll_ms: no such key" in said


@pytest.mark.parametrize(("delay_ms", "status"), [(0, 0), (61_599, 78), (61_600, 0), (90_000, 0)])
def test_a_delay_that_does_not_outlast_the_leases_is_refused(
    config: Path, delay_ms: int, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    config.write_text(config.read_text() + f"delay_ms = {delay_ms}\n")
    assert main(["check", "--config", str(config)]) == status
    assert ("delay_ms: must be at least 61600" in capfd.readouterr().err) == bool(status)


@pytest.mark.parametrize(
    "text", ["", "max_ttl_ms = 1", "[guard]\n[more]\n", "[guard]\nunit = a.service\nunit = b.service\n", "\0"]
)
def test_a_file_that_is_no_configuration_is_refused(
    config: Path, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    config.write_text(text)
    assert main(["enter", "--config", str(config)]) == 78
    assert "Redis is not started" in capfd.readouterr().err


def test_the_configuration_has_the_defaults_that_are_documented(config: Path) -> None:
    documented = dict(
        line.split("#")[0].strip().split(" = ") for line in (head.__doc__ or "").splitlines() if " = " in line
    )

    def read(*keys: str) -> GuardConfig:
        config.write_text("[guard]\n" + "".join(f"{key} = {documented[key]}\n" for key in keys))
        return read_config(str(config))

    assert read(*documented) == read("max_ttl_ms", "data_dir", "unit")
    assert read(*documented).max_ttl_ms == 60_000


# Command line


def test_an_override_needs_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["--reason", " "]):
        with pytest.raises(SystemExit) as exited:
            main(["override", *arguments])
        assert exited.value.code == 2


@pytest.mark.parametrize("command", ["enter", "leave"])
def test_what_systemd_runs_changes_nothing_by_hand(
    running: World,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    command: str,
) -> None:
    """The permit of a Redis that runs, and the notes of its data, would end."""
    monkeypatch.delenv("INVOCATION_ID", raising=False)
    before = {path.name: path.read_bytes() for path in running.state.iterdir()}
    assert main([command, "--config", str(config)]) == 1
    assert {path.name: path.read_bytes() for path in running.state.iterdir()} == before
    assert "systemctl start m.service" in capfd.readouterr().err


@pytest.mark.parametrize("by", ["systemd", "hand"])
def test_systemd_runs_it_and_who_says_that_it_is_by_hand(
    running: World, config: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.delenv("INVOCATION_ID", raising=False)
    if by == "systemd":
        monkeypatch.setenv("INVOCATION_ID", "0" * 32)
    assert main(["leave", *(["--by-hand"] if by == "hand" else []), "--config", str(config)]) == 0
    assert not (running.state / PERMIT).exists()


@pytest.mark.parametrize("command", ["enter", "leave"])
def test_a_state_folder_that_can_not_be_made_keeps_redis_out(
    tmp_path: Path, config: Path, capfd: pytest.CaptureFixture[str], command: str
) -> None:
    (tmp_path / "state").write_text("a file")
    assert main([command, "--by-hand", "--config", str(config)]) == EXIT_REFUSED
    assert "Redis is not started" in capfd.readouterr().err
