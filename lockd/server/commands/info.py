"""What is asked: who holds what, on which masters; how masters and agent are; which commands there are."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from lockd.clock import boottime_ns
from lockd.config.globs import PATTERN_BYTES_MOST, matcher
from lockd.config.model import CANARY
from lockd.core.leases import Lease, Standing, pid_and_uid
from lockd.core.queues import Queue
from lockd.core.validity import NS_PER_MS
from lockd.masters import survey
from lockd.metrics.census import ClassCensus
from lockd.server.canary import RESERVED
from lockd.server.commands import catalog
from lockd.server.commands.arguments import BadRequest, resource_in
from lockd.server.lanes import Lane
from lockd.server.peer import Peer
from lockd.server.resp import replies
from lockd.server.session import Handler, Session
from lockd.server.turns import Turns

if TYPE_CHECKING:
    from lockd.masters.fleet import Fleet
    from lockd.server.agent import Agent

_RESTS = 3
_TOO_MANY = (
    f"LIMIT listed: more than {survey.LEASES_MOST} leases match, and so many are listed at most: "
    "narrow the pattern"
)


class Info:
    """Everything here may take a round trip to all masters, or many, or a walk over all that is held.
    What takes the event loop's time is done in bites, see lanes.py."""

    def __init__(self, agent: "Agent") -> None:
        self._agent = agent
        self._permissions = agent.permissions
        self._turns = Turns(at_once=8, per_user=2)
        # Each reads all leases of all masters.
        self._surveys = Turns(at_once=1, per_user=1)
        self._lane = Lane(_RESTS)

    def handlers(self) -> dict[bytes, Handler]:
        return {
            b"HOLDER": lambda s, w: s.later(partial(self.holder, s, resource_in(self._agent, s, w[1]))),
            b"LOCKS": self._locks,
            b"MASTERS": lambda s, w: s.later(partial(self.masters, s)),
            b"INFO": self._info,
            b"COMMAND": lambda s, w: s.later(partial(self.one_answer, s, catalog.answer, w[1:], s.protocol)),
        }

    def _locks(self, session: Session, words: list[bytes]) -> None:
        rest = words[1:]
        local = bool(rest) and rest[-1].upper() == b"LOCAL"
        patterns = rest[:-1] if local else rest
        if len(patterns) > 1:
            raise BadRequest(f"ERR syntax error: {catalog.usage('locks')}")
        pattern = patterns[0] if patterns else b"*"
        if len(pattern) > PATTERN_BYTES_MOST:
            raise BadRequest(f"ERR the pattern has {len(pattern)} bytes, it may have {PATTERN_BYTES_MOST}")
        listing = self.local_locks if local else self.locks
        session.later(partial(listing, session, pattern))

    def _info(self, session: Session, words: list[bytes]) -> None:
        wanted = {word.decode(errors="replace").lower() for word in words[1:]}
        # Not one of `all`: it takes a walk over all leases.
        if wanted == {"classes"}:
            session.later(partial(self.classes, session))
        else:
            session.later(partial(self.info, session, wanted))

    async def one_answer(self, session: Session, answer: Callable[..., bytes], *about: Any) -> bytes:
        """What takes the loop less than a bite: in its user's turn."""
        made = list[bytes]()
        await self._lane.through(session.peer.uid, map(made.append, (answer(*about) for _ in range(1))))
        return made[0]

    async def info(self, session: Session, wanted: set[str]) -> bytes:
        return await self.one_answer(
            session, lambda: replies.bulk(self._agent.info(wanted).encode(), session.protocol)
        )

    async def masters(self, session: Session) -> bytes:
        return await self.one_answer(
            session, lambda: replies.value(master_rows(self._agent.fleet), session.protocol)
        )

    async def holder(self, session: Session, resource: bytes) -> bytes:
        peer = session.peer
        async with self._turns.of(peer.uid):
            found = await survey.copies_of(self._agent.fleet, resource)
        best = survey.strongest(found.copies)
        label = self._label_of(resource)
        if not (self._permissions.may_see(peer, label) or (best is not None and self._is_own(peer, best[0]))):
            self._agent.denied(peer, resource, label)
            return replies.error(f"DENIED uid {peer.uid} may not see leases of the class '{label}'")
        if found.answered < self._agent.quorum and best is None:
            return replies.error("NOQUORUM too few masters answered to say whether it is held")
        return replies.value(best and self._shown(resource, best), session.protocol)

    async def locks(self, session: Session, pattern: bytes) -> bytes | None:
        """All leases on all masters, of those that this user may see."""
        peer, matches = session.peer, matcher(pattern)

        def wanted(resource: bytes, copy: survey.Copy) -> bool:
            return matches(resource) and (
                self._permissions.may_see(peer, self._label_of(resource)) or self._is_own(peer, copy)
            )

        async with self._surveys.of(peer.uid):
            found = await survey.all_copies(
                self._agent.fleet, wanted, lambda steps: self._lane.through(peer.uid, steps)
            )
            if found.answered.bit_count() < self._agent.quorum:
                return replies.error("NOQUORUM too few masters answered to say what is locked")
            if found.full.bit_count() >= self._agent.quorum:
                return replies.error(_TOO_MANY)
            held = ((resource, survey.strongest(found.copies(resource))) for resource in found.by_resource)
            shown = (self._shown(resource, best) if best else None for resource, best in held)
            listed = await self._listing(session, shown)
            await session.hand_over(replies.array(listed))
        return None

    def _label_of(self, resource: bytes) -> str:
        """The class of a resource on the masters. Not by `class_of`, which remembers what is locked here."""
        return CANARY if resource.startswith(RESERVED) else self._agent.config.find_class(resource).name

    def _is_own(self, peer: Peer, copy: survey.Copy) -> bool:
        """A lease of this user on this host: elsewhere the same number may be somebody else's."""
        return copy.uid == peer.uid and copy.host == self._agent.host

    def _shown(self, resource: bytes, copies: list[survey.Copy]) -> dict[str, Any]:
        agent, first = self._agent, copies[0]
        lasts = sorted((copy.ttl_ms for copy in copies), reverse=True)
        quorum = len(copies) >= agent.quorum
        return {
            "resource": resource,
            "holder": first.nonce[:8],
            "host": first.host,
            "pid": first.pid,
            "uid": first.uid,
            # It has a quorum until so many copies have run out that one is missing.
            "ttl_ms": lasts[agent.quorum - 1] if quorum else lasts[0],
            "held_ms": max(copy.held_ms for copy in copies),
            "masters": len(copies),
            "of": len(agent.fleet.links),
            "quorum": int(quorum),
        }

    async def local_locks(self, session: Session, pattern: bytes) -> bytes | None:
        """The leases of this host's apps, and how many wait behind each, of those that this user may see."""
        peer, matches, locks = session.peer, matcher(pattern), self._agent.locks

        def shown(held: Queue | Lease) -> dict[str, Any] | None:
            lease = held.lease if isinstance(held, Queue) else held
            if lease is None or not matches(lease.resource) or not self._may_see(peer, lease):
                return None
            return self._shown_local(lease)

        async with self._turns.of(peer.uid):
            held: Iterable[Queue | Lease] = chain(list(locks.queues.values()), list(locks.detached.values()))
            listed = await self._listing(session, map(shown, held))
            if len(listed) > survey.LEASES_MOST:
                return replies.error(_TOO_MANY)
            await session.hand_over(replies.array(listed))
        return None

    def _may_see(self, peer: Peer, lease: Lease) -> bool:
        _, uid = pid_and_uid(lease.holder.owner)
        return uid == peer.uid or self._permissions.may_see(peer, lease.holder.label)

    async def _listing(self, session: Session, rows: Iterable[dict[str, Any] | None]) -> list[bytes]:
        """Those rows that there are, as they go over the wire; not many more than are listed at most."""
        listed = list[bytes]()

        def steps() -> Iterator[None]:
            for row in rows:
                if row is not None:
                    listed.append(replies.value(row, session.protocol))
                    if len(listed) > survey.LEASES_MOST:
                        return
                yield

        await self._lane.through(session.peer.uid, steps())
        return listed

    def _shown_local(self, lease: Lease) -> dict[str, Any]:
        now_ns = boottime_ns()
        queue = self._agent.locks.queues.get(lease.resource)
        pid, uid = pid_and_uid(lease.holder.owner)
        return {
            "resource": lease.resource,
            "holder": lease.nonce[:8],
            "class": lease.holder.label,
            "pid": pid,
            "uid": uid,
            "fence": lease.fence,
            "ttl_ms": max(0, (lease.deadline_ns - now_ns) // NS_PER_MS),
            "held_ms": (now_ns - lease.granted_ns) // NS_PER_MS,
            "masters": lease.proven.bit_count(),
            "of": len(self._agent.fleet.links),
            "detached": int(lease.holder.detached),
            "lost": int(lease.standing is Standing.LOST),
            "waiters": len(queue.waiters) if queue else 0,
        }

    async def classes(self, session: Session) -> bytes:
        """The section of INFO that takes a walk over all leases: what is held and waited for, by class."""
        agent = self._agent
        async with self._turns.of(session.peer.uid):
            await self._lane.through(session.peer.uid, agent.metrics.census_steps())
        census = agent.metrics.census
        totals = agent.metrics.totals_by_class()
        lines = (_class_line(label, of, totals[label]) for label, of in census.by_class.items())
        return replies.bulk("".join(("# Classes\r\n", *lines)).encode(), session.protocol)


def master_rows(fleet: "Fleet") -> list[dict[str, Any]]:
    """Each master: what it is to this agent, and why it has no vote. Another thread may ask, too."""
    now_ns = boottime_ns()
    shown = []
    for link in fleet.links:
        facts = link.facts
        identity = facts.identity if facts else None
        shown.append(
            {
                "name": link.master.name,
                "address": link.master.address,
                "state": str(link.state),
                "vote": fleet.voting() >> link.index & 1,
                "reason": link.reason or fleet.refusal_of(link),
                "rtt_us": link.round_trip_ns // 1000,
                "clock_offset_us": fleet.clocks.off_median_us(link.index, now_ns),
                "version": facts.version if facts else "",
                "max_ttl_ms": identity.max_ttl_ms if identity else None,
            }
        )
    return shown


def _class_line(label: str, of: ClassCensus, totals: dict[str, int]) -> str:
    """As Redis writes its keyspace: name:key=value,key=value."""
    numbers = {
        "leases": of.leases,
        "waiters": of.waiters,
        "oldest_wait_ms": of.oldest_wait_ns // NS_PER_MS,
        "lost": of.lost,
        "on_fewer_masters": of.on_fewer,
        **totals,
    }
    return f"class_{label}:{','.join(f'{key}={value}' for key, value in numbers.items())}\r\n"
