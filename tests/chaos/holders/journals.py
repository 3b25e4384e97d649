"""What can be done to an agent's journal while it is down: it is torn, old, another's, or gone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

from lockd.core.journal import FRAME, HEAD, MAGIC


def _torn(journal: Path, dice: Random) -> None:
    """Its last write was broken off."""
    data = journal.read_bytes()
    journal.write_bytes(data[: -dice.randint(1, 60)])


def _short(journal: Path, dice: Random) -> None:
    data = journal.read_bytes()
    journal.write_bytes(data[: dice.randrange(len(data))])


def _flipped(journal: Path, dice: Random) -> None:
    data = bytearray(journal.read_bytes())
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    journal.write_bytes(data)


def _stale(journal: Path, _: Random) -> None:
    """As it was when it was kept (`keep_a_copy`)."""
    copy = _copy_of(journal)
    if copy.exists():
        journal.write_bytes(copy.read_bytes())


def _backwards(journal: Path, _: Random) -> None:
    """The records in the other order: whatever was over is held again."""
    head, records = _parts(journal.read_bytes())
    journal.write_bytes(head + b"".join(reversed(records)))


def _parts(data: bytes) -> tuple[bytes, list[bytes]]:
    """What says whose it is, and the records behind that."""
    at, parts = HEAD.size, []
    while at + FRAME.size <= len(data):
        end = at + FRAME.size + FRAME.unpack_from(data, at)[0]
        parts.append(data[at:end])
        at = end
    return data[: HEAD.size] + parts[0], parts[1:]


def _of_another_format(journal: Path, _: Random) -> None:
    data = journal.read_bytes()
    journal.write_bytes(data[: len(MAGIC)] + b"\xff\xff" + data[HEAD.size :])


def _open_to_all(journal: Path, _: Random) -> None:
    journal.chmod(0o666)


def _gone(journal: Path, _: Random) -> None:
    journal.unlink()


WAYS: dict[str, Callable[[Path, Random], None]] = {
    "torn": _torn,
    "short": _short,
    "flipped": _flipped,
    "stale": _stale,
    "backwards": _backwards,
    "of another format": _of_another_format,
    "open to all": _open_to_all,
    "gone": _gone,
}


def spoil(journal: Path, way: str, seed: int) -> None:
    """Nothing, where there is none: another such fault has taken it away."""
    if journal.exists():
        WAYS[way](journal, Random(seed))


def keep_a_copy(journal: Path) -> None:
    """For `stale`."""
    if journal.exists():
        shutil.copyfile(journal, _copy_of(journal))


def _copy_of(journal: Path) -> Path:
    return journal.with_name(f"{journal.name}.copy")
