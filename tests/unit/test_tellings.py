"""Which grants were read is looked at soon, whoever else reads nothing (rule 13)."""

from __future__ import annotations

import asyncio

import pytest

from lockd.clock import boottime_ns
from lockd.core.leases import Lease
from lockd.core.turns import Turns
from lockd.server import tellings as tellings_module
from lockd.server import turns as turns_module
from lockd.server.tellings import Tellings
from lockd.server.turns import BITE_NS, LoopTurns
from tests.harness.clocks import Clock
from tests.harness.leases import a_lease


class ATeller:
    def __init__(self, *leases: Lease, reads: bool) -> None:
        self.leases = leases
        self.reads = reads
        self.looks = 0

    def tells(self, lease: Lease, reply: bytes) -> None:
        """What it is isn't looked at here."""

    def look(self) -> None:
        self.looks += 1
        for lease in self.leases:
            lease.told = self.reads


def some_leases(count: int, account: str = "an app") -> list[Lease]:
    leases = [a_lease() for _ in range(count)]
    for lease in leases:
        lease.holder.account = account
    return leases


def _raise(failure: Exception) -> None:
    raise failure


def test_who_leaves_thousands_unread_is_looked_at_as_seldom_as_who_leaves_one() -> None:
    async def told_beside_a_flood() -> tuple[int, int]:
        tellings, [own] = Tellings(LoopTurns(Turns(), _raise)), some_leases(1)
        deaf, late = ATeller(*some_leases(5_000), reads=False), ATeller(own, reads=False)
        for teller in (deaf, late):
            for lease in teller.leases:
                tellings.begins(lease, teller, b"")
        while not late.looks:  # noqa: ASYNC110
            await asyncio.sleep(0)
        late.reads = True
        while not own.told:  # noqa: ASYNC110
            await asyncio.sleep(0)
        return deaf.looks, late.looks

    assert asyncio.run(told_beside_a_flood()) == (2, 2)


async def test_a_grant_is_looked_at_beside_thousands_of_connections_of_another_account_that_read_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rule 13: if this agent is killed then, the next one knows that it was told."""
    clock, before_own, step_ns = Clock(), 0, BITE_NS // 10
    for module in (tellings_module, turns_module):
        monkeypatch.setattr(module, "perf_counter_ns", clock)
    tellings = Tellings(LoopTurns(Turns(clock), _raise))

    class TakesTime(ATeller):
        def look(self) -> None:
            clock.now_ns += step_ns
            super().look()

    deaf = [TakesTime(lease, reads=False) for lease in some_leases(10_000, "greedy")]
    [own] = some_leases(1, "modest")
    began_ns = boottime_ns()
    with monkeypatch.context() as stopped:
        # All are due at one moment.
        stopped.setattr(tellings_module, "boottime_ns", lambda: began_ns)
        for teller in (*deaf, TakesTime(own, reads=True)):
            tellings.begins(teller.leases[0], teller, b"")
    while not own.told:
        before_own = sum(teller.looks for teller in deaf)
        await asyncio.sleep(0)
    assert before_own <= 4 * BITE_NS // step_ns
    for _ in range(50_000):
        if all(teller.looks for teller in deaf):
            return
        await asyncio.sleep(0)
    raise AssertionError("the others are never looked at")
