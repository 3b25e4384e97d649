"""What a client makes of replies, pushes and the clock, without an agent."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import lockd
from lockd.client import errors as client_errors
from lockd.client.deadlines import AgentClock
from lockd.client.errors import (
    ClockRefused,
    Denied,
    Draining,
    LimitReached,
    LockdError,
    LockLost,
    NoQuorum,
    NotHeld,
    Taken,
    WaitTimeout,
    error_from,
)
from lockd.client.state import HeldLease, LeaseView, PushReceiver
from lockd.client.sync import lease, locks
from tests.harness.clocks import S

TOKEN = b"0123456789abcdef" * 2
DEADLINE_NS = 100 * S


def view_of(ttl_ms: int = 10_000, detached: bool = False, now_ns: int = 90 * S) -> LeaseView:
    """A lease that was granted 10 s before its end, at 100 s by the agent's clock."""
    reply = {b"token": TOKEN, b"fence": 7, **lasting(DEADLINE_NS, 10_000)}
    return LeaseView("job", b"job", ttl_ms, detached, reply, AgentClock(), now_ns)


def lasting(deadline_ns: int, validity_ms: int) -> dict[bytes, int]:
    return {b"deadline_ns": deadline_ns, b"validity_ms": validity_ms}


# Errors


@pytest.mark.parametrize(
    ("text", "kind", "more"),
    [
        ("TAKEN retry-after=1250 held by another", Taken, {"retry_after": 1.25}),
        (
            "NOQUORUM m1=down:-refused m2.eu=slow",
            NoQuorum,
            {"reasons": {"m1": "down:-refused", "m2.eu": "slow"}},
        ),
        ("NOQUORUM the masters took 90 ms, too long for a ttl of 100 ms", NoQuorum, {"reasons": {}}),
        ("TIMEOUT waited 5 ms", WaitTimeout, {}),
        ("NOTHELD no such lease", NotHeld, {"reason": "no such lease"}),
        ("EXPIRED its validity has ended", LockLost, {"reason": "its validity has ended"}),
        ("DENIED uid 7 may not", Denied, {}),
        ("LIMIT leases: 5 are held", LimitReached, {}),
        ("DRAINING this agent is stopping", Draining, {}),
        ("CLOCK the clock jumped", ClockRefused, {}),
        ("the ttl must be a whole number", LockdError, {}),
    ],
)
def test_the_first_word_of_an_error_tells_its_type_and_its_text_the_rest_also_in_another_process(
    text: str, kind: type[LockdError], more: dict[str, Any]
) -> None:
    error = error_from(text)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error) is kind
    assert str(copy) == str(error) == text
    assert vars(copy) == vars(error)
    assert {name: getattr(error, name) for name in more} == more


def test_a_lease_that_is_not_held_is_a_lost_one_to_who_held_it() -> None:
    assert issubclass(NotHeld, LockLost)


def is_error(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, LockdError)


def test_the_package_exports_the_client_and_every_error() -> None:
    assert lockd.Client is locks.Client
    assert lockd.Lease is lease.Lease
    errors = {name: kind for name, kind in vars(client_errors).items() if is_error(kind)}
    assert {"Client", "Leadership", "Lease", "__version__", *errors} == set(lockd.__all__)
    for name, error in errors.items():
        assert getattr(lockd, name) is error


# What is known of a lease


def test_a_renewal_moves_the_deadline_on_and_never_back() -> None:
    view = view_of()
    view.hear([b"renewed", b"job", TOKEN, 110 * S])
    view.hear([b"renewed", b"job", TOKEN, 105 * S])
    assert view.deadline_ns == 110 * S


def test_pushes_about_another_lease_or_where_there_is_none_do_not_count() -> None:
    view = view_of()
    view.hear([b"renewed", b"job", b"f" * 32, 110 * S])
    view.hear([b"lost", b"job", b"f" * 32, b"gone", 90 * S])
    view.hear([b"something", b"new"])
    assert (view.deadline_ns, view.loss) == (DEADLINE_NS, "")
    PushReceiver().hear([b"lost", b"job", TOKEN, b"gone", 1])


def test_a_loss_that_is_pushed_counts_at_once_and_its_reason_stays() -> None:
    view = view_of()
    view.hear([b"lost", b"job", TOKEN, b"no quorum m1=down", 99 * S])
    view.lose("the socket closed")
    assert view.why_lost(50 * S) == "no quorum m1=down"
    assert view.due(50 * S) == "no quorum m1=down"
    assert view.deadline_ns == 99 * S


