"""Headless Chromium, as Debian packages it: what a person's browser makes of a page."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.harness.waiting import PATIENCE_S

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-extensions", "--disable-dev-shm-usage",
    "--enable-logging=stderr", "--proxy-server=direct://", "--window-size=1200,900",
)  # fmt: skip


def find_chromium() -> Path:
    """The browser of this machine; without one the test is skipped."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("no chromium on this machine")
    return Path(found)


class Visit(NamedTuple):
    """The document as the browser has understood it, and what it had to say about it on its console."""

    document: str
    complaints: list[str]


def visit(url: str, home: Path) -> Visit:
    """Open a page, wait until it is loaded, and leave."""
    command = [find_chromium(), *_FLAGS, f"--user-data-dir={home}", "--dump-dom", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return Visit(done.stdout, [line for line in done.stderr.splitlines() if ":CONSOLE" in line])
