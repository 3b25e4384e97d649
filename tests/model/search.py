"""One search: spin makes a C program of a model, gcc builds it, and it looks at every state there is."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.model.rows import Row

_FOLDER = Path(__file__).parent
_MEMORY_MB = 4096
_LIMIT_S = 300
_DEEP_MEMORY_MB = 12_000
_DEEP_LIMIT_S = 3600
_DEPTH = 10_000_000


class _Unfinished(Exception):
    """Not all states were looked at, and no promise was broken in those that were."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a row. broken: the promise that a counter-example was found for; '': all held, in every
    state. trail: the counter-example, when it was asked for."""

    row: Row
    broken: str
    states: int
    depth: int
    cpu_s: float
    memory_mb: float
    unfinished: str = ""
    """Why the search says nothing: the model, a compiler or the machine is at fault."""
    trail: tuple[str, ...] = ()

    @property
    def as_expected(self) -> bool:
        if self.unfinished:
            return False
        return self.broken in self.row.broken if self.row.broken else not self.broken

    @property
    def result(self) -> str:
        if self.unfinished:
            return "not finished"
        return f"broken: {self.broken}" if self.broken else "holds"


def missing_tools() -> list[str]:
    return [tool for tool in ("spin", "gcc") if shutil.which(tool) is None]


def search(row: Row, *, with_trail: bool = False) -> Outcome:
    """Look at all states of a row's model, or at as many as it takes to break a promise. with_trail: find
    the shortest way to break one, and tell it."""
    clock = _Clock()
    with TemporaryDirectory(prefix="lockd-model-") as name:
        folder = Path(name)
        try:
            _build(row, folder, clock, shortest=with_trail)
            report = _run(_pan(row), folder, clock, _DEEP_LIMIT_S if row.deep else _LIMIT_S)
            broken = _broken_promise(report)
            trail = tuple(_trail(row, folder)) if broken and with_trail else ()
        except _Unfinished as failure:
            return Outcome(row, "", 0, 0, clock.cpu_s, 0.0, unfinished=str(failure))
    return Outcome(
        row,
        broken,
        states=int(_number(report, r"([\d.e+]+) states, stored")),
        depth=int(_number(report, r"depth reached (\d+)")),
        cpu_s=clock.cpu_s,
        memory_mb=_number(report, r"([\d.]+)\s+total actual memory usage"),
        trail=trail,
    )


class _Clock:
    """The CPU time of all programs that were run for a row."""

    cpu_s = 0.0


def _build(row: Row, folder: Path, clock: _Clock, *, shortest: bool) -> None:
    _run(["spin", *row.flags.split(), "-a", str(_FOLDER / row.model)], folder, clock, _LIMIT_S)
    memory_mb = _DEEP_MEMORY_MB if row.deep else _MEMORY_MB
    # Of a search that is over in a second or two, the compiler's own time is more than what it saves.
    optimised = "-O2" if row.slow else "-O1"
    options = [optimised, "-DCOLLAPSE", f"-DMEMLIM={memory_mb}"]
    if row.formula:
        options += ["-DNFAIR=4"]  # enough for weak fairness among 13 processes
    else:
        options += ["-DSAFETY", "-DNOCLAIM"]
        if shortest or (row.broken and not row.depth_first):
            options += ["-DBFS"]  # breadth first
    _run(["gcc", "-w", *options, "-o", "pan", "pan.c"], folder, clock, _LIMIT_S)


def _pan(row: Row) -> list[str]:
    fair = ["-a", "-f"] if row.formula else []
    table = "-w24" if row.slow else "-w21"  # 128 MB or 16, of places for states
    return ["./pan", f"-m{_DEPTH if row.deep else 100_000}", table, *fair]


def _run(command: Sequence[str], folder: Path, clock: _Clock, limit_s: int) -> str:
    """What a program says. limit_s: of CPU time, because a busy machine is no failure."""
    limited = ["sh", "-c", 'ulimit -t "$0" && exec "$@"', str(limit_s), *command]
    with (folder / "said").open("w+") as said:
        process = subprocess.Popen(limited, cwd=folder, stdout=said, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        clock.cpu_s += usage.ru_utime + usage.ru_stime
        said.seek(0)
        words = said.read()
    if process.returncode < 0:
        how = signal.strsignal(-process.returncode)
        raise _Unfinished(f"{command[0]} was ended ({how}), its limit is {limit_s} s of CPU time")
    if process.returncode != 0 and command[0] != "./pan":
        raise _Unfinished(f"{' '.join(command)}:\n{words}")
    return words


def _broken_promise(report: str) -> str:
    errors = re.search(r"errors: (\d+)", report)
    if errors is None or "max search depth too small" in report or "reached -DMEMLIM" in report:
        raise _Unfinished(f"the search was not finished:\n{report[-2000:]}")
    if errors[1] == "0":
        if "Search not completed" in report:
            raise _Unfinished(f"the search was not finished:\n{report[-2000:]}")
        return ""
    if "acceptance cycle" in report:
        return "progress"
    if "invalid end state" in report.split("Full statespace", 1)[0]:
        return "no deadlock"
    asserted = re.search(r"assertion violated \(?(\w+)", report)
    return asserted[1] if asserted else "something"


def _number(report: str, pattern: str) -> float:
    found = re.search(pattern, report)
    return float(found[1]) if found else 0.0


def _trail(row: Row, folder: Path) -> list[str]:
    """The steps to the broken promise, one a line."""
    told = _run(
        ["spin", *row.flags.split(), "-t", "-k", f"{row.model}.trail", str(_FOLDER / row.model)],
        folder,
        _Clock(),
        _LIMIT_S,
    )
    steps = []
    for line in told.splitlines():
        if line.startswith("spin: trail ends"):
            break
        if line.strip() and not line.startswith(("spin:", "ltl ", "Never claim")):
            steps.append(line.strip())
    return steps
