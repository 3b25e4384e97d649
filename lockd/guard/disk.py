"""Files that only this user and root can have put there, and files of others, read without trusting them."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import Busy

# For files that others may have made endless: more than this is damage, not data.
MAX_RECORD_BYTES = 4_194_304


class Untrusted(OSError):
    """Others than this user and root may write there, so its contents may be anybody's."""


_OPEN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_READ = os.O_RDONLY | _OPEN
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN
FOLDER = os.O_RDONLY | os.O_DIRECTORY | _OPEN


@contextmanager
def opened(path: Path | str, flags: int, folder: int | None = None, mode: int = 0) -> Iterator[int]:
    """That file, open, by its name in `folder` where one is given."""
    file = os.open(path, flags, mode, dir_fd=folder)
    try:
        yield file
    finally:
        os.close(file)


@contextmanager
def own_folder(path: Path) -> Iterator[int]:
    """That folder, open. Only this user and root can have put anything there, now or later: it and all
    folders above it are theirs, and no link was followed. Raises Untrusted, OSError."""
    here = Path("/")
    folder = os.open(here, FOLDER)
    try:
        for part in path.parts[1:]:
            _check_owner(folder, here, above=True)
            here /= part
            above, folder = folder, _open_below(folder, here)
            os.close(above)
        _check_owner(folder, here)
        yield folder
    finally:
        os.close(folder)


def _open_below(folder: int, path: Path) -> int:
    try:
        return os.open(path.name, FOLDER, dir_fd=folder)
    except NotADirectoryError as error:
        raise OSError(error.errno, "Not a folder, or a symbolic link", str(path)) from None
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def _check_owner(file: int, path: Path, above: bool = False) -> None:
    """`above`: in a folder like /tmp others may add names, and can't touch ours."""
    seen = os.fstat(file)
    shared = seen.st_mode & 0o022 and not (above and seen.st_mode & stat.S_ISVTX)
    if shared or seen.st_uid not in (0, os.geteuid()):
        who = f"it is uid {seen.st_uid}'s, mode {stat.S_IMODE(seen.st_mode):04o}"
        raise Untrusted(errno.EPERM, f"Users other than root may write to it ({who})", str(path))


@contextmanager
def plain_file(path: Path | str, folder: int | None = None) -> Iterator[int]:
    """That file, open for reading. Raises OSError when it is a link, a FIFO, a device …, and never waits."""
    with opened(path, _READ, folder) as file:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "Not a plain file", str(path))
        yield file


def read_plain(path: Path, max_bytes: int) -> bytes:
    """What that plain file holds. Raises OSError, also when it is larger."""
    with plain_file(path) as file:
        return read_whole(file, path, max_bytes)


def read_own(path: Path, max_bytes: int) -> bytes:
    """The same of a file that nobody but this user and root may have written. Raises Untrusted, OSError."""
    with own_folder(path.parent) as folder, plain_file(path.name, folder) as file:
        _check_owner(file, path)
        return read_whole(file, path, max_bytes)


def read_whole(file: int, path: Path, max_bytes: int) -> bytes:
    data = b""
    while chunk := os.read(file, max_bytes + 1 - len(data)):
        data += chunk
        if len(data) > max_bytes:
            raise OSError(errno.EFBIG, f"More than {max_bytes} bytes", str(path))
    return data


class Disk:
    """The few operations on the guard's files. Each is one step, before or after which the power may fail,
    and each uses a name in a folder that is ours alone at that very moment. Raises Untrusted otherwise."""

    def make_folder(self, path: Path) -> None:
        with own_folder(path.parent) as above, suppress(FileExistsError):
            os.mkdir(path.name, 0o700, dir_fd=above)

    def check_folder(self, path: Path) -> None:
        with own_folder(path):
            pass

    def read(self, path: Path) -> bytes:
        return read_own(path, MAX_RECORD_BYTES)

    def write(self, path: Path, data: bytes, mode: int, sync: bool = True) -> None:
        with own_folder(path.parent) as folder:
            # An earlier process's half-done work, or anything else: its name is freed, it is never opened.
            with suppress(FileNotFoundError):
                os.unlink(path.name, dir_fd=folder)
            with opened(path.name, _MAKE, folder, mode) as file:
                os.fchmod(file, mode)
                view = memoryview(data)
                while view:
                    view = view[os.write(file, view) :]
                if sync:
                    os.fsync(file)

    def rename(self, source: Path, target: Path) -> None:
        """Within one folder."""
        with own_folder(source.parent) as folder:
            os.rename(source.name, target.name, src_dir_fd=folder, dst_dir_fd=folder)

    def unlink(self, path: Path) -> None:
        with own_folder(path.parent) as folder:
            os.unlink(path.name, dir_fd=folder)

    def sync_folder(self, path: Path) -> None:
        with own_folder(path) as folder:
            os.fsync(folder)

    @contextmanager
    def lock(self, path: Path, wait_s: float | None = None) -> Iterator[None]:
        """Hold that file's lock; the kernel frees it when this process ends. Raises Busy after `wait_s`."""
        with own_folder(path.parent) as folder:
            with suppress(FileExistsError), opened(path.name, _MAKE, folder, 0o600):
                pass
            # A lock needs no right to write.
            with plain_file(path.name, folder) as file:
                _check_owner(file, path)
                if wait_s is None:
                    fcntl.flock(file, fcntl.LOCK_EX)
                else:
                    self._lock_within(file, wait_s)
                yield

    def _lock_within(self, file: int, wait_s: float) -> None:
        deadline_s = time.monotonic() + wait_s
        while True:
            try:
                return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline_s:
                    raise Busy from None
            time.sleep(0.01)
