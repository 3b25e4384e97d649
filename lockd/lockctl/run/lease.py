"""What `lockctl run` asks for and is granted, and when the command has to have ended."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lockd.client.deadlines import AgentClock
from lockd.core.validity import NS_PER_MS

_TOLD_OF_A_LEASE = re.compile(rb"LOCKD_(TOKEN|DEADLINE_NS|SLOT|(RESOURCE|FENCE)(_\d+)?)")


@dataclass(frozen=True, slots=True)
class Job:
    """What `lockctl run` was asked for. max_hold_ms None: as long as the resources' classes allow. slots: one
    of so many equal locks of the resource; None: the resource itself."""

    socket_path: str
    resources: tuple[bytes, ...]
    ttl_ms: int
    wait_ms: int
    max_hold_ms: int | None
    command: Sequence[str]
    slots: int | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """One resource of those that were granted; a slot has its own name. `deadline_ns` is the one at the
    start, on our clock."""

    resource: bytes
    fence: int
    deadline_ns: int
    slot: int | None = None


@dataclass(frozen=True, slots=True)
class JobLease:
    """What the agent granted: everything that was asked for, under one token. `clock` converts later
    deadlines."""

    held: tuple[Held, ...]
    token: bytes
    ttl_ms: int
    clock: AgentClock

    @property
    def deadline_ns(self) -> int:
        """The deadline of the first lease to end."""
        return min(one.deadline_ns for one in self.held)

    @property
    def resumption(self) -> list[list[bytes]]:
        """The command that goes on with the lease on another connection, and has its news sent there."""
        ttl = b"%d" % self.ttl_ms
        return [[b"EXTEND", one.resource, self.token, ttl, b"NOTIFY"] for one in self.held]

    @property
    def release(self) -> list[list[bytes]]:
        """The command that gives all of it back."""
        return [[b"UNLOCK", one.resource, self.token] for one in self.held]

    def environment(self, ours: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
        """The command's environment. Variables for the second resource end in _2, and so on. If lockctl
        itself runs under another lease, the command is told nothing about that one."""
        kept = {name: value for name, value in ours.items() if not _TOLD_OF_A_LEASE.fullmatch(name)}
        return kept | self._told()

    def _told(self) -> dict[bytes, bytes]:
        told = {b"LOCKD_TOKEN": self.token, b"LOCKD_DEADLINE_NS": b"%d" % self.deadline_ns}
        for number, one in enumerate(self.held, 1):
            behind = b"_%d" % number if number > 1 else b""
            told[b"LOCKD_RESOURCE" + behind] = one.resource
            told[b"LOCKD_FENCE" + behind] = b"%d" % one.fence
            if one.slot is not None:
                told[b"LOCKD_SLOT"] = b"%d" % one.slot
        return told


def term_margin_ns(ttl_ms: int) -> int:
    """How long before the deadline SIGTERM is due: 18 % of the TTL, 4.9 s at most.

    A living agent reports a loss a little earlier, a fifth of the TTL or 5 s before the deadline, with the
    reason. An agent that has said nothing by now is dead or frozen.
    """
    return min(ttl_ms * NS_PER_MS * 18 // 100, 4900 * NS_PER_MS)


def kill_margin_ns(ttl_ms: int) -> int:
    """How long before the deadline SIGKILL is due: a tenth of the TTL, 500 ms at most."""
    return min(ttl_ms * NS_PER_MS // 10, 500 * NS_PER_MS)
