"""Lists with which libraries wake each other (python-redis-lock, walrus): a release puts an item into one,
and clients that wait for the lock wait for the item (BLPOP).

A release on this host adds an item. Releases on other hosts are not heard here, so waiting clients look now
and then whether the lock is free. An item only says that a try may be worth it: the library still has to take
the lock.
"""

import asyncio
from collections import OrderedDict, defaultdict

from lockd.clock import boottime_ns
from lockd.core.validity import NS_PER_MS
from lockd.core.values import Refusal
from lockd.server.dropin.looking import Looking, Seen
from lockd.server.session import Session

ITEM = b"1"
_LISTS = (b"lock-signal:", b"lock.event:")
"""How the names of such lists begin: python-redis-lock's, walrus's. Their locks are called `lock:…`."""
_LASTS_NS = 1_000 * NS_PER_MS
_LOOKS_EVERY_S = 0.2
_MOST = 1_000


def lock_of(name: bytes) -> bytes | None:
    """The lock to which this list belongs."""
    begins = next((begins for begins in _LISTS if name.startswith(begins)), None)
    return None if begins is None else b"lock:" + name.removeprefix(begins)


class Signals:
    def __init__(self, looking: Looking) -> None:
        self._looking = looking
        self._given: OrderedDict[bytes, int] = OrderedDict()
        self._waiting: defaultdict[bytes, dict[asyncio.Future[None], None]] = defaultdict(dict)

    def given(self, name: bytes) -> None:
        """The first waiting client is woken; if there is none, the item stays for a moment."""
        for future in self._waiting.get(name, ()):
            if not future.done():
                future.set_result(None)
                return
        self._given[name] = boottime_ns() + _LASTS_NS
        if len(self._given) > _MOST:
            self._given.popitem(last=False)

    def _takes(self, name: bytes) -> bool:
        return boottime_ns() < self._given.pop(name, 0)

    async def wait(self, session: Session, name: bytes, lock: bytes, timeout_s: float | None) -> bool:
        """Whether an item comes, or the lock is free, within that time. None: no limit."""
        until_s = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
        while not (self._takes(name) or await self._is_free(session, lock)):
            rest_s = _LOOKS_EVERY_S
            if until_s is not None:
                rest_s = min(rest_s, until_s - asyncio.get_running_loop().time())
            if rest_s <= 0:
                return False
            if await self._is_woken(name, rest_s):
                return True
        return True

    async def _is_woken(self, name: bytes, within_s: float) -> bool:
        future = asyncio.get_running_loop().create_future()
        self._waiting[name][future] = None
        try:
            async with asyncio.timeout(within_s):
                await future
            return True
        except TimeoutError:
            return False
        finally:
            del self._waiting[name][future]
            if not self._waiting[name]:
                del self._waiting[name]

    async def _is_free(self, session: Session, lock: bytes) -> bool:
        """If it can't be known now, it is not free."""
        found = asyncio.get_running_loop().create_future()

        def told(seen: Seen | Refusal | None) -> None:
            if not found.done():
                found.set_result(seen is None)

        self._looking.look(session, lock, told, patient=True)
        return bool(await found)
