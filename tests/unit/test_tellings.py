"""Which grants were read is looked at soon, whoever else reads nothing (rule 13)."""

from __future__ import annotations

import asyncio

from lockd.core.leases import Lease
from lockd.server.tellings import Tellings
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


def some_leases(count: int) -> list[Lease]:
    return [a_lease() for _ in range(count)]


def test_who_leaves_thousands_unread_is_looked_at_as_seldom_as_who_leaves_one() -> None:
    async def told_beside_a_flood() -> tuple[int, int]:
        tellings, [own] = Tellings(), some_leases(1)
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
