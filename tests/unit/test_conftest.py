"""What tests/conftest.py does for all tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.waiting import PATIENCE_S


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


# As conftest.py is loaded before any test; then a child is started, and a fork goes on without one.
TESTS = """
import os, subprocess, signal
import tests.conftest

os.kill(os.getpid(), signal.SIGHUP)
mask = int(subprocess.check_output(["grep", "SigIgn", "/proc/self/status"], text=True).split()[1], 16)
# Those that anybody may set: two the C library keeps for itself.
ignored = sum(mask >> (n - 1) & 1 for n in signal.valid_signals())
if os.fork() == 0:
    defaults = [signal.getsignal(n) for n in (signal.SIGHUP, signal.SIGTERM)]
    os._exit(defaults != [signal.SIG_DFL] * 2)
print(ignored, os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_tests_that_ignore_signals_survive_them_and_start_children_that_do_not() -> None:
    ignoring = ["env", "--ignore-signal"]  # all of them
    done = run(*ignoring, sys.executable, "-c", TESTS)
    assert (done.returncode, done.stdout.split()) == (0, ["0", "0"]), done.stderr


# A test that runs a program here, and the next one.
ONE_AFTER_THE_OTHER = """
import signal
from lockd.guard.cli import main

def ending():
    return [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]

before = ending()

def test_one():
    assert main(["check", "--config", "/nonexistent/guard.conf"]) == 78
    assert ending() != before
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})

def test_other():
    assert ending() == before
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
"""


def test_what_a_program_catches_or_blocks_that_a_test_ran_is_so_no_more_in_the_next(tmp_path: Path) -> None:
    (tmp_path / "test_two.py").write_text(ONE_AFTER_THE_OTHER)
    options = ["-q", "-c", os.devnull, "-p", "tests.conftest", "-p", "no:cacheprovider"]
    done = run(sys.executable, "-m", "pytest", *options, tmp_path)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


# most_mib: what a worker may take.
LARGE = """
from tests.harness.peaks import Peaks

def pytest_configure(config):
    config.pluginmanager.register(Peaks({most_mib}))
"""


@pytest.mark.parametrize(("most_mib", "status"), [(10_000, 0), (1, 1)])
def test_a_worker_that_takes_too_much_memory_fails_the_run_and_is_named(
    tmp_path: Path, most_mib: int, status: int
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(LARGE.format(most_mib=most_mib))
    (tmp_path / "test_it.py").write_text("def test_it(): pass\n")
    done = run(sys.executable, "-m", "pytest", "-n", "1", "--rootdir", tmp_path, tmp_path)
    assert done.returncode == status, done.stdout
    assert "memory of the workers, at most: gw0 " in done.stdout
    assert ("FAILED gw0 took more than 1 MiB" in done.stdout) == bool(status)
