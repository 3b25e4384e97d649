"""Looking at leases as the masters have them: for people, never for the rules (those rest on votes).

Whatever is asked for, the masters read page after small page of all leases and rest in between. What is
wanted is chosen here, in small pieces. A master may answer anything: if its answer can't be a page, or does
not end, this look loses that master and nothing else.
"""

import asyncio
import re
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from lockd.clock import boottime_ns
from lockd.core.answers import NONCE_CHARS
from lockd.core.ballots.release import How
from lockd.core.leases import MAY_BE_KEPT
from lockd.core.plain_values import value_of
from lockd.masters import scripts
from lockd.masters.failures import MasterError, is_of_another_type
from lockd.masters.fleet import Fleet
from lockd.masters.link import Link

R = TypeVar("R")

LEASES_MOST = 10_000
"""How many leases are listed at most."""
ASKINGS_MOST = 8
"""How many questions one survey answers: each makes it a sixth longer."""

# After each page a master has twice as long for votes. A busy one answers late, and so is asked less.
_RESTS_PER_PAGE = 2
_LEAST_REST_S = 0.001
# When a quorum has shown everything, the others get half as long again.
_STRAGGLERS_SHARE = 0.5
_STRAGGLERS_LEAST_S = 0.5
_LONGEST_S = 60.0
_CLUSTER_ID = "cluster_id"
"""The fields of a master's identity that stay the same when another member is admitted."""
_ALIKE_MS = 100
"""How much copies of a lease may differ that were made and extended together."""
_KEYS_MOST = 100 * scripts.PAGE_COUNT

# What acquire.lua writes; numbers that fit in 64 bits.
_LEASE = re.compile(
    rb"([0-9a-f]{32}) ([0-9]{1,18}) ([0-9]{1,18}) ([^ ]{1,64}) ([0-9]{1,10}) ([0-9]{1,10})"
    rb"(?:\Z| (?:p[0-9]{1,18}(?: =|\Z)|=|))(.*)",
    re.DOTALL,
)
_RESERVED = b"reserved "
_GONE = -2
"""PTTL of a key that ended after it was read."""
_CURSOR = re.compile(rb"[0-9]{1,20}\Z")


class NoPage(MasterError):
    """A master's answer does not fit the question."""


@dataclass(frozen=True, slots=True)
class Copy:
    """One master's copy of a tenure. pid, uid: the first process that had it; nobody follows it if the lease
    is `detached`. value: chosen by its app, if others may see it (core/plain_values.py). token: of the lease
    that has it, b"" if there may be another by now, or none.

    If somebody else than our scripts has put there what is no lease, it has no host, and `nonce` is how a
    release by force names it."""

    master: int
    nonce: bytes
    host: bytes
    pid: int
    uid: int
    ttl_ms: int
    held_ms: int
    detached: bool
    value: bytes | None = None
    token: bytes = field(default=b"", repr=False)

    @property
    def is_lease(self) -> bool:
        return self.host != b""


@dataclass(frozen=True, slots=True)
class Found:
    """The copies of one resource's leases, and which masters said what they have, as bits. A key that is no
    lease says nothing: it may have been put over one."""

    answered: int
    copies: list[Copy]


@dataclass(slots=True)
class Listing:
    """All leases that were wanted. answered: masters that have shown theirs, as bits. full: those of them
    that have more than is listed. Other leases may still have copies there: `copies` leaves those out."""

    answered: int = 0
    full: int = 0
    by_resource: dict[bytes, dict[tuple[int, bytes], Copy]] = field(default_factory=dict)

    def copies(self, resource: bytes) -> list[Copy]:
        return [copy for copy in self.by_resource[resource].values() if self.answered >> copy.master & 1]


Wanted = Callable[[bytes, Copy], bool]


@dataclass(slots=True, eq=False)
class Asking:
    """One of the questions that a survey answers. gone: nobody waits for its answer. put_off: the answers to
    all of them were too long together; it has to be asked again. count: copies that no question before this
    one wants."""

    wanted: Wanted
    listing: Listing = field(default_factory=Listing)
    gone: bool = False
    put_off: bool = False
    count: int = 0
    _by_master: Counter[int] = field(default_factory=Counter)

    def is_full(self, master: int) -> bool:
        return bool(self.listing.full >> master & 1)

    def take(self, resource: bytes, key: tuple[int, bytes], copy: Copy) -> bool:
        """Whether it is wanted, and new. key: as in a `Listing`."""
        master = copy.master
        if self.is_full(master) or not self.wanted(resource, copy):
            return False
        copies = self.listing.by_resource.setdefault(resource, {})
        # SCAN may name a key twice.
        is_new = key not in copies
        if is_new and self._by_master[master] == LEASES_MOST:
            self.listing.full |= 1 << master
            return False
        self._by_master[master] += is_new
        copies[key] = copy
        return is_new


Through = Callable[[Iterable[object]], Awaitable[None]]
"""Runs steps, each of which is a little work, without holding up the event loop."""


