"""Masters over real sockets that need no Redis: the model of the scripts (script_model.py) answers.

Each may say something else than it should: `lie` gets what it was asked and the honest answer, and returns
what is sent instead (None: it hangs up).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import hiredis

from lockd.core.ballots.release import How
from lockd.core.identities import Identity, Members
from lockd.core.membership import REQUIRED_SETTINGS
from lockd.dev.processes import LOOPBACK
from lockd.masters import scripts
from tests.harness.script_model import Store

CLUSTER = "test"
Lie = Callable[[list[bytes], bytes], bytes | None]


def encoded(reply: object) -> bytes:
    """As Redis sends it, in RESP2."""
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    assert isinstance(reply, list | tuple)
    return b"*%d\r\n" % len(reply) + b"".join(map(encoded, reply))


def honest(_words: list[bytes], reply: bytes) -> bytes:
    return reply


class ModelledMaster:
    """One master that is formed, and answers on `port` of this machine once it serves."""

    def __init__(self, identity: Identity) -> None:
        self.name = identity.name
        self.port = 0
        self.store = Store()
        self.store.identify("", identity.fields, {})
        self.lie: Lie = honest
        self.pace: Callable[[], Awaitable[None]] | None = None
        self.connections = 0
        self.asked: list[bytes] = []
        """The names of the last commands."""
        self.open: set[asyncio.StreamWriter] = set()
        """The connections that there are."""

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    async def serve(self) -> asyncio.Server:
        server = await asyncio.start_server(self._talk, LOOPBACK, self.port)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open.add(writer)
        parser = hiredis.Reader()
        try:
            while data := await reader.read(65_536):
                parser.feed(data)
                while (words := parser.gets()) is not False:
                    if not await self._answer(words, writer):
                        return
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.open.discard(writer)
            writer.close()

    async def _answer(self, words: list[bytes], writer: asyncio.StreamWriter) -> bool:
        self.asked = [*self.asked[-99:], words[0]]
        reply = self.lie(words, self.reply(words))
        if reply is None:
            return False
        if self.pace is not None:
            await self.pace()
        writer.write(reply)
        await writer.drain()
        return True

    def say(self, data: bytes) -> None:
        """To all that are connected, asked or not. Only from the loop that it serves in."""
        for writer in self.open:
            writer.write(data)

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def reply(self, words: list[bytes]) -> bytes:
        """The honest answer."""
        match words[0].upper(), words[1:]:
            case b"EVALSHA", [digest, keys, *more]:
                return encoded(self._run(digest, more[: int(keys)], more[int(keys) :]))
            case b"SCRIPT", [b"EXISTS", *digests]:
                return encoded([1] * len(digests))
            case b"TIME", _:
                return encoded([b"%d" % part for part in divmod(self.now_us(), 1_000_000)])
            case b"INFO", _:
                run_id = self.name.encode() * 10
                return encoded(b"redis_version:7.0.15\r\nrun_id:%b\r\nrole:master\r\nloading:0\r\n" % run_id)
            case b"CONFIG", [_, *names]:
                found = [(name, REQUIRED_SETTINGS[name.decode()].encode()) for name in names]
                return encoded([word for pair in found for word in pair])
            case b"DBSIZE", _:
                return encoded(len(self.store.leases) + 2)
            case b"HGETALL", [scripts.IDENTITY_KEY]:
                return encoded([word.encode() for pair in self.store.identity.items() for word in pair])
            case b"HGETALL", _:
                return encoded([b"%d" % word for pair in self.store.counters.items() for word in pair])
            case b"HGET", [key, field]:
                return encoded(self._field(key, field))
            case b"HMGET", [key, *fields]:
                return encoded([self._field(key, field) for field in fields])
            case b"CLIENT", [b"ID", *_]:
                return encoded(self.connections)
            case _:
                return b"+OK\r\n"

    def _field(self, key: bytes, field: bytes) -> bytes | None:
        if key == scripts.IDENTITY_KEY:
            stored = self.store.identity.get(field.decode())
            return None if stored is None else stored.encode()
        counter = self.store.counters.get(int(field)) if field.isdigit() else None
        return None if counter is None else b"%d" % counter

    def _run(self, digest: bytes, keys: list[bytes], words: list[bytes]) -> Any:
        now_us, store = self.now_us(), self.store
        resource = keys[0][len(scripts.LEASE_PREFIX) :] if keys else b""
        if digest == scripts.RELEASE.digest:
            word, *before = words
            named = [how.value for how in How if how.value]
            how, *own = before if before and before[0] in named else [b""]
            before = [] if how else before
            name, grace_ms, waited_us = (*own, b"0", b"0", b"0")[:3]
            place = (name, int(grace_ms), int(waited_us)) if own else None
            return store.release(resource, word, now_us, how=how, before=before, own=place)
        if digest == scripts.ACQUIRE.digest:
            nonce, terms, ttl, slot, hint, _, place, waited, grace, electorate = words
            vote = store.acquire(
                resource, nonce, terms, int(ttl), int(slot), int(hint), electorate, now_us,
                **({"asker": place} if waited == b"asks" else {"place": place, "waited_us": int(waited)}),
                grace_ms=int(grace),
            )  # fmt: skip
        elif digest == scripts.PROPOSE.digest:
            slot, value, size, nonce, electorate = words
            tenure = (keys[1][len(scripts.LEASE_PREFIX) :], nonce) if len(keys) > 1 else None
            vote = store.propose(int(slot), int(value), electorate, now_us, size=int(size), tenure=tenure)
        elif digest == scripts.EXTEND.digest:
            word, ttl, mark, *hide, electorate = words
            vote = store.extend(resource, word, int(ttl), electorate, mark, now_us, bool(hide))
        elif digest == scripts.TAKE_OVER.digest:
            word, ttl, mark, token, when, *before, electorate = words
            there_ms = None if when == b"later" else int(when)
            vote = store.take_over(
                resource, word, int(ttl), electorate, mark, now_us, token, before, there_ms
            )
        elif digest == scripts.PUT_BACK.digest:
            nonce, ttl, text, age, electorate = words
            vote = store.put_back(resource, nonce, int(ttl), electorate, text, int(age), now_us)
        else:
            return [b"0", []]
        status, value, *holder_nonce = vote
        return [status, value, now_us, *holder_nonce]


def modelled_masters(count: int) -> list[ModelledMaster]:
    """A formed cluster of m1, m2, ..."""
    members = Members.first(f"m{number}" for number in range(1, count + 1))
    identities = [
        Identity(CLUSTER, name, 60_000, cluster_id="7" * 32, members=members) for name in members.names
    ]
    return [ModelledMaster(identity) for identity in identities]


@contextmanager
def serving(masters: Sequence[ModelledMaster]) -> Iterator[asyncio.AbstractEventLoop]:
    """They answer in a thread of their own, whose loop this is."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    servers = [asyncio.run_coroutine_threadsafe(master.serve(), loop).result(10) for master in masters]
    try:
        yield loop
    finally:
        asyncio.run_coroutine_threadsafe(_hang_up(servers), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _hang_up(servers: Sequence[asyncio.Server]) -> None:
    """Everything that still talks is ended here: a connection that the collector finds later closes itself
    in a loop that is gone."""
    for server in servers:
        server.close()
    talking = asyncio.all_tasks() - {asyncio.current_task()}
    for task in talking:
        task.cancel()
    await asyncio.gather(*talking, return_exceptions=True)
    await asyncio.sleep(0)  # what they closed is closed in the next turn
