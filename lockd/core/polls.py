"""Libraries that poll: what they ask again within a moment is answered from what is known (drop-in locks).

A refusal that is a moment old grants nothing to anybody: no safety rests on it. Who is refused so asks again
soon, since nobody tells him when a lock is free.
"""

from collections import OrderedDict

from lockd.core.validity import NS_PER_MS
from lockd.core.values import Refusal

_REMEMBERED_NS = 100 * NS_PER_MS
_MOST = 10_000


class Polls:
    """Of which resources masters have just said that another holds them."""

    def __init__(self) -> None:
        self._refused: OrderedDict[bytes, tuple[int, Refusal]] = OrderedDict()

    def refused(self, resource: bytes, refusal: Refusal, now_ns: int) -> None:
        """Another holds it. The first word counts: who asks all the time would never hear another."""
        before = self._refused.get(resource)
        if before is None or now_ns >= before[0]:
            self._refused[resource] = now_ns + _REMEMBERED_NS, refusal
            self._refused.move_to_end(resource)
            if len(self._refused) > _MOST:
                self._refused.popitem(last=False)

    def refusal(self, resource: bytes, now_ns: int) -> Refusal | None:
        """What who polls is told now. None: the masters are asked."""
        until_ns, refusal = self._refused.get(resource, (0, None))
        if refusal is not None and now_ns >= until_ns:
            del self._refused[resource]
            return None
        return refusal

    def is_free(self, resource: bytes) -> None:
        """It was given back here."""
        if self._refused:
            self._refused.pop(resource, None)
