"""A Unix socket that the agent listens on: made at the start, and again when its file is gone.

Someone may clear out /run, or delete the file by mistake. Then the agent still listens, but nobody can find
it: apps that are connected go on, and no new ones come in.
"""

import os
import socket
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from lockd.config.model import Socket

# A client that doesn't block, such as one for Node.js, gets EAGAIN when more than these wait to be let in.
# The kernel takes no more than net.core.somaxconn: 4,096 unless the host says otherwise, as site.yml makes it
# do.
BACKLOG = 65_535


class CannotServe(Exception):
    """The agent can't start; the text says what to do."""


class UnixSocket(ABC):
    """The file of the socket. The listening socket behind it belongs to the caller of `make`."""

    def __init__(self, path: Path | str) -> None:
        self._path = str(path)
        self._made: tuple[int, int] | None = None

    @abstractmethod
    def let_in(self) -> None:
        """Say who may connect to the file, which is closed to all but root until then. Raises CannotServe."""

    @property
    def path(self) -> str:
        return self._path

    def make_first(self) -> socket.socket:
        """Removes the file of an earlier agent first. Raises CannotServe."""
        self._clear_the_way()
        return self.make()

    def make(self) -> socket.socket:
        """Only those who may connect can, from the first moment on. Raises CannotServe."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._bind(listening)
            try:
                self.let_in()
            except BaseException:
                self.remove()
                raise
        except BaseException:
            listening.close()
            raise
        # From here on, it answers any process that checks whether an agent is alive behind it.
        listening.listen(BACKLOG)
        return listening

    def _bind(self, listening: socket.socket) -> None:
        before = os.umask(0o777)
        try:
            listening.bind(self._path)
        except OSError as failure:
            raise CannotServe(
                f"the socket {self._path} can't be made ({failure.strerror}): check that its folder exists "
                "and that this user may write there"
            ) from failure
        finally:
            os.umask(before)
        self._made = _file_at(self._path)

    def _clear_the_way(self) -> None:
        """A socket of a dead agent is removed. If it answers, or is another kind of file, it is not ours to
        remove."""
        path = self._path
        try:
            there = os.lstat(path)
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(there.st_mode):
            raise CannotServe(
                f"{path} is there and is not a socket: remove it, or choose another socket.path"
            )
        # Ours, and closed to everybody: an agent was killed after it had bound the socket, and before it
        # could say who may connect. Nobody can have listened there, and nobody but root could connect.
        if there.st_uid == os.geteuid() and not stat.S_IMODE(there.st_mode):
            os.unlink(path)
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                os.unlink(path)
            except OSError as failure:
                raise CannotServe(
                    f"{path} can't be checked ({failure}): another agent may be serving there"
                ) from failure
            else:
                raise CannotServe(
                    f"another agent is serving at {path}: stop it first, or choose another socket.path"
                )

    @property
    def is_gone(self) -> bool:
        """There is no file: one can be made."""
        try:
            return _file_at(self._path) is None
        except OSError:
            return False

    def trouble(self) -> str:
        """Why no new app gets in; '' while the file leads to this agent. From any thread."""
        try:
            found = _file_at(self._path)
        except OSError as failure:
            return f"the socket {self._path} can't be checked: {failure.strerror}"
        if found is None:
            return f"the socket {self._path} is gone"
        # While our file is open, no other file gets its number.
        if found != self._made:
            return f"something else is at {self._path}: remove it, and the agent makes its socket again"
        return ""

    def remove(self) -> None:
        """Unless another's file is there."""
        with suppress(FileNotFoundError):
            if _file_at(self._path) == self._made:
                os.unlink(self._path)


def _file_at(path: str) -> tuple[int, int] | None:
    """Which file is there, as the kernel numbers it."""
    try:
        there = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return there.st_dev, there.st_ino


class AppSocket(UnixSocket):
    """For apps: its mode and group are configured. gid: of that group, once it was looked up; None: there is
    none."""

    def __init__(self, wanted: Socket, gid: Callable[[], int | None] = lambda: None) -> None:
        super().__init__(wanted.path)
        self._wanted = wanted
        self._gid = gid

    def let_in(self) -> None:
        try:
            if self._wanted.group is not None:
                os.chown(self._path, -1, _found(self._gid()))
            os.chmod(self._path, self._wanted.mode)
        except (OSError, LookupError) as failure:
            raise CannotServe(
                f"the socket {self._path} can't be given to the group '{self._wanted.group}': {failure}"
            ) from failure


def _found(gid: int | None) -> int:
    if gid is None:
        raise LookupError("there is no such group")
    return gid
