"""The folder of the guard's own files."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from .disk import Disk, Untrusted
from .errors import Unreadable, refusal
from .records import GuardState, Record, decoded, encoded, no_quarantines

# The files of the state folder.
MARKER, PERMIT, STATE, OVERRIDE = "marker.json", "permit.json", "state.json", "override.json"
MARK, PREVIOUS_MARK, REST = "mark.json", "mark.previous.json", "rest.json"
ENTER_LOCK, STATE_LOCK = "enter.lock", "state.lock"


class StateFolder:
    """The guard's own files."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self.path = path

    def prepare(self) -> None:
        """Make the folder when it isn't there. Raises GuardError when other users may write to it."""
        try:
            self._disk.make_folder(self.path)
            self._disk.check_folder(self.path)
        except Untrusted as error:
            raise refusal(
                f"users other than root could forge a clean stop in {self.path} ({error})",
                f"chown root: {error.filename} && chmod go-w {error.filename}",
            ) from None
        except OSError as error:
            raise refusal(f"the state folder can't be used ({error})", "make it writable") from None

    def get(self, name: str, kind: type[Record]) -> Record | None:
        """What is in that file, None when it isn't there. Raises Unreadable."""
        try:
            return decoded(kind, self._disk.read(self.path / name))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unreadable(str(error)) from None

    def get_if_readable(self, name: str, kind: type[Record]) -> Record | None:
        """None as well when it can't be read."""
        try:
            return self.get(name, kind)
        except Unreadable:
            return None

    def put(self, name: str, record: Any) -> None:
        """Write it so that after a power cut there is the old file or the new one, whole."""
        new = self.path / f".{name}.new"
        self._disk.write(new, encoded(record), 0o600)
        self._disk.rename(new, self.path / name)
        self._disk.sync_folder(self.path)

    def unlink(self, *names: str) -> None:
        """Take those files away, when they are there. A power cut may bring them back: see `remove`."""
        for name in names:
            with suppress(FileNotFoundError):
                self._disk.unlink(self.path / name)

    def remove(self, *names: str) -> None:
        """Take those files away for good. The folder is synced even if none was there: the process that
        removed them may have died before that."""
        self.unlink(*names)
        self.sync()

    def sync(self) -> None:
        self._disk.sync_folder(self.path)

    def keep_damaged_state(self) -> None:
        """Set a damaged record aside, so that an operator can look at it."""
        with suppress(FileNotFoundError):
            self._disk.rename(self.path / STATE, self.path / f"{STATE}.damaged")

    def state(self) -> GuardState | None:
        """The record, None on a host without one. Raises Unreadable."""
        state = self.get(STATE, GuardState)
        if state is None:
            return None
        counts = state.quarantines
        if any(type(count) is not int for count in counts.values()):
            raise Unreadable("a count is not a number")
        state.quarantines = {**no_quarantines(), **counts}
        return state
