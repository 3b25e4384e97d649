"""The Unix socket that apps connect to: made at the start, and again when its file is gone.

Who clears out /run, or deletes the file by mistake, leaves an agent that listens where nobody can find it:
who is connected goes on, and nobody new comes in.
"""

import grp
import os
import socket
import stat
from contextlib import suppress

from lockd.config.model import Socket

# A client that doesn't block, of Node.js for example, gets EAGAIN when more than these wait to be let in. The
# kernel takes no more than net.core.somaxconn: 4,096 unless the host says otherwise, as site.yml has it do.
BACKLOG = 65_535


class CannotServe(Exception):
    """The agent can't start; the text says what to do."""


class AppSocket:
    """The file of the socket. What listens behind it belongs to whoever called `make`."""

    def __init__(self, wanted: Socket) -> None:
        self._wanted = wanted
        self._path = str(wanted.path)
        self._made: tuple[int, int] | None = None

    def make_first(self) -> socket.socket:
        """What an earlier agent has left is removed first. Raises CannotServe."""
        self._clear_the_way()
        return self.make()

    def make(self) -> socket.socket:
        """With its mode and group from the first moment that anybody can connect. Raises CannotServe."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._bind(listening)
            self._let_in()
        except BaseException:
            listening.close()
            raise
        # From here on it answers whoever looks whether an agent is alive behind it.
        listening.listen(BACKLOG)
        return listening

    def _bind(self, listening: socket.socket) -> None:
        before = os.umask(0o777)
        try:
            listening.bind(self._path)
        except OSError as failure:
            raise CannotServe(
                f"the socket {self._path} can't be made ({failure.strerror}): "
                "does its folder exist, and may this user write there?"
            ) from failure
        finally:
            os.umask(before)
        self._made = _file_at(self._path)

    def _let_in(self) -> None:
        try:
            if self._wanted.group is not None:
                os.chown(self._path, -1, grp.getgrnam(self._wanted.group).gr_gid)
            os.chmod(self._path, self._wanted.mode)
        except (OSError, KeyError) as failure:
            self.remove()
            raise CannotServe(
                f"the socket {self._path} can't be given to the group '{self._wanted.group}': {failure}"
            ) from failure

    def _clear_the_way(self) -> None:
        """A socket that a dead agent left is removed; one that answers, or another kind of file, is not ours
        to remove."""
        path = self._path
        try:
            there = os.lstat(path)
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(there.st_mode):
            raise CannotServe(f"{path} is there and is no socket: remove it, or choose another socket.path")
        # Ours, and closed to everybody: an agent was killed after it had bound it, and before it could say
        # who may connect. Nobody can have listened there, and nobody but root could try.
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
                    f"{path} can't be tried ({failure}): is another agent serving there?"
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
        """Why nobody new gets in; '' while the file leads to us. From any thread."""
        try:
            found = _file_at(self._path)
        except OSError as failure:
            return f"the socket {self._path} can't be looked at: {failure.strerror}"
        if found is None:
            return f"the socket {self._path} is gone"
        # While ours is open, its number is given to no other file.
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
