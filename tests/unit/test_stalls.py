"""A test that failed while the machine stood still is run once more; any other failure is one at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.stalls import STALL_S
from tests.harness.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
A_TEST = """
import ctypes, time
from pathlib import Path

def test_first_of_two(tmp_path_factory):
    runs = Path({runs!r})
    runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
    if {stall}:
        # Holds the interpreter: no other thread of it runs either.
        ctypes.PyDLL(None).usleep({stall_us})
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
    (room / "conftest.py").write_text((ROOT / "tests/conftest.py").read_text())
    us = int(2 * STALL_S * 1e6)
    (room / "test_it.py").write_text(A_TEST.format(runs=str(counted), stall=stall, stall_us=us, fails=fails))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, room]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert outcome in done.stdout, done.stdout + done.stderr
    assert len(counted.read_text()) == runs
