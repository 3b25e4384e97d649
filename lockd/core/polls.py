"""Libraries that poll: when they ask again within a moment, they are answered from what is known (drop-in
locks).

A refusal that is a moment old grants nothing to anybody, so no safety rests on it. The refused library asks
again soon, since it is not told when a lock is free.
"""

from collections import OrderedDict

from lockd.core.validity import NS_PER_MS
from lockd.core.values import Refusal

_REMEMBERED_NS = 100 * NS_PER_MS
_MOST = 10_000


class Polls:
    """The resources of which masters have just said that another holds them."""

    def __init__(self) -> None:
        self._refused: OrderedDict[bytes, tuple[int, Refusal]] = OrderedDict()

    def refused(self, resource: bytes, refusal: Refusal, now_ns: int) -> None:
        """Another holds it. Only the first answer counts: otherwise a library that asks all the time would
        never get a new one."""
        before = self._refused.get(resource)
        if before is None or now_ns >= before[0]:
            self._refused[resource] = now_ns + _REMEMBERED_NS, refusal
            self._refused.move_to_end(resource)
            if len(self._refused) > _MOST:
                self._refused.popitem(last=False)

    def refusal(self, resource: bytes, now_ns: int) -> Refusal | None:
        """The answer to a poll now. None: ask the masters."""
        until_ns, refusal = self._refused.get(resource, (0, None))
        if refusal is not None and now_ns >= until_ns:
            del self._refused[resource]
            return None
        return refusal

    def is_free(self, resource: bytes) -> None:
        """It was given back here."""
        if self._refused:
            self._refused.pop(resource, None)
