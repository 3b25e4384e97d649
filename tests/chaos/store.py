"""What the locks protect: a resource that takes a write only with a fence that is not below the largest it
has seen."""

from __future__ import annotations

import threading

from lockd.clock import boottime_ns
from tests.chaos.recorder import Recorder
from tests.harness.history import Wrote


class Store:
    """checks_fences=False makes it one that takes whatever comes, as most resources do."""

    def __init__(self, recorder: Recorder, checks_fences: bool = True) -> None:
        self._recorder = recorder
        self._checks_fences = checks_fences
        self._largest: dict[bytes, int] = {}
        self._one_at_a_time = threading.Lock()
        self.accepted = 0
        self.refused = 0

    def write(self, resource: bytes, token: bytes, fence: int) -> bool:
        """True when the write was accepted."""
        with self._one_at_a_time:
            accepted = not self._checks_fences or fence >= self._largest.get(resource, 0)
            if accepted:
                self._largest[resource] = fence
                self.accepted += 1
            else:
                self.refused += 1
            self._recorder.note(Wrote(boottime_ns(), resource, token, fence, accepted))
            return accepted
