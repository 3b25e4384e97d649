"""One command to a master as another user than the agent's, on a separate connection.

What only operators may write (identities) is written this way. Their password passes through the agent for
one command, and is not kept, logged, or part of any error.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import hiredis

from lockd.config.model import Timeouts
from lockd.config.problems import ConfigError
from lockd.core.answers import one_line
from lockd.masters.approach import Approach
from lockd.masters.failures import MasterError
from lockd.masters.framing import LONGEST_BYTES, UNFINISHED, Framing, TooLarge
from lockd.masters.scripts import command


@dataclass(frozen=True, slots=True)
class Credentials:
    """Asks as one user of the masters."""

    username: str
    password: bytes = field(repr=False)


async def ask_as(who: Credentials, approach: Approach, timeouts: Timeouts, *words: bytes | str | int) -> Any:
    """The answer to one command. Raises MasterError, also when there is none within connect_ms."""
    try:
        async with asyncio.timeout(timeouts.connect_ms / 1000):
            return await _ask(who, approach, command(*words))
    except TimeoutError:
        raise MasterError("no answer in time") from None
    except (OSError, ConfigError) as failure:
        raise MasterError(getattr(failure, "strerror", None) or str(failure)) from failure


async def _ask(who: Credentials, approach: Approach, question: bytes) -> Any:
    reader = asyncio.StreamReader()
    transport, _ = await approach.connect(lambda: asyncio.StreamReaderProtocol(reader))
    try:
        answers = _Answers(reader)
        transport.write(command("AUTH", who.username, who.password))
        await answers.next()
        transport.write(question)
        return await answers.next()
    finally:
        transport.abort()


class _Answers:
    """A master's answers, in order. The master may be a bad one: if it announces more than can be, that is
    not read."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._parser = hiredis.Reader(notEnoughData=UNFINISHED)
        self._framing = Framing()
        self._read_bytes = 0

    async def next(self) -> Any:
        """Raises MasterError, also for an answer that Redis never gives."""
        try:
            while (answer := self._parser.gets()) is UNFINISHED:
                self._feed(await self._reader.read(4096))
        except (TooLarge, hiredis.ProtocolError, TypeError):
            # TypeError: maps of RESP3 may have keys that Python's dicts can't.
            raise MasterError("it doesn't speak Redis") from None
        if isinstance(answer, hiredis.ReplyError):
            raise MasterError(one_line(str(answer)))
        return answer

    def _feed(self, data: bytes) -> None:
        if not data:
            raise MasterError("connection lost")
        self._read_bytes += len(data)
        if self._read_bytes > LONGEST_BYTES:
            raise TooLarge(f"more than {LONGEST_BYTES} bytes")
        self._framing.admit(data)
        self._parser.feed(data)
