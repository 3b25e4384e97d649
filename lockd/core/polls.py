"""Libraries that poll: when they ask again within a moment, they are answered from what is known (drop-in
locks).

A refusal that is a moment old grants nothing to anybody, so no safety rests on it. The refused library asks
again soon, since it is not told when a lock is free.
"""

from lockd.core.tables import Table
from lockd.core.validity import NS_PER_MS
from lockd.core.values import Refusal

_REMEMBERED_NS = 100 * NS_PER_MS
_MOST, _FLOOR = 10_000, 50


class Polls:
    """The resources of which masters have just said that another holds them."""

    def __init__(self) -> None:
        self._refused = Table[bytes, tuple[int, Refusal]](_MOST, _FLOOR)

    def refused(self, account: str, resource: bytes, refusal: Refusal, now_ns: int) -> None:
        """Another holds it. Only the first answer counts: otherwise a library that asks all the time would
        never get a new one."""
        before = self._refused.get(resource)
        if before is None or now_ns >= before[0]:
            self._refused.put(account, resource, (now_ns + _REMEMBERED_NS, refusal))

    def refusal(self, resource: bytes, now_ns: int) -> Refusal | None:
        """The answer to a poll now. None: ask the masters."""
        known = self._refused.get(resource)
        if known is None:
            return None
        until_ns, refusal = known
        if now_ns >= until_ns:
            self._refused.pop(resource)
            return None
        return refusal

    def is_free(self, resource: bytes) -> None:
        """It was given back here."""
        if len(self._refused):
            self._refused.pop(resource)
