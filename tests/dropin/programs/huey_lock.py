"""huey: lock_task of a RedisExpireHuey. (A RedisHuey keeps its locks in a hash.) The value is always 1, and
whoever releases deletes."""

import sys

from huey import RedisExpireHuey
from huey.exceptions import TaskLockedException
from redis import ConnectionPool, UnixDomainSocketConnection
from serving import seconds, serve


class Locks:
    def __init__(self, path):
        pool = ConnectionPool(connection_class=UnixDomainSocketConnection, path=path)
        self._huey = RedisExpireHuey("dropin", connection_pool=pool)

    def acquire(self, name, ttl_ms, wait_ms=0):
        return self._huey.lock_task(name, seconds(ttl_ms)).acquire()

    def release(self, name):
        return bool(self._huey.lock_task(name).release())

    def locked(self, name):
        return self._huey.lock_task(name).is_locked()


serve(Locks(sys.argv[1]), (TaskLockedException,))
