"""Which functions each test runs: a plugin of pytest. It writes them to the file that LOCKD_REACH names.

Threads and tasks of a test count as the test; child processes are not seen.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
OF_INTEREST = tuple(f"{ROOT / part}{os.sep}" for part in ("lockd", "tests/harness", "tests/sim"))


class Reach:
    """Notes which test runs which code object; what is written is by function."""

    def __init__(self) -> None:
        self._runs: defaultdict[Any, set[str]] = defaultdict(set)
        self._test = ""
        self.failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._test = item.nodeid
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            self._runs[frame.f_code].add(self._test)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        functions: defaultdict[str, set[str]] = defaultdict(set)
        for code, tests in list(self._runs.items()):
            if code.co_filename.startswith(OF_INTEREST):
                file = Path(code.co_filename).relative_to(ROOT)
                functions[f"{file}:{code.co_firstlineno}"] |= tests - self.failed
        text = json.dumps({function: sorted(tests) for function, tests in functions.items()})
        Path(os.environ["LOCKD_REACH"]).write_text(text)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Reach(), "reach")
