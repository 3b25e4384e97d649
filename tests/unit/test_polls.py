"""What who polls is answered from (core/polls.py): a refusal of just now, and nothing else."""

from __future__ import annotations

import pytest

from lockd.core.ballots.attempt import Attempt
from lockd.core.errors import ErrorWord
from lockd.core.plain_values import token_of
from lockd.core.polls import Polls
from lockd.core.values import Refusal
from tests.harness.clocks import MS
from tests.harness.fleet_model import Answer, App, Host, beside, cluster

TAKEN = Refusal(ErrorWord.TAKEN, "retry-after=5 held by another", 5)
VALUE = b"worker 7"


def poll(host: Host, value: bytes = VALUE, **wanted: object) -> App:
    return host.locked(**{"value": token_of(value), "detached": True, **wanted})


def tries(host: Host) -> int:
    return len(host.asked(Attempt))


def released(host: Host, value: bytes) -> Answer:
    answer = Answer()
    host.locks.release(b"r", value, answer, host.time.now_ns)
    host.fleet.settle()
    return answer


@pytest.fixture
def host() -> Host:
    return cluster()


@pytest.fixture
def other(host: Host) -> Host:
    """It has what is polled for."""
    other = beside(host)
    other.locked(value=token_of(b"theirs"), detached=True)
    return other


@pytest.fixture
def refused(host: Host, other: Host) -> Host:
    """Somebody on this host has just polled."""
    assert poll(host).code == "TAKEN"
    host.fleet.asked.clear()
    return host


# What is remembered


def test_a_refusal_is_known_for_a_tenth_of_a_second_from_its_first_word_on():
    polls = Polls()
    polls.refused("an app", b"r", TAKEN, 0)
    polls.refused("an app", b"r", Refusal(ErrorWord.TAKEN, "another", 1), 99 * MS)
    assert polls.refusal(b"r", 100 * MS - 1) is TAKEN
    assert polls.refusal(b"r", 100 * MS) is None
    assert polls.refusal(b"r", 0) is None


def test_another_word_counts_once_the_first_is_over():
    polls = Polls()
    polls.refused("an app", b"r", TAKEN, 0)
    another = Refusal(ErrorWord.TAKEN, "another", 1)
    polls.refused("an app", b"r", another, 100 * MS)
    assert polls.refusal(b"r", 199 * MS) is another


def test_it_is_of_one_resource():
    polls = Polls()
    polls.refused("an app", b"r", TAKEN, 0)
    assert polls.refusal(b"other", 0) is None
    polls.is_free(b"other")
    assert polls.refusal(b"r", 0) is TAKEN
    polls.is_free(b"r")
    assert polls.refusal(b"r", 0) is None


def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch):
    """Who polls thousands pushes out its own."""
    monkeypatch.setattr("lockd.core.polls._MOST", 128)
    polls = Polls()
    polls.refused("modest", b"m", TAKEN, 0)
    for number in range(1_000):
        polls.refused("greedy", b"%d" % number, TAKEN, 0)
    assert [polls.refusal(name, 0) for name in (b"m", b"0", b"999")] == [TAKEN, None, TAKEN]
    assert len(polls._refused) < 128


# Who is answered from it


def test_who_polls_again_within_a_moment_has_no_master_asked(refused: Host):
    for _ in range(9):
        refused.pass_ms(10)
        again = poll(refused)
        assert (again.code, "held by another" in again.refusal.text) == ("TAKEN", True)
    assert tries(refused) == 0
    assert refused.watched.count("refused", ErrorWord.TAKEN) == 10


def test_with_whatever_value_and_ttl_he_does(refused: Host):
    assert poll(refused, b"another", ttl_ms=500).code == "TAKEN"
    assert poll(refused, detached=False).code == "TAKEN"
    assert tries(refused) == 0


def test_who_polls_behind_that_has_the_masters_asked_and_hears_the_truth(refused: Host, other: Host):
    refused.pass_ms(50)
    assert poll(refused).code == "TAKEN"
    released(other, b"theirs")
    refused.pass_ms(49)
    assert poll(refused).code == "TAKEN"
    refused.pass_ms(1)
    assert poll(refused).code == "granted"


@pytest.mark.parametrize("wanted", [{}, {"detached": True}, {"value": b"a token", "named": True}])
@pytest.mark.parametrize("wait_ms", [None, 500])
def test_a_lock_is_never_answered_from_it(
    refused: Host, other: Host, wanted: dict[str, object], wait_ms: int | None
):
    released(other, b"theirs")
    app = refused.lock(wait_ms=wait_ms, **wanted)
    refused.pass_ms(20)
    assert app.code == "granted"


def test_a_lock_that_is_refused_says_nothing_to_who_polls(host: Host, other: Host):
    assert host.locked().code == "TAKEN"
    released(other, b"theirs")
    assert host.locks._campaigns.polls.refusal(b"r", host.time.now_ns) is None


def test_one_that_waited_in_vain_says_nothing_to_who_polls(host: Host, other: Host):
    waiter = host.lock(wait_ms=50)
    host.pass_ms(51)
    assert waiter.code == "TIMEOUT"
    assert host.locks._campaigns.polls.refusal(b"r", host.time.now_ns) is None


# What is never remembered


@pytest.mark.parametrize("why", ["down", "split", "no masters"])
def test_an_outage_or_a_split_vote_is_not_remembered(host: Host, why: str):
    if why == "down":
        host.break_off(0, 1, 2)
    elif why == "split":
        for masters in ((0, 1), (2, 3)):
            another = beside(host)
            another.lock()
            for master in masters:
                another.fleet.arrive(master)
    else:
        host.demote(0, 1, 2)
    refused = host.lock(value=token_of(VALUE), detached=True)
    host.pass_ms(300)
    assert refused.code not in ("", "granted", "TAKEN")
    assert host.locks._campaigns.polls.refusal(b"r", host.time.now_ns) is None


def test_while_the_agent_stops_it_says_so(refused: Host):
    refused.drain()
    assert poll(refused).code == "DRAINING"


# When it is free


def test_it_is_forgotten_when_it_was_given_back_here(host: Host):
    mine = poll(host, b"mine")
    assert poll(host).code == "TAKEN"
    host.unlocked(mine)
    assert poll(host).code == "granted"


def test_it_is_forgotten_when_it_was_released_by_its_value_here(refused: Host):
    assert released(refused, b"theirs").code == "done"
    assert poll(refused).code == "granted"


def test_it_is_not_forgotten_by_a_release_of_what_nobody_has(refused: Host):
    assert released(refused, b"nobody's").code == "NOTHELD"
    assert poll(refused).code == "TAKEN"
    assert tries(refused) == 0
