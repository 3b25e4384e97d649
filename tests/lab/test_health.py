"""What health.yml says of a host, and how it shows what many have said: on this machine, without a
cluster."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tests.harness.programs import loaded
from tests.lab import local_ansible
from tests.lab.inventory import ANSIBLE
from tests.lab.lab import REPOSITORY

# What a host says of itself.


@pytest.fixture
def health(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = loaded(ANSIBLE / "files/health.py")
    monkeypatch.setattr(module, "disks", lambda: ([], ["disks 7%"]))
    return module


def looks(health: Any, capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, str]]:
    health.sys = type("sys", (), {"argv": ["health.py", *words]})
    health.main()
    found: list[dict[str, str]] = json.loads(capsys.readouterr().out)["looks"]
    return found


def doctor(*findings: tuple[str, str]) -> Any:
    """Commands as they answer on an app host where `lockctl doctor` finds that."""
    checks = [{"check": check, "verdict": verdict, "what": f"of {check}"} for check, verdict in findings]
    return lambda *command: (1, json.dumps({"checks": checks})) if "doctor" in command else (0, "active")


@pytest.mark.parametrize(
    ("findings", "state", "first"),
    [
        ([("quorum", "ok"), ("lock", "ok")], "well", "2 checks"),
        ([("quorum", "ok"), ("drop-in", "warning")], "warning", "drop-in: of drop-in"),
        ([("leases", "warning")], "warning", "leases: of leases"),
        ([("master", "warning")], "unwell", "master: of master"),
        ([("drop-in", "warning"), ("lock", "failure")], "unwell", "lock: of lock"),
        ([("leases", "failure")], "unwell", "leases: of leases"),
    ],
)
def test_only_what_passes_by_itself_is_a_warning(
    health: Any, capsys: Any, findings: list[tuple[str, str]], state: str, first: str
) -> None:
    health.run = doctor(*findings)
    (look,) = looks(health, capsys, "agent")
    assert (look["state"], look["what"].split("; ")[0]) == (state, first)
    assert look["what"].endswith("disks 7%")


def test_the_checks_that_pass_by_themselves_are_checks_of_the_doctor(health: Any) -> None:
    doctors = (REPOSITORY / "lockd/lockctl/doctor.py").read_text()
    assert [name for name in health.PASSING if f'Finding("{name}", Severity.WARNING' not in doctors] == []


def test_a_host_that_is_two_things_is_looked_at_as_both(health: Any, capsys: Any) -> None:
    health.run = doctor(("lock", "ok"))
    assert [look["kind"] for look in looks(health, capsys, "agent,monitoring")] == ["agent", "monitoring"]


def test_a_full_disk_is_said_once_and_makes_the_host_unwell(health: Any, capsys: Any) -> None:
    health.run = doctor(("lock", "ok"))
    health.disks = lambda: (["/var 93% full"], ["disks 93%"])
    agent, monitoring = looks(health, capsys, "agent,monitoring")
    assert (agent["state"], monitoring["state"]) == ("unwell", "well")
    assert "/var 93% full" in agent["what"]
    assert "full" not in monitoring["what"]


@pytest.mark.parametrize(("state", "in_sync"), [(0, True), (4, True), (5, False), (-1, False)])
def test_a_clock_that_lockd_does_not_keep_is_what_the_kernel_says(
    health: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, state: int, in_sync: bool
) -> None:
    monkeypatch.setattr(health, "OUR_CLOCK", str(tmp_path / "is not there"))
    monkeypatch.setattr(health.ctypes, "CDLL", lambda _: SimpleNamespace(adjtimex=lambda _: state))
    assert health.clock_in_sync() is in_sync


@pytest.mark.parametrize("status", [0, 1])
def test_a_clock_that_lockd_keeps_is_what_chrony_says(
    health: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int
) -> None:
    (tmp_path / "ours").touch()
    monkeypatch.setattr(health, "OUR_CLOCK", str(tmp_path / "ours"))
    monkeypatch.setattr(health.ctypes, "CDLL", lambda _: SimpleNamespace(adjtimex=lambda _: 0))
    monkeypatch.setattr(health, "run", lambda *_: (status, ""))
    assert health.clock_in_sync() is (status == 0)


# The table.


def answer(**states: str) -> dict[str, Any]:
    """What Ansible has registered of a host's look, by what it is."""
    rows = [{"kind": kind, "state": state, "what": f"{kind} is {state}"} for kind, state in states.items()]
    return {"health_answer": {"stdout": json.dumps({"looks": rows}) + "\r\n"}}


