"""A LOCK that doesn't wait meets another host's tenure: it asks whether that is only kept."""

import pytest

from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.release import How, Release
from lockd.core.notices import Kind, Notice, read
from lockd.core.queues import KeptEnd
from lockd.core.tenures.places import RecallEnd
from tests.harness.fleet_model import App, Host, beside

KEEP_MS = 10_000


@pytest.fixture
def other(host: Host) -> Host:
    return beside(host)


def once(host: Host) -> None:
    host.unlocked(host.locked(keep_ms=KEEP_MS))


def keeps(host: Host) -> None:
    for _ in range(3):
        once(host)
    queue = host.locks.queues[b"r"]
    assert queue.kept is not None


def settle(*hosts: Host) -> None:
    """What they tell each other by the masters arrives."""
    for _ in range(10):
        for host in hosts:
            host.fleet.settle()


def asks(host: Host, other: Host, **wanted: object) -> App:
    """Its own class need not know that the other keeps it: the masters show that."""
    app = host.lock(**wanted)
    settle(host, other)
    return app


def name_of(host: Host) -> bytes:
    """Under which it asks."""
    return host.asked(Attempt)[0].place.split(b" ")[1]


def silent(host: Host) -> None:
    """Its links hear nothing any more."""
    for master in host.fleet.masters:
        master.notifies = [one for one in master.notifies if one[1] not in host.fleet.links]


def test_what_is_only_kept_is_given_back_and_granted(host: Host, other: Host):
    keeps(other)
    app = asks(host, other)
    assert app.code == "granted"
    assert host.shown() == [app.held.nonce] * 5
    assert other.watched.count("kept no more", KeptEnd.RECALLED) == 1
    assert host.watched.count("asked back", RecallEnd.GIVEN_BACK) == 1
    assert not other.locks.queues


def test_what_is_asked_for_is_given_back_before_what_nobody_waits_for(host: Host, other: Host):
    keeps(other)
    asks(host, other)
    assert [one.patient for one in other.asked(Release) if one.how is How.TENURE][-1] is False


def test_it_is_tried_for_once_more_and_not_again_and_again(host: Host, other: Host):
    keeps(other)
    asks(host, other)
    assert len(host.asked(Attempt)) == 2


def test_what_is_in_use_is_taken_as_soon_as_its_host_says_so(host: Host, other: Host):
    held = other.locked(keep_ms=KEEP_MS)
    app = asks(host, other)
    assert (app.code, len(host.asked(Attempt))) == ("TAKEN", 1)
    assert host.watched.count("asked back", RecallEnd.IN_USE) == 1
    assert other.unlocked(held).code == "done"
    assert not host.locks.queues


def test_who_asks_leaves_no_place_and_takes_no_turn_from_who_has_it(host: Host, other: Host):
    held = other.locked(keep_ms=KEEP_MS)
    asks(host, other)
    assert held.held.tenure.turn is None
    assert all(not master.store.lines for master in host.fleet.masters)


def test_where_nobody_answers_it_is_taken_when_recall_ms_are_over(host: Host, other: Host):
    keeps(other)
    silent(other)
    app = asks(host, other)
    host.pass_ms(49)
    assert app.code == ""
    host.pass_ms(1)
    assert app.code == "TAKEN"
    assert "and its agent did not say whether it is in use" in str(app.refusal)
    assert host.watched.count("asked back", RecallEnd.SILENT) == 1
    assert not host.locks.queues


def test_what_was_freed_unheard_is_granted_when_recall_ms_are_over(host: Host, other: Host):
    keeps(other)
    silent(host)
    app = asks(host, other)
    assert app.code == ""
    host.pass_ms(50)
    assert app.code == "granted"


@pytest.mark.parametrize("heard", [2, 3])
def test_by_fewer_than_a_quorum_it_is_not_free(host: Host, other: Host, heard: int):
    keeps(other)
    silent(other)
    app = asks(host, other)
    agent = name_of(host)
    before = len(host.asked(Attempt))
    for master in range(heard):
        host.locks.noticed(master, Notice(Kind.FREED, agent, b"r"), host.time.now_ns)
    assert len(host.asked(Attempt)) - before == (heard == 3)
    settle(host)
    assert app.code == "", "it was a lie: it is still waited for"


def test_that_of_another_agent_means_nothing(host: Host, other: Host):
    keeps(other)
    silent(other)
    app = asks(host, other)
    host.locks.noticed(0, Notice(Kind.USED, b"f" * 8, b"r"), host.time.now_ns)
    assert app.code == ""


def test_where_nothing_is_kept_nobody_is_asked(host: Host, other: Host):
    other.locked()
    app = host.lock()
    host.fleet.settle()
    assert app.code == "TAKEN"
    assert not any(attempt.has_asked for attempt in host.asked(Attempt))


def test_a_detached_lease_is_taken_without_anybody_to_answer(host: Host, other: Host):
    """Its agent may be gone, and it is not kept."""
    other.locked(detached=True)
    app = asks(host, other)
    host.pass_ms(50)
    assert app.code == "TAKEN"


def test_who_waits_leaves_a_place_instead(host: Host, other: Host):
    keeps(other)
    app = asks(host, other, wait_ms=1_000)
    host.pass_ms(1)
    settle(host, other)
    host.pass_ms(10)
    assert app.code == "granted"
    assert not any(attempt.has_asked for attempt in host.asked(Attempt))


def test_others_that_ask_meanwhile_share_the_answer(host: Host, other: Host):
    other.locked(keep_ms=KEEP_MS)
    silent(other)
    first = asks(host, other)
    second = asks(host, other)
    assert (first.code, second.code) == ("", "")
    host.locks.noticed(0, Notice(Kind.USED, name_of(host), b"r"), host.time.now_ns)
    assert (first.code, second.code) == ("TAKEN", "TAKEN")


def test_who_has_gone_meanwhile_leaves_nothing_behind(host: Host, other: Host):
    keeps(other)
    silent(other)
    app = asks(host, other)
    host.app_dies(app)
    assert not host.locks.queues
    host.locks.noticed(0, Notice(Kind.FREED, name_of(host), b"r"), host.time.now_ns)


def test_an_ask_for_another_tenure_has_nothing_given_back(host: Host):
    keeps(host)
    host.locks.noticed(0, Notice(Kind.ASK, b"0" * 32, b"r", asker=b"host 12345678"), host.time.now_ns)
    assert host.locks.queues[b"r"].kept is not None


@pytest.mark.parametrize("text", [b"ask 1", b"ask 1 host", b"ask 1 host agent", b"ask 1  agent r"])
def test_an_ask_without_an_asker_is_none(text: bytes):
    assert read(text) is None


def test_an_ask_names_who_asks_and_what():
    assert read(b"ask 12 host agent a b") == Notice(Kind.ASK, b"12", b"a b", asker=b"host agent")