async def copies_of(fleet: Fleet, resource: bytes) -> Found:
    """What each master that can be reached shows for `resource`."""
    return await _copies_of(fleet, resource, lambda _found: False)


async def enough_copies_of(fleet: Fleet, resource: bytes) -> Found:
    """As much of that as tells whether it is held, and for how long: a slow master costs nothing (rule 5)."""
    return await _copies_of(fleet, resource, lambda found: _is_enough(fleet, found))


async def _copies_of(fleet: Fleet, resource: bytes, is_enough: Callable[[Found], bool]) -> Found:
    found = Found(0, [])
    left = {
        asyncio.ensure_future(_in_time(fleet, link, lambda link: _copy_on(fleet, link, resource)))
        for link in fleet.links
        if link.introduced
    }
    try:
        while left and not is_enough(found):
            done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            answers = await asyncio.gather(*done, return_exceptions=True)
            _raise_our_own(answers)
            told = [answer for answer in answers if not isinstance(answer, BaseException)]
            shown = [copy for _, copy in told if copy is not None]
            said = sum(bit for bit, copy in told if copy is None or copy.is_lease)
            found = Found(found.answered | said, [*found.copies, *shown])
    finally:
        for task in left:
            task.cancel()
    return found


async def _copy_on(fleet: Fleet, link: Link, resource: bytes) -> tuple[int, Copy | None]:
    """Raises MasterError also if it is not the same member as at the last look: a master that was wiped has
    forgotten what is held. That is asked last, so that it covers what the master has shown."""
    key, known = scripts.LEASE_PREFIX + resource, link.identity
    lease, ttl_ms, cluster_id = await asyncio.gather(
        _text(link.call("GET", key)),
        link.call("PTTL", key),
        link.call("HGET", scripts.IDENTITY_KEY, _CLUSTER_ID),
    )
    if known is not None and known.cluster_id and cluster_id != known.cluster_id.encode():
        raise MasterError("it is not the member that it was")
    return 1 << link.index, _copy(fleet, link, lease, ttl_ms)


async def _text(asked: "asyncio.Future[Any]") -> Any:
    """What GET was answered; '' for a key of another type."""
    try:
        return await asked
    except MasterError as error:
        if not is_of_another_type(error):
            raise
        return b""


def _is_enough(fleet: Fleet, found: Found) -> bool:
    """No answer that is missing can change which lease it is. If copies differ in the time that is left, one
    has missed an extension: the others say how long the lease lasts."""
    quorum, best = fleet.config.quorum, strongest(found.copies)
    if against(fleet, found, best).bit_count() >= quorum:
        return True
    lasts_ms = sorted((copy.ttl_ms for copy in best or ()), reverse=True)[:quorum]
    return len(lasts_ms) == quorum and lasts_ms[0] - lasts_ms[-1] <= _ALIKE_MS


def against(fleet: Fleet, found: Found, best: list[Copy] | None) -> int:
    """The masters with a vote that show something else than the strongest lease, or nothing. A master that
    was wiped, or whose clock has jumped, has no vote, and has forgotten what is held."""
    shown = sum(1 << copy.master for copy in best or ())
    return found.answered & ~shown & fleet.voting()


