"""What an agent and the commands of scripts load when they start: nothing that they don't need for it.

What that costs, `python -m tests.bench.start` measures.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from lockd.dev.processes import LOOPBACK, free_ports
from tests.harness.cluster import AgentProcess
from tests.harness.masters import short_folder
from tests.harness.starts import LISTED, loaded_by
from tests.harness.wire import Wire

NOT_BY_AN_AGENT = {
    "redis": "the client of the masters in tests and of other commands",
    "rich": "what people are shown",
    "pydantic": "a third of a start, until the configuration was read without it",
    "prometheus_client": "for the first scrape",
    "http.client": "for the first request at the port of metrics",
    "email.message": "for the same",
    "urllib.request": "what prometheus_client would load",
    "wsgiref": "the same",
    "lockd.core.scripts.parser": "for the first script of an app",
    "lockd.client": "what apps load",
    "lockd.lockctl": "commands",
    "lockd.dev": "another command",
    "difflib": "for the first mistake in a configuration",
    "unittest": "tests",
}
"""Each with what it is for."""
NOT_BY_A_COMMAND = {
    *("redis", "rich", "pydantic", "yaml", "prometheus_client", "uvloop"),
    *("lockd.server", "lockd.masters", "lockd.config.model", "lockd.dev"),
}


@contextmanager
def agent_without_masters() -> Iterator[AgentProcess]:
    """It serves, and lists on stderr what it loads."""
    with short_folder() as folder:
        document = {
            "cluster": "test",
            "masters": [{"name": "m1", "address": f"{LOOPBACK}:{free_ports(1)[0]}"}],
            "socket": {"path": str(folder / "a.sock")},
            "metrics": f"{LOOPBACK}:0",
        }
        (folder / "lockd.yml").write_text(yaml.safe_dump(document))
        agent = AgentProcess(folder / "lockd.yml", folder / "a.sock", folder / "a.log")
        agent.environment = LISTED
        try:
            agent.start()
            yield agent
        finally:
            agent.kill()


def test_an_agent_that_serves_has_loaded_nothing_that_only_others_need() -> None:
    with agent_without_masters() as agent:
        with Wire(agent.socket_path) as wire:
            wire.ask("LOCK", "backup", 1_000)
            wire.ask("LOCKS")
        loaded = loaded_by(agent.log().decode())
    assert {"lockd.server.agent", "uvloop", "hiredis"} <= loaded
    assert loaded & NOT_BY_AN_AGENT.keys() == set()


@pytest.mark.parametrize("words", [["--help"], ["run", "backup", "--", "true"]], ids=" ".join)
def test_a_command_of_scripts_loads_nothing_that_only_others_need(words: list[str], tmp_path: Path) -> None:
    """Nobody answers: what would be said about that is no reason to load more either."""
    command = [sys.executable, "-X", "importtime", "-m", "lockd.lockctl", "--socket", tmp_path / "none"]
    done = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
    loaded = loaded_by(done.stderr)
    assert "lockd.lockctl.main" in loaded
    assert loaded & NOT_BY_A_COMMAND == set()
