"""What a command can't say does not change how it ended."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lockd.lockctl.failures import ExitStatus
from lockd.output import CANT_WRITE

FULL = "/dev/full"


def status_of(program: str, arguments: str, to: str) -> int:
    """With which it ends when its standard files lead there."""
    line = f"exec {sys.executable} -m {program} {arguments} {to}"
    return subprocess.run(["sh", "-c", line], check=False).returncode


@pytest.mark.parametrize("program", ["lockd", "lockd.lockctl"])
def test_where_neither_the_output_nor_that_can_be_written_the_status_says_it(program: str) -> None:
    assert status_of(program, "--help", f">{FULL} 2>{FULL}") == CANT_WRITE


@pytest.mark.parametrize("errors", [f"2>{FULL}", "2>&-", "2>/dev/null"])
@pytest.mark.parametrize(
    ("program", "arguments", "status"),
    [
        ("lockd.lockctl", "--socket /nowhere ping", ExitStatus.UNREACHABLE),
        ("lockd.lockctl", "no-such-command", ExitStatus.USAGE),
        ("lockd", "serve --config /nowhere", 2),
    ],
)
def test_a_refusal_that_can_not_be_written_has_the_status_of_one_that_can(
    program: str, arguments: str, status: int, errors: str
) -> None:
    assert status_of(program, arguments, errors) == status
