"""What operators ask: who holds what, on which masters; and what they do: form, admit, release by force
(always logged)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from lockd.census import ClassCensus
from lockd.clock import boottime_ns
from lockd.core.leases import Lease, Standing, pid_and_uid
from lockd.core.validity import NS_PER_MS
from lockd.masters import formation, survey
from lockd.masters.formation import NotPossible
from lockd.server import resp
from lockd.server.session import Session
from lockd.server.turns import Turns

if TYPE_CHECKING:
    from lockd.masters.fleet import Fleet
    from lockd.server.agent import Agent

_ITEMS_PER_TURN = 100


class Operators:
    """Slow and rare: everything here may take a round trip to all masters, or many."""

    def __init__(self, agent: "Agent") -> None:
        self._agent = agent
        self._turns = Turns()
        self._one_change = asyncio.Lock()

    # Reading

    async def holder(self, session: Session, resource: bytes) -> bytes:
        async with self._turns.of(session.peer.uid):
            found = await survey.copies_of(self._agent.fleet, resource)
        if found.answered < self._agent.quorum and not found.copies:
            return resp.error("NOQUORUM too few masters answered to say whether it is held")
        best = survey.strongest(found.copies)
        if best is None:
            return resp.value(None, session.protocol)
        return resp.value(self._shown(resource, best), session.protocol)

    async def locks(self, session: Session, pattern: bytes) -> None:
        """All leases on all masters."""
        async with self._turns.of(session.peer.uid):
            by_resource = await survey.all_copies(self._agent.fleet, pattern)
            held = ((resource, survey.strongest(copies)) for resource, copies in by_resource.items())
            shown = (self._shown(resource, best) for resource, best in held if best is not None)
            await session.hand_over(await _listing(shown, session.protocol))

    def _shown(self, resource: bytes, copies: list[survey.Copy]) -> dict[str, Any]:
        agent, first = self._agent, copies[0]
        lasts = sorted((copy.ttl_ms for copy in copies), reverse=True)
        quorum = len(copies) >= agent.quorum
        return {
            "resource": resource,
            "holder": first.token[:8],
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

    async def local_locks(self, session: Session, pattern: bytes) -> None:
        """The leases of this host's apps, and how many wait behind each."""
        async with self._turns.of(session.peer.uid):
            matches, locks = survey.matcher(pattern), self._agent.locks
            held = [queue.lease for queue in locks.queues.values() if queue.lease is not None]
            leases = (lease for lease in (*held, *locks.detached.values()) if matches(lease.resource))
            await session.hand_over(
                await _listing((self._shown_local(lease) for lease in leases), session.protocol)
            )

    def _shown_local(self, lease: Lease) -> dict[str, Any]:
        now_ns = boottime_ns()
        queue = self._agent.locks.queues.get(lease.resource)
        pid, uid = pid_and_uid(lease.holder.owner)
        return {
            "resource": lease.resource,
            "holder": lease.token[:8],
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

    def masters(self) -> list[dict[str, Any]]:
        return master_rows(self._agent.fleet)

    async def classes(self, session: Session) -> bytes:
        """The section of INFO that takes a walk over all leases: what is held and waited for, by class."""
        agent = self._agent
        async with self._turns.of(session.peer.uid):
            census = agent.new_census(keep=0)
            for _ in census.steps(agent.locks.queues, agent.locks.detached, boottime_ns()):
                await asyncio.sleep(0)
        totals = agent.metrics.totals_by_class()
        lines = (_class_line(label, of, totals[label]) for label, of in census.by_class.items())
        return resp.bulk("".join(("# Classes\r\n", *lines)).encode(), session.protocol)

    # Changing

    async def force_release(self, session: Session, resource: bytes, wanted: bytes | None) -> bytes:
        agent, peer = self._agent, session.peer
        found = await survey.copies_of(agent.fleet, resource)
        tokens = {copy.token for copy in found.copies if wanted is None or copy.token.startswith(wanted)}
        if not tokens:
            return resp.error(
                "NOTHELD it is free, or held by another than the one you named: look again with HOLDER"
            )
        whose = sorted(
            {
                f"{c.host.decode(errors='replace')} pid {c.pid} uid {c.uid}"
                for c in found.copies
                if c.token in tokens
            }
        )
        agent.log.warning(
            "forced_release", resource=resource, by_pid=peer.pid, by_uid=peer.uid, held_by="; ".join(whose)
        )
        agent.metrics.forced_release()
        # Its holder first, if it is on this host: what is gone from the masters may be another's at once.
        agent.locks.take_away(resource, tokens, f"released by force, by uid {peer.uid}", boottime_ns())
        await survey.delete(agent.fleet, resource, tokens)
        left = {
            copy.master
            for copy in (await survey.copies_of(agent.fleet, resource)).copies
            if copy.token in tokens
        }
        return resp.integer(len({copy.master for copy in found.copies if copy.token in tokens} - left))

    async def form(self, session: Session, unused: bool) -> bytes:
        return await self._change(session, "form", lambda: formation.form(self._agent.fleet, unused))

    async def admit(self, session: Session, name: str) -> bytes:
        return await self._change(session, f"admit {name}", lambda: formation.admit(self._agent.fleet, name))

    async def _change(
        self, session: Session, what: str, work: Callable[[], Awaitable[formation.Progress]]
    ) -> bytes:
        peer = session.peer
        async with self._one_change:
            try:
                progress = await work()
            except NotPossible as why:
                self._agent.log.warning(
                    "membership_refused", what=what, why=str(why), by_pid=peer.pid, by_uid=peer.uid
                )
                return resp.error(f"ERR {why}")
        if progress.status != "waiting":
            self._agent.log.warning(
                "membership", what=what, status=progress.status, by_pid=peer.pid, by_uid=peer.uid
            )
        shown = {
            "status": progress.status,
            "remaining_ms": progress.remaining_ms,
            "total_ms": progress.total_ms,
        }
        return resp.value(shown, session.protocol)


async def _listing(items: Iterable[dict[str, Any]], protocol: int) -> bytes:
    """A long reply, made in pieces: nobody else should have to wait for it."""
    encoded = []
    for item in items:
        encoded.append(resp.value(item, protocol))
        if len(encoded) % _ITEMS_PER_TURN == 0:
            await asyncio.sleep(0)
    return resp.array(encoded)


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
