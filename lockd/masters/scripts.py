"""The Lua scripts that run on the masters, and how each is called. Each file explains its keys, arguments and
answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha1
from importlib.resources import files

import hiredis

from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.extension import Extension
from lockd.core.ballots.fence_round import FenceRound
from lockd.core.ballots.put_back import PutBack
from lockd.core.ballots.release import How, Release
from lockd.core.fences import BLOCK
from lockd.core.leases import on_masters

LEASE_PREFIX = b"lockd:lease:"
FENCES_KEY = b"lockd:fences"
IDENTITY_KEY = b"lockd:identity"
COPIED_FIELD = b"copied"
"""Says that this is a copy of another Redis's data. It is kept beside the counters, and wiped with them."""


@dataclass(frozen=True, slots=True)
class Script:
    """A script's text, and the digest by which EVALSHA calls it."""

    name: str
    text: bytes
    digest: bytes

    @classmethod
    def read(cls, name: str) -> "Script":
        text = files("lockd.masters").joinpath("scripts", f"{name}.lua").read_bytes()
        # Redis names scripts by their SHA-1; nothing has to be secure about it.
        return cls(name, text, sha1(text, usedforsecurity=False).hexdigest().encode())


ACQUIRE = Script.read("acquire")
EXTEND = Script.read("extend")
TAKE_OVER = Script.read("take_over")
PUT_BACK = Script.read("put_back")
RELEASE = Script.read("release")
PROPOSE = Script.read("propose")
PAGE = Script.read("page")
IDENTIFY = Script.read("identify")

PAGE_COUNT = 50
"""About how many leases a page has: with names of 500 bytes it costs a master 0.2 ms."""

ALL = (ACQUIRE, EXTEND, TAKE_OVER, PUT_BACK, RELEASE, PROPOSE, PAGE, IDENTIFY)


def command(*words: bytes | str | int) -> bytes:
    """A command as it goes over the wire."""
    packed: bytes = hiredis.pack_command(words)  # type: ignore[arg-type]  # its stub knows one word only
    return packed


def bulk(word: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(word), word)


_BEFORE_LAST = -len(bulk(b""))


def _for_any(*words: bytes | str | int) -> bytes:
    """A vote as it goes to all masters. Its last word, the digest of members, differs for each master, and
    the link adds it."""
    return command(*words, b"")[:_BEFORE_LAST]


def acquire(attempt: Attempt) -> bytes:
    return _for_any(
        b"EVALSHA",
        ACQUIRE.digest,
        b"2",
        LEASE_PREFIX + attempt.resource,
        FENCES_KEY,
        attempt.nonce,
        on_masters(attempt.terms, attempt.shown),
        attempt.ttl_ms,
        attempt.slot,
        attempt.hint,
        BLOCK,
        attempt.place,
        b"asks" if attempt.asks else attempt.waited_us,
        attempt.grace_ms,
    )


def propose(fence_round: FenceRound) -> bytes:
    tenure = (LEASE_PREFIX + fence_round.resource,) if fence_round.nonce else ()
    return _for_any(
        b"EVALSHA",
        PROPOSE.digest,
        b"%d" % (1 + len(tenure)),
        FENCES_KEY,
        *tenure,
        fence_round.slot,
        fence_round.value,
        fence_round.size,
        fence_round.nonce,
    )


def extend(extension: Extension) -> bytes:
    if extension.before:
        return _for_any(
            b"EVALSHA",
            TAKE_OVER.digest,
            b"1",
            LEASE_PREFIX + extension.resource,
            extension.word,
            extension.ttl_ms,
            extension.mark,
            extension.token,
            b"later" if extension.there_ms is None else extension.there_ms,
            *extension.before,
        )
    return _for_any(
        b"EVALSHA",
        EXTEND.digest,
        b"1",
        LEASE_PREFIX + extension.resource,
        extension.word,
        extension.ttl_ms,
        extension.mark,
        *((b"hide",) if extension.hides else ()),
    )


def put_back(ballot: PutBack) -> bytes:
    return _for_any(
        b"EVALSHA",
        PUT_BACK.digest,
        b"1",
        LEASE_PREFIX + ballot.resource,
        ballot.nonce,
        ballot.ttl_ms,
        ballot.text,
        ballot.age_ms,
    )


def identify(
    expected: str, fields: Mapping[str, str], counters: Mapping[int, int]
) -> tuple[bytes | str | int, ...]:
    """The words that give a master that shows this (see identify.lua) an identity, or fields of it. They also
    raise its fence counters (by slot) to at least these values."""
    flat = [number for pair in counters.items() for number in pair]
    words = [word for pair in fields.items() for word in pair]
    keys = (2, IDENTITY_KEY, FENCES_KEY)
    return (b"EVALSHA", IDENTIFY.digest, *keys, expected, len(words), *words, *flat)


def release(ballot: Release) -> bytes:
    more: tuple[bytes | int, ...] = (ballot.how.value,) if ballot.how.value else ballot.before
    if ballot.how is How.TURN:
        more += (ballot.place, ballot.grace_ms)
    elif ballot.how in (How.TRY, How.AGAIN) and ballot.place:
        more += (ballot.place, ballot.grace_ms, ballot.waited_us)
    elif ballot.how in (How.FREED, How.USED):
        more += (ballot.place,)
    return command(b"EVALSHA", RELEASE.digest, b"1", LEASE_PREFIX + ballot.resource, ballot.word, *more)


def page(cursor: bytes) -> tuple[bytes | int, ...]:
    """One page of all leases, as words. The agent that asks chooses from them, never the master."""
    return b"EVALSHA", PAGE.digest, 0, cursor, LEASE_PREFIX + b"*", PAGE_COUNT
