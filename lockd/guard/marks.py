"""Is the data what was last seen here, or did it come from that?"""

from __future__ import annotations

import hashlib
import os

from .aof import TAIL_BYTES, Aof, opened_aof
from .config import GuardConfig
from .disk import plain_file
from .records import Mark

# None of our commands or transactions is longer in the AOF. A torn one is cut off by Redis when it loads.
TORN_BYTES = 65_536
# A file that is older than a note by more than this can't have been written after it, whatever the clock did.
REWRITE_SLACK_S = 3_600


def data_mark(config: GuardConfig, host_id: str, at_s: int, *, ended: bool, loading: bool = False) -> Mark:
    """The data as it is now on disk. `loading`: Redis may still cut off a torn end. Raises OSError."""
    with opened_aof(config) as (aof, folder):
        if not aof.files:
            return Mark(
                host_id, aof.folders, rewrites=0, file="", inode=0, size=0, tail="", at_s=at_s, ended=ended
            )
        name = aof.files[-1]
        with plain_file(name, folder) as file:
            # The size first: what is written meanwhile may not be on disk.
            whole = os.fstat(file).st_size
            os.fsync(file)
            os.fsync(folder)
            size = max(0, whole - TORN_BYTES) if loading else whole
            inode, tail = os.fstat(file).st_ino, _tail(file, size)
    loaded = whole if loading else 0
    return Mark(
        host_id, aof.folders, rewrites=aof.rewrites, file=name, inode=inode, size=size, tail=tail,
        at_s=at_s, ended=ended, loaded=loaded,
    )  # fmt: skip


def _tail(file: int, size: int) -> str:
    begins = max(0, size - TAIL_BYTES)
    return hashlib.sha256(os.pread(file, size - begins, begins)).hexdigest()


def why_not_ours(config: GuardConfig, mark: Mark, host_id: str) -> str:
    """Why this data is not what was last seen here, and did not come from it; nothing when it is, or when
    there is none. Raises OSError."""
    with opened_aof(config) as (aof, folder):
        if not aof.files:
            return ""
        if mark.host_id != host_id:
            return "it was written on another machine"
        noted = Aof(mark.folders, mark.rewrites, (mark.file,))
        if aof.data_folder != noted.data_folder:
            return "its folder is a different one"
        if not mark.file:
            none = "there was none when Redis was last seen"
            return none if mark.ended else _why_from_before(aof, folder, mark)
        if noted.in_one_file and not aof.in_one_file:
            return _why_not_upgraded(aof, folder, mark)
        if aof.folders != mark.folders:
            return "its folder is a different one"
        if mark.file not in aof.files:
            return _why_no_rewrite(aof, folder, mark)
        return _why_not_grown(aof, mark.file, folder, mark)


def _why_not_upgraded(aof: Aof, folder: int, mark: Mark) -> str:
    """Redis 7 puts 6.2's file into a folder, as the base, before it does anything else."""
    if aof.rewrites > 1:
        return _why_no_rewrite(aof, folder, mark)
    return _why_not_grown(aof, aof.files[0], folder, mark)


def _why_not_grown(aof: Aof, name: str, folder: int, mark: Mark) -> str:
    with plain_file(name, folder) as file:
        seen = os.fstat(file)
        if seen.st_ino != mark.inode:
            # Since Redis 7 the files of a rewrite have a number, and never the same one again.
            return _why_no_rewrite(aof, folder, mark) if aof.in_one_file else f"{name} is a different file"
        if seen.st_size < mark.size:
            return f"{name} is shorter than it was: {seen.st_size} bytes of {mark.size}"
        return "" if _tail(file, mark.size) == mark.tail else f"{name} is not what Redis wrote"


def _why_no_rewrite(aof: Aof, folder: int, mark: Mark) -> str:
    """Why files other than the noted one are not its rewrite."""
    if mark.ended or (aof.rewrites <= mark.rewrites and not aof.in_one_file):
        return "it is older, or from another master"
    return _why_from_before(aof, folder, mark)


def _why_from_before(aof: Aof, folder: int, mark: Mark) -> str:
    """Files that Redis has begun since the note are not older; restored files often keep their old times."""
    with plain_file(aof.files[0], folder) as file:
        is_older = os.fstat(file).st_mtime < mark.at_s - REWRITE_SLACK_S
    return f"{aof.files[0]} is older than when it was last seen" if is_older else ""
