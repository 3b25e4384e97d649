"""python-redis-lock: redis_lock.Lock, which waits with BLPOP and counts in seconds."""

import sys

import redis
from redis_lock import Lock, NotAcquired
from serving import seconds, serve


class Locks:
    def __init__(self, client):
        self._client = client
        self._held = {}

    def _lock(self, name):
        return self._held[name] if name in self._held else Lock(self._client, name)

    def acquire(self, name, ttl_ms, wait_ms=0):
        lock = Lock(self._client, name, expire=seconds(ttl_ms))
        got = lock.acquire(blocking=wait_ms > 0, timeout=seconds(wait_ms) or None)
        if got:
            self._held[name] = lock
        return got

    def release(self, name):
        self._lock(name).release()
        return True

    def extend(self, name, ttl_ms):
        self._lock(name).extend(seconds(ttl_ms))
        return True

    def locked(self, name):
        return self._lock(name).locked()

    def owned(self, name):
        return self._lock(name).get_owner_id() == self._lock(name).id

    def token(self, name):
        return self._lock(name).id

    def release_as(self, name, token):
        Lock(self._client, name, id=token).release()
        return True


serve(Locks(redis.StrictRedis(unix_socket_path=sys.argv[1])), (NotAcquired,))
