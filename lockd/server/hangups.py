"""Connections that are not read from for a while, watched for their end.

The end of a stream comes after everything that was sent before it. So while nothing is read from a
connection, its closing can't be seen by reading: think of an app that has sent a lot after a LOCK that waits,
and has died. But the kernel reports it, and nothing else, to a watcher that asks for no events (EPOLLHUP is
always reported).
"""

import asyncio
import select
from typing import Protocol

_NOTHING_ELSE = 0


class Watched(Protocol):
    """A connection whose end is watched for."""

    def hung_up(self) -> None: ...


class HangUps:
    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._files: dict[Watched, int] = {}
        self._watched: dict[int, Watched] = {}

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.add_reader(self._epoll.fileno(), self._look)

    def stop(self, loop: asyncio.AbstractEventLoop) -> None:
        """More connections may still end."""
        loop.remove_reader(self._epoll.fileno())
        self._files.clear()
        self._watched.clear()
        self._epoll.close()

    def watch(self, session: Watched, file: int) -> None:
        """Call its `hung_up` once, when its app has closed."""
        self._files[session] = file
        self._watched[file] = session
        self._epoll.register(file, _NOTHING_ELSE)

    def forget(self, session: Watched) -> None:
        """It is read from again, or closed."""
        file = self._files.pop(session, None)
        # By now its number may belong to another connection.
        if file is None or self._watched.get(file) is not session:
            return
        del self._watched[file]
        try:
            self._epoll.unregister(file)
        except OSError:
            # Closed: the kernel has forgotten it already.
            return

    def _look(self) -> None:
        for file, _ in self._epoll.poll(0):
            session = self._watched.get(file)
            if session is not None:
                self.forget(session)
                session.hung_up()
