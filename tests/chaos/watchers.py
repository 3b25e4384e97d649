"""What the masters themselves show: each script that runs there (MONITOR), and the leases that are there now.

Both look past the proxies. A release is noted when it is read, which is after it happened, while an app notes
that it lets go before it tells anybody: so one that is seen under a live holder was really too early. A lease
that is seen is noted with the time of asking, which is before the look.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

from lockd.clock import boottime_ns
from lockd.core.ballots.release import How
from lockd.dev.processes import LOOPBACK
from lockd.masters import scripts
from tests.chaos.hosts import MasterHost
from tests.chaos.recorder import Recorder, Try
from tests.chaos.wire import Connection, Disconnected
from tests.harness.history import Found, Removed

_WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_RESERVED = b"reserved "
_HOWS = [how.value for how in How]
_FROM = re.compile(rb"\[\d+ ([^\]]+)\]")
_AGAIN_S = 0.02
_LOOK_S = 0.2


class Monitor:
    """Reads along on one master. While it is not connected (the master was just started) something may be
    missed: a release, or a late try, that nobody is told of."""

    def __init__(self, master: MasterHost, recorder: Recorder) -> None:
        self.releases = 0
        self.reading = False
        self._master = master
        self._recorder = recorder
        self._releasing: bytes | None = None
        self._reserving: tuple[bytes, int] | None = None
        """For which nonce, and how many fences."""
        self._tried: dict[tuple[bytes, bytes], bytes] = {}
        """Nonces, by connection and slot."""

    async def run(self) -> None:
        while True:
            try:
                connection = await Connection.to_port(LOOPBACK, self._master.process.port, self._heard)
                try:
                    await connection.ask("MONITOR")
                    self.reading = True
                    await connection.closed
                finally:
                    self.reading = False
                    connection.abort()
            except Disconnected:
                pass
            self._releasing = self._reserving = None
            await asyncio.sleep(_AGAIN_S)

    def _heard(self, line: Any, read_ns: int) -> None:
        words = _WORD.findall(line)
        asked_by = _FROM.search(line)
        assert asked_by is not None
        if words[0].upper() == b"EVALSHA":
            self._releasing = self._reserving = None
            self._script(words, asked_by[1])
        elif asked_by[1] != b"lua":
            return
        elif _is_removal(words) and self._releasing is not None:
            # The release script takes away only what is there, and theirs.
            self.releases += 1
            self._recorder.note(Removed(read_ns, self._master.name, self._releasing))
            self._releasing = None
        elif words[:2] == [b"HSET", scripts.FENCES_KEY] and self._reserving is not None:
            nonce, size = self._reserving
            self._recorder.reserved(self._master.name, nonce, int(words[3]), size)

    def _script(self, words: list[bytes], asked_by: bytes) -> None:
        digest = words[1]
        if digest == scripts.ACQUIRE.digest:
            resource, token = words[3].removeprefix(scripts.LEASE_PREFIX), words[6].partition(b" =")[2]
            self._recorder.tried(words[5], Try(resource, boottime_ns(), int(words[7]), token))
            self._tried[asked_by, words[8]] = words[5]
            self._reserving = words[5], int(words[10])
        elif digest == scripts.PROPOSE.digest:
            slot, _proposed, size, nonce = words[2 + int(words[2]) + 1 :][:4]
            tenure = nonce or self._tried.get((asked_by, slot))
            self._reserving = (tenure, int(size)) if tenure else None
        elif digest == scripts.EXTEND.digest:
            self._recorder.extended(words[4])
        elif digest == scripts.TAKE_OVER.digest:
            *_, first, _electorate = words
            self._recorder.taken_over(first, words[4])
        elif digest == scripts.RELEASE.digest:
            self._releasing = _released(words[4:])


def _is_removal(words: list[bytes]) -> bool:
    """Of a lease: it is free, or kept for whoever waits."""
    return words[0] == b"DEL" or (words[0] == b"SET" and words[2].startswith(_RESERVED))


def _released(words: list[bytes]) -> bytes | None:
    """By what the lease was known first that a release with these arguments gives back, or by its app's
    token."""
    how = How(words[1]) if words[1:] and words[1] in _HOWS else How.TENURE
    if how in (How.PASS, How.FREED, How.USED):
        return None
    return words[-1] if how is How.TENURE else words[0]


class Sampler:
    """Looks at the leases of one master a few times a second. Not while its clock is behind: they last as
    much longer there, and nobody is to blame."""

    def __init__(self, master: MasterHost, recorder: Recorder) -> None:
        self._master = master
        self._recorder = recorder

    async def run(self) -> None:
        while True:
            try:
                connection = await Connection.to_port(LOOPBACK, self._master.process.port)
                try:
                    while True:
                        await self._look(connection)
                        await asyncio.sleep(_LOOK_S)
                finally:
                    connection.abort()
            except Disconnected:
                await asyncio.sleep(_AGAIN_S)

    async def _look(self, connection: Connection) -> None:
        asked_ns, behind = boottime_ns(), self._master.behind
        page = await connection.ask("EVAL", scripts.PAGE.text, 0, 0, scripts.LEASE_PREFIX + b"*", 10_000)
        if page.error or behind or self._master.behind:
            return  # still loading
        found = page.value[1]
        for key, lease in zip(found[::3], found[1::3], strict=True):
            if lease.startswith(_RESERVED):
                continue
            resource, token = key.removeprefix(scripts.LEASE_PREFIX), lease[:32]
            self._recorder.found(Found(asked_ns, self._master.name, resource, token))
