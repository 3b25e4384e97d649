"""What `lockctl run` asks for and is granted, and by when the command has to have ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lockd.client.deadlines import AgentClock
from lockd.core.validity import NS_PER_MS


@dataclass(frozen=True, slots=True)
class Job:
    """What `lockctl run` was asked for. max_hold_ms None: as long as the resource's class allows."""

    socket_path: str
    resource: bytes
    ttl_ms: int
    wait_ms: int
    max_hold_ms: int | None
    command: Sequence[str]


@dataclass(frozen=True, slots=True)
class JobLease:
    """What the agent granted. `deadline_ns` is the one at the start, as our clock has it; `clock` says what
    later ones are."""

    resource: bytes
    token: bytes
    fence: int
    deadline_ns: int
    ttl_ms: int
    clock: AgentClock

    @property
    def resumption(self) -> list[bytes]:
        """What goes on with it on another connection, and has its news told there."""
        return [b"EXTEND", self.resource, self.token, b"%d" % self.ttl_ms, b"NOTIFY"]

    def environment(self) -> dict[bytes, bytes]:
        """What the command is told."""
        return {
            b"LOCKD_RESOURCE": self.resource,
            b"LOCKD_TOKEN": self.token,
            b"LOCKD_FENCE": b"%d" % self.fence,
            b"LOCKD_DEADLINE_NS": b"%d" % self.deadline_ns,
        }


def term_margin_ns(ttl_ms: int) -> int:
    """How long before the deadline SIGTERM is due: 18 % of the TTL, 4.9 s at most.

    A living agent tells of a loss a little earlier, a fifth of the TTL or 5 s before the deadline, and knows
    why: one that has said nothing by now is dead or frozen.
    """
    return min(ttl_ms * NS_PER_MS * 18 // 100, 4900 * NS_PER_MS)


def kill_margin_ns(ttl_ms: int) -> int:
    """How long before the deadline SIGKILL is due: a tenth of the TTL, 500 ms at most."""
    return min(ttl_ms * NS_PER_MS // 10, 500 * NS_PER_MS)
