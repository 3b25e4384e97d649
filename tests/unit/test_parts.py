"""`make test` runs its parts side by side, says where their time went, and fails when one of them did."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness.waiting import PATIENCE_S

PARTS = Path(__file__).parents[1] / "setup/parts.py"
PASSED = "echo '===== 5 passed, 2 skipped, 1 rerun in 3.40s ====='"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tests/setup").mkdir(parents=True)
    shutil.copy2(PARTS, tmp_path / "tests/setup")
    return tmp_path


def run(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, tree / "tests/setup/parts.py", "test", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def figures(tree: Path) -> dict[str, Any]:
    made: dict[str, Any] = json.loads((tree / "build/results/test.json").read_text())
    return {part["title"]: part for part in made["parts"]}


def test_each_part_is_shown_with_its_time_and_its_tests(tree: Path) -> None:
    done = run(tree, "--first", "set up", "echo ready", "--lane", "look", "true", "tests", PASSED)
    assert done.returncode == 0, done.stderr
    assert "=== set up\nready\n=== set up: well, 0:00\n" in done.stdout
    [line] = [line for line in done.stdout.splitlines() if line.startswith("tests  ")]
    assert line.endswith("  5 passed, 2 skipped, 1 rerun")
    assert "1 tests were run once more, as the machine had stood still" in done.stdout
    assert figures(tree)["tests"]["tests"] == {"passed": 5, "skipped": 2, "rerun": 1}


def test_lanes_run_side_by_side_and_the_parts_of_a_lane_one_after_the_other(tree: Path) -> None:
    """Each lane waits for a file that the other one makes."""
    wait = "until [ -e {0} ]; do sleep 0.01; done".format
    one = ["--lane", "a", f"touch a; {wait('b')}", "then c", "touch c; rm a"]
    other = ["--lane", "b", f"touch b; {wait('c')}"]
    assert run(tree, "--first", "set up", "true", *one, *other).returncode == 0
    assert not (tree / "a").exists()


def test_a_part_that_fails_stops_no_other_and_fails_the_run(tree: Path) -> None:
    done = run(tree, "--first", "set up", "true", "--lane", "bad", "exit 3", "next", PASSED)
    assert done.returncode == 1
    assert "=== bad: FAILED with status 3, 0:00" in done.stdout
    assert {title: part["status"] for title, part in figures(tree).items()} == {
        "set up": 0, "bad": 3, "next": 0,
    }  # fmt: skip


def test_nothing_begins_when_what_comes_first_has_failed(tree: Path) -> None:
    assert run(tree, "--first", "set up", "false", "--lane", "tests", "touch begun").returncode == 1
    assert not (tree / "begun").exists()


def test_a_run_is_compared_with_the_one_that_was_kept(tree: Path) -> None:
    """Which may lack a part, and tells how old it is."""
    assert "make test-all: no run was kept" in run(tree, "--first", "set up", "true").stdout
    assert run(tree, "--keep", "--first", "set up", "true").returncode == 0
    kept = tree / "tests/results/test.json"
    before = json.loads(kept.read_text())
    before["wall_s"] = before["parts"][0]["wall_s"] = 100
    kept.write_text(json.dumps(before))
    (kept.parent / "test-all.json").write_text(json.dumps(before | {"date": "2020-02-02"}))
    told = run(tree, "--first", "set up", "true", "--lane", "more", "true").stdout.splitlines()
    assert [line.split()[3] for line in told if line.startswith("set up")] == ["-100"]
    assert [line.split()[2] for line in told if line.startswith("more")] == ["new"]
    assert "days ago" in told[-1]
    assert int(told[-1].split("last run ")[1].split()[0]) > 2_000
    assert told[-1].endswith("1:40 min, all well")


def test_wrong_usage_shows_how_it_is_used(tree: Path) -> None:
    done = run(tree, "--first", "a title without a command")
    assert done.returncode == 2
    assert "parts.py NAME" in done.stderr
