"""pottery: Redlock over one master, which is the agent."""

import sys

import redis
from pottery import Redlock
from pottery.exceptions import ExtendUnlockedLock, ReleaseUnlockedLock
from serving import serve


class Locks:
    def __init__(self, client):
        self._masters = {client}
        self._held = {}

    def _lock(self, name, **options):
        return self._held[name] if name in self._held else Redlock(key=name, masters=self._masters, **options)

    def acquire(self, name, ttl_ms, wait_ms=0):
        lock = Redlock(key=name, masters=self._masters, auto_release_time=ttl_ms / 1000)
        got = lock.acquire(timeout=wait_ms / 1000) if wait_ms else lock.acquire(blocking=False)
        if got:
            self._held[name] = lock
        return got

    def release(self, name):
        self._lock(name).release()
        return True

    def extend(self, name, ttl_ms):
        lock = self._lock(name)
        lock.auto_release_time = ttl_ms / 1000
        lock.extend()
        return True

    def owned(self, name):
        return self._lock(name).locked() > 0


serve(Locks(redis.Redis(unix_socket_path=sys.argv[1])), (ReleaseUnlockedLock, ExtendUnlockedLock))
