"""The agent's memory: how much its control group lets it have, which systemd sets from MemoryMax, and how
much it uses."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from lockd.server.log import EventLog
from lockd.server.quotas import AGENT_BYTES, Quotas

_CGROUPS = Path("/sys/fs/cgroup")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_MIB: Final = 1 << 20
_MARGIN_BYTES: Final = 32 * _MIB
_MARGIN_PARTS: Final = 5
"""What was counted is measured, but not to the last fifth (`python -m tests.bench.sizes`)."""
_LIMIT_EVERY: Final = 40


def memory_limit(cgroups: Path = _CGROUPS, own: Path = Path("/proc/self/cgroup")) -> int | None:
    """In bytes, the least of its group's and those above; None: there is none, or it can't be seen."""
    try:
        lines = os.fsdecode(own.read_bytes()).splitlines()
        path = next(line.split("::")[1] for line in lines if line.startswith("0::"))
    except (OSError, StopIteration):
        return None
    folder, limits = cgroups / path.lstrip("/"), list[int]()
    while folder != cgroups.parent:
        limits += _limit_in(folder)
        folder = folder.parent
    return min(limits, default=None)


def _limit_in(folder: Path) -> list[int]:
    try:
        text = (folder / "memory.max").read_text("ascii").strip()
    except OSError:
        return []
    return [int(text)] if text.isdigit() else []


def resident_bytes() -> int:
    """Of this process."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * _PAGE_BYTES


class MemoryWatch:
    """More may be in use than was counted: by a mistake of ours, or by a kind of use that nobody has thought
    of. Then nobody gets more than a floor, until it is over. What was freed is not always given back to the
    kernel, so the agent's memory is compared with the most that was ever counted."""

    def __init__(
        self,
        quotas: Quotas,
        log: EventLog,
        resident: Callable[[], int] = resident_bytes,
        limit: Callable[[], int | None] = memory_limit,
    ) -> None:
        self._quotas = quotas
        self._log = log
        self._resident = resident
        self._limit = limit
        self._looks = 0

    def look(self) -> None:
        """A few times a second."""
        stock, resident = self._quotas.bytes, self._resident()
        expected = AGENT_BYTES + _MARGIN_BYTES + stock.peak + stock.peak // _MARGIN_PARTS
        if resident > expected and not stock.only_floors:
            stock.only_floors = True
            self._log.error(
                "memory_uncounted", mib=resident // _MIB, expected_mib=expected // _MIB, counted=stock.used
            )
        elif stock.only_floors and resident < expected - _MARGIN_BYTES // 2:
            stock.only_floors = False
            self._log.always("memory_counted_again", mib=resident // _MIB, counted=stock.used)
        self._looks += 1
        if self._looks % _LIMIT_EVERY == 0:
            # A unit that runs gets another MemoryMax by a daemon-reload.
            self._quotas.has_memory(self._limit())
