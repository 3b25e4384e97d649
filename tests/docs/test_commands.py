"""What one types by the README and the first tutorial does what they say, on a cluster of `lockd dev`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.made.markdown import DOCS, REPOSITORY
from lockd.dev.processes import Child
from tests.docs.blocks import Block, alike, blocks, commands
from tests.harness.masters import short_folder
from tests.harness.waiting import PATIENCE_S, eventually

README, TUTORIAL = REPOSITORY / "README.md", DOCS / "tutorial/first-lock.md"
AROUND = "class store:\n    write = staticmethod(lambda row, fence: print('written'))\nrow = None\n"
"""What the program of the README has around it."""


class Shell:
    """The folder in which the page's reader sits, with `.venv` and `.dev`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / ".venv").symlink_to(sys.prefix)
        tools = folder / "bin"
        tools.mkdir()
        # As on a terminal.
        (tools / "redis-cli").write_text(f'#!/bin/sh\nexec {shutil.which("redis-cli")} --no-raw "$@"\n')
        (tools / "redis-cli").chmod(0o755)
        self.environment = os.environ | {
            "PATH": f"{tools}:{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY),
        }

    def run(self, *words: str) -> str:
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return done.stdout + done.stderr

    def must_print(self, console: str) -> None:
        for command in commands(console):
            assert alike(self.run("bash", "-c", command.line)) == alike(command.shown), command.line


@pytest.fixture
def shell() -> Iterator[Shell]:
    """With what `make dev` runs."""
    if not shutil.which("redis-cli"):
        pytest.skip("no redis-cli here")
    with short_folder() as folder:
        shell = Shell(folder)
        words = (folder / ".venv/bin/lockd", "dev", "--dir", folder / ".dev", "--metrics", "off")
        dev = Child("dev", words, folder / "dev.log")
        dev.environment = shell.environment
        dev.start()
        try:
            eventually(lambda: b"ready: 5 of 5" in dev.log(), "all masters vote")
            yield shell
        finally:
            dev.stop()


def of(page: Path, language: str) -> list[str]:
    return [block.text for block in blocks(page) if block.language == language]


def test_the_readme(shell: Shell) -> None:
    [program] = of(README, "python")
    assert shell.run(".venv/bin/python", "-c", AROUND + program) == "written\n"
    [console] = of(README, "console")
    shell.must_print(console)


def test_the_tutorial_of_the_first_lock(shell: Shell) -> None:
    """In the order of the page."""
    found = blocks(TUTORIAL)
    assert sum(block.language in ("console", "python") for block in found) >= 8
    for block, after in zip(found, [*found[1:], Block("", "")], strict=True):
        if block.language == "console":
            shell.must_print(block.text)
        elif block.language == "python":
            assert after.language == "text"
            assert alike(shell.run(".venv/bin/python", "-c", block.text)) == alike(after.text)
