"""The one thread of a process for work that can only be done when an agent is there again."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable
from threading import RLock, Thread

from lockd.client.attempts import LOOK_AGAIN_S
from lockd.client.forks import survive_forks


class Resumer:
    """Tries each task again and again until it is done. A task may wait for an agent, so nothing that is due
    at a certain time is done here."""

    def __init__(self) -> None:
        self._fresh()
        survive_forks(self)

    def _fresh(self) -> None:
        # An RLock: a dropped lease adds a task when it is finalized, at any allocation, even one under the
        # lock.
        self._lock = RLock()
        self._tasks: list[Callable[[], bool]] = []
        self._runs = False

    def _forked(self) -> None:
        self._fresh()

    def add(self, task: Callable[[], bool]) -> None:
        """True from `task`: it is done, or need not be done any more."""
        if sys.is_finalizing():
            # No thread would run any more, and when the process ends, everything that it holds is free.
            return
        with self._lock:
            self._tasks.append(task)
            if self._runs:
                return
            self._runs = True
        try:
            Thread(target=self._run, name="lockd resumer", daemon=True).start()
        except RuntimeError:
            # No thread can be started: the next task tries again.
            self._runs = False

    def _run(self) -> None:
        while True:
            with self._lock:
                tasks, self._tasks = self._tasks, []
            left = [task for task in tasks if not _is_done(task)]
            with self._lock:
                self._tasks += left
                if not self._tasks:
                    self._runs = False
                    return
            time.sleep(LOOK_AGAIN_S)


def _is_done(task: Callable[[], bool]) -> bool:
    try:
        return task()
    except Exception:
        # An error of the client. The other tasks go on.
        traceback.print_exc()
        return True


resumer = Resumer()
