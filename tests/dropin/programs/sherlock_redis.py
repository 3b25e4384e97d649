"""sherlock: RedisLock, which counts in seconds."""

import sys

import redis
from serving import seconds, serve
from sherlock import LockException, LockTimeoutException, RedisLock


class Locks:
    def __init__(self, client):
        self._client = client
        self._held = {}

    def _lock(self, name):
        return self._held[name] if name in self._held else RedisLock(name, client=self._client)

    def acquire(self, name, ttl_ms, wait_ms=0):
        options = {"timeout": wait_ms / 1000, "retry_interval": 0.1}
        lock = RedisLock(name, client=self._client, expire=seconds(ttl_ms), **options)
        got = lock.acquire(blocking=wait_ms > 0)
        if got:
            self._held[name] = lock
        return got

    def release(self, name):
        self._lock(name).release()
        return True

    def extend(self, name, ttl_ms):
        self._lock(name).expire = seconds(ttl_ms)
        return self._lock(name).renew()

    def locked(self, name):
        return self._lock(name).locked()


refusals = (LockException, LockTimeoutException)
serve(Locks(redis.StrictRedis(unix_socket_path=sys.argv[1])), refusals)
