"""An agent that fails where it is told to, for the tests of what an error of its own costs. Run as an agent,
behind the name of a file: SIGUSR2 has it read a number there, and the call of that number from then on fails,
counting those of functions outside the rules (core) and outside of what reports failures."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType

import lockd
from lockd.cli import main

_ROOT = os.path.dirname(lockd.__file__)
_WHERE = tuple(os.path.join(_ROOT, part, "") for part in ("metrics", "server"))
_REPORTS = tuple(os.path.join(_ROOT, "server", name) for name in ("incidents.py", "log.py", "turns.py"))
# What counts the room that accounts take says when it was given back what it never had.
_COUNTS = os.path.join(_ROOT, "server", "quotas.py")
_GUARDS = ("granted", "refused", "done", "guarded", "_broke", "close", "connection_lost", "_all_the_same")


class Injected(Exception):
    """The failure."""


class _Failing:
    def __init__(self, told: Path) -> None:
        self._told = told
        self._left = 0

    def arm(self, *_: object) -> None:
        self._left = int(self._told.read_text())
        self._told.write_text("")
        sys.setprofile(self._called if self._left else None)

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(_WHERE) or code.co_filename in _REPORTS:
            return
        if code.co_name in _GUARDS or code.co_filename == _COUNTS:
            return
        self._left -= 1
        if not self._left:
            sys.setprofile(None)
            self._told.write_text(f"{code.co_filename.removeprefix(_ROOT)}:{code.co_qualname}")
            raise Injected(code.co_qualname)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR2, _Failing(Path(sys.argv.pop(1))).arm)
    main()
