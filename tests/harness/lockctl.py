"""`lockctl` as it is typed: in a script, and at a terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.harness.cluster import Cluster

LOCKCTL = Path(sys.executable).parent / "lockctl"


class Done(subprocess.CompletedProcess[str]):
    """How a `lockctl` has ended."""

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


def lockctl(cluster: Cluster, *words: str | Path, **options: Any) -> Done:
    """Type a command; stdin is not a terminal."""
    command = [LOCKCTL, "--socket", str(cluster.socket), *map(str, words)]
    settings: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "capture_output": True,
        "text": True,
        "timeout": 30,
    }
    done = subprocess.run(command, check=False, **settings | options)
    return Done(done.args, done.returncode, done.stdout, done.stderr)


def started_at_terminal(cluster: Cluster, *words: str) -> tuple[int, int]:
    """A command at a terminal of 100 columns: its pid and the terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ |= {"COLUMNS": "100", "TERM": "xterm"}
        os.execv(LOCKCTL, [str(LOCKCTL), "--socket", str(cluster.socket), *words])
    return pid, terminal


def at_terminal(cluster: Cluster, *words: str, typed: str = "", once: bytes = b"") -> Done:
    """Type a command at a terminal, and answer what it asks (`typed`) `once` that was shown."""
    pid, terminal = started_at_terminal(cluster, *words)
    seen = b""
    if not once:
        os.write(terminal, typed.encode())
    try:
        while chunk := os.read(terminal, 4096):
            shown_before, seen = once in seen, seen + chunk
            if not shown_before and once in seen:
                os.write(terminal, typed.encode())
    except OSError:
        pass  # that is how the end of a terminal reads
    os.close(terminal)
    return Done(words, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), seen.decode(), "")
