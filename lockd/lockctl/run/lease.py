"""What `lockctl run` asks for and is granted, and by when the command has to have ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lockd.client.deadlines import AgentClock
from lockd.clock import boottime_ns
from lockd.core.errors import ErrorWord
from lockd.core.validity import NS_PER_MS
from lockd.lockctl.errors import Lost, NotStarted, Refused, Unreachable
from lockd.lockctl.run.connection import ANSWER_WITHIN_S, JobConnection
from lockd.lockctl.run.terminal import say


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


def take(connection: JobConnection, job: Job) -> JobLease:
    """Lock the resource. Raises Refused or Unreachable; NotStarted when the answer came too late."""
    words = [b"LOCK", job.resource, b"%d" % job.ttl_ms, b"NOTIFY"]
    if job.wait_ms:
        words += [b"WAIT", b"%d" % job.wait_ms]
    if job.max_hold_ms is not None:
        words += [b"MAXHOLD", b"%d" % job.max_hold_ms]
    connection.send([b"HELLO", b"3"], words)
    connection.reply(ANSWER_WITHIN_S)
    granted = connection.reply(job.wait_ms / 1000 + ANSWER_WITHIN_S)
    clock, now_ns = AgentClock(), boottime_ns()
    deadline_ns = clock.deadline_ns(granted, now_ns)
    lease = JobLease(job.resource, granted[b"token"], granted[b"fence"], deadline_ns, job.ttl_ms, clock)
    if now_ns >= lease.deadline_ns - term_margin_ns(lease.ttl_ms):
        raise NotStarted("it was granted so late that its deadline is near, and the command was not started")
    return lease


def release(connection: JobConnection, lease: JobLease) -> None:
    """Give the lease back. Raises Lost when it was over before the command was."""
    try:
        connection.send([b"UNLOCK", lease.resource, lease.token])
        connection.reply(ANSWER_WITHIN_S)
    except Refused as refused:
        if refused.code in (ErrorWord.EXPIRED, ErrorWord.NOTHELD):
            raise Lost(f"the command had ended, but its lease perhaps before it: {refused.text}") from refused
        say(f"the command has ended, its lock was not released ({refused}): it ends at its deadline")
    except Unreachable as why:
        say(f"the command has ended, its lock was not released ({why}): it ends at its deadline")
