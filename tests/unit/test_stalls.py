"""A test that failed while the machine stood still is run once more; any other failure is one at once."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.stalls import STALL_S, StallWatch
from tests.harness.waiting import PATIENCE_S, eventually

ROOT = Path(__file__).parents[2]
TOLD = """
from types import SimpleNamespace
_stalls = SimpleNamespace(start=lambda: None, forget=lambda: None, seen=lambda: {stall})
"""
"""In place of the watch, so that what this machine does meanwhile is no matter."""
A_TEST = """
from pathlib import Path

def test_first_of_two():
    runs = Path({runs!r})
    runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
    assert len(runs.read_text()) > {fails}
"""


@pytest.mark.parametrize(
    ("stall", "fails", "runs", "outcome"),
    [(True, 1, 2, "1 passed, 1 rerun"), (True, 2, 2, "1 failed, 1 rerun"), (False, 1, 1, "1 failed")],
    ids=["stood still", "stood still and fails again", "ran"],
)
def test_what_failed_is_run_once_more_if_the_machine_stood_still(
    tmp_path: Path, stall: bool, fails: int, runs: int, outcome: str
) -> None:
    room = tmp_path / "tests"
    room.mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    counted = tmp_path / "runs"
    conftest, watch = (ROOT / "tests/conftest.py").read_text(), "\n_stalls = StallWatch()\n"
    assert watch in conftest
    (room / "conftest.py").write_text(conftest.replace(watch, TOLD.format(stall=stall)))
    (room / "test_it.py").write_text(A_TEST.format(runs=str(counted), fails=fails))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, room]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert outcome in done.stdout, done.stdout + done.stderr
    assert len(counted.read_text()) == runs


def test_a_watch_sees_a_stall_until_it_is_told_to_forget() -> None:
    watch = StallWatch()
    watch.start()
    eventually(lambda: not (watch.forget() or watch.seen()), "it looks, and this machine runs")
    # Holds the interpreter: no other thread of it runs either.
    ctypes.PyDLL(None).usleep(int(2 * STALL_S * 1e6))
    assert watch.seen()
    eventually(lambda: not (watch.forget() or watch.seen()), "it has forgotten")
