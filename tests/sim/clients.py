"""Apps as real clients are: they pool connections and recycle them, time out, ask again, and leave children.

What they draw is drawn beside what other apps draw, so that runs without them stay as they were.
"""

from __future__ import annotations

from typing import Any

from lockd.core.leases import Lease
from lockd.core.values import Bound
from tests.harness import history as h
from tests.harness.clocks import MS
from tests.sim.agent import name_of
from tests.sim.apps import App, Held, Request, Told
from tests.sim.sockets import Line, Socket

_MOST = 3
_UID = 0
_SAME = ("resource", "ttl_ms", "detached", "max_hold_ms", "value", "named", "wait_ms", "bound")
_PATIENCES_MS = ((0.001, 0.1), (0.1, 2), (0.5, 1.5), (3, 60), (50, 2_000))


class PoolApp(App):
    """A process with several connections. It has at most one request open, or one lease in hand."""

    def __init__(self, *what: Any) -> None:
        world, name, agent = what[:3]
        self._chance = world.dice(f"{name} of {agent.name}, its client")
        self._pool: list[Socket] = []
        self._again: Request | None = None
        self._children: dict[Socket, Lease] = {}
        """By the connection that each has open: the lease that it goes on with."""
        super().__init__(*what)

    def _may(self, chance: float) -> bool:
        return self._chance.random() < chance

    # Its connections

    def socket(self) -> Socket:
        self._pool = [socket for socket in self._pool if self._reaches(socket)]
        if not self._pool or (len(self._pool) < _MOST and self._may(0.3)):
            self._pool.append(self._connect(Line()))
            return self._pool[-1]
        return self._chance.choice(self._pool)

    def _arrives_ns(self, socket: Socket | None) -> int:
        """In order, on each."""
        arrives_ns = super()._arrives_ns(socket)
        if socket is not None:
            arrives_ns = socket.last_arrives_ns = max(arrives_ns, socket.last_arrives_ns)
        return arrives_ns

    def _close(self, socket: Socket, request: Request | None = None) -> None:
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
            self._tell(self.agent.sessions.process_died, self.pid, self.life, line=Line())

    # Asking

    def _new_request(self) -> Request:
        request = super()._new_request()
        if not request.detached and self._may(0.7):
            request.named, request.value = True, b"token %d" % request.number
        return request

    def ask(self, request: Request) -> None:
        super().ask(request)
        if self._may(0.15):
            request.followed = True
            request.socket.wanted += 1
        if self._may(0.4):
            patience_ms = self._chance.uniform(*self._chance.choice(_PATIENCES_MS))
            self.wake_after(int(patience_ms * MS), self._times_out, request)

    def _times_out(self, request: Request) -> None:
        """Its client waits for that answer no more."""
        if request is not self._open:
            return
        self.world.note(h.Withdrawn(self.world.now_ns, request.number))
        if self._may(0.6):
            self._close(request.socket, request)
        what = self._chance.choice(
            ("asks again", "asks again", "asks again", "withdraws", "withdraws", "leaves it")
        )
        if request.named and what == "asks again":
            self.ask(self._like(request))
            return
        if request.named and what == "withdraws" and self.agent.running:
            self._command(self.agent, Told(self), self._withdraw, request.resource, request.value)
        self._think()

    def _withdraw(self, resource: bytes, token: bytes, told: Told, now_ns: int) -> None:
        self.agent.locks.unlock(resource, token, told, now_ns, uid=_UID)

    def _like(self, request: Request) -> Request:
        """The same once more, by the same name."""
        again = super()._new_request()
        for name in _SAME:
            setattr(again, name, getattr(request, name))
        return again

    # Its agent ends, and another begins

    def agent_gone(self) -> None:
        request = self._open
        super().agent_gone()
        self._again = request if request is not None and request.named else None
        for socket, lease in list(self._children.items()):
            if not lease.outlived:
                # Of the death of its parent no agent has known.
                self._child_ends(socket)

    def agent_is_back(self) -> None:
        super().agent_is_back()
        request, self._again = self._again, None
        if request is not None and not self.retired and self._open is None and self._held is None:
            self.ask(self._like(request))

    # Holding

    def _use(self, held: Held, until_ns: int) -> None:
        super()._use(held, until_ns)
        if held is self._held and self._pool and self._may(0.2):
            self._recycle(held, self._chance.choice(self._pool))

    def _recycle(self, held: Held, socket: Socket) -> None:
        """A pool closes connections whatever was locked on them."""
        request = held.request
        tied = request.bound is Bound.CONNECTION and not request.detached
        if tied and socket is request.socket and self._reaches(socket):
            self.world.note(h.LetGo(self.world.now_ns, held.name, "died"))
            self._think()
        self._close(socket)

    def _dies_holding(self, held: Held) -> None:
        request, pool = held.request, [socket for socket in self._pool if self._reaches(socket)]
        # An agent that has not let in anybody yet takes over what living processes had: it knows no child.
        unknown = not pool or not self.agent.lets_in
        if request.detached or request.bound is Bound.CONNECTION or unknown or self._may(0.6):
            super()._dies_holding(held)
            return
        socket = self._chance.choice(pool)
        self._pool.remove(socket)
        self._children[socket] = held.lease
        self.world.after(int(self._chance.uniform(1, 1_500) * MS), self._child_ends, socket)

    def _child_ends(self, socket: Socket) -> None:
        """It had a connection of its parent open, and went on with what that held; by now, perhaps, with
        nothing but its deadline."""
        lease = self._children.pop(socket, None)
        if lease is not None:
            knows = not lease.outlived or (self._reaches(socket) and self.agent.running)
            self.world.note(h.LetGo(self.world.now_ns, name_of(lease), "died" if knows else "left"))
            self._close(socket)
