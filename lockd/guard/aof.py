"""The data of Redis, its AOF: what it is now, and how it is taken out of the way."""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from .config import GuardConfig
from .disk import FOLDER, MAX_RECORD_BYTES, opened, plain_file, read_whole
from .printable import one_word

TAIL_BYTES = 65_536

# Redis's AOF is a handful of files; more is damage.
MAX_AOF_FILES = 1_000


def data_fingerprint(config: GuardConfig, sync: bool = False) -> dict[str, str]:
    """What the AOF is now, file by file. Raises OSError when there is none, or it can't be read.

    Redis 7 keeps a folder (a manifest and the files that it names, nothing else), earlier versions a file.
    Nobody can set the time of the last inode change, so a file that was restored shows. The tail is read as
    well: a disk that lies may keep a size and lose what was written last. With `sync`, each file is synced
    first: a disk that can't do that is no place for a clean stop.

    All of it is Redis's, so it may be anything: see `plain_file`. Reading is bounded whatever the sizes.
    """
    with opened(config.data_dir, FOLDER & ~os.O_NOFOLLOW) as data:
        if _is_there(config.append_dir, data):
            with opened(config.append_dir, FOLDER, data) as folder:
                if _is_there(f"{config.append_file}.manifest", folder):
                    return {".": f"{_inode(data)} {_inode(folder)}", **_of_folder(folder, sync)}
        return {".": _inode(data), config.append_file: _of_file(config.append_file, data, sync)}


def _inode(file: int) -> str:
    return str(os.fstat(file).st_ino)


def _is_there(name: str | Path, folder: int | None = None) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=folder is None)
    except FileNotFoundError:
        return False
    return True


def _of_folder(folder: int, sync: bool) -> dict[str, str]:
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in islice(entries, MAX_AOF_FILES + 1))
    if len(names) > MAX_AOF_FILES:
        raise OSError(errno.E2BIG, f"More than {MAX_AOF_FILES} files")
    found = {name: _of_file(name, folder, sync) for name in names}
    if sync:
        os.fsync(folder)
    return found


def _of_file(name: str, folder: int, sync: bool) -> str:
    with plain_file(name, folder) as file:
        if sync:
            os.fsync(file)
        seen = os.fstat(file)
        tail = os.pread(file, TAIL_BYTES, max(0, seen.st_size - TAIL_BYTES))
        facts = _facts(seen)
        if _facts(os.fstat(file)) != facts:
            raise OSError(errno.EBUSY, "It changes while it is read", name)
    return f"{facts} {hashlib.sha256(tail).hexdigest()}"


def _facts(seen: os.stat_result) -> str:
    return f"{seen.st_ino} {seen.st_size} {seen.st_mtime_ns} {seen.st_ctime_ns}"


def difference(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Which files differ, for an operator; nothing when none does."""
    names = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    if "." in names:
        return "the data folder is a different one"
    some = ", ".join(map(one_word, names[:3])) + (" and others" if len(names) > 3 else "")
    return f"not as Redis left it: {some}" if names else ""


@dataclass(frozen=True)
class Aof:
    """Which files Redis would load. rewrites: the number of the base. files: the base, if there is one, and
    the files that are written to, in order; none at all if Redis would begin empty."""

    folders: str
    rewrites: int
    files: tuple[str, ...]

    @property
    def data_folder(self) -> str:
        return self.folders.partition(" ")[0]

    @property
    def in_one_file(self) -> bool:
        """As before Redis 7."""
        return " " not in self.folders


@contextmanager
def opened_aof(config: GuardConfig) -> Iterator[tuple[Aof, int]]:
    """What the AOF is, and the folder with its files. Raises OSError, also for files that are not Redis's."""
    if not _is_there(config.data_dir):
        yield Aof("", 0, ()), -1
        return
    with opened(config.data_dir, FOLDER & ~os.O_NOFOLLOW) as data:
        if _is_there(config.append_dir, data):
            with opened(config.append_dir, FOLDER, data) as folder:
                manifest = f"{config.append_file}.manifest"
                if _is_there(manifest, folder):
                    with plain_file(manifest, folder) as file:
                        text = read_whole(file, Path(manifest), MAX_RECORD_BYTES)
                    yield _aof_of(text, f"{_inode(data)} {_inode(folder)}"), folder
                    return
        in_one_file = _is_there(config.append_file, data)
        yield Aof(_inode(data), 0, (config.append_file,) if in_one_file else ()), data


_MANIFEST_LINE = re.compile(rb"file ([A-Za-z0-9_.-]{1,255}) seq ([0-9]{1,18}) type ([bhi])(?: .*)?")


def _aof_of(manifest: bytes, folders: str) -> Aof:
    lines = [_MANIFEST_LINE.fullmatch(line) for line in manifest.splitlines() if line.strip()]
    found = [(int(line[2]), line[1].decode(), line[3]) for line in lines if line is not None]
    bases = sorted((seq, name) for seq, name, kind in found if kind == b"b")[-1:]
    # None where Redis 7 has just put 6.2's file into a folder: it is the base then.
    appended = sorted((seq, name) for seq, name, kind in found if kind == b"i")
    if len(found) < len(lines) or not bases + appended:
        raise OSError(errno.EINVAL, "Not a manifest of Redis's")
    return Aof(folders, bases[0][0] if bases else 0, tuple(name for _, name in bases + appended))


def move_aside(config: GuardConfig, suffix: str) -> str:
    """Take the data out of Redis's way, by names that it does not load. Returns the names. Raises OSError."""
    moved = []
    with opened(config.data_dir, FOLDER & ~os.O_NOFOLLOW) as data:
        for name in (config.append_dir, config.append_file):
            if _is_there(name, data):
                aside = f"{name}.aside-{suffix}"
                if _is_there(aside, data):
                    raise OSError(errno.EEXIST, "It is there already", aside)
                os.rename(name, aside, src_dir_fd=data, dst_dir_fd=data)
                moved.append(aside)
        os.fsync(data)
    return ", ".join(moved)
