"""Tables that remember something for a while: a full account forgets its own oldest entry, never
another's."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from lockd.core.stakes import Stock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Table(Generic[K, V]):
    """most: how many entries there are room for; floor: how many of them each account has for itself."""

    def __init__(self, most: int, floor: int) -> None:
        self._stock = Stock("entries", most, floor, 50)
        self._entries: dict[K, tuple[str, V]] = {}
        self._of: dict[str, OrderedDict[K, None]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def get(self, key: K) -> V | None:
        entry = self._entries.get(key)
        return None if entry is None else entry[1]

    def put(self, account: str, key: K, value: V) -> list[V]:
        """It is this account's newest entry from now on. Returns what the account has forgotten for it."""
        self.pop(key)
        forgotten = list[V]()
        while self._stock.refusal(account, 1) is not None:
            oldest = self.oldest_of(account)
            if oldest is None:
                return forgotten  # there is room for fewer entries than there are accounts
            forgotten.append(self._take_out(oldest))
        self._stock.take(account, 1)
        self._entries[key] = account, value
        self._of.setdefault(account, OrderedDict())[key] = None
        return forgotten

    def oldest_of(self, account: str) -> K | None:
        return next(iter(self._of.get(account, ())), None)

    def use(self, key: K) -> V | None:
        """As `get`, and it is its account's newest entry again."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._of[entry[0]].move_to_end(key)
        return entry[1]

    def pop(self, key: K) -> V | None:
        return self._take_out(key) if key in self._entries else None

    def _take_out(self, key: K) -> V:
        account, value = self._entries.pop(key)
        of_account = self._of[account]
        del of_account[key]
        if not of_account:
            del self._of[account]
        self._stock.give_back(account, 1)
        return value
