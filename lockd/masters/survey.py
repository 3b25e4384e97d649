"""Looking at leases as the masters have them: for operators, never for the rules (those rest on votes)."""

import asyncio
import fnmatch
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from lockd.clock import boottime_ns
from lockd.masters import scripts
from lockd.masters.fleet import Fleet
from lockd.masters.link import Link, MasterError

_PAGE = 500
_LEASES_MOST = 100_000


@dataclass(frozen=True, slots=True)
class Copy:
    """One master's copy of a lease."""

    master: int
    token: bytes
    host: bytes
    pid: int
    uid: int
    ttl_ms: int
    held_ms: int


@dataclass(frozen=True, slots=True)
class Found:
    """The copies of one resource's leases, and how many masters answered."""

    answered: int
    copies: list[Copy]


async def copies_of(fleet: Fleet, resource: bytes) -> Found:
    """What each master that can be reached shows for `resource`."""
    key = scripts.LEASE_PREFIX + resource

    async def one(link: Link) -> Copy | None:
        lease, ttl_ms = await asyncio.gather(link.call("GET", key), link.call("PTTL", key))
        return _copy(fleet, link, lease, ttl_ms)

    answers = await _of_all(fleet, one)
    return Found(len(answers), [copy for copy in answers if copy is not None])


async def all_copies(fleet: Fleet, pattern: bytes) -> dict[bytes, list[Copy]]:
    """Every lease that matches the glob, by resource. Reads through the masters' data page by page."""

    async def one(link: Link) -> list[tuple[bytes, Copy]]:
        cursor, found = b"0", list[tuple[bytes, Copy]]()
        while len(found) < _LEASES_MOST:
            page = link.call("EVALSHA", scripts.PAGE.digest, 0, cursor, scripts.LEASE_PREFIX + pattern, _PAGE)
            cursor, flat = await asyncio.wait_for(page, _timeout_s(fleet))
            for key, lease, ttl_ms in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
                copy = _copy(fleet, link, lease, ttl_ms)
                if copy is not None:
                    found.append((key[len(scripts.LEASE_PREFIX) :], copy))
            if cursor == b"0":
                break
        return found

    by_resource = defaultdict[bytes, list[Copy]](list)
    for found in await _of_all(fleet, one, within_s=None):
        # SCAN may name a key twice.
        for resource, copy in {(resource, copy.token): (resource, copy) for resource, copy in found}.values():
            by_resource[resource].append(copy)
    return by_resource


async def delete(fleet: Fleet, resource: bytes, tokens: Iterable[bytes]) -> None:
    """Take these leases away, from every master that can be reached."""
    key = scripts.LEASE_PREFIX + resource

    async def one(link: Link) -> None:
        await asyncio.gather(
            *(link.call("EVALSHA", scripts.RELEASE.digest, 1, key, token) for token in tokens)
        )

    await _of_all(fleet, one)


def strongest(copies: Iterable[Copy]) -> list[Copy] | None:
    """The copies of the lease that most masters show; None when none shows any."""
    by_token = defaultdict[bytes, list[Copy]](list)
    for copy in copies:
        by_token[copy.token].append(copy)
    return max(by_token.values(), key=lambda same: (len(same), max(c.ttl_ms for c in same)), default=None)


def matcher(pattern: bytes) -> Callable[[bytes], bool]:
    """Whether a resource matches a glob, as Redis reads it (`*`, `?`, `[ab]`, `[^ab]`, `\\x` for x
    itself)."""
    found = re.compile(fnmatch.translate(_as_fnmatch(pattern.decode("utf-8", "surrogateescape")))).match
    return lambda resource: found(resource.decode("utf-8", "surrogateescape")) is not None


def _as_fnmatch(pattern: str) -> str:
    """A glob of Redis as Python's fnmatch writes it, whose cost is bounded."""

    def translated(found: re.Match[str]) -> str:
        text = found[0]
        if text.startswith("\\"):
            return f"[{text[1:]}]" if text[1:] else text
        inner = text[1:-1].replace("\\", "")
        if inner.startswith("^"):
            return f"[!{inner[1:]}]"
        return f"[{inner[1:]}!]" if inner.startswith("!") and len(inner) > 1 else f"[{inner}]"

    return re.sub(r"\\.?|\[(?:\\.|[^\]\\])+\]", translated, pattern, flags=re.S)


def _copy(fleet: Fleet, link: Link, lease: bytes | None, ttl_ms: int) -> Copy | None:
    if lease is None or ttl_ms < 0:
        return None
    words = lease.split(b" ")
    if len(words) < 6:
        return None
    token, granted_us, _, host, pid, uid = words[:6]
    master_us = (boottime_ns() + fleet.clocks.watches[link.index].offset_ns) // 1000
    return Copy(
        link.index, token, host, int(pid), int(uid), ttl_ms, max(0, (master_us - int(granted_us)) // 1000)
    )


def _timeout_s(fleet: Fleet) -> float:
    return fleet.config.timeouts.master_ms / 1000


async def _of_all(fleet: Fleet, ask: Callable[[Link], Any], within_s: float | None = 0) -> list[Any]:
    """What the masters answer that can be reached and do so in time."""
    limit_s = _timeout_s(fleet) if within_s == 0 else within_s

    async def one(link: Link) -> Any:
        async with asyncio.timeout(limit_s):
            return await ask(link)

    asked = [one(link) for link in fleet.links if link.introduced]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, MasterError | TimeoutError):
            raise answer
    return [answer for answer in answers if not isinstance(answer, BaseException)]
