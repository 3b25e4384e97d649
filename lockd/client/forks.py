"""What happens to this process's files and threads in a child that it forks: the child must not use them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """Something with files or threads of this process, which a forked child must not use."""

    def _forked(self) -> None:
        """In the child: let go of what belongs to the parent, and start fresh."""


class Open(Protocol):
    """A connection. file: the number of its socket; -1 when it has none."""

    @property
    def file(self) -> int: ...


_forkables: WeakSet[Forkable] = WeakSet()


def survive_forks(forkable: Forkable) -> None:
    """Have its `_forked` called in each child of this process."""
    _forkables.add(forkable)


def let_go(connections: Iterable[Open]) -> None:
    """In a child: make these connections lead nowhere.

    A connection that stays open in a child would keep the lock when the parent dies. Closing its file without
    the objects that own it could hit whatever gets the same number next, so something harmless takes its
    place.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    for connection in connections:
        if connection.file >= 0:
            os.dup2(nothing, connection.file, inheritable=False)
    os.close(nothing)


def _in_child() -> None:
    for forkable in list(_forkables):
        forkable._forked()


os.register_at_fork(after_in_child=_in_child)
