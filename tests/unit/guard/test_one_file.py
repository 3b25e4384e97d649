"""Hosts of masters get one file, made of the rooms of lockd/guard. They have no lockd, and an old Python."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import CycleError
from pathlib import Path

import pytest
import yaml

from lockd.guard.one_file import HERE, CannotJoin, one_file, shipped
from tests.harness.waiting import PATIENCE_S

ROLE = HERE.parents[1] / "ansible/roles/restart_guard"


def run(folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", *words],
        cwd=folder, env={}, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "guard.py"
    path.write_text(shipped(), "utf-8")
    return path


def test_it_runs_where_there_is_nothing_else(program: Path) -> None:
    """-S: not even what pip has installed. Nor does it leave anything behind, as compiled code."""
    config = program.with_name("guard.conf")
    config.write_text("[guard]\nmax_ttl_ms = 60000\ndata_dir = /data\nunit = m.service\n")
    done = run(program.parent, program, "check", "--config", config)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert sorted(path.name for path in program.parent.iterdir()) == ["guard.conf", "guard.py"]


def test_help_sends_its_reader_to_the_head_of_the_file_which_has_the_units(program: Path) -> None:
    assert "The beginning of this file explains the units" in run(program.parent, program, "--help").stdout
    head = ast.get_docstring(ast.parse(program.read_text())) or ""
    assert "ExecStartPre=" in head
    assert "max_ttl_ms = " in head


def test_all_of_it_is_python_3_9_and_of_its_standard_library(program: Path) -> None:
    tree = ast.parse(program.read_text(), feature_version=(3, 9))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add("a room" if node.level else (node.module or "").partition(".")[0])
    assert imported <= set(sys.stdlib_module_names)


def test_every_room_is_in_it(program: Path) -> None:
    text = program.read_text()
    rooms = {path.name for path in HERE.glob("*.py")} - {"__init__.py", "one_file.py"}
    assert {name for name in rooms if f"# --- {name}\n" in text} == rooms


def as_the_play_makes_it() -> list[str]:
    """The command of the role, with what it has by default."""
    defaults, tasks = (
        yaml.safe_load((ROLE / name).read_text()) for name in ("defaults/main.yml", "tasks/install.yml")
    )
    [words] = [task["ansible.builtin.command"]["argv"] for task in tasks if "ansible.builtin.command" in task]
    source = defaults["lockd_restart_guard_source"].replace("{{ role_path }}", str(ROLE))
    python = "{{ ansible_playbook_python }}", sys.executable
    return [word.replace(*python).replace("{{ lockd_restart_guard_source }}", source) for word in words]


def test_a_play_makes_the_same_bytes_each_time(program: Path, tmp_path: Path) -> None:
    """Else it would restart the watches. -I: another order of hashes each time, and no lockd; C: no UTF-8."""
    command, environ = as_the_play_makes_it(), {"LC_ALL": "C"}
    made = subprocess.run(
        command, cwd=tmp_path, env=environ, capture_output=True, timeout=PATIENCE_S, check=True
    )
    assert made.stdout == program.read_bytes()


def test_a_room_comes_after_those_that_it_needs(tmp_path: Path) -> None:
    rooms = {
        "__main__": '"""The head."""\n\nimport sys\n\nfrom .host import b\n\nsys.exit(b)\n',
        "host": '"""Needs another."""\n\nfrom .watch import a\n\nb = a + 1\n',
        "watch": '"""Needs none."""\n\na = 6\n',
    }
    (tmp_path / "made.py").write_text(one_file(rooms))
    assert run(tmp_path, "made.py").returncode == 7


@pytest.mark.parametrize(
    ("room", "why"),
    [
        ("import yaml\n", "masters' hosts do not have it: import yaml"),
        ("from lockd.core import validity\n", "do not have it"),
        ("from ..core import validity\n", "do not have it"),
        ("from .nowhere import a\n", "do not have it"),
        ("import os as system\n", "another name"),
        ("from os import *\n", "another name"),
        ("a = 1\nimport os\n", "not stand at its head"),
        ("def f():\n    import os\n", "not stand at its head"),
        ("def ready(): pass\n", "one name for two things: ready"),
        ("for ready in (): pass\n", "one name for two things: ready"),
        ("from json import ready\n", "one name for two things: ready"),
        ("def open(): pass\n", "one name for two things: open"),
    ],
)
def test_what_can_not_be_joined_is_refused(room: str, why: str) -> None:
    rooms = {"__main__": '"""The head."""\n', "host": '"""One."""\n\ndef ready(): pass\n'}
    one_file(rooms)
    with pytest.raises(CannotJoin, match=why):
        one_file({**rooms, "watch": f'"""Another."""\n\n{room}'})


def test_a_room_that_does_not_say_what_it_is_for_is_refused() -> None:
    with pytest.raises(CannotJoin, match="what it is for"):
        one_file({"__main__": '"""The head."""\n', "host": "a = 1\n"})


def test_a_circle_is_refused() -> None:
    rooms = {"__main__": '"""The head."""\n', "host": '"""One."""\nfrom .watch import b\na = 1\n'}
    with pytest.raises(CycleError):
        one_file({**rooms, "watch": '"""Other."""\nfrom .host import a\nb = 1\n'})
