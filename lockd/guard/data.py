"""The data beside what was noted of it: another's, older or shorter data is moved aside (rule 10)."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from .aof import move_aside
from .delay import NS_PER_S
from .errors import Unreadable, refusal
from .guard import Guard
from .marks import data_mark, why_not_ours
from .printable import said
from .reasons import Dirt
from .records import GuardState, Mark
from .state_folder import MARK, PREVIOUS_MARK, STATE, STATE_LOCK

# These show for certain that Redis did not write the files. Anything else may pass.
_NOT_REDIS = (errno.ENOENT, errno.EINVAL, errno.ELOOP, errno.ENOTDIR, errno.EFBIG, errno.ENXIO)


def without_foreign_data(guard: Guard, state: GuardState, dirt: Dirt) -> Dirt:
    """Data that is not what was last seen here is moved aside: the master comes up blank."""
    why = _why_foreign(guard, state)
    if not why:
        return dirt
    suffix = str(guard.host.wall_ns())
    state.moved_aside += 1
    state.aside = f"{guard.config.data_dir}/*.aside-{suffix} ({why})"
    # First: if this process dies after it has moved a part, the rest is still foreign at the next start.
    guard.folder.put(STATE, state)
    try:
        aside = move_aside(guard.config, suffix)
    except OSError as error:
        raise refusal(
            f"its data has changed ({why}), and can't be moved aside ({said(error)})",
            f"move it out of {guard.config.data_dir} yourself, and never move it back",
        ) from None
    guard.host.log("error", "data_moved_aside", why=why, to=aside)
    return Dirt(dirt.reason, f"{dirt.detail}; its data was moved aside. Admit the master as a new one: {why}")


def _why_foreign(guard: Guard, state: GuardState) -> str:
    """What shows that the data is not what this master wrote here; nothing if nothing does. Data that can't
    be read shows nothing: then this refuses, and systemd tries again."""
    try:
        mark = guard.folder.get(MARK, Mark)
    except Unreadable as error:
        raise refusal(
            f"the record of its data can't be read ({MARK} is {error})",
            f"if it persists, remove {guard.folder.path / MARK}. That gives up this master's data: it is "
            "moved aside, and the master is blank and must be admitted as a new one",
        ) from None
    if mark is not None:
        why = _why_not_ours(guard, mark)
        return "" if not why or _came_back(guard) else why
    with _reading_data(guard):
        data = _seen_data(guard, ended=True)
    # The first start with a guard that keeps marks knows nothing about the data before it.
    known = state.generation > 0 and not state.marked
    return "" if not data.file or known else "there is no record that it was written here"


def _why_not_ours(guard: Guard, mark: Mark) -> str:
    with _reading_data(guard):
        try:
            return why_not_ours(guard.config, mark, guard.host.host_id())
        except OSError as error:
            if error.errno not in _NOT_REDIS:
                raise
            return f"Redis has not written this ({said(error)})"


@contextmanager
def _reading_data(guard: Guard) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise refusal(
            f"its data can't be compared with the record of it ({said(error)})",
            f"wait: systemd tries again. If it persists, repair the disk of {guard.config.data_dir}",
        ) from None


def _came_back(guard: Guard) -> bool:
    """Is it the data that was missing at an earlier start?"""
    try:
        gone = guard.folder.get(PREVIOUS_MARK, Mark)
    except Unreadable as error:
        guard.host.log("error", "no_previous_mark", why=error)
        return False
    if gone is None or _why_not_ours(guard, gone):
        return False
    guard.host.log("warning", "data_back", why="it is older data that was removed before")
    return True


def look_again(guard: Guard) -> None:
    """A quarantine is long enough for somebody to put other data there."""
    mark = guard.folder.get_if_readable(MARK, Mark)
    why = _why_not_ours(guard, mark) if mark else "the record of it is gone"
    if why:
        raise refusal(
            f"its data was changed during the quarantine ({why})",
            ("nothing: the quarantine starts again by itself"),
        )


def note_data(guard: Guard, state: GuardState, *, ended: bool) -> None:
    """What is there now, at a start. Raises OSError."""
    with _reading_data(guard):
        now = _seen_data(guard, ended=ended, loading=not ended)
    before = guard.folder.get_if_readable(MARK, Mark)
    if before is not None and before.file and not now.file:
        guard.folder.put(PREVIOUS_MARK, before)
        guard.host.log("error", "data_gone", why="moved aside, removed, or its disk is not mounted")
    guard.folder.put(MARK, now)
    state.marked = True


def _seen_data(guard: Guard, *, ended: bool, loading: bool = False) -> Mark:
    at_s = guard.host.wall_ns() // NS_PER_S
    return data_mark(guard.config, guard.host.host_id(), at_s, ended=ended, loading=loading)


def mark_data(guard: Guard) -> str:
    """While Redis is in service: note what is on disk. If that is not what Redis wrote, it was put there
    meanwhile: then the older note stays, and this returns why. Raises OSError."""
    before = guard.in_service()
    if before is None:
        return ""
    # Not under the lock: a slow disk must not hold up the others.
    now, why = _seen_since(guard, guard.folder.get_if_readable(MARK, Mark), ended=False)
    if why:
        return why
    with guard.lock(STATE_LOCK):
        # Only what Redis itself wrote counts, and not what was put there after it had ended.
        if guard.in_service() == before:
            guard.folder.put(MARK, now)
    return ""


def _seen_since(guard: Guard, mark: Mark | None, *, ended: bool) -> tuple[Mark, str]:
    """The data now, and why it did not come from what was noted. It is looked at first and then compared, so
    that data which is put there in between is not noted. Raises OSError."""
    now = _seen_data(guard, ended=ended)
    if mark is None:
        return now, ""
    if mark.file and not now.file:
        return now, "it is gone"
    why = why_not_ours(guard.config, mark, guard.host.host_id())
    if not ended and _may_be_loading(guard, mark, now):
        now = replace(mark, at_s=now.at_s)
    return now, why


def _may_be_loading(guard: Guard, mark: Mark, now: Mark) -> bool:
    untouched = mark.loaded > 0 and (mark.inode, mark.loaded) == (now.inode, now.size)
    return untouched and not guard.host.has_started(guard.config.unit)


def awaits_data(guard: Guard) -> bool:
    """True while the last note says that there is none."""
    mark = guard.folder.get_if_readable(MARK, Mark)
    return mark is not None and not mark.file


def mark_at_the_end(guard: Guard) -> str:
    """Note what Redis left, however it ended. If that fails, an older note is just as good. Returns why it is
    not noted if Redis did not write it."""
    try:
        now, why = _seen_since(guard, guard.folder.get_if_readable(MARK, Mark), ended=True)
        if not why:
            guard.folder.put(MARK, now)
    except OSError as error:
        guard.host.log("warning", "no_mark", why=said(error))
        return ""
    if why:
        guard.host.log("error", "data_replaced", why=why)
    return why