async def all_copies(fleet: Fleet, askings: Sequence[Asking], through: Through) -> None:
    """For each who asks every lease that is wanted, into its `listing`. Reads through the masters' data page
    by page."""
    survey, began_s = _Survey(fleet, list(askings), through), time.monotonic()
    tours = {asyncio.ensure_future(survey.tour(link)) for link in fleet.links if link.introduced}
    try:
        left = tours
        while left and survey.answered.bit_count() < fleet.config.quorum:
            rest_s = began_s + _LONGEST_S - time.monotonic()
            done, left = await asyncio.wait(left, timeout=rest_s, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                return
        if left:
            took_s = time.monotonic() - began_s
            await asyncio.wait(left, timeout=max(_STRAGGLERS_LEAST_S, _STRAGGLERS_SHARE * took_s))
    finally:
        for tour in tours:
            tour.cancel()
        answers = await asyncio.gather(*tours, return_exceptions=True)
    _raise_our_own(answers)


class _Survey:
    """One reading of everything. answered: the masters that have shown theirs, as bits."""

    def __init__(self, fleet: Fleet, askings: list[Asking], through: Through) -> None:
        self._fleet = fleet
        self._askings = askings
        self._through = through
        self._longest = len(scripts.LEASE_PREFIX) + fleet.config.limits.resource_bytes
        self.answered = 0

    async def tour(self, link: Link) -> None:
        """Add what one master shows. It has answered when that is everything, or as many as are listed."""
        cursor, master_s = b"0", self._fleet.config.timeouts.dead_ms / 1000
        while self._is_wanted(link):
            asked_s = time.monotonic()
            async with asyncio.timeout(master_s):
                page = await link.call(*scripts.page(cursor))
            rest_s = max(_LEAST_REST_S, _RESTS_PER_PAGE * (time.monotonic() - asked_s))
            cursor, flat = _page(page)
            await self._through(self._take(link, flat))
            if cursor == b"0":
                break
            await asyncio.sleep(rest_s)
        self.answered |= 1 << link.index
        for asking in self._askings:
            asking.listing.answered |= 1 << link.index

    def _is_wanted(self, link: Link) -> bool:
        """Whether somebody has not seen enough of it. What the first one wants may be as much as any; what
        the others want besides together as much again, or the last of those waits for another survey."""
        askings, most = self._askings, LEASES_MOST * len(self._fleet.links)
        askings[:] = [asking for asking in askings if not asking.gone]
        while len(askings) > 2 and sum(asking.count for asking in askings[1:]) > most:
            last = next(asking for asking in reversed(askings) if asking.count)
            askings.remove(last)
            last.put_off, last.listing = True, Listing()
        return not all(asking.is_full(link.index) for asking in askings)

    def _take(self, link: Link, flat: list[Any]) -> Iterator[None]:
        for key, lease, ttl_ms in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
            resource, copy = _resource_in(key), _copy(self._fleet, link, lease, ttl_ms)
            # No agent with this configuration has granted a longer name, and matching it would take longer.
            if copy is not None and len(key) <= self._longest:
                key = link.index, copy.nonce
                takers = [asking for asking in self._askings if asking.take(resource, key, copy)]
                if takers:
                    takers[0].count += 1
            yield


async def delete(fleet: Fleet, resource: bytes, nonces: Iterable[bytes]) -> None:
    """Take these leases away, from every master that can be reached."""
    key = scripts.LEASE_PREFIX + resource

    async def one(link: Link) -> None:
        words = ("EVALSHA", scripts.RELEASE.digest, 1, key)
        await asyncio.gather(*(link.call(*words, nonce, How.FORCED.value) for nonce in nonces))

    await _of_all(fleet, one)


def strongest(copies: Iterable[Copy]) -> list[Copy] | None:
    """The copies of the lease that most masters show; None when none shows any."""
    by_token = defaultdict[bytes, list[Copy]](list)
    for copy in copies:
        if copy.is_lease:
            by_token[copy.nonce].append(copy)
    return max(by_token.values(), key=lambda same: (len(same), max(c.ttl_ms for c in same)), default=None)


def _page(answer: Any) -> tuple[bytes, list[Any]]:
    """The next cursor, and what is on the page: key, lease and TTL in turn. NoPage when it is no page."""
    match answer:
        case [bytes(cursor), list(flat)] if _CURSOR.match(cursor):
            if len(flat) % 3 == 0 and len(flat) <= 3 * _KEYS_MOST:
                return cursor, flat
    raise NoPage("its page of leases is invalid")


def _resource_in(key: Any) -> bytes:
    if not isinstance(key, bytes) or not key.startswith(scripts.LEASE_PREFIX):
        raise NoPage("a key on its page is not a lease")
    return key[len(scripts.LEASE_PREFIX) :]


def _copy(fleet: Fleet, link: Link, lease: Any, ttl_ms: Any) -> Copy | None:
    """None when it is free. NoPage when no sane master would answer this."""
    if not isinstance(lease, bytes | None) or not isinstance(ttl_ms, int):
        raise NoPage("a lease or its TTL is of another type")
    if lease is None or ttl_ms == _GONE or lease.startswith(_RESERVED):
        return None
    found = _LEASE.match(lease)
    if found is None or not 0 <= ttl_ms < 1 << 53:
        return Copy(link.index, lease[:NONCE_CHARS], b"", 0, 0, max(0, ttl_ms), 0, detached=True)
    nonce, granted_us, max_hold_ms, host, pid, uid, token = found.groups()
    master_us = (boottime_ns() + fleet.clocks.watches[link.index].offset_ns) // 1000
    held_ms = max(0, (master_us - int(granted_us)) // 1000)
    is_detached, value = int(max_hold_ms) > 0, value_of(token)
    shown = b"" if max_hold_ms == MAY_BE_KEPT else token
    return Copy(link.index, nonce, host, int(pid), int(uid), ttl_ms, held_ms, is_detached, value, shown)


async def _of_all(fleet: Fleet, ask: Callable[[Link], Any]) -> list[Any]:
    """The answers of the masters that can be reached and answer in time."""

    asked = [_in_time(fleet, link, ask) for link in fleet.links if link.introduced]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    _raise_our_own(answers)
    return [answer for answer in answers if not isinstance(answer, BaseException)]


async def _in_time(fleet: Fleet, link: Link, ask: Callable[[Link], Awaitable[R]]) -> R:
    async with asyncio.timeout(fleet.config.timeouts.master_ms / 1000):
        return await ask(link)


def _raise_our_own(answers: Iterable[Any]) -> None:
    """Errors that no master can cause."""
    for answer in answers:
        if isinstance(answer, Exception) and not isinstance(answer, MasterError | TimeoutError):
            raise answer
