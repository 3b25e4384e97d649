"""celery-redbeat: the lock that its scheduler takes when it begins, extends at each tick and releases.

It knows no single try: it waits for as long as it takes, and a signal ends that here.
"""

import linecache
import signal
import sys
from types import SimpleNamespace

from celery import Celery
from redbeat.schedulers import RedBeatScheduler, acquire_distributed_beat_lock
from redis.exceptions import LockError
from serving import serve

PAUSE_S = 0.1


class GaveUp(Exception):
    """The signal came."""


def give_up(_number, frame):
    """Where it sleeps between two tries; a try that is on its way may have got it."""
    if "sleep(" not in linecache.getline(frame.f_code.co_filename, frame.f_lineno):
        signal.setitimer(signal.ITIMER_REAL, PAUSE_S / 10)
    else:
        raise GaveUp


class Locks:
    def __init__(self, path):
        self._app = Celery(set_as_current=False)
        self._app.conf.update(redbeat_redis_url=f"unix://{path}", beat_max_loop_interval=PAUSE_S)
        self._held = {}
        signal.signal(signal.SIGALRM, give_up)

    def acquire(self, name, ttl_ms, wait_ms=0):
        key, timeout = f"redbeat::{name}", ttl_ms / 1000
        scheduler = RedBeatScheduler(self._app, lock_key=key, lock_timeout=timeout, lazy=True)
        signal.setitimer(signal.ITIMER_REAL, wait_ms / 1000 or PAUSE_S / 10)
        acquire_distributed_beat_lock(SimpleNamespace(scheduler=scheduler))
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._held[name] = scheduler
        return True

    def release(self, name):
        """As its `close` does, which has more to close."""
        scheduler = self._held[name]
        owned = scheduler.lock.owned()
        if owned:
            scheduler.lock.release()
        return owned

    def extend(self, name, ttl_ms):
        """As its `tick` does, which has tasks to look for."""
        return self._held[name].lock.extend(ttl_ms // 1000)

    def owned(self, name):
        return name in self._held and self._held[name].lock.owned()


serve(Locks(sys.argv[1]), (GaveUp, LockError))
