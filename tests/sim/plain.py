"""Apps that know of one Redis, and lock as its own commands have it: lockd/core/plain_values.py.

They poll, choose their values themselves, at times the same as others, and release and extend by them,
through other hosts' agents too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from lockd.core.errors import ErrorWord
from lockd.core.leases import Lease
from lockd.core.notices import Kind
from lockd.core.plain_values import token_of, value_of
from lockd.core.refusals import NOT_HELD
from lockd.core.values import Bound, Refusal
from lockd.core.values import Extended as Renewal
from tests.harness import history as h
from tests.harness.clocks import MS
from tests.sim.agent import Agent
from tests.sim.apps import App, Freed, Habits, Held, Request, Told, Wanted

_CONSTANTS = (b"1", b"locked")
"""What many write as the value: each has it."""
_POLLS_MOST = 12


class PlainRequest(Request):
    """SET key value NX, with or without a TTL. It doesn't wait."""

    app: PlainApp

    def __init__(self, app: PlainApp, number: int, resource: bytes, habits: Habits) -> None:
        super().__init__(app, number, resource, habits)
        constant = app.dice.random() < 0.4
        self.plain = app.dice.choice(_CONSTANTS) if constant else b"%d of %b" % (number, app.name.encode())
        self.value = token_of(self.plain)
        self.bound, self.wait_ms, self.keep_ms = Bound.PROCESS, None, 0

    @property
    def stands_alone(self) -> bool:
        return self.detached

    @property
    def is_shared(self) -> bool:
        """Others have the same value."""
        return self.plain in _CONSTANTS

    def is_like(self, other: PlainRequest) -> None:
        """It asks once more for the same."""
        for name in ("resource", "ttl_ms", "detached", "max_hold_ms", "plain", "value"):
            setattr(self, name, getattr(other, name))


@dataclass(slots=True)
class Released(Freed):
    """The answer to a release of that lease by its value. is_his: by nobody else's; is_gone: when it is
    done, at once and everywhere."""

    is_his: bool = True
    is_gone: bool = True

    def done(self, lease: Renewal | None) -> None:
        if self.is_gone:
            super(Released, self).done(lease)

    def refused(self, refusal: Refusal) -> None:
        super(Released, self).refused(refusal)
        if self.is_his and refusal.code in (ErrorWord.NOTHELD, ErrorWord.EXPIRED):
            self.app.world.note(h.ToldGone(self.app.world.now_ns, self.name))


