"""What /proc says of a process, how one is started that ignores signals, and how many files one may open."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def _stat(pid: int) -> list[str]:
    """What stands behind its name in /proc/PID/stat; "X" for one that is no more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["X", "0"]


def state_of(pid: int) -> str:
    """A letter, as ps says it: T for one that is stopped."""
    return _stat(pid)[0]


def alive(pid: int) -> bool:
    """True while a process of that id runs (one that only waits to be collected does not)."""
    return state_of(pid) not in "XZ"


def cpu_s(pid: int) -> float:
    """How much CPU time that process has had."""
    return sum(map(int, _stat(pid)[11:13])) / os.sysconf("SC_CLK_TCK")


def computed_by(pid: int) -> float:
    """As `cpu_s`, to the nanosecond; only of the thread that it began with."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def children_of(pid: int) -> list[int]:
    """The ids of the processes that `pid` has started and that still are."""
    return sorted(int(one) for one in os.listdir("/proc") if one.isdigit() and _stat(int(one))[1] == str(pid))


NOHUP = ("env", "--ignore-signal=HUP,INT")
"""A command behind it is started as by nohup (SIGHUP) in a script's background (SIGINT)."""


def ignored_signals(pid: int) -> set[int]:
    """Those that a process ignores now."""
    [line] = [one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("SigIgn")]
    mask = int(line.split()[1], 16)
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}


def memory_kib(pid: int) -> int:
    """How much of that process is in memory (VmRSS)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """SIGSTOP: what comes to it meanwhile it finds at once."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def open_files(count: int) -> Iterator[None]:
    """Room for so many open files; the test is skipped where there can't be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"{count} files can't be open here, only {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
