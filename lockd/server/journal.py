"""The journal's file. It is beside the socket, so in /run, where it outlives the agent but not the host.

Nothing waits for a disk, and one write is one record. A seal in the journal's lock file identifies the
agent's last write, so that an older copy is told apart. If the journal or its seal can't be written it is
removed, since an old one would be worse than none. The agent then goes on serving: only its
next restart costs its holders something.

A journal that has grown is written anew, in steps (`Rewriting`), into a second file. The first one is the
journal until the second one takes its place. Together they are 4.5 times as long as what is live, at most.
"""

import fcntl
import os
import stat
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import perf_counter_ns

from lockd.core.journal import (
    GROWN,
    NO_SEAL,
    SEAL_SIZE,
    Ledger,
    Origin,
    Rewriting,
    Seal,
    Unreadable,
    check_format,
)
from lockd.core.validity import NEVER_NS

_LEAST_BYTES = 1 << 20
_MOST_BYTES = 1 << 30
_FREED_BYTES = 1 << 20
_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class NotOurs(Exception):
    """Another agent has it, or another user has put it there; the text says which."""


def origin_of(cluster: str, masters: tuple[str, ...]) -> Origin:
    """The origin of this host's and this process's journals. OSError if /proc doesn't say."""
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    pids, times = (os.readlink(f"/proc/self/ns/{kind}") for kind in ("pid", "time"))
    return Origin(boot_id, pids, times, cluster, masters)


def why_unreadable(path: Path) -> str:
    """Why this version can't take over what is noted there; '' if it can, or if nothing is there."""
    try:
        check_format(path.read_bytes())
    except FileNotFoundError:
        return ""
    except (Unreadable, OSError) as why:
        return str(why)
    return ""


