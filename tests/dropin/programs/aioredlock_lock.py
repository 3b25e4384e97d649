"""aioredlock: Aioredlock over one server, which is the agent."""

import sys

from aioredlock import Aioredlock, LockError
from serving import seconds, serve

PAUSE_MS = 100


class Locks:
    def __init__(self, path):
        self._path = path
        self._held = {}
        self._managers = {}

    def _manager(self, tries=1):
        pause = {"retry_delay_min": PAUSE_MS / 1000, "retry_delay_max": PAUSE_MS / 1000}
        if tries not in self._managers:
            self._managers[tries] = Aioredlock([self._path], retry_count=tries, **pause)
        return self._managers[tries]

    async def acquire(self, name, ttl_ms, wait_ms=0):
        self._held[name] = await self._manager(1 + wait_ms // PAUSE_MS).lock(name, ttl_ms / 1000)
        return self._held[name].valid

    async def release(self, name):
        await self._manager().unlock(self._held[name])
        return True

    async def extend(self, name, ttl_ms):
        await self._manager().extend(self._held[name], seconds(ttl_ms))
        return True

    async def locked(self, name):
        return await self._manager().is_locked(name)

    async def token(self, name):
        return self._held[name].id

    async def release_as(self, name, token):
        await self._manager().unlock(await self._manager().get_lock(name, token))
        return True


serve(Locks(sys.argv[1]), (LockError,))
