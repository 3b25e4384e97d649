"""What another agent leaves in the journal is taken over while apps are served."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest

from lockd.clock import boottime_ns
from lockd.server import turns as turns_module
from lockd.server.agent import Agent
from lockd.server.entrance import Entrance
from lockd.server.journal import JournalFile
from lockd.server.log import EventLog
from tests.harness.configs import a_config
from tests.harness.fleet_model import Host, Time, masters_of

LEASES = 50


def leave_leases(journal: JournalFile) -> None:
    """As an agent that holds them, and ends."""
    journal.take()
    journal.begin()
    time = Time(boottime_ns())
    host = Host(time, masters_of(time, 3))
    for number in range(LEASES):
        lease = host.locked(b"%d" % number).held
        journal.ledger.held(lease, host.fleet.clock_lows_ns())
    journal.close()


async def test_it_is_done_in_many_bites_and_until_then_the_old_journal_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should this agent be killed meanwhile, the next one finds in it what was not taken over yet."""
    agent = Agent(a_config(socket={"path": str(tmp_path / "lockd.sock")}), EventLog(stream=io.StringIO()))
    monkeypatch.setattr(Entrance, "is_open", True)
    journal = agent.journal
    leave_leases(JournalFile(journal.path, journal.ledger.origin, pytest.fail))
    for name in ("BITE_NS", "TURN_NS"):
        monkeypatch.setattr(turns_module, name, 0)
    agent._look_after_journal()
    turns, left = 0, journal.path.read_bytes()
    while agent._takes_over:
        agent._look_after_journal()
        assert (journal.ledger.rewriting, journal.path.read_bytes()) == (None, left)
        turns += 1
        await asyncio.sleep(0)
    assert turns > 2 * LEASES, "each is read and taken over by itself"
    assert sum(agent.metrics.agent.inherited.values()) == LEASES
    agent._look_after_journal()
    assert journal.ledger.rewriting is not None, "from now on it is written anew"
    journal.close()
