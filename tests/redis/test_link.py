"""A link to a master that misbehaves as a real one can't be made to: a scripted one stands in for it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from lockd.clock import boottime_ns
from lockd.core.ballots.ballot import Ended
from lockd.core.ballots.extension import Extension
from lockd.core.ballots.release import How, Release
from lockd.core.identities import Identity, Members
from lockd.core.membership import State
from lockd.masters.fleet import Fleet
from tests.harness.ballots import a_release, an_extension
from tests.harness.modelled import ModelledMaster
from tests.harness.real_fleet import a_fleet
from tests.harness.waiting import until

IDENTITY = Identity("test", "m1", 60_000, cluster_id="7" * 32, members=Members.first(["m1"]))
LATER = IDENTITY.with_members(Members.of({"m1": 2}))


DONE = b":1\r\n"
FLUSHED = b"-NOSCRIPT No matching script\r\n"


class ScriptedMaster(ModelledMaster):
    """A healthy one but for what it is told to answer, one after the other (None: hang up): to EVALSHA
    (`scripts`), to CLIENT KILL (`kills`), to TIME (`times`).

    heard: (connection, words), in order. looked: called when somebody looks at its identity.
    """

    def __init__(self, **told: tuple[bytes | None, ...]) -> None:
        super().__init__(IDENTITY)
        self.heard: list[tuple[int, list[str]]] = []
        self.looked: Callable[[], None] = lambda: None
        answers = {"scripts": b"EVALSHA", "kills": b"KILL", "times": b"TIME"}
        self._told = {answers[what]: list(replies) for what, replies in told.items()}
        self.lie = self._say

    def is_of(self, identity: Identity) -> None:
        self.store.set_identity(identity.fields)

    def connections_of(self, name: str) -> list[int]:
        """On which connections a command came."""
        return [connection for connection, words in self.heard if words[0] == name]

    def _say(self, words: list[bytes], true: bytes) -> bytes | None:
        self.heard.append((self.connections, [word.decode(errors="replace") for word in words]))
        if words[0] == b"HGETALL":
            self.looked()
        told = self._told.get(words[1] if words[0] == b"CLIENT" else words[0])
        return told.pop(0) if told else true


@asynccontextmanager
async def linked_to(master: ScriptedMaster) -> AsyncIterator[Fleet]:
    """A fleet of this one master, which is up."""
    server = await master.serve()
    timeouts = {"master_ms": 30_000, "connect_ms": 30_000, "dead_ms": 60_000}
    fleet = a_fleet(master.address, timeouts=timeouts)
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
        word=word, ttl_ms=60_000, mark=b"p1", quorum=1, t1_ns=now_ns, until_ns=now_ns + 60 * 10**9
    )
    extension.put_to(fleet.extend(extension))
    assert extension.asked == 1
    return extension


@pytest.mark.parametrize("nonsense", [b":1\r\n", b"*1\r\n$1\r\nx\r\n", b"*2\r\n$1\r\nx\r\n$1\r\ny\r\n"])
async def test_a_master_whose_answer_makes_no_sense_is_left_and_tried_again(nonsense: bytes) -> None:
    master = ScriptedMaster(times=(nonsense,))
    async with linked_to(master) as fleet:
        await until(
            lambda: master.connections >= 2 and fleet.voting() == 1, what="it is connected again, and votes"
        )


async def test_a_release_that_was_refused_is_sent_again_on_a_connection_that_stays() -> None:
    full = b"-MISCONF Errors writing to the AOF file: No space left on device\r\n"
    master = ScriptedMaster(scripts=(full, DONE))
    async with linked_to(master) as fleet:
        release = give_back(fleet)
        await until(lambda: release.deleted == 1, what="the release is done")
        assert master.connections_of("EVALSHA") == [1, 1]


@pytest.mark.parametrize("ttl_left_ms", [60_000, 0], ids=["within its TTL", "after its TTL too"])
async def test_a_release_whose_outcome_is_unknown_is_sent_again_behind_the_end_of_the_old_session(
    ttl_left_ms: int,
) -> None:
    """The connection that broke may bring late what it gives back."""
    master = ScriptedMaster(scripts=(None, DONE))
    async with linked_to(master) as fleet:
        release = give_back(fleet, ttl_left_ms)
        await until(lambda: release.deleted == 1, what="the release is done")
        words = [words for connection, words in master.heard if connection == 2]
        killed = words.index(["CLIENT", "KILL", "ID", "1"])
        assert killed < next(at for at, asked in enumerate(words) if asked[0] == "EVALSHA")
        assert master.connections_of("EVALSHA") == [1, 2]
        assert fleet.links[0].state is State.UP


async def test_an_old_session_is_not_forgotten_before_it_is_ended() -> None:
    """The second connection breaks just when it would end the first: the third has to."""
    master = ScriptedMaster(scripts=(None, DONE), kills=(None,))
    async with linked_to(master) as fleet:
        release = give_back(fleet)
        await until(lambda: release.deleted == 1, what="the release is done")
        kills = [(connection, words) for connection, words in master.heard if words[1:2] == ["KILL"]]
        assert kills == [(n, ["CLIENT", "KILL", "ID", "1"]) for n in (2, 3)]


async def test_a_release_by_the_word_of_an_app_is_asked_again_while_the_app_waits() -> None:
    master = ScriptedMaster(scripts=(FLUSHED, DONE))
    async with linked_to(master) as fleet:
        by_app = give_back(fleet, word=b"chosen", how=How.BY_APP)
        await until(lambda: by_app.deleted == 1, what="it is done on the next connection")


async def test_an_extension_of_a_lease_that_is_over_is_not_asked_again_when_scripts_were_flushed() -> None:
    master = ScriptedMaster(scripts=(FLUSHED, DONE))
    async with linked_to(master) as fleet:
        link = fleet.links[0]
        extension = extend(fleet)
        extension.settle(Ended.ABANDONED, boottime_ns())  # as core does when its lease is over
        await until(lambda: master.connections == 2 and link.introduced, what="the link is up again")
        await link.call("PING")
        assert master.connections_of("EVALSHA") == [1]


# Votes that were meant for another list of members


def of_scripts(status: int, value: int) -> bytes:
    return b"*3\r\n:%d\r\n:%d\r\n:%d\r\n" % (status, value, time.time_ns() // 1_000)


REFUSED, EXTENDED = of_scripts(-1, 0), of_scripts(1, 60_000)


def extensions(master: ScriptedMaster) -> list[tuple[str, str]]:
    """Those that it was asked for, in order: the first digit of the nonce, and the digest of members."""
    return [(words[4][:1], words[-1]) for _, words in master.heard if words[0] == "EVALSHA"]


async def test_what_was_refused_is_asked_again_before_all_that_is_asked_after_a_look() -> None:
    """Rule 2: a put-back must not pass an older extension. So also when it is an operator who had it looked
    at."""
    master = ScriptedMaster(scripts=(REFUSED, EXTENDED, EXTENDED))
    async with linked_to(master) as fleet:
        link = fleet.links[0]
        master.is_of(LATER)
        first = extend(fleet, "1")
        await until(lambda: len(extensions(master)) == 1, what="it is asked", every_s=0)
        await link.call("PING")
        await link.inspect_now()
        second = extend(fleet, "2")
        await until(lambda: second.agreed, what="both are answered")
        assert first.agreed
        old, new = IDENTITY.members_digest, LATER.members_digest
        assert extensions(master) == [("1", old), ("1", new), ("2", new)]


async def test_what_was_refused_comes_before_what_was_on_its_way_on_the_next_connection() -> None:
    master = ScriptedMaster(scripts=(REFUSED, None, EXTENDED, EXTENDED))
    async with linked_to(master) as fleet:
        master.is_of(LATER)
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
        master.is_of(LATER)

        def ask_meanwhile() -> None:
            if not asked:
                asked.append(extend(fleet))

        master.looked = ask_meanwhile
        await link.inspect_now()
        await until(lambda: asked[0].outcome is not None, what="it is answered")
        assert asked[0].agreed
        assert extensions(master) == [("0", IDENTITY.members_digest), ("0", LATER.members_digest)]
