"""redis-py's Lock, and what others make of it: they only differ in how a lock object comes to be."""

import threading

from redis.exceptions import LockError

REFUSALS = (LockError,)


class Locks:
    """`made(name, seconds, **options)` is the library's way to a lock object."""

    def __init__(self, made):
        self._made = made
        self._held = {}

    def _lock(self, name):
        """The one that this process got, or one that never got it."""
        return self._held[name] if name in self._held else self._made(name, None)

    def acquire(self, name, ttl_ms, wait_ms=0, **options):
        lock = self._made(name, ttl_ms and ttl_ms / 1000, **options)
        got = lock.acquire(blocking=wait_ms > 0, blocking_timeout=wait_ms / 1000 if wait_ms else None)
        if got:
            self._held[name] = lock
        return got

    def release(self, name):
        self._lock(name).release()
        return True

    def extend(self, name, ttl_ms):
        return self._lock(name).extend(ttl_ms / 1000, replace_ttl=True)

    def add(self, name, ttl_ms):
        return self._lock(name).extend(ttl_ms / 1000)

    def reacquire(self, name, ttl_ms):
        self._lock(name).timeout = ttl_ms / 1000
        return self._lock(name).reacquire()

    def locked(self, name):
        return self._lock(name).locked()

    def owned(self, name):
        return self._lock(name).owned()

    def token(self, name):
        return self._lock(name).local.token.decode()

    def release_as(self, name, token):
        lock = self._made(name, None)
        lock.local.token = token.encode()
        lock.release()
        return True

    def release_in_thread(self, name):
        said = []
        thread = threading.Thread(target=lambda: said.append(self._said(name)))
        thread.start()
        thread.join()
        return said == [True]

    def _said(self, name):
        try:
            return self.release(name)
        except LockError:
            return False
