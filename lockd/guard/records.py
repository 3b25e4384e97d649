"""The contents of the guard's files: proofs, each good for one use, and what it remembers."""

from __future__ import annotations

import json
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, TypeVar

from .errors import Unreadable
from .reasons import Reason

FORMAT = 1

Record = TypeVar("Record")
_KINDS: dict[str, type] = {"int": int, "str": str, "bool": bool, "dict": dict}


def encoded(record: Any) -> bytes:
    """A dataclass as a line of JSON."""
    return json.dumps({"version": FORMAT, **asdict(record)}, sort_keys=True).encode() + b"\n"


def decoded(kind: type[Record], data: bytes) -> Record:
    """The dataclass that was written there. Fields that an earlier guard did not know get their defaults.
    Raises Unreadable when other fields are missing, or there are unknown ones."""
    try:
        document = json.loads(data)
        if document.pop("version") != FORMAT:
            raise Unreadable("it was written by another version")
        items = fields(kind)  # type: ignore[arg-type]
        wanted = {item.name: str(item.type).partition("[")[0] for item in items}
        needed = {item.name for item in items if item.default is MISSING and item.default_factory is MISSING}
        if not needed <= document.keys() <= wanted.keys():
            raise Unreadable("fields are missing, or there are unknown ones")
        for name, value in document.items():
            if type(value) is not _KINDS[wanted[name]]:
                raise Unreadable(f"{name} is a {type(value).__name__}")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise Unreadable(f"damaged ({error})") from None
    return kind(**document)


@dataclass(frozen=True)
class Permit:
    """Redis was let start. offset_ns: the wall clock's lead over BOOTTIME at most, at `at_ns`."""

    generation: int
    boot_id: str
    at_ns: int
    offset_ns: int
    longest_ttl_ms: int


@dataclass(frozen=True)
class Rest:
    """Redis was asked before its stop. fault: why that proves nothing. Without a fault, all its data is in
    its file, and no client's command is run until `until_ns`, on BOOTTIME."""

    generation: int
    boot_id: str
    until_ns: int
    fault: str


@dataclass(frozen=True)
class Marker:
    """Redis stopped cleanly, and left this data. The clock as in Permit."""

    generation: int
    host_id: str
    boot_id: str
    at_ns: int
    offset_ns: int
    synchronised: bool
    longest_ttl_ms: int
    data: dict[str, str]


@dataclass(frozen=True)
class Mark:
    """The data as it was when last seen: at least that should be there. folders: their inodes. rewrites: how
    many the AOF has had. file: the last file in it, none when there is no data; `size` bytes of it were on
    disk, with that `tail`. ended: nothing writes to it since; otherwise Redis does, and may begin or rewrite
    it.

    loaded: how large the file was when Redis was let start, 0 when that does not matter any more: while
    loading it, Redis may cut off a torn end.
    """

    host_id: str
    folders: str
    rewrites: int
    file: str
    inode: int
    size: int
    tail: str
    at_s: int = 0
    ended: bool = False
    loaded: int = 0


@dataclass(frozen=True)
class Override:
    """An operator wants the next start, or the one that waits now, not to wait. Good for one use."""

    boot_id: str
    at_ns: int
    by: str
    reason: str


def no_quarantines() -> dict[str, int]:
    return {reason.value: 0 for reason in Reason}


@dataclass
class GuardState:
    """What the guard remembers. It proves nothing: it says why, how long and how often.

    `reason` and `detail` say why a quarantine runs (phase 'quarantine'), or why the next start will have one
    (phase 'stopped'; empty after a clean stop). `revoked`: why the watch took the proofs away since.
    """

    generation: int = 0
    phase: str = "new"
    boot_id: str = ""
    reason: str = ""
    detail: str = ""
    revoked: str = ""
    until_ns: int = 0
    changed_at_s: int = 0
    longest_ttl_ms: int = 0
    overrides: int = 0
    steps_forward: int = 0
    steps_backward: int = 0
    moved_aside: int = 0
    # Where the latest of that data is, and why.
    aside: str = ""
    # There was a mark: if it is gone now, it was taken away.
    marked: bool = False
    quarantines: dict[str, int] = field(default_factory=no_quarantines)
