"""redis-py: redis.asyncio's lock."""

import sys

import redis.asyncio
from redis.exceptions import LockError
from serving import serve


class Locks:
    def __init__(self, client):
        self._client = client
        self._held = {}

    def _lock(self, name):
        return self._held[name] if name in self._held else self._client.lock(name)

    async def acquire(self, name, ttl_ms, wait_ms=0):
        lock = self._client.lock(name, timeout=ttl_ms and ttl_ms / 1000)
        got = await lock.acquire(blocking=wait_ms > 0, blocking_timeout=wait_ms / 1000 if wait_ms else None)
        if got:
            self._held[name] = lock
        return got

    async def release(self, name):
        await self._lock(name).release()
        return True

    async def extend(self, name, ttl_ms):
        return await self._lock(name).extend(ttl_ms / 1000, replace_ttl=True)

    async def add(self, name, ttl_ms):
        return await self._lock(name).extend(ttl_ms / 1000)

    async def reacquire(self, name, ttl_ms):
        self._lock(name).timeout = ttl_ms / 1000
        return await self._lock(name).reacquire()

    async def locked(self, name):
        return await self._lock(name).locked()

    async def owned(self, name):
        return await self._lock(name).owned()

    async def token(self, name):
        return self._lock(name).local.token.decode()

    async def release_as(self, name, token):
        lock = self._client.lock(name)
        lock.local.token = token.encode()
        await lock.release()
        return True


serve(Locks(redis.asyncio.Redis(unix_socket_path=sys.argv[1])), (LockError,))