class JournalFile:
    """trouble: why it isn't kept now; '' when it is. failures: how often it could not be written. is_last:
    what was taken over is the last that the previous agent wrote."""

    def __init__(self, path: Path, origin: Origin, failed: Callable[[str], None]) -> None:
        self.path = path
        self.ledger = Ledger(origin, self._append, self._broke)
        self.trouble = "not begun yet"
        self.failures = 0
        self._failed = failed
        self._file: int | None = None
        self._fresh: int | None = None
        self._spent: list[int] = []
        self._lock: int | None = None
        self._bytes = 0
        self.is_last = False
        self._seal = NO_SEAL

    def is_ours(self) -> bool:
        """No other agent has it, or can get it as long as this one lives."""
        return self._lock is not None

    def take(self) -> bytes:
        """Make it this agent's, as long as it lives, and read what the previous one has left. Raises NotOurs,
        or OSError."""
        try:
            if self._lock is None:
                self._lock = self._locked()
                # Of an agent that was killed while it wrote.
                with suppress(OSError):
                    os.unlink(self._fresh_path)
            data = self._read()
            self.is_last = any(seal.fits(data) for seal in self._known_seals())
            return data
        except (NotOurs, OSError) as why:
            self.trouble = str(why)
            raise

    def _locked(self) -> int:
        lock = os.open(f"{self.path}.lock", os.O_CREAT | os.O_RDWR | _FLAGS, 0o600)
        try:
            _check(lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as failure:
            os.close(lock)
            raise NotOurs("another agent is using it") from failure
        except BaseException:
            os.close(lock)
            raise
        return lock

    def _known_seals(self) -> list[Seal]:
        """Of the journal that is there, and of the one that is put in its place."""
        assert self._lock is not None
        found = os.pread(self._lock, 2 * SEAL_SIZE, 0).ljust(2 * SEAL_SIZE, b"\0")
        return [Seal.read(found[at : at + SEAL_SIZE]) for at in (0, SEAL_SIZE)]

    def _sealed(self, place: int) -> None:
        """Not through mapped memory: if /run is full, or somebody has cut the file, the kernel kills who
        touches that."""
        assert self._lock is not None
        os.pwrite(self._lock, self._seal.text, place * SEAL_SIZE)

    def _unsealed(self, place: int) -> None:
        """From that one on. It takes no memory, which there may be none of."""
        assert self._lock is not None
        os.ftruncate(self._lock, place * SEAL_SIZE)

    def _read(self) -> bytes:
        try:
            file = os.open(self.path, os.O_RDONLY | _FLAGS)
        except FileNotFoundError:
            return b""
        try:
            _check(file)
            with os.fdopen(os.dup(file), "rb") as reader:
                return reader.read(_MOST_BYTES)
        finally:
            os.close(file)

    def set_aside(self) -> Path:
        """A journal that can't be read stays there, for a version that can."""
        aside = self.path.with_name(self.path.name + ".unread")
        os.replace(self.path, aside)
        return aside

    def begin(self) -> None:
        """Write it anew, with only what is held now, in one step. If that fails, no journal is there."""
        if self._lock is not None and self._rewrite():
            self.step(NEVER_NS)

    def look_after(self) -> bool:
        """Now and then: make sure that it is there, and not much longer than what is held. True: from now on
        `step` has something to do."""
        if self._lock is None or self.ledger.rewriting is not None:
            return False
        if self._file is None:
            # What another agent has left there is not the last any more: nothing is noted behind it.
            try:
                self._unsealed(0)
            except OSError as failure:
                self._put_aside(str(failure))
                return False
            return self._rewrite()
        most_bytes = max(_LEAST_BYTES, GROWN * self.ledger.live_bytes)
        return (self._bytes > most_bytes or self._is_gone()) and self._rewrite()

    def step(self, until_ns: int) -> bool:
        """As `Work` of server/turns.py: go on with writing it anew. True when there is more to do."""
        try:
            while self._go_on():
                if perf_counter_ns() >= until_ns:
                    return True
        except OSError as failure:
            self._put_aside(str(failure))
        return False

    def _rewrite(self) -> bool:
        """Begin to write it anew. False: that has failed."""
        self._drop_rewriting()
        try:
            with suppress(FileNotFoundError):
                os.unlink(self._fresh_path)
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | _FLAGS
            self._fresh = os.open(self._fresh_path, flags, 0o600)
        except OSError as failure:
            self._put_aside(str(failure))
            return False
        self.ledger.rewrite()
        return True

    def _go_on(self) -> bool:
        """For a part of a millisecond. False: there is nothing to do."""
        rewriting = self.ledger.rewriting
        if rewriting is None:
            return self._free_spent()
        assert self._fresh is not None
        _write(self._fresh, rewriting.part())
        if rewriting.is_done:
            self._take_its_place(rewriting)
        return True

    def _take_its_place(self, rewriting: Rewriting) -> None:
        """A seal fits whichever of the two is there when this agent dies. Later the second one has to fit
        nothing: it would fit older copies of the new journal."""
        self._seal = rewriting.seal
        self._sealed(1)
        os.rename(self._fresh_path, self.path)
        self._sealed(0)
        self._unsealed(1)
        if self._file is not None:
            self._spent.append(self._file)
        self._file, self._bytes, self._fresh = self._fresh, self._seal.size, None
        self.ledger.rewriting = None
        self.trouble = ""

    def _free_spent(self) -> bool:
        """The memory of the file that was there before. To free 60 MB at once takes 40 ms."""
        if not self._spent:
            return False
        file = self._spent[-1]
        found = os.fstat(file)
        # Somebody may have moved it, and have it still.
        if found.st_nlink == 0 and found.st_size > _FREED_BYTES:
            os.ftruncate(file, found.st_size - _FREED_BYTES)
        else:
            os.close(self._spent.pop())
        return True

    def _append(self, record: bytes) -> None:
        if self._file is not None:
            self._append_to(self._file, record)
        rewriting = self.ledger.rewriting
        if rewriting is not None and rewriting.is_behind:
            self.step(0)

    def _append_to(self, file: int, record: bytes) -> None:
        size = len(record)
        try:
            written = os.write(file, record)
            if written < size:
                _write(file, record[written:])
            self._seal = self._seal.behind(record)
            self._sealed(0)
        except OSError as failure:
            self._put_aside(str(failure))
            return
        self._bytes += size

    def _broke(self, failure: Exception) -> None:
        file, line, *_ = traceback.extract_tb(failure.__traceback__)[-1]
        self._put_aside(f"an error of the agent: {failure!r} ({Path(file).name}:{line})")

    def _put_aside(self, why: str) -> None:
        # If it can't be removed, it is at least emptied, and what somebody has put there is no journal.
        with suppress(OSError):
            self._unsealed(0)
        self._drop_rewriting()
        with suppress(OSError):
            os.unlink(self.path)
        if self._file is not None:
            with suppress(OSError):
                os.ftruncate(self._file, 0)
            os.close(self._file)
        self._file = None
        self.failures += 1
        if why != self.trouble:
            self.trouble = why
            self._failed(why)

    def _drop_rewriting(self) -> None:
        self.ledger.rewriting = None
        if self._fresh is not None:
            os.close(self._fresh)
            self._fresh = None
            with suppress(OSError):
                os.unlink(self._fresh_path)

    @property
    def _fresh_path(self) -> str:
        return f"{self.path}.new"

    def _is_gone(self) -> bool:
        """Someone has cleared out /run, or put another file there."""
        assert self._file is not None
        try:
            return not os.path.samestat(os.fstat(self._file), os.lstat(self.path))
        except FileNotFoundError:
            return True

    def close(self) -> None:
        """It stays for the next agent."""
        self.ledger.keep_up()
        self._drop_rewriting()
        for file in (self._file, self._lock, *self._spent):
            if file is not None:
                os.close(file)
        self._file = self._lock = None
        self._spent.clear()


def _write(file: int, data: bytes) -> None:
    """Write all of it, in one write if possible."""
    written = os.write(file, data)
    while written < len(data):
        written += os.write(file, data[written:])


def _check(file: int) -> None:
    """No other user may have written it."""
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        raise NotOurs("it is no plain file")
    if found.st_uid != os.geteuid():
        raise NotOurs(f"it belongs to uid {found.st_uid}")
    if found.st_mode & 0o077:
        raise NotOurs(f"others may open it: its mode is {stat.S_IMODE(found.st_mode):o}")
