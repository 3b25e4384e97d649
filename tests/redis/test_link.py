"""A link to a master that misbehaves as a real one can't be made to: a scripted one stands in for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import hiredis
import pytest

from lockd.clock import boottime_ns
from lockd.core.ballots.ballot import Ended
from lockd.core.ballots.extension import Extension
from lockd.core.ballots.release import Release
from lockd.core.identities import Identity, Members
from lockd.core.membership import REQUIRED_SETTINGS, State
from lockd.masters.fleet import Fleet
from tests.harness.ballots import a_release, an_extension
from tests.harness.real_fleet import a_fleet
from tests.harness.waiting import until
from tests.harness.wire import request as array

WITHIN_S = 15.0
IDENTITY = Identity("test", "m1", 60_000, cluster_id="7" * 32, members=Members.first(["m1"]))
LATER = IDENTITY.with_members(Members.of({"m1": 2}))


def bulk(text: str) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(text), text.encode())


class ScriptedMaster:
    """Answers the handshake as a healthy master does. `heard`: (connection, words), in order.

    first_time: what the first TIME is answered; scripts, kills: what one EVALSHA, or CLIENT KILL, after the
    other is (None: hang up). identity: what it shows; looked: called when somebody looks at that.
    """

    def __init__(
        self,
        first_time: bytes | None = None,
        scripts: tuple[bytes | None, ...] = (),
        kills: tuple[bytes | None, ...] = (),
    ) -> None:
        self.heard: list[tuple[int, list[str]]] = []
        self.connections = 0
        self.identity = IDENTITY
        self.looked: Callable[[], None] = lambda: None
        self._first_time = first_time
        self._scripts = list(scripts)
        self._kills = list(kills)

    def asked(self, name: str) -> list[int]:
        """On which connections a command came."""
        return [connection for connection, words in self.heard if words[0] == name]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        me, parser = self.connections, hiredis.Reader()
        while data := await reader.read(65_536):
            parser.feed(data)
            while (words := parser.gets()) is not False:
                texts = [word.decode(errors="replace") for word in words]
                self.heard.append((me, texts))
                reply = self._reply(texts, me)
                if reply is None:
                    writer.close()
                    return
                writer.write(reply)

    def _reply(self, words: list[str], connection: int) -> bytes | None:
        match words[0], words[1:2]:
            case "CLIENT", ["ID"]:
                return b":%d\r\n" % (100 + connection)
            case "CLIENT", ["KILL"]:
                return self._kills.pop(0) if self._kills else b":1\r\n"
            case "INFO", _:
                return bulk("redis_version:7.0.15\r\nrun_id:abc\r\nrole:master\r\nloading:0\r\n")
            case "CONFIG", _:
                return array(words[2], REQUIRED_SETTINGS[words[2]])
            case "DBSIZE", _:
                return b":1\r\n"
            case "HGETALL", _:
                self.looked()
                return array(*(word for pair in self.identity.fields.items() for word in pair))
            case "HGET", ["lockd:identity"]:
                return bulk(self.identity.electorate)
            case "HGET", _:
                return b"$-1\r\n"
            case "SCRIPT", ["EXISTS"]:
                return b"*%d\r\n" % len(words[2:]) + b":1\r\n" * len(words[2:])
            case "TIME", _:
                first, self._first_time = self._first_time, None
                return first or array(*f"{time.time():.6f}".split("."))
            case "EVALSHA", _:
                return self._scripts.pop(0) if self._scripts else b":1\r\n"
            case _:
                return b"+OK\r\n"


@asynccontextmanager
async def linked_to(master: ScriptedMaster) -> AsyncIterator[Fleet]:
    """A fleet of this one master, which is up."""
    server = await asyncio.start_server(master.serve, "127.0.0.1", 0)
    fleet = a_fleet(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    fleet.start()
    try:
        await until(lambda: fleet.links[0].introduced, what="the link is up")
        yield fleet
    finally:
        await fleet.stop()
        server.close()


def give_back(fleet: Fleet, ttl_left_ms: int = 60_000, **more: Any) -> Release:
    now_ns = boottime_ns()
    release = a_release(quorum=1, t1_ns=now_ns, until_ns=now_ns + ttl_left_ms * 1_000_000, **more)
    release.put_to(fleet.release(release, 1))
    return release


def extend(fleet: Fleet, nonce: str = "0") -> Extension:
    now_ns, word = boottime_ns(), 32 * nonce.encode()
    extension = an_extension(
        word=word, ttl_ms=9_000, mark=b"p1", quorum=1, t1_ns=now_ns, until_ns=now_ns + 10**10
    )
    extension.put_to(fleet.extend(extension))
    assert extension.asked == 1
    return extension


@pytest.mark.parametrize("nonsense", [b":1\r\n", b"*1\r\n$1\r\nx\r\n", b"*2\r\n$1\r\nx\r\n$1\r\ny\r\n"])
async def test_a_master_whose_answer_makes_no_sense_is_left_and_tried_again(nonsense: bytes) -> None:
    master = ScriptedMaster(first_time=nonsense)
    async with linked_to(master) as fleet:
        await until(
            lambda: master.connections >= 2 and fleet.voting() == 1, what="it is connected again, and votes"
        )


async def test_a_release_that_was_refused_is_sent_again_on_a_connection_that_stays() -> None:
    master = ScriptedMaster(
        scripts=(b"-MISCONF Errors writing to the AOF file: No space left on device\r\n",)
    )
    async with linked_to(master) as fleet:
        release = give_back(fleet)
        await until(lambda: release.deleted == 1, what="the release is done")
        assert master.asked("EVALSHA") == [1, 1]


async def test_a_release_whose_outcome_is_unknown_is_sent_again_behind_the_end_of_the_old_session() -> None:
    master = ScriptedMaster(scripts=(None,))
    async with linked_to(master) as fleet:
        link = fleet.links[0]
        release = give_back(fleet)
        await until(lambda: release.deleted == 1, what="the release is done")
        words = [words for connection, words in master.heard if connection == 2]
        killed = words.index(["CLIENT", "KILL", "ID", "101"])
        assert killed < next(at for at, asked in enumerate(words) if asked[0] == "EVALSHA")
        assert link.state is State.UP


async def test_an_old_session_is_not_forgotten_before_it_is_ended() -> None:
    """The second connection breaks just when it would end the first: the third has to."""
    master = ScriptedMaster(scripts=(None,), kills=(None,))
    async with linked_to(master) as fleet:
        release = give_back(fleet)
        await until(lambda: release.deleted == 1, what="the release is done")
        kills = [(connection, words) for connection, words in master.heard if words[1:2] == ["KILL"]]
        assert kills == [(n, ["CLIENT", "KILL", "ID", "101"]) for n in (2, 3)]


async def test_what_a_broken_connection_may_bring_late_is_given_back_also_after_its_ttl() -> None:
    master = ScriptedMaster(scripts=(None,))
    async with linked_to(master) as fleet:
        release = give_back(fleet, ttl_left_ms=0)
        await until(lambda: release.deleted == 1, what="the release is done")
        assert master.asked("EVALSHA") == [1, 2]


async def test_a_release_by_the_word_of_an_app_is_asked_again_while_the_app_waits() -> None:
    master = ScriptedMaster(scripts=(b"-NOSCRIPT No matching script\r\n",))
    async with linked_to(master) as fleet:
        by_app = give_back(fleet, word=b"chosen", by_app=True)
        await until(lambda: by_app.deleted == 1, what="it is done on the next connection")


async def test_an_extension_of_a_lease_that_is_over_is_not_asked_again_when_scripts_were_flushed() -> None:
    master = ScriptedMaster(scripts=(b"-NOSCRIPT No matching script\r\n",))
    async with linked_to(master) as fleet:
        link = fleet.links[0]
        extension = extend(fleet)
        extension.settle(Ended.ABANDONED, boottime_ns())  # as core does when its lease is over
        await until(lambda: master.connections == 2 and link.introduced, what="the link is up again")
        await link.call("PING")
        assert master.asked("EVALSHA") == [1]


# Votes that were meant for another list of members


def of_scripts(status: int, value: int) -> bytes:
    return b"*3\r\n:%d\r\n:%d\r\n:%d\r\n" % (status, value, time.time_ns() // 1_000)


REFUSED, EXTENDED = of_scripts(-1, 0), of_scripts(1, 9_000)


def extensions(master: ScriptedMaster) -> list[tuple[str, str]]:
    """Those that it was asked for, in order: the first digit of the nonce, and the electorate."""
    return [(words[4][:1], words[-1]) for _, words in master.heard if words[0] == "EVALSHA"]


async def test_what_was_refused_is_asked_again_before_all_that_is_asked_after_a_look() -> None:
    """Rule 2: a put-back must not pass an older extension. So also when it is an operator who had it looked
    at."""
    master = ScriptedMaster(scripts=(REFUSED, EXTENDED, EXTENDED))
    async with linked_to(master) as fleet:
        link = fleet.links[0]
        master.identity = LATER
        first = extend(fleet, "1")
        await until(lambda: len(extensions(master)) == 1, what="it is asked", every_s=0)
        await link.call("PING")
        await link.inspect_now()
        second = extend(fleet, "2")
        await until(lambda: second.agreed, what="both are answered")
        assert first.agreed
        old, new = IDENTITY.electorate, LATER.electorate
        assert extensions(master) == [("1", old), ("1", new), ("2", new)]


async def test_what_was_refused_comes_before_what_was_on_its_way_on_the_next_connection() -> None:
    master = ScriptedMaster(scripts=(REFUSED, None, EXTENDED, EXTENDED))
    async with linked_to(master) as fleet:
        master.identity = LATER
        first, second = extend(fleet, "1"), extend(fleet, "2")
        await until(lambda: second.agreed, what="both are answered")
        assert first.agreed
        assert [nonce for nonce, _ in extensions(master)] == ["1", "2", "1", "2"]


async def test_what_was_asked_before_the_link_knew_the_new_list_is_asked_again_when_it_is_refused_later() -> (
    None
):
    """It was on its way while the link looked."""
    master = ScriptedMaster(scripts=(REFUSED, EXTENDED))
    async with linked_to(master) as fleet:
        link = fleet.links[0]
        asked = list[Extension]()
        master.identity = LATER

        def ask_meanwhile() -> None:
            if not asked:
                asked.append(extend(fleet))

        master.looked = ask_meanwhile
        await link.inspect_now()
        await until(lambda: asked[0].outcome is not None, what="it is answered")
        assert asked[0].agreed
        assert extensions(master) == [("0", IDENTITY.electorate), ("0", LATER.electorate)]
