"""How often something may happen, for each of many users: one bucket for each, and a limit on how many."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
_FORGOTTEN_AT_ONCE = 2


class Buckets(Generic[K]):
    """One bucket for each key: `burst` at once, then one every `interval_ns`.

    Buckets that are full again are forgotten, since a new one is the same. If more than `most` keys are busy
    at a time, the later ones share one bucket, so that memory stays bounded.
    """

    def __init__(self, burst: int, interval_ns: int, most: int) -> None:
        self._room_ns = (burst - 1) * interval_ns
        self._interval_ns = interval_ns
        self._most = most
        self._full_ns: OrderedDict[K, int] = OrderedDict()
        """When each would be full again if nothing more happened; the least recently used first."""
        self._others_full_ns = 0

    def __len__(self) -> int:
        return len(self._full_ns)

    def admits(self, key: K, now_ns: int) -> bool:
        """Whether it may happen once more for this key; if so, it has."""
        known = self._full_ns
        if key not in known and not self._has_room(now_ns):
            full_ns = max(self._others_full_ns, now_ns)
            admitted = full_ns - now_ns <= self._room_ns
            if admitted:
                self._others_full_ns = full_ns + self._interval_ns
            return admitted
        full_ns = max(known.get(key, 0), now_ns)
        if full_ns - now_ns > self._room_ns:
            return False
        known[key] = full_ns + self._interval_ns
        known.move_to_end(key)
        return True

    def _has_room(self, now_ns: int) -> bool:
        known = self._full_ns
        for _ in range(_FORGOTTEN_AT_ONCE):
            if known and next(iter(known.values())) <= now_ns:
                known.popitem(last=False)
        return len(known) < self._most
