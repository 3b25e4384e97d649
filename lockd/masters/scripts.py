"""The Lua scripts that run on the masters, and how each is called. Each file says what its keys, arguments
and answers mean."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha1
from importlib.resources import files

import hiredis

from lockd.core.ballots import Attempt, Extension, FenceRound, Release
from lockd.core.fences import BLOCK, slot_of
from lockd.core.leases import on_masters

LEASE_PREFIX = b"lockd:lease:"
FENCES_KEY = b"lockd:fences"
IDENTITY_KEY = b"lockd:identity"


@dataclass(frozen=True, slots=True)
class Script:
    """A script's text, and the digest that EVALSHA calls it by."""

    name: str
    text: bytes
    digest: bytes

    @classmethod
    def read(cls, name: str) -> "Script":
        text = files("lockd.masters").joinpath("scripts", f"{name}.lua").read_bytes()
        # Redis names scripts by their SHA-1; nothing about it has to be secure.
        return cls(name, text, sha1(text, usedforsecurity=False).hexdigest().encode())


ACQUIRE = Script.read("acquire")
EXTEND = Script.read("extend")
RELEASE = Script.read("release")
PROPOSE = Script.read("propose")
PAGE = Script.read("page")
IDENTIFY = Script.read("identify")

PAGE_COUNT = 50
"""Leases on a page, about: with names of 500 bytes it costs a master 0.2 ms."""

ALL = (ACQUIRE, EXTEND, RELEASE, PROPOSE, PAGE, IDENTIFY)


def command(*words: bytes | str | int) -> bytes:
    """A command as it goes over the wire."""
    packed: bytes = hiredis.pack_command(words)  # type: ignore[arg-type]  # its stub knows one word only
    return packed


def acquire(attempt: Attempt, cluster: bytes) -> bytes:
    return command(
        b"EVALSHA",
        ACQUIRE.digest,
        b"2",
        LEASE_PREFIX + attempt.resource,
        FENCES_KEY,
        attempt.token,
        on_masters(attempt.holder),
        attempt.ttl_ms,
        slot_of(attempt.resource),
        attempt.hint,
        BLOCK,
        cluster,
    )


def propose(fence_round: FenceRound, cluster: bytes) -> bytes:
    return command(
        b"EVALSHA",
        PROPOSE.digest,
        b"1",
        FENCES_KEY,
        slot_of(fence_round.resource),
        fence_round.value,
        BLOCK,
        cluster,
    )


def extend(extension: Extension, cluster: bytes) -> bytes:
    return command(
        b"EVALSHA",
        EXTEND.digest,
        b"1",
        LEASE_PREFIX + extension.resource,
        extension.token,
        extension.ttl_ms,
        cluster,
        extension.put_back or b"",
        extension.age_ms,
    )


def identify(
    cluster: str, name: str, max_ttl_ms: int, counters: Mapping[int, int]
) -> tuple[bytes | str | int, ...]:
    """The words with which a blank master gets its identity, and fence counters (by slot) to begin from."""
    flat = [number for pair in counters.items() for number in pair]
    keys = (2, IDENTITY_KEY, FENCES_KEY)
    return (b"EVALSHA", IDENTIFY.digest, *keys, cluster, name, max_ttl_ms, *flat)


def release(ballot: Release) -> bytes:
    return command(b"EVALSHA", RELEASE.digest, b"1", LEASE_PREFIX + ballot.resource, ballot.token)


def page(cursor: bytes) -> tuple[bytes | int, ...]:
    """One page of all leases, as words. What is wanted of them is chosen by who asks, never by the master."""
    return b"EVALSHA", PAGE.digest, 0, cursor, LEASE_PREFIX + b"*", PAGE_COUNT
