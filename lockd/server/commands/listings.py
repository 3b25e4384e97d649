"""HOLDER, LOCKS and MASTERS: who holds what, on which masters, and the state of the masters."""

from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import chain
from typing import Any

from lockd.clock import boottime_ns
from lockd.config.current import Current
from lockd.config.globs import PATTERN_BYTES_MOST, matcher
from lockd.config.model import CANARY
from lockd.core.flow import Place
from lockd.core.leases import Lease, Standing, pid_and_uid
from lockd.core.plain_values import value_of
from lockd.core.queues import Kept, Queue
from lockd.core.validity import NS_PER_MS, left_ms
from lockd.masters import survey
from lockd.masters.fleet import Fleet
from lockd.server.canary import RESERVED
from lockd.server.commands.arguments import BadRequest, Misused
from lockd.server.commands.command import RESOURCE, Argument, Command, Group
from lockd.server.commands.readings import OPERATORS, Readings, Surveys
from lockd.server.commands.tenants import tenant_of
from lockd.server.dropin.plain_locks import PlainLock
from lockd.server.peer import Peer
from lockd.server.resp import replies
from lockd.server.session import Session
from lockd.server.shared import Shared

COMMANDS = Group()

_ASKED_BYTES = 65_536
"""Whenever a reply has grown by so much, the limits are asked whether it may."""

_TOO_MANY = (
    f"LIMIT listed: more than {survey.LEASES_MOST} leases match, which is the most that can be listed: "
    "narrow the pattern"
)


Listing = Callable[..., Coroutine[Any, Any, bytes | None]]


