"""What the agent says about the lease under which a command runs.

The news comes over the connection on which the lease was granted. An agent that stops or dies leaves the
lease to the next one on the host. So when the connection ends, the next agent is asked to go on with the
lease, again and again. Until it answers, the lease is valid until the last deadline that was reported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hiredis

from lockd.clock import boottime_ns
from lockd.core.errors import ErrorWord
from lockd.core.validity import NS_PER_MS
from lockd.lockctl.errors import Refused, Unreachable
from lockd.lockctl.run.connection import JobConnection
from lockd.lockctl.run.lease import JobLease

_ASK_AGAIN_NS = 100 * NS_PER_MS
_ANSWERS_WITHIN_NS = 2_000 * NS_PER_MS
"""An agent that has just started may first have to hear from the masters."""


class LeaseNews:
    """deadline_ns: until when the whole lease is valid, as last reported, on our clock. loss: why it, or a
    part of it, is lost; None while it is not. connection: the open one, or the last one.

    inherit: gets the file of each new connection before anything is asked on it. The keeper has to keep it
    open until it has ended everything that the command has started, should lockctl be killed.
    """

    inherit: Callable[[int], None]

    def __init__(self, connection: JobConnection, lease: JobLease) -> None:
        self.connection = connection
        self.loss: str | None = None
        self._lease = lease
        self._deadlines_ns = {one.resource: one.deadline_ns for one in lease.held}
        self._unresumed: list[bytes] = []
        """The leases about which the next agent was asked, in the order of its answers."""
        self._again_ns = 0

    @property
    def deadline_ns(self) -> int:
        return min(self._deadlines_ns.values())

    @property
    def _resuming(self) -> bool:
        return bool(self._unresumed)

    @property
    def due_ns(self) -> int:
        """When to look even if nothing has arrived."""
        waits = self.loss is None and (self._resuming or not self.connection.open)
        return self._again_ns if waits else self.deadline_ns

    def connection_for_release(self) -> JobConnection:
        """A connection on which nothing is under way. Raises Unreachable."""
        if self.connection.open and not self._resuming:
            return self.connection
        return self.connection.anew()

    def look(self) -> None:
        """Read what has arrived, without waiting; if the agent has closed, turn to the next one."""
        pushes, replies = self.connection.arrived()
        for push in pushes:
            self._hear(push)
        for reply in replies:
            self._answered(reply)
        now_ns = boottime_ns()
        if self._resuming and not self.connection.open:
            # An agent that is killed, or stops, still accepts connections for a moment: that was the old one.
            self._ask_again_soon(now_ns)
        elif self._resuming and now_ns >= self._again_ns:
            self.connection.close()
        if not self.connection.open and self.loss is None and now_ns >= self._again_ns:
            self._resume(now_ns)

    def _hear(self, push: list[Any]) -> None:
        kind, resource, token = push[:3]
        if token != self._lease.token or resource not in self._deadlines_ns:
            return
        if kind == b"renewed":
            self._deadlines_ns[resource] = self._lease.clock.here_ns(push[3])
        elif kind == b"lost":
            deadline_ns = self._lease.clock.here_ns(push[4])
            self._deadlines_ns[resource] = min(self._deadlines_ns[resource], deadline_ns)
            self.loss = push[3].decode(errors="replace")

    def _resume(self, now_ns: int) -> None:
        try:
            self.connection = self.connection.anew()
            self.inherit(self.connection.fileno())
            self.connection.send([b"HELLO", b"3"], *self._lease.resumption, within_s=0)
        except Unreachable:
            self._ask_again_soon(now_ns)
            return
        self._unresumed = list(self._deadlines_ns)
        self._again_ns = now_ns + _ANSWERS_WITHIN_NS

    def _ask_again_soon(self, now_ns: int) -> None:
        self.connection.close()
        self._unresumed = []
        self._again_ns = now_ns + _ASK_AGAIN_NS

    def _answered(self, reply: Any) -> None:
        """Of the next agent: to our HELLO, or to the request to go on with the lease."""
        if isinstance(reply, hiredis.ReplyError):
            refused = Refused.by(str(reply), "EXTEND")
            if refused.code in (ErrorWord.EXPIRED, ErrorWord.NOTHELD):
                self.loss = f"the agent was restarted, and does not have it: {refused.text}"
            else:
                # It can't say for now.
                self._ask_again_soon(boottime_ns())
        elif self._unresumed and b"deadline_ns" in reply:
            resource = self._unresumed.pop(0)
            self._deadlines_ns[resource] = self._lease.clock.deadline_ns(reply, boottime_ns())
            if not self._unresumed:
                self._again_ns = 0
