"""redlock-py: Redlock over one server, which is the agent. Its `unlock` does not say whether it did."""

import sys

from redlock import Lock, Redlock
from serving import serve

PAUSE_MS = 100


class Locks:
    def __init__(self, path):
        self._servers = [{"unix_socket_path": path}]
        self._held = {}

    def _redlock(self, tries=1):
        return Redlock(self._servers, retry_count=tries, retry_delay=PAUSE_MS / 1000)

    def acquire(self, name, ttl_ms, wait_ms=0):
        lock = self._redlock(1 + wait_ms // PAUSE_MS).lock(name, ttl_ms)
        if lock:
            self._held[name] = lock
        return bool(lock)

    def release(self, name):
        return self._redlock().unlock(self._held[name])

    def token(self, name):
        return self._held[name].key.decode()

    def release_as(self, name, token):
        return self._redlock().unlock(Lock(0, name, token.encode()))


serve(Locks(sys.argv[1]), ())