class Listings:
    """Everything here may take one or many round trips to all masters, or a look at everything that is
    held."""

    def __init__(self, current: Current, shared: Shared, fleet: Fleet, readings: Readings) -> None:
        self._current = current
        self._quorum = current.config.quorum
        self._host = shared.host
        self._locks = shared.locks
        self._shared = shared
        self._incidents = shared.incidents
        self._fleet = fleet
        self._readings = readings
        self._surveys = Surveys(fleet, shared.turns)
        self._listings_by_word: dict[bytes, Listing] = {
            b"LOCAL": self.local_locks,
            b"NOLEASE": partial(self.locks, are_leases=False),
        }

    @COMMANDS(
        Command(
            "holder",
            2,
            "lock",
            ("readonly", "noscript"),
            "Shows who holds a resource, and on how many masters. For users who may lock it, and operators.",
            "map: resource, holder, host, pid, uid, fence, kept, ttl_ms, held_ms, masters, of, quorum; nil "
            "when it is free",
            (RESOURCE,),
            key_access=("RO", "access"),
            promise=(
                "nil when free, else map: `resource`, `holder` (start of its nonce, for `FORCERELEASE`), "
                "`host`, `pid`, `uid`, `fence`, `kept`: 1 if no app has it and its host keeps it "
                "(`keep_ms`), `ttl_ms`, `held_ms`, `masters`, `of`, `quorum`. For another host `pid`, "
                "`uid` and `held_ms` are those of the first holder if it was handed on there, and `fence` "
                "and `kept` are nil: only its agent knows them. `DENIED` if you may not look"
            ),
        )
    )
    def _ask_holder(self, session: Session, words: list[bytes]) -> None:
        session.later(lambda _place: self.holder(session, words[1]))

    @COMMANDS(
        Command(
            "locks",
            -1,
            "lock",
            ("readonly", "noscript"),
            "Lists the leases that you may see: on the masters, or with LOCAL those of this agent.",
            "array of maps, as of HOLDER; with LOCAL: resource, holder, class, pid, uid, fence, "
            "ttl_ms, held_ms, "
            "masters, of, detached, bound, via, library, lost, kept, waiters; with NOLEASE: resource, "
            "masters, of",
            (
                Argument("pattern", "pattern", optional=True),
                Argument(
                    "what",
                    "oneof",
                    optional=True,
                    arguments=(
                        Argument("local", "pure-token", token="LOCAL"),
                        Argument("nolease", "pure-token", token="NOLEASE"),
                    ),
                ),
            ),
            promise=(
                "list of such maps for the leases on all masters that you may see (pattern: a Redis glob "
                "of up to 128 bytes; 10,000 leases at most). `LOCAL`: only this host's leases, without "
                "`host` and `quorum`, and with `class`, `fence`, `detached`, `bound`, `via` (`lock`, "
                "`set`, `script`), `library`, `lost`, `waiters`; if `kept` is 1, the values are those of "
                "the last holder, and `held_ms` counts from its end. `NOLEASE`: instead of leases, what "
                "somebody else than lockd has put there and is no lease (`resource`, `masters`, `of`)"
            ),
        )
    )
    def _ask_locks(self, session: Session, words: list[bytes]) -> None:
        rest = words[1:]
        listing = self._listings_by_word.get(rest[-1].upper()) if rest else None
        patterns = rest[:-1] if listing else rest
        if len(patterns) > 1:
            raise Misused
        pattern = patterns[0] if patterns else b"*"
        if len(pattern) > PATTERN_BYTES_MOST:
            raise BadRequest(
                f"ERR the pattern has {len(pattern)} bytes, at most {PATTERN_BYTES_MOST} are allowed"
            )
        session.later(partial(listing or self.locks, session, pattern))

    @COMMANDS(
        Command(
            "masters",
            1,
            "masters",
            ("readonly", "noscript", "stale"),
            "Lists the masters: which have a vote, and why the others don't.",
            "array of maps: name, address, state, vote, reason, rtt_us, clock_offset_us, version, "
            "max_ttl_ms, notices",
            promise=(
                "list of maps: `name`, `address`, `state`, `vote`: 1 if it has one and refuses nothing that "
                "is asked for with `LOCK`, `EXTEND` or `UNLOCK`, `reason`, `rtt_us`, `clock_offset_us`, "
                "`version`, `max_ttl_ms`, `notices`: 1 where it tells this agent whose turn it is"
            ),
        )
    )
    def _ask_masters(self, session: Session, words: list[bytes]) -> None:
        session.later(lambda _place: self.masters(session))

    async def masters(self, session: Session) -> bytes:
        return await self._shared.turns.answer(
            session.account, lambda: replies.value(master_rows(self._fleet), session.protocol)
        )

    async def holder(self, session: Session, resource: bytes) -> bytes:
        peer = session.peer
        async with self._slot(session):
            found = await survey.copies_of(self._fleet, resource)
        best = survey.strongest(found.copies)
        label = self._label_of(resource)
        if not (
            self._shared.permissions.may_see(peer, label)
            or (best is not None and self._is_own(peer, resource, best[0]))
        ):
            self._incidents.denied(peer, resource, label)
            return replies.error(f"DENIED uid {peer.uid} may not see leases of the class '{label}'")
        if found.answered.bit_count() < self._quorum and best is None:
            spoilt = sum(not copy.is_lease for copy in found.copies)
            why = f": on {spoilt} is a key that is no lease, for lockctl force-release" if spoilt else ""
            return replies.error(f"NOQUORUM too few masters answered to say whether it is held{why}")
        return replies.value(best and self._row(resource, best), session.protocol)

    async def locks(
        self, session: Session, pattern: bytes, place: Place, *, are_leases: bool = True
    ) -> bytes | None:
        """All leases on all masters that this user may see; or all that has the name of one and is none."""
        peer, matches = session.peer, matcher(pattern)
        is_admin = self._shared.permissions.is_admin(peer)

        def wanted(resource: bytes, copy: survey.Copy) -> bool:
            return (
                copy.is_lease is are_leases
                and matches(resource)
                and (
                    is_admin
                    or self._shared.permissions.may_see(peer, self._label_of(resource))
                    or self._is_own(peer, resource, copy)
                )
            )

        async with session.large_reply():
            found = await self._surveys.ask(session.account, wanted, first=is_admin)
            if found.answered.bit_count() < self._quorum:
                return replies.error("NOQUORUM too few masters answered to say what is locked")
            if found.full.bit_count() >= self._quorum:
                return replies.error(_TOO_MANY)
            rows = (self._row_of(resource, found.copies(resource)) for resource in found.by_resource)
            listed = await self._listing(session, rows)
            session.hand_over(place, listed)
        return None

    def _slot(self, session: Session) -> AbstractAsyncContextManager[None]:
        is_admin = self._shared.permissions.is_admin(session.peer)
        return self._readings.listings.slot(session.account, first=is_admin)

    def _label_of(self, resource: bytes) -> str:
        """The class of a resource on the masters. Not with `class_of`, which caches what is locked here."""
        return CANARY if resource.startswith(RESERVED) else self._current.config.find_class(resource).name

    def _is_own(self, peer: Peer, resource: bytes, copy: survey.Copy) -> bool:
        """A lease of this user on this host: on another host the same number may be another user's."""
        if copy.host != self._host:
            return False
        tenant = tenant_of(self._locks, resource, copy.nonce)
        return (tenant.uid if tenant is not None else copy.uid) == peer.uid

    def _row_of(self, resource: bytes, copies: list[survey.Copy]) -> dict[str, Any] | None:
        if best := survey.strongest(copies):
            return self._row(resource, best)
        row = {"resource": resource, "masters": len(copies), "of": len(self._fleet.links)}
        return row if copies else None

    def _row(self, resource: bytes, copies: list[survey.Copy]) -> dict[str, Any]:
        first = copies[0]
        lasts = sorted((copy.ttl_ms for copy in copies), reverse=True)
        quorum = len(copies) >= self._quorum
        tenant = tenant_of(self._locks, resource, first.nonce)
        held_ms = max(copy.held_ms for copy in copies)
        if tenant is not None:
            held_ms = (boottime_ns() - tenant.since_ns) // NS_PER_MS
        kept = 0 if first.detached else None
        return {
            "resource": resource,
            "holder": first.nonce[:8],
            "host": first.host,
            "pid": tenant.pid if tenant is not None else first.pid,
            "uid": tenant.uid if tenant is not None else first.uid,
            "fence": tenant.fence if tenant is not None else None,
            "kept": int(tenant.kept) if tenant is not None else kept,
            # It has a quorum until so many copies have run out that one is missing.
            "ttl_ms": lasts[self._quorum - 1] if quorum else lasts[0],
            "held_ms": held_ms,
            "masters": len(copies),
            "of": len(self._fleet.links),
            "quorum": int(quorum),
        }

    async def local_locks(self, session: Session, pattern: bytes, place: Place) -> bytes | None:
        """The leases of this host's apps that this user may see, and how many wait for each."""
        peer, matches, locks = session.peer, matcher(pattern), self._locks

        def row_of(held: Queue | Lease) -> dict[str, Any] | None:
            if isinstance(held, Queue) and held.kept is not None:
                is_shown = matches(held.resource) and self._may_see(peer, held.kept.owner, held.kept.label)
                return self._kept_row(held, held.kept) if is_shown else None
            lease = held.lease if isinstance(held, Queue) else held
            if lease is None or not matches(lease.resource):
                return None
            is_shown = self._may_see(peer, lease.holder.owner, lease.holder.label)
            return self._local_row(lease) if is_shown else None

        async with session.large_reply(), self._slot(session):
            held: Iterable[Queue | Lease] = chain(list(locks.queues.values()), list(locks.detached.values()))
            listed = await self._listing(session, map(row_of, held))
            session.hand_over(place, listed)
        return None

    def _may_see(self, peer: Peer, owner: bytes, label: str) -> bool:
        _, uid = pid_and_uid(owner)
        return uid == peer.uid or self._shared.permissions.may_see(peer, label)

    async def _listing(self, session: Session, rows: Iterable[dict[str, Any] | None]) -> bytes:
        """A list of the rows that exist, as it goes over the wire. What is over a limit is not made."""
        listed, refusals = list[bytes](), list[bytes]()

        def steps() -> Iterator[None]:
            size = asked = 0
            for row in rows:
                if row is not None:
                    listed.append(replies.value(row, session.protocol))
                    size += len(listed[-1])
                    if len(listed) > survey.LEASES_MOST:
                        refusals.append(replies.error(_TOO_MANY))
                    elif size - asked >= _ASKED_BYTES:
                        asked = size
                        refusals.extend(session.refuse_reply(size))
                    if refusals:
                        listed.clear()
                        return
                yield

        is_admin = self._shared.permissions.is_admin(session.peer)
        await self._shared.turns.through(OPERATORS if is_admin else session.account, steps())
        return refusals[0] if refusals else replies.array(listed)

    def _local_row(self, lease: Lease) -> dict[str, Any]:
        now_ns = boottime_ns()
        queue = self._locks.queues.get(lease.resource)
        pid, uid = pid_and_uid(lease.holder.owner)
        return {
            "resource": lease.resource,
            "holder": lease.nonce[:8],
            "class": lease.holder.label,
            "pid": pid,
            "uid": uid,
            "fence": lease.fence,
            "ttl_ms": left_ms(lease.deadline_ns, now_ns),
            "held_ms": (now_ns - lease.granted_ns) // NS_PER_MS,
            "masters": lease.proven.bit_count(),
            "of": len(self._fleet.links),
            "detached": int(lease.holder.detached),
            "bound": lease.holder.bound.value,
            **_asked_by(lease),
            "lost": int(lease.standing is Standing.LOST),
            "kept": 0,
            "waiters": len(queue.waiters) if queue else 0,
        }

    def _kept_row(self, queue: Queue, kept: Kept) -> dict[str, Any]:
        """For a tenure without a lease: its last holder."""
        now_ns, tenure = boottime_ns(), queue.tenure
        assert tenure is not None
        pid, uid = pid_and_uid(kept.owner)
        return {
            "resource": queue.resource,
            "holder": tenure.nonce[:8],
            "class": kept.label,
            "pid": pid,
            "uid": uid,
            "fence": kept.fence,
            "ttl_ms": max(0, (tenure.deadline_ns - now_ns) // NS_PER_MS),
            "held_ms": (now_ns - kept.since_ns) // NS_PER_MS,
            "masters": tenure.proven.bit_count(),
            "of": len(self._fleet.links),
            "detached": 0,
            "bound": None,
            "via": "lock",
            "library": "",
            "lost": 0,
            "kept": 1,
            "waiters": len(queue.waiters),
        }


def _asked_by(lease: Lease) -> dict[str, str]:
    """How it was asked for, and by which library, if the library has said so."""
    holder = lease.holder
    if isinstance(holder, PlainLock):
        return {"via": holder.via, "library": holder.library.decode(errors="backslashreplace")}
    return {"via": "lock" if value_of(lease.token) is None else "set", "library": ""}


def master_rows(fleet: Fleet) -> list[dict[str, Any]]:
    """Each master: its state as this agent sees it, and why it has no vote. Other threads may call it,
    too."""
    now_ns = boottime_ns()
    rows = []
    for link in fleet.links:
        facts = link.facts
        identity = facts.identity if facts else None
        rows.append(
            {
                "name": link.master.name,
                "address": link.master.address,
                "state": str(link.state),
                "vote": fleet.giving() >> link.index & 1,
                "reason": link.reason or fleet.refusal_of(link),
                "rtt_us": link.round_trip_ns // 1000,
                "clock_offset_us": fleet.clocks.off_median_us(link.index, now_ns),
                "version": facts.version if facts else "",
                "max_ttl_ms": identity.max_ttl_ms if identity else None,
                "notices": int(link.hears_notices),
            }
        )
    return rows
