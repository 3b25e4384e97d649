"""What a client's lease asks an agent, and how often: where that fails, or hangs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lockd.client.aio.lease import Lease as AsyncLease
from lockd.client.deadlines import AgentClock
from lockd.client.errors import AgentUnreachable, Denied, LockdError, LockLost, NoQuorum
from lockd.client.requests import Request
from lockd.client.state import LeaseView
from lockd.client.sync import lease as sync_lease
from lockd.client.sync.lease import Lease
from lockd.clock import boottime_ns
from tests.harness.clocks import S


def lost() -> LockLost:
    error = LockLost("EXPIRED it is gone")
    error.reason, error.deadline_ns = "it is gone", 0
    return error


def hung() -> AgentUnreachable:
    error = AgentUnreachable("it took too long")
    error.hangs = True
    return error


class Pool(SimpleNamespace):
    """Every request of it fails in the same way."""

    def __init__(self, failure: LockdError) -> None:
        super().__init__(timeout_s=5.0, asked=[], later=[], failure=failure)

    def request(self, request: Request[Any]) -> Any:
        self.asked.append(request)
        raise self.failure

    def give_back_later(self, *name: Any) -> None:
        self.later.append(name)


class AsyncPool(Pool):
    async def request(self, request: Request[Any]) -> Any:
        self.asked.append(request)
        raise self.failure


def valid_until(deadline_ns: int) -> LeaseView:
    reply = {b"token": b"t" * 32, b"fence": 7, b"deadline_ns": deadline_ns, b"validity_ms": 10_000}
    return LeaseView("job", b"job", 10_000, False, reply, AgentClock(), deadline_ns - 10 * S)


ENDS = pytest.mark.parametrize(
    ("failure", "raised", "later"),
    [(lost(), LockLost, 0), (NoQuorum("m1=down"), None, 0), (hung(), None, 1), (Denied("no"), Denied, 1)],
    ids=["lost", "no quorum", "unreachable", "refused"],
)


@ENDS
def test_what_the_agent_has_answered_for_is_not_given_back_once_more(
    failure: LockdError, raised: type[LockdError] | None, later: int
) -> None:
    pool = Pool(failure)
    held: Any = Lease(pool, valid_until(boottime_ns() + 10 * S), None, None)  # type: ignore[arg-type]
    if raised is None:
        assert held.release() is False
    else:
        with pytest.raises(raised):
            held.release()
    assert (len(pool.asked), len(pool.later)) == (1, later)


@ENDS
async def test_nor_by_tasks(failure: LockdError, raised: type[LockdError] | None, later: int) -> None:
    pool = AsyncPool(failure)
    held: Any = AsyncLease(pool, valid_until(boottime_ns() + 10 * S), None, None)  # type: ignore[arg-type]
    if raised is None:
        assert await held.release() is False
    else:
        with pytest.raises(raised):
            await held.release()
    assert (len(pool.asked), len(pool.later)) == (1, later)


def test_of_an_agent_that_hangs_not_each_check_waits_for_the_whole_time_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_ns = boottime_ns()
    monkeypatch.setattr(sync_lease, "boottime_ns", lambda: now_ns)
    pool = Pool(hung())
    view = valid_until(now_ns + 10 * S)
    view.broken = True
    held = Lease(pool, view, None, None)  # type: ignore[arg-type]
    for _ in range(5):
        held.check()
    assert len(pool.asked) == 1
    view.deadline_ns += 60 * S
    now_ns += 21 * S
    held.check()
    assert len(pool.asked) == 2
    pool.failure = NoQuorum("m1=down")
    now_ns += 21 * S
    for _ in range(3):
        held.check()
    assert len(pool.asked) == 5, "one that answers may be asked"