class PlainApp(App):
    """Its commands come one after the other."""

    def __init__(self, *what: Any) -> None:
        self._polls = 0
        self._polled: PlainRequest | None = None
        self._until_ns: dict[bytes, int] = {}
        """By the name of a lease: the TTL that it was given since, by its host's clock."""
        self._asking: set[bytes] = set()
        """Leases whose new TTL is not answered yet."""
        super().__init__(*what)

    # Polling

    def _plain_request(self) -> Request:
        request = PlainRequest(
            self, self._next_number(), self.dice.choice(self._habits.resources), self._habits
        )
        if self._polled is not None:
            request.is_like(self._polled)
        return request

    def _rest_ns(self) -> int:
        if self._polled is None:
            return max(super()._rest_ns(), int(self.dice.uniform(50, 500) * MS))
        return int(self.dice.choice((20, 150, 500)) * self.dice.uniform(0.5, 1.5) * MS)

    def refused(self, request: Wanted, refusal: Refusal) -> None:
        if request is self._open:
            assert isinstance(request, PlainRequest)
            self._polls += 1
            asks_again = refusal.code is ErrorWord.TAKEN and self._polls % _POLLS_MOST
            self._polled = request if asks_again else None
            if request.is_shared and self.dice.random() < 0.03:
                self._release_anyway(request)
        super().refused(request, refusal)

    def got(self, request: Request, lease: Lease, granted: h.Granted) -> None:
        self._polled = None
        super().got(request, lease, granted)

    # By value

    def _agent_for(self, held: Held) -> Agent:
        others = [agent for agent in self._elsewhere if agent.running]
        if others and self.dice.random() < self._habits.goes_elsewhere:
            return self.dice.choice(others)
        return self.agent

    def _known(self, agent: Agent, resource: bytes, value: bytes, now_ns: int) -> Lease | None:
        """Which lease that agent takes it for. Of what has run out, or was said to be released elsewhere, it
        asks the masters, where another may have that value by now."""
        lease = agent.locks.known(resource, token_of(value))
        if lease is not None and lease.holder.detached:
            return None if lease.said_gone is Kind.RELEASED or now_ns >= lease.deadline_ns else lease
        return lease

    def _release_anyway(self, request: PlainRequest) -> None:
        """As in a `finally` that does not ask whether it was locked."""
        do = partial(self._releases, self.agent, None)
        self._command(self.agent, Told(self), do, request.resource, request.plain)

    def _releases(
        self, agent: Agent, fence: int | None, resource: bytes, value: bytes, told: Told, now_ns: int
    ) -> None:
        """At that agent. fence: of the lease that it is meant for."""
        token, known = token_of(value), self._known(agent, resource, value, now_ns)
        if value in _CONSTANTS and known is None:
            self.world.note(h.ReleasedByValue(self.world.now_ns, resource, token, agent.host))
        elif known is not None and known.fence != fence:
            self.world.note(h.Forced(self.world.now_ns, known.nonce))
        agent.locks.release(resource, value, told, now_ns)

    def _unlock(self, held: Held) -> None:
        agent, request = self._agent_for(held), held.request
        assert isinstance(request, PlainRequest)
        if not agent.running and request.detached:
            self._forget(held)
            return
        # Its own agent renews it until it hears that it is gone.
        is_gone = request.detached or agent is self.agent
        self.world.note(h.LetGo(self.world.now_ns, held.name, "unlock" if is_gone else "left"))
        told = Released(self, name=held.name, is_his=not request.is_shared, is_gone=is_gone)
        if agent is self.agent:
            self._unanswered[held.name] = request.resource, held.lease.token
        do = partial(self._releases, agent, held.fence)
        self._command(agent, told, do, request.resource, request.plain)
        self._lets_go(held)

    def agent_is_back(self) -> None:
        for name, (resource, token) in self._unanswered.items():
            value = value_of(token)
            assert value is not None
            self._command(
                self.agent, Freed(self, name=name), partial(self._releases, self.agent, None), resource, value
            )

    # Another TTL

    def _extend(self, held: Held) -> None:
        """Or shorten, by its own agent. Who extends a constant elsewhere does not know whose, and what was
        shortened before is then left only where the other agent has found it."""
        agent, request = self._agent_for(held), held.request
        assert isinstance(request, PlainRequest)
        ttl_ms = min(self.dice.choice(self._habits.ttls_ms), agent.max_ttl_ms)
        its_own = agent is self.agent
        may = its_own or (request.detached and not request.is_shared and held.name not in self._until_ns)
        if not may or not agent.running or held.name in self._asking:
            return
        if its_own and self.dice.random() < 0.3:
            ttl_ms = max(1, ttl_ms // 4)
        until_ns = agent.boot_ns() + ttl_ms * MS
        if its_own:
            self._may_end(held, until_ns)
        told = Told(self, resource=request.resource)
        told.then = lambda renewal: self._ttl_is_set(held, agent, until_ns, renewal, told.unseen_ns)
        self._asking.add(held.name)
        self.world.note(h.ExtensionAsked(self.world.now_ns, held.name, ttl_ms))
        do = partial(self._sets_ttl, agent, held.fence)
        self._command(agent, told, do, request.resource, request.plain, ttl_ms)

    def _sets_ttl(
        self, agent: Agent, fence: int, resource: bytes, value: bytes, ttl_ms: int, told: Told, now_ns: int
    ) -> None:
        """At that agent. What another app of this host has by now it is spared."""
        known = self._known(agent, resource, value, now_ns)
        if known is not None and known.fence != fence:
            told.refused(NOT_HELD)
        else:
            agent.locks.set_ttl(resource, value, ttl_ms, told, now_ns)

    def _may_end(self, held: Held, until_ns: int) -> None:
        """From now on it relies on it no longer, unless it hears more."""
        if held.request.detached and until_ns >= held.deadline_ns:
            return
        self._until_ns[held.name] = until_ns = min(until_ns, self._until_ns.get(held.name, until_ns))
        if until_ns < held.deadline_ns:
            ends_ns = min(self.agent.clock.true_ns(until_ns), self._ends_ns(held))
            held.deadline_ns = until_ns
            self.world.note(h.Moved(self.world.now_ns, held.name, ends_ns))

    def _ttl_is_set(
        self, held: Held, agent: Agent, until_ns: int, renewal: Renewal | None, unseen_ns: int
    ) -> None:
        self._asking.discard(held.name)
        request = held.request
        assert isinstance(request, PlainRequest)
        if renewal is None or (request.is_shared and renewal.fence != held.fence):
            return
        if not request.detached:
            self._until_ns[held.name] = until_ns
        self._extended(held, agent, renewal, unseen_ns)

    def renewed(self, lease: Lease, deadline_ns: int, unseen_ns: int, *, asked: bool = False) -> None:
        held = self._held_as(lease)
        if held is not None and not held.request.detached:
            deadline_ns = min(deadline_ns, self._until_ns.get(held.name, deadline_ns))
        super().renewed(lease, deadline_ns, unseen_ns, asked=asked)

    def _believe(self, held: Held, for_ns: int) -> None:
        """What it ends itself lasts for longer than that, on any clock."""
        if held.name not in self._until_ns:
            super()._believe(held, for_ns)

    # What ends

    def _lasts(self, held: Held) -> bool:
        """Until its TTL, whatever becomes of its process."""
        return held.request.detached or held.name in self._until_ns

    def _forget(self, held: Held) -> None:
        if held.request.detached or not self._lasts(held):
            super()._forget(held)
        else:
            self.world.note(h.LetGo(self.world.now_ns, held.name, "left"))
            self._lets_go(held)

    def _dies_holding(self) -> None:
        for held in self._hands:
            why = "left" if self._lasts(held) else "died"
            self.world.note(h.LetGo(self.world.now_ns, held.name, why))

    def killed(self) -> None:
        super().killed()
        self._polled = None
        self._until_ns.clear()
        self._asking.clear()