def shown(folder: Path, apps: dict[str, Any], *words: str) -> tuple[int, list[str], str]:
    """The status of the play that shows it, the rows of the table, and all that was said."""
    groups = {
        "lock_masters": {"m1": answer(master="well"), "m2": answer(master="well")},
        "lock_apps": apps,
        "lock_monitoring": {"mon1": {} if "mon1" in apps else answer(monitoring="well")},
    }
    hosts = {group: {"hosts": members} for group, members in groups.items()}
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": hosts}}))
    _, show = yaml.safe_load((ANSIBLE / "health.yml").read_text())
    # Beside the play, as in ansible/: what hosts know of each other comes from there.
    (folder / "group_vars").symlink_to(ANSIBLE / "group_vars")
    (folder / "play.yml").write_text(yaml.safe_dump([show]))
    done = local_ansible.run(
        "ansible-playbook", "-i", folder / "hosts.yml", *words, folder / "play.yml",
        ANSIBLE_STDOUT_CALLBACK="ansible.posix.json",
    )  # fmt: skip
    tasks = json.loads(done.stdout[done.stdout.index("{") :])["plays"][0]["tasks"]
    (table,) = [task for task in tasks if task["task"]["name"].startswith("The cluster")]
    (rows,) = [result["msg"] for result in table["hosts"].values() if isinstance(result.get("msg"), list)]
    return done.returncode, rows[1:], done.stdout


def columns(rows: list[str]) -> list[list[str]]:
    return [row.split(maxsplit=3)[:3] for row in rows]


def well_apps(count: int) -> dict[str, Any]:
    return {f"a{number}": answer(agent="well") for number in range(count)}


@local_ansible.needs_ansible
def test_few_have_a_row_each_and_those_that_are_not_well_come_first(tmp_path: Path) -> None:
    apps = {**well_apps(2), "a7": answer(agent="warning"), "a8": answer(agent="unwell"), "a9": {}}
    status, rows, said = shown(tmp_path, apps)
    assert columns(rows) == [
        ["a8", "agent", "NO"], ["a9", "agent", "NO"], ["a7", "agent", "warn"],
        ["m1", "master", "yes"], ["m2", "master", "yes"],
        ["a0", "agent", "yes"], ["a1", "agent", "yes"], ["mon1", "monitoring", "yes"],
    ]  # fmt: skip
    assert rows[1].endswith("no answer")
    assert status == 2
    assert "Not well: a8, a9. The table above says why." in said


@local_ansible.needs_ansible
def test_of_many_those_that_are_well_are_counted_and_a_warning_is_no_failure(tmp_path: Path) -> None:
    apps = {**well_apps(25), "a99": answer(agent="warning", monitoring="well")}
    status, rows, _ = shown(tmp_path, apps)
    assert status == 0
    assert columns(rows[:-1]) == [
        ["a99", "agent", "warn"], ["m1", "master", "yes"], ["m2", "master", "yes"],
        ["a99", "monitoring", "yes"], ["mon1", "monitoring", "yes"],
    ]  # fmt: skip
    assert rows[-1] == "All other agents are well: 25 of 26. A row for each: -e health_all_rows=true"


@local_ansible.needs_ansible
def test_all_of_many_have_a_row_where_that_is_said(tmp_path: Path) -> None:
    _, rows, _ = shown(tmp_path, well_apps(25), "-e", "health_all_rows=true")
    assert len(rows) == 2 + 25 + 1
    assert ["a24", "agent", "yes"] in columns(rows)


@local_ansible.needs_ansible
def test_what_a_host_of_two_groups_is_is_both(tmp_path: Path) -> None:
    _, rows, _ = shown(tmp_path, {"a1": answer(agent="well"), "mon1": {}})
    assert columns(rows)[:2] == [["mon1", "agent", "NO"], ["mon1", "monitoring", "NO"]]
