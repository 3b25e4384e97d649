"""The module `lockd_files`, which writes the files of a role by one call: on this machine, in a folder of the
test's own."""

from __future__ import annotations

import getpass
import grp
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab.lab import REPOSITORY
from tests.lab.local_ansible import needs_ansible

ANSIBLE = Path(sys.executable).with_name("ansible-playbook")
Run = Callable[..., dict[str, Any]]
MINE = {"owner": getpass.getuser(), "group": grp.getgrgid(os.getgid()).gr_name}

pytestmark = needs_ansible


def play(folder: Path, *words: str, callback: str, **arguments: Any) -> str:
    """What Ansible prints when a play calls the module with that."""
    path = folder / "play.yml"
    tasks = [{"name": "Write", "lockd_files": arguments}]
    path.write_text(yaml.safe_dump([{"name": "A test", "hosts": "localhost", "tasks": tasks}]))
    environment = {
        **os.environ,
        "ANSIBLE_LIBRARY": str(REPOSITORY / "ansible/library"),
        "ANSIBLE_STDOUT_CALLBACK": callback,
        "ANSIBLE_LOCALHOST_WARNING": "0",
        "ANSIBLE_GATHERING": "explicit",
        "ANSIBLE_NOCOLOR": "1",
    }
    local = ["-e", f"ansible_connection=local ansible_python_interpreter={sys.executable}"]
    command = [str(ANSIBLE), "-i", "localhost,", *local, *words, str(path)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout


@pytest.fixture
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """What the module returns."""

    def returned(*words: str, **arguments: Any) -> dict[str, Any]:
        said = play(tmp_path_factory.mktemp("play"), *words, callback="ansible.posix.json", **arguments)
        result: dict[str, Any] = json.loads(said)["plays"][0]["tasks"][0]["hosts"]["localhost"]
        return result

    return returned


@pytest.fixture
def printed(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    def printed(*words: str, **arguments: Any) -> str:
        return play(tmp_path_factory.mktemp("play"), *words, callback="ansible.builtin.default", **arguments)

    return printed


LOGS_TO_A_FILE = """
import os, sys, syslog
sys.modules["systemd"] = None  # Ansible's modules write to the journal if they can, else to syslog
def write(priority, message=""):
    with open(os.environ["LOG_OF_MODULES"], "a") as log:
        log.write(f"{message}\\n")
syslog.syslog = write
"""


def test_neither_secrets_nor_whole_files_are_in_the_log_of_the_host(
    printed: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(LOGS_TO_A_FILE)
    log = tmp_path / "log"
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("LOG_OF_MODULES", str(log))
    password = {"path": str(tmp_path / "password"), "content": "p4ssw0rd\n", "secret": True, **MINE}
    settings = {"path": str(tmp_path / "settings"), "content": "a long file\n", **MINE}
    printed(files=[password, settings])
    assert (tmp_path / "password").read_text() == "p4ssw0rd\n"
    assert not log.exists()
    # And it is where modules log to.
    ping = [str(ANSIBLE.with_name("ansible")), "localhost", "-i", "localhost,", "-m", "ansible.builtin.ping"]
    local = ["-e", f"ansible_connection=local ansible_python_interpreter={sys.executable}"]
    subprocess.run([*ping, *local], capture_output=True, check=True)
    assert "Invoked with data=pong" in log.read_text()


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.smoke
def test_folders_and_files_are_made_and_the_second_time_nothing_is_changed(tmp_path: Path, run: Run) -> None:
    folder, file = tmp_path / "a/b", tmp_path / "a/b/c"
    wanted: dict[str, Any] = {
        "folders": [{"path": str(folder), "mode": "0750", **MINE}],
        "files": [{"path": str(file), "content": "one\n", "mode": "0640", **MINE}],
    }
    said = run(**wanted)
    assert said["changed_paths"] == [str(folder), str(file)]
    assert (file.read_text(), mode_of(file), mode_of(folder)) == ("one\n", 0o640, 0o750)
    said = run(**wanted)
    assert (said["changed"], said["changed_paths"]) == (False, [])
    file.chmod(0o644)
    said = run(**wanted)
    assert said["changed_paths"] == [str(file)]
    assert mode_of(file) == 0o640


def test_in_check_mode_it_says_what_it_would_do_and_does_nothing(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "not/there"
    wanted = {"path": str(file), "content": "one\n", "validate": "/no/such/program %s", "owner": "nobody-yet"}
    said = run("--check", folders=[{"path": str(file.parent), "group": "nobody-yet"}], files=[wanted])
    assert said["changed_paths"] == [str(file.parent), str(file)]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.smoke
def test_what_is_refused_replaces_nothing_and_says_why(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "file"
    file.write_text("good\n")
    wanted = {"path": str(file), "content": "bad\n", "validate": "grep --silent good %s", **MINE}
    said = run(files=[wanted])
    assert said["failed"]
    assert f"{file} is left as it was" in said["msg"]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert file.read_text() == "good\n"


def test_a_secret_is_shown_by_nothing(tmp_path: Path, printed: Callable[..., str]) -> None:
    file, content = tmp_path / "file", "s3cr3t-of-this-test"
    wanted = {"path": str(file), "content": content, "mode": "0400", **MINE}
    said = printed("-vvv", "--diff", files=[{**wanted, "secret": True}])
    assert "changed: [localhost]" in said
    assert "+another secret" in said
    assert content not in said
    assert file.read_text() == content
    file.unlink()
    assert f"+{content}" in printed("--diff", files=[wanted])


def test_a_link_at_the_name_of_a_file_is_replaced_and_not_followed(tmp_path: Path, run: Run) -> None:
    theirs, file = tmp_path / "theirs", tmp_path / "file"
    theirs.write_text("theirs\n")
    file.symlink_to(theirs)
    run(files=[{"path": str(file), "content": "ours\n", **MINE}])
    assert (file.is_symlink(), file.read_text(), theirs.read_text()) == (False, "ours\n", "theirs\n")


def test_a_link_is_a_folder_only_where_that_is_said(tmp_path: Path, run: Run) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    said = run(folders=[{"path": str(link), "follow": False, **MINE}])
    assert "is a link" in said["msg"]
    said = run(folders=[{"path": str(link), "mode": "0700", **MINE}])
    assert mode_of(tmp_path / "elsewhere") == 0o700


def test_what_is_not_listed_is_removed_where_that_is_said(tmp_path: Path, run: Run) -> None:
    for name in ("kept.yml", "gone.yml", "other.txt"):
        (tmp_path / name).write_text("x\n")
    said = run(
        files=[{"path": str(tmp_path / "kept.yml"), "content": "x\n", **MINE, "mode": "0644"}],
        purge=[{"path": str(tmp_path), "pattern": "*.yml"}],
    )
    assert said["changed_paths"] == [str(tmp_path / "gone.yml")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept.yml", "other.txt"]


def test_one_that_is_there_is_left_as_it_is_where_that_is_said(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "file"
    file.write_text("theirs\n")
    said = run(files=[{"path": str(file), "content": "ours\n", "only_new": True, **MINE}])
    assert (said["changed"], file.read_text()) == (False, "theirs\n")
