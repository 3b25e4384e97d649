"""What memory the workers of a test run took at most: a plugin of pytest. One that took too much fails the
run.

A worker lives through thousands of tests. What each leaves behind (trees of sources, caches, pages) makes
every full collection longer, and one such collection has made a test time out.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

MOST_MIB = 250


def peak_mib() -> int:
    """Of this process; 0 where the kernel doesn't say."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) // 1024 if found else 0


class Peaks:
    def __init__(self, most_mib: int = MOST_MIB) -> None:
        self._most_mib = most_mib
        self._of: dict[str, int] = {}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._of[node.gateway.id] = getattr(node, "workeroutput", {}).get("peak_mib", 0)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        told = getattr(session.config, "workeroutput", None)  # in a worker
        if told is not None:
            told["peak_mib"] = peak_mib()
        elif self._too_large() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._of:
            peaks = ", ".join(f"{name} {mib}" for name, mib in sorted(self._of.items()))
            terminalreporter.write_line(f"memory of the workers, at most: {peaks} MiB")
        for name in self._too_large():
            terminalreporter.write_line(f"FAILED {name} took more than {self._most_mib} MiB", red=True)

    def _too_large(self) -> list[str]:
        return [name for name, mib in sorted(self._of.items()) if mib > self._most_mib]
