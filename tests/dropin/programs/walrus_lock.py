"""walrus: Database.lock, which waits with BLPOP on a list of its own, for as long as it takes."""

import sys

from serving import serve
from walrus import Database


class Locks:
    def __init__(self, database):
        self._database = database
        self._held = {}

    def acquire(self, name, ttl_ms, wait_ms=0):
        lock = self._database.lock(name, ttl=ttl_ms)
        got = lock.acquire(block=wait_ms > 0)
        if got:
            self._held[name] = lock
        return got

    def release(self, name):
        return (self._held.get(name) or self._database.lock(name)).release()

    def token(self, name):
        return self._held[name]._lock_id.hex()

    def release_as(self, name, token):
        try:
            value = bytes.fromhex(token)
        except ValueError:
            value = token.encode()
        return self._database.lock(name, lock_id=value).release()


serve(Locks(Database(unix_socket_path=sys.argv[1])), ())
