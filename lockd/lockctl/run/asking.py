"""What `lockctl run` asks the agent: for the lock, and at the end to release it."""

from __future__ import annotations

import secrets
import time
from contextlib import suppress

from lockd.client.deadlines import AgentClock
from lockd.clock import boottime_ns
from lockd.core.errors import ErrorWord
from lockd.core.validity import NS_PER_MS, NS_PER_S
from lockd.lockctl.errors import Lost, NotStarted, Refused, Unreachable
from lockd.lockctl.run.connection import ANSWER_WITHIN_S, JobConnection
from lockd.lockctl.run.lease import Held, Job, JobLease, term_margin_ns
from lockd.lockctl.run.news import LeaseNews
from lockd.lockctl.run.terminal import say

_LOOK_AGAIN_S = 0.05


def take(job: Job) -> tuple[JobConnection, JobLease]:
    """Lock the resource. Raises Refused or Unreachable; NotStarted when the answer came too late.

    If there is no agent, or it stops meanwhile, the next one on this host is asked for the rest of the wait;
    after an agent that stops there are a few seconds in any case. The next one is asked with the same token:
    if the lease had been granted already, it is the same lease.
    """
    until_ns = boottime_ns() + job.wait_ms * NS_PER_MS
    give_up_ns = until_ns + int(ANSWER_WITHIN_S * NS_PER_S)
    token = secrets.token_hex(16).encode()
    connection = _connected(job, until_ns)
    while True:
        try:
            return connection, _ask(connection, job, token, until_ns)
        except (Refused, Unreachable) as why:
            if not _stops(why, connection) or boottime_ns() >= give_up_ns:
                raise
            connection.close()
            # An agent that stops may still listen for a moment.
            time.sleep(_LOOK_AGAIN_S)
            connection = _connected(job, give_up_ns)


def _stops(why: Refused | Unreachable, connection: JobConnection) -> bool:
    """The agent is stopping, or has stopped: another one follows."""
    return why.code == ErrorWord.DRAINING if isinstance(why, Refused) else not connection.open


def _connected(job: Job, until_ns: int) -> JobConnection:
    """A connection to the agent that is there, or will be by then."""
    while True:
        try:
            return JobConnection(job.socket_path)
        except Unreachable:
            if boottime_ns() >= until_ns:
                raise
        time.sleep(_LOOK_AGAIN_S)


def _ask(connection: JobConnection, job: Job, token: bytes, until_ns: int) -> JobLease:
    wait_ms = max(0, until_ns - boottime_ns()) // NS_PER_MS
    words = [b"LOCK", job.resources[0], b"%d" % job.ttl_ms, b"NOTIFY", b"TOKEN", token]
    if wait_ms:
        words += [b"WAIT", b"%d" % wait_ms]
    if job.max_hold_ms is not None:
        words += [b"MAXHOLD", b"%d" % job.max_hold_ms]
    if job.slots is not None:
        words += [b"SLOTS", b"%d" % job.slots]
    if len(job.resources) > 1:
        words += [b"AND", *job.resources[1:]]
    connection.send([b"HELLO", b"3"], words)
    connection.reply(ANSWER_WITHIN_S)
    granted = connection.reply(wait_ms / 1000 + ANSWER_WITHIN_S)
    connection.forget_pushes()
    clock, now_ns = AgentClock(), boottime_ns()
    replies = granted if len(job.resources) > 1 else [granted]
    held = tuple(
        Held(reply.get(b"resource", resource), reply[b"fence"], deadline_ns, reply.get(b"slot"))
        for resource, reply in zip(job.resources, replies, strict=True)
        for deadline_ns in [clock.deadline_ns(reply, now_ns)]
    )
    lease = JobLease(held, replies[0][b"token"], job.ttl_ms, clock)
    if now_ns >= lease.deadline_ns - term_margin_ns(lease.ttl_ms):
        with suppress(Unreachable):
            connection.send(*lease.release)
        raise NotStarted("it was granted too close to its deadline, so the command was not started")
    return lease


def release(news: LeaseNews, lease: JobLease) -> None:
    """Give the lease back. Raises Lost when it was over before the command was."""
    try:
        connection = news.connection_for_release()
        connection.send(*lease.release)
        connection.replies(len(lease.held), ANSWER_WITHIN_S)
    except Refused as refused:
        if refused.code in (ErrorWord.EXPIRED, ErrorWord.NOTHELD):
            raise Lost(
                f"the command has ended, but its lease may have ended first: {refused.text}"
            ) from refused
        say(f"the command has ended, but its lock was not released ({refused}). It ends with this process")
    except Unreachable as why:
        say(
            f"the command has ended, but its lock was not released ({why}). It ends when the agent is back, "
            "or at its deadline"
        )
