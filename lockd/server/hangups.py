"""Connections that are not read from for a while, watched for their end.

Whoever isn't read from can't be seen to close: the end of a stream comes behind what was sent before it. The
kernel tells of it all the same, and of nothing else, where nobody asks for more than that (EPOLLHUP is always
told). So much for an app that has sent a lot behind a LOCK that waits, and has died.
"""

import asyncio
import select
from typing import Protocol

_NOTHING_ELSE = 0


class Watched(Protocol):
    """A connection, to whoever watches for its end."""

    def hung_up(self) -> None: ...


class HangUps:
    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._files: dict[Watched, int] = {}
        self._watched: dict[int, Watched] = {}

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.add_reader(self._epoll.fileno(), self._look)

    def stop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Connections may still end."""
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
        # Its number may be another connection's by now.
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
