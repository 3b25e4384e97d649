"""A wall clock that a test can set, for the processes it starts: clock_shim.c, preloaded into them.

`process.environment = clock.environment()` before it starts puts a `Child` (a master, an agent) under that
`Clock`. There may be several clocks; the machine's own is never touched.
"""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

_SOURCE = Path(__file__).with_name("clock_shim.c")
_AHEAD, _STOPPED_AT = 0, 1


def build(folder: Path, source: Path = _SOURCE) -> Path:
    """The compiled library, in `folder`. Skips the test that asks when there is no C compiler."""
    library = folder / f"{source.stem}.so"
    if not library.exists():
        partial = folder / f"{source.stem}.{os.getpid()}.so"
        partial.write_bytes(_compiled(source))
        partial.replace(library)  # never half a library under the name that is preloaded
    return library


@cache
def c_compiler() -> str | None:
    """One that finds the headers of the C library, which Debian has in a package of its own."""
    program = shutil.which("gcc") or shutil.which("cc")
    if program is None:
        return None
    trial = [program, "-E", "-x", "c", "-"]
    done = subprocess.run(trial, input=b"#include <stdio.h>\n", capture_output=True, check=False)
    return program if done.returncode == 0 else None


@cache
def _compiled(source: Path) -> bytes:
    compiler = c_compiler()
    if compiler is None:
        pytest.skip("no C compiler and its headers on this machine: nothing can be preloaded")
    with tempfile.TemporaryDirectory(prefix="lockd-") as folder:
        library = Path(folder) / "library.so"
        subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, source], check=True)
        return library.read_bytes()


class Preloaded:
    """Two numbers by which the processes go at once that were started with its `environment`: `source`, which
    reads them, is preloaded into them.

    `path` is the file that they read them from; the library is put beside it.
    """

    def __init__(self, source: Path, path: Path) -> None:
        self._variable, self._path, self._library = source.stem.upper(), path, build(path.parent, source)
        path.write_bytes(bytes(16))
        with path.open("r+b") as file:
            self.setting = memoryview(mmap.mmap(file.fileno(), 16)).cast("q")

    def environment(self) -> dict[str, str]:
        """What a process needs in its environment to go by them."""
        return {"LD_PRELOAD": str(self._library), self._variable: str(self._path)}


class Clock(Preloaded):
    """The wall clock of those processes: at their next look at it they see what it has been put to."""

    def __init__(self, path: Path) -> None:
        super().__init__(_SOURCE, path)

    @property
    def ahead_ns(self) -> int:
        """How far it is ahead of the machine's wall clock, while it runs."""
        return self.setting[_AHEAD]

    @ahead_ns.setter
    def ahead_ns(self, ahead_ns: int) -> None:
        self.setting[_AHEAD] = ahead_ns

    def step(self, ns: int) -> None:
        """Put it forward by so much; back, if negative."""
        self.ahead_ns += ns

    def stop_at(self, ns: int) -> None:
        """Let it stand still at that time since 1970 (not 0)."""
        self.setting[_STOPPED_AT] = ns