def test_the_holder_is_warned_a_fifth_of_the_ttl_before_a_deadline_that_nobody_moves() -> None:
    view = view_of(ttl_ms=10_000)
    # 50 ms less than that: the head start of the agent, whose word comes with a reason.
    assert view.alarm_ns == DEADLINE_NS - 2 * S + 50_000_000
    assert view.due(view.alarm_ns - 1) == ""
    assert view.due(view.alarm_ns)
    assert view.why_lost(view.alarm_ns) == view.why_lost(DEADLINE_NS - 1) == ""
    assert view.why_lost(DEADLINE_NS) == "its deadline has passed"
    assert view_of(ttl_ms=600_000).notice_ns == 5 * S, "five seconds ahead at most"
    short = view_of(ttl_ms=100)
    assert (short.notice_ns, short.alarm_ns) == (20_000_000, DEADLINE_NS - 18_000_000)


def test_a_lease_whose_agent_went_away_is_good_until_its_deadline_is_near() -> None:
    view = view_of(ttl_ms=10_000)
    view.broken = True
    assert view.due(view.alarm_ns - 1) == "", "the next agent may go on with it"
    assert "no other agent took over" in view.due(view.alarm_ns)
    assert view.why_lost(DEADLINE_NS - 2 * S - 1) == ""
    assert view.why_lost(DEADLINE_NS - 2 * S)


def test_the_agent_is_asked_only_when_it_should_know_more() -> None:
    view = view_of(ttl_ms=10_000)
    assert not view.stale(DEADLINE_NS - 2 * S - 1)
    assert view.stale(DEADLINE_NS - 2 * S)
    view.broken = True
    assert view.stale(50 * S), "the next agent has to be told who wants to hear of it"
    assert not view_of(detached=True).stale(DEADLINE_NS)


def test_an_extension_never_shortens() -> None:
    view = view_of(ttl_ms=10_000)
    view.extended(20_000, lasting(120 * S, 20_000), 100 * S)
    view.extended(1_000, lasting(101 * S, 1_000), 100 * S)
    assert (view.ttl_ms, view.deadline_ns) == (20_000, 120 * S)


# Clocks of time namespaces


def test_a_deadline_further_off_than_the_lease_is_valid_is_by_another_clock_and_none_ends_late() -> None:
    """This process's is 600 s behind the agent's, and then ahead of it."""
    view = view_of(now_ns=90 * S - 600 * S)
    assert view.deadline_ns == DEADLINE_NS - 600 * S
    view.hear([b"renewed", b"job", TOKEN, 110 * S])
    assert view.deadline_ns == 110 * S - 600 * S
    view.extended(20_000, lasting(120 * S, 20_000), 100 * S - 600 * S)
    assert view.deadline_ns == 120 * S - 600 * S
    view.hear([b"lost", b"job", TOKEN, b"gone", 119 * S])
    assert view.deadline_ns == 119 * S - 600 * S
    late = view_of(now_ns=90 * S - 600 * S)
    late.extended(20_000, lasting(120 * S, 20_000), 105 * S - 600 * S)
    assert late.deadline_ns == 120 * S - 600 * S, "an answer that is read late makes it no longer"
    assert view_of(now_ns=90 * S + 600 * S).deadline_ns == DEADLINE_NS


def test_the_answer_that_was_read_soonest_says_how_far_the_clocks_are_apart() -> None:
    clock = AgentClock()
    assert clock.deadline_ns(lasting(100 * S, 10_000), 93 * S - 600 * S) == 103 * S - 600 * S
    assert clock.deadline_ns(lasting(100 * S, 10_000), 90 * S - 600 * S) == 100 * S - 600 * S
    assert clock.here_ns(100 * S) == 100 * S - 600 * S


def test_a_validity_is_rounded_down_and_takes_no_more_than_a_millisecond_off() -> None:
    clock = AgentClock()
    assert clock.deadline_ns(lasting(100 * S + 999_999, 10_000), 90 * S) == 100 * S
    assert clock.here_ns(110 * S) == 110 * S - 999_999


def test_a_lease_shows_what_it_is_and_can_not_be_pickled() -> None:
    lease = HeldLease(view_of())
    shown = (lease.resource, lease.token, lease.fence, lease.deadline_ns)
    assert shown == ("job", TOKEN.decode(), 7, DEADLINE_NS)
    assert "'job', fence 7" in repr(lease)
    with pytest.raises(TypeError, match="belongs to the process"):
        pickle.dumps(lease)
