"""How much one account may hold of what all share: memory, files, promised renewals, entries of tables.

Each of 64 accounts has a floor that nobody else can take. From the common pot, which is the rest, an account
may hold `share` times what is still free (A. Choudhury, E. Hahne: Dynamic queue length thresholds for
shared-memory packet switches, IEEE/ACM Transactions on Networking 6(2), 1998). With a share of 1/2, one
account gets a third of the pot, and eight leave a fifth of it. So there is always something left for one that
comes later.

With more accounts than 64 the floors get smaller, never nothing.
"""

from typing import Final

from lockd.core.turns import HOUSE

STOCKS: Final = ("bytes", "files", "renewals")
"""What all apps of a host share, as LIMIT and the metrics name it."""
FLOORS: Final = 64
_LARGEST_POT_OF_FLOORS: Final = 2
"""The floors are half of all that there is, at most."""


class Stock:
    """One thing that is shared. name: as it is told in LIMIT. total: how much there is; floor: what each
    account has for itself; share: of what is free in the common pot, in hundredths. unit: how many are told
    as one."""

    def __init__(self, name: str, total: int, floor: int, share: int, unit: int = 1) -> None:
        self.name = name
        self._unit = unit
        self.held: dict[str, int] = {}
        self.used = self.peak = 0
        """By all together: now, and at most so far."""
        self._floor_wanted = floor
        self._halvings = 0
        self._common_used = 0
        self.only_floors = False
        """Nobody gets more than a floor: more is in use than was counted."""
        self.change(total, share)

    def change(self, total: int, share: int) -> None:
        """To these limits. What is held stays held."""
        self.total, self.share = total, share
        self._floor = min(self._floor_wanted, total // (_LARGEST_POT_OF_FLOORS * FLOORS))
        self._common = total - FLOORS * self._floor
        self._look_at_floors(anew=True)

    @property
    def floor(self) -> int:
        """As it is now."""
        return self._floor >> self._halvings

    def most_of(self, account: str) -> int:
        """How much this account may hold now."""
        floor = self.floor
        others = self._common_used - max(0, self.held.get(account, 0) - floor)
        free = 0 if self.only_floors else max(0, self._common - others)
        # x <= share * (free - x)
        return floor + free * self.share // (100 + self.share)

    def refusal(self, account: str, more: int) -> str | None:
        """Why this account may not have so much more; None: it may."""
        if account == HOUSE:
            return None
        held, most = self.held.get(account, 0), self.most_of(account)
        if held + more <= most:
            return None
        has, may_have, others = map(self._said, (held, most, self.used - held))
        return f"{self.name}: {account} has {has}, and may have {may_have} while others have {others}"

    def _said(self, amount: int) -> str:
        return f"{amount}" if self._unit == 1 else f"{amount / self._unit:.1f}"

    def take(self, account: str, amount: int) -> None:
        """It has so much more, whether or not it may: what was granted already is never taken away."""
        self._set(account, self.held.get(account, 0) + amount)

    def give_back(self, account: str, amount: int) -> None:
        self._set(account, self.held.get(account, 0) - amount)

    def _set(self, account: str, amount: int) -> None:
        assert amount >= 0, f"{account} gave back more {self.name} than it had"
        floor, before = self.floor, self.held.get(account)
        self._common_used += max(0, amount - floor) - max(0, (before or 0) - floor)
        self.used += amount - (before or 0)
        self.peak = max(self.peak, self.used)
        if amount:
            self.held[account] = amount
        elif before is not None:
            del self.held[account]
        if (before is None) != (amount == 0):
            self._look_at_floors()

    def _look_at_floors(self, *, anew: bool = False) -> None:
        """With twice as many accounts, each has half of a floor."""
        halvings = max(0, (len(self.held) - 1) // FLOORS).bit_length()
        if anew or halvings != self._halvings:
            self._halvings = halvings
            floor = self.floor
            self._common_used = sum(max(0, held - floor) for held in self.held.values())
