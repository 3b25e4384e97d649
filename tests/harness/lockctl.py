"""`lockctl` as it is typed: in a script, and at a terminal."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.harness.cluster import Cluster
from tests.harness.terminal import Terminal
from tests.harness.waiting import PATIENCE_S

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
        "timeout": PATIENCE_S,
    }
    done = subprocess.run(command, check=False, **settings | options)
    return Done(done.args, done.returncode, done.stdout, done.stderr)


def lockctl_at_terminal(cluster: Cluster, *words: str) -> Terminal:
    """A command at a terminal of 100 columns."""
    environment = {"COLUMNS": "100", "TERM": "xterm"}
    return Terminal(LOCKCTL, "--socket", cluster.socket, *words, environment=environment)


def at_terminal(cluster: Cluster, *words: str, typed: str = "", once: bytes = b"") -> Done:
    """Type a command at a terminal, and answer what it asks (`typed`) `once` that was shown."""
    with lockctl_at_terminal(cluster, *words) as terminal:
        terminal.wait_for(re.escape(once.decode()))
        terminal.type(typed)
        return Done(words, terminal.end(), terminal.screen, "")
