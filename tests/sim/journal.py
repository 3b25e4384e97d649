"""The journal of a simulated host: it survives its agent, unless somebody spoils it."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from lockd.core.journal import GROWN, NO_SEAL, Ledger, Origin, Rewriting

_LEAST_BYTES = 2_048
_PART_BYTES = 400
"""A lease or two: so records come between the parts, and agents die between them."""


class Dies(IntEnum):
    """Where in writing a record its agent dies."""

    BEFORE = 1
    WITHIN = 2
    AFTER = 3


class Spoilt(IntEnum):
    """What the next agent finds instead."""

    OLDER = 1
    A_BIT_FLIPPED = 2
    PROCESSES_UNSEEN = 3


class Killed(BaseException):
    """kill -9, in the middle of something: no code of the agent goes on, not even what clears up."""


class Journal:
    """A file in /run."""

    def __init__(self) -> None:
        self.data = b""
        self.seal = NO_SEAL
        self._fresh = b""
        """What is written of the next one."""
        self.dies: Dies | None = None
        self._older: list[bytes] = []

    def begin(self, origin: Origin) -> Ledger:
        """What is there is replaced when this is `written_anew`, and what was being written is gone."""
        self.ledger = Ledger(origin, self._append, self._broke)
        return self.ledger

    def _append(self, record: bytes) -> None:
        dies, self.dies = self.dies, None
        part = {Dies.BEFORE: 0, Dies.WITHIN: len(record) // 2}.get(dies or Dies.AFTER, len(record))
        self.data += record[:part]
        if dies is not None:
            raise Killed
        self.seal = self.seal.behind(record)

    def _broke(self, failure: Exception) -> None:
        raise failure

    def keep_short(self) -> None:
        """One step of it."""
        rewriting = self.ledger.rewriting
        if rewriting is not None:
            self._go_on(rewriting)
        elif len(self.data) > max(_LEAST_BYTES, GROWN * self.ledger.live_bytes):
            self._rewrite()

    def write_anew(self) -> None:
        rewriting = self._rewrite()
        while self.ledger.rewriting is not None:
            self._go_on(rewriting)

    def _rewrite(self) -> Rewriting:
        self._fresh = b""
        return self.ledger.rewrite()

    def _go_on(self, rewriting: Rewriting) -> None:
        self._fresh += rewriting.part(_PART_BYTES)
        if rewriting.is_done:
            self.data, self.seal = self._fresh, rewriting.seal
            self.ledger.rewriting = None

    def remember(self) -> None:
        """Now and then, for those who put back an older copy."""
        self._older = [*self._older[-3:], self.data]

    def spoil(self, how: Spoilt, random: Callable[[], float]) -> None:
        if how is Spoilt.OLDER and self._older:
            self.data = self._older[int(random() * len(self._older))]
        elif how is Spoilt.A_BIT_FLIPPED and self.data:
            at = int(random() * len(self.data))
            self.data = b"%b%c%b" % (
                self.data[:at],
                self.data[at] ^ 1 << int(random() * 8),
                self.data[at + 1 :],
            )
