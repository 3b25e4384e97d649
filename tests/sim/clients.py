"""Apps as real clients are: they pool connections and recycle them, time out, ask again, and leave children.

What they draw is drawn beside what other apps draw, so that runs without them stay as they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lockd.core.journal import Held as JournalEntry
from lockd.core.leases import Lease, Standing
from lockd.core.values import Bound
from tests.harness import history as h
from tests.harness.clocks import MS
from tests.sim.agent import name_of
from tests.sim.apps import App, Held, Request, Told, Wanted
from tests.sim.sockets import Line, Socket

_MOST = 3
UID = 0
_SAME = ("resource", "ttl_ms", "detached", "max_hold_ms", "value", "named", "wait_ms", "bound")


class PoolApp(App):
    """A process with several connections."""

    patient = False
    patiences_ms: Sequence[tuple[float, float]] = ((0.001, 0.1), (0.1, 2), (0.5, 1.5), (3, 60), (50, 2_000))

    def __init__(self, *what: Any) -> None:
        world, name, agent = what[:3]
        self._chance = world.dice(f"{name} of {agent.name}, its client")
        self._pool: list[Socket] = []
        self._again: Wanted | None = None
        self._children: dict[Socket, list[Lease]] = {}
        """By the connection that each has open: the leases that it goes on with."""
        super().__init__(*what)

    def _may(self, chance: float) -> bool:
        return self._chance.random() < chance

    # Its connections

    def socket(self) -> Socket:
        self._pool = [socket for socket in self._pool if self._reaches(socket)]
        if not self._pool or (len(self._pool) < _MOST and self._may(0.3)):
            self._pool.append(self._connect(Line(self.account)))
            return self._pool[-1]
        return self._chance.choice(self._pool)

    def _arrives_ns(self, socket: Socket | None) -> int:
        """In order, on each."""
        arrives_ns = super()._arrives_ns(socket)
        if socket is not None:
            arrives_ns = socket.last_arrives_ns = max(arrives_ns, socket.last_arrives_ns)
        return arrives_ns

    def _close(self, socket: Socket, request: Wanted | None = None) -> None:
        """request: that was asked there, and has no answer yet that was read."""
        if not socket.is_open:
            return
        if request is not None:
            self._hangs_up(socket, request)
        socket.is_open = False
        if socket.agent_life == self.agent.life:
            self._tell(self.agent.sessions.ended, socket, line=socket.line)

    def _close_all(self) -> None:
        for socket in self._pool:
            self._close(socket, self._open)
        self._pool, self._again = [], None
        if self.agent.running:
            self._tell(self.agent.sessions.process_died, self.pid, self.life, line=Line(self.account))

    # Asking

    def _plain_request(self) -> Request:
        request = super()._plain_request()
        if not request.detached and self._may(0.7):
            request.named, request.value = True, b"token %d" % request.number
        return request

    def ask(self, request: Wanted) -> None:
        super().ask(request)
        if self._may(0.15):
            request.followed = True
            request.socket.wanted += 1
        if not self.patient and self._may(0.4):
            patience_ms = self._chance.uniform(*self._chance.choice(self.patiences_ms))
            self.wake_after(int(patience_ms * MS), self._times_out, request)

    def _times_out(self, request: Wanted) -> None:
        """Its client waits for that answer no more."""
        if request is not self._open:
            return
        self._waits_no_more(request)
        if self._may(0.6):
            self._close(request.socket, request)
        what = self._chance.choice(
            ("asks again", "asks again", "asks again", "withdraws", "withdraws", "leaves it")
        )
        if request.named and what == "asks again":
            self.ask(self._like(request))
            return
        if request.named and what == "withdraws" and self.agent.running:
            self._gives_up(request)
        self._think()

    def _gives_up(self, request: Wanted) -> None:
        """It has a name, by which it is withdrawn or given back."""
        assert isinstance(request, Request)
        self._command(self.agent, Told(self), self._is_withdrawn, request)

    def _is_withdrawn(self, request: Request, told: Told, now_ns: int) -> None:
        """At the agent."""
        self.world.note(h.TakenBack(self.world.now_ns, request.number))
        self._withdraw(request.resource, request.value, told, now_ns)

    def _withdraw(self, resource: bytes, token: bytes, told: Told, now_ns: int) -> None:
        self.agent.locks.unlock(resource, token, told, now_ns, uid=UID)

    def _like(self, request: Wanted) -> Wanted:
        """The same once more, by the same name."""
        assert isinstance(request, Request)
        return self._plain_like(request)

    def _plain_like(self, request: Request) -> Request:
        again = super()._plain_request()
        for name in _SAME:
            setattr(again, name, getattr(request, name))
        return again

    # Its agent ends, and another begins

    def agent_gone(self) -> None:
        request = self._open
        super().agent_gone()
        self._again = request if request is not None and request.named else None
        for socket, leases in list(self._children.items()):
            if not any(lease.outlived for lease in leases):
                # Of the death of its parent no agent has known.
                self._child_ends(socket)

    def journal_is_spoilt(self) -> None:
        """That its parent was dead, and it goes on, may be what is missing."""
        for socket in list(self._children):
            self._child_ends(socket)

    def is_looked_at(self, held: JournalEntry) -> None:
        """Its agent has died in noting that a child goes on with that lease."""
        name = held.resource, held.token
        for socket, leases in list(self._children.items()):
            if not held.now.outlived and any((lease.resource, lease.token) == name for lease in leases):
                self._child_ends(socket)

    def agent_is_back(self) -> None:
        super().agent_is_back()
        request, self._again = self._again, None
        if request is not None and not self.retired and self._open is None and not self._hands:
            self.ask(self._like(request))

    # Holding

    def _use(self, held: Held, until_ns: int) -> None:
        super()._use(held, until_ns)
        if held in self._hands and self._pool and self._may(0.2):
            self._recycle(held, self._chance.choice(self._pool))

    def _recycle(self, held: Held, socket: Socket) -> None:
        """A pool closes connections whatever was locked on them."""
        request = held.request
        tied = request.bound is Bound.CONNECTION and not request.detached
        if tied and socket is request.socket and self._reaches(socket):
            for one in self._hands:
                self.world.note(h.LetGo(self.world.now_ns, one.name, "died"))
            self._think()
        self._close(socket)

    def _dies_holding(self) -> None:
        request, pool = self._hands[0].request, [socket for socket in self._pool if self._is_known(socket)]
        # An agent that has not let in anybody yet takes over what living processes had: it knows no child.
        unknown = not pool or not self.agent.lets_in
        if request.detached or request.bound is Bound.CONNECTION or unknown or self._may(0.6):
            super()._dies_holding()
            return
        socket = self._chance.choice(pool)
        self._pool.remove(socket)
        self._children[socket] = [held.lease for held in self._hands]
        self.world.after(int(self._chance.uniform(1, 1_500) * MS), self._child_ends, socket)

    def _is_known(self, socket: Socket) -> bool:
        """A connection that the agent has not seen yet is not known to be of a child."""
        return self._reaches(socket) and self.agent.sessions.open(socket) is not None

    def _child_ends(self, socket: Socket) -> None:
        """It had a connection of its parent open, and went on with what that held; by now, perhaps, with
        nothing but its deadline."""
        leases = self._children.pop(socket, ())
        for lease in leases:
            # What was lost its parent was told of: that is kept from nobody.
            lost = lease.standing is Standing.LOST
            knows = not lost and (not lease.outlived or (self._reaches(socket) and self.agent.running))
            self.world.note(h.LetGo(self.world.now_ns, name_of(lease), "died" if knows else "left"))
        if leases:
            self._close(socket)
