"""rq: the lock of a queue's scheduler, for a minute more than its interval."""

import logging
import sys

import redis
from rq.scheduler import RQScheduler
from serving import seconds, serve

MORE_S = 60


class Locks:
    def __init__(self, path):
        self._client = redis.Redis(unix_socket_path=path)
        self._held = {}

    def acquire(self, name, ttl_ms, wait_ms=0):
        scheduler = RQScheduler([name], self._client, logging_level=logging.ERROR)
        scheduler.interval = seconds(ttl_ms) - MORE_S
        got = name in scheduler.acquire_locks()
        if got:
            self._held[name] = scheduler
        return got

    def release(self, name):
        """It does not say whether it did."""
        self._held[name].release_locks()

    def extend(self, name, ttl_ms):
        self._held[name].interval = seconds(ttl_ms) - MORE_S
        return name in self._held[name].acquire_locks()


serve(Locks(sys.argv[1]), ())
