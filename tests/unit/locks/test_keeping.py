"""A tenure stays for a while, for who locks the same thing again and again."""

import pytest

from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.extension import Extension
from lockd.core.ballots.release import Release
from lockd.core.journal import replay
from lockd.core.queues import KeptEnd
from lockd.core.stakes import Stock
from lockd.core.takeover import Taken
from tests.harness.clocks import MS
from tests.harness.fleet_model import Answer, App, Host, beside

KEEP_MS = 100


def locked(host: Host, **wanted: object) -> App:
    return host.locked(**{"keep_ms": KEEP_MS, **wanted})


def once(host: Host, **wanted: object) -> Answer:
    """Locked, and unlocked a moment later."""
    app = locked(host, **wanted)
    host.time.now_ns += MS
    return host.unlocked(app)


def is_kept(host: Host) -> bool:
    queue = host.locks.queues.get(b"r")
    return queue is not None and queue.kept is not None


@pytest.fixture
def kept(host: Host) -> Host:
    """`r` is, and the masters show nobody's token any more."""
    for _ in range(3):
        once(host)
    assert is_kept(host)
    host.fleet.asked.clear()
    return host


def test_who_locks_the_same_again_and_again_pays_no_network_at_all(kept: Host):
    nonce = kept.shown()[0]
    fences = []
    for _ in range(20):
        app = kept.lock(keep_ms=KEEP_MS)
        assert (app.code, app.held.nonce) == ("granted", nonce)
        fences.append(app.held.fence)
        assert kept.unlock(app).code == "done"
    assert kept.fleet.asked == []
    assert fences == list(range(fences[0], fences[0] + 20))
    assert kept.locks.held == 0


def test_what_is_had_from_keeping_for_a_second_is_given_back_once_since_a_recall_may_be_lost(kept: Host):
    nonce = kept.shown()[0]
    for _ in range(60):
        once(kept)
        kept.pass_ms(20)
    assert kept.shown()[0] != nonce
    assert len(kept.asked(Attempt)) in (1, 2)


def test_where_its_class_does_not_say_so_nothing_is_kept(host: Host):
    for _ in range(3):
        once(host, keep_ms=0)
    assert (is_kept(host), host.shown()) == (False, [None] * 5)


@pytest.mark.parametrize("pause_ms", [KEEP_MS, KEEP_MS + 1])
def test_it_is_kept_only_when_it_was_locked_here_again_within_that_time(host: Host, pause_ms: int):
    once(host)
    assert (is_kept(host), host.shown()) == (False, [None] * 5)
    host.pass_ms(pause_ms)
    once(host)
    assert is_kept(host) is (pause_ms == KEEP_MS)


def test_what_a_crowd_has_used_up_is_kept(host: Host):
    """They have asked before the one before them was done."""
    first, second = locked(host), host.lock(wait_ms=60_000, keep_ms=KEEP_MS)
    host.unlocked(first)
    assert second.held.nonce == first.held.nonce
    host.unlocked(second)
    assert is_kept(host)


def test_it_is_given_back_when_that_time_is_over(kept: Host):
    kept.pass_ms(KEEP_MS - 1)
    assert is_kept(kept)
    kept.pass_ms(1)
    assert {type(ballot) for ballot in kept.fleet.asked} == {Release}
    assert kept.shown() == [None] * 5
    assert kept.watched.count("kept no more", KeptEnd.TIME) == 1
    kept.pass_ms(300)
    assert kept.at_rest()


def test_each_lock_has_it_kept_anew(kept: Host):
    for _ in range(5):
        kept.pass_ms(KEEP_MS - 1)
        once(kept)
    assert kept.asked(Attempt) == []


def test_it_is_not_kept_past_its_validity_nor_is_it_ever_renewed(host: Host):
    terms = {"ttl_ms": 1_000, "keep_ms": 60_000}
    for _ in range(3):
        once(host, **terms)
    [tenure] = [queue.tenure for queue in host.locks.queues.values()]
    host.fleet.asked.clear()
    host.pass_ms((tenure.deadline_ns - host.time.now_ns) // MS - 1)
    assert is_kept(host)
    host.pass_ms(2)
    assert not host.locks.queues
    assert {type(ballot) for ballot in host.fleet.asked} == {Release}


def test_it_is_not_kept_for_longer_than_it_may_be_held(host: Host):
    terms = {"keep_ms": 60_000, "max_hold_ms": 500}
    for _ in range(3):
        once(host, **terms)
    [tenure] = [queue.tenure for queue in host.locks.queues.values()]
    host.pass_ms(499 - (host.time.now_ns - tenure.began_ns) // MS)
    assert is_kept(host)
    host.pass_ms(1)
    assert not is_kept(host)


@pytest.mark.parametrize("detached", [True, False])
def test_a_detached_lease_is_not_kept(host: Host, detached: bool):
    for _ in range(3):
        once(host, detached=detached)
    assert is_kept(host) is not detached


def test_a_detached_lease_is_on_the_masters_itself(kept: Host):
    nonce = kept.shown()[0]
    app = locked(kept, detached=True)
    assert app.held.nonce == kept.shown()[0] != nonce


def test_what_a_detached_lock_waits_for_is_not_kept(kept: Host):
    app = locked(kept)
    waiter = kept.lock(wait_ms=60_000, keep_ms=KEEP_MS, detached=True)
    kept.unlocked(app)
    kept.pass_ms(1)
    assert (waiter.code, is_kept(kept)) == ("granted", False)


@pytest.mark.parametrize("waits", [None, 60_000])
def test_it_is_handed_on_only_behind_a_proof_when_nothing_was_heard_for_a_while(
    host: Host, waits: int | None
):
    for _ in range(3):
        once(host, keep_ms=1_000)
    host.fleet.asked.clear()
    host.pass_ms(101)
    app = host.lock(wait_ms=waits, keep_ms=1_000)
    assert (app.code, len(host.asked(Extension))) == ("", 1)
    host.fleet.settle()
    assert (app.code, host.asked(Attempt)) == ("granted", [])


@pytest.mark.parametrize("broken", [(0, 1), (0, 1, 2)])
def test_it_is_handed_on_only_while_a_quorum_that_proved_it_votes_on_the_same_connection(
    kept: Host, broken: tuple[int, ...]
):
    kept.time.now_ns += MS
    kept.break_off(*broken)
    kept.come_back(*broken)
    app = kept.lock(keep_ms=KEEP_MS)
    assert (app.code == "granted") is (len(broken) < 3)
    kept.fleet.settle()
    assert (app.code, kept.asked(Attempt)) == ("granted", [])


def test_one_that_was_taken_away_meanwhile_is_not_handed_on(host: Host):
    for _ in range(3):
        once(host, keep_ms=1_000)
    nonce = host.shown()[0]
    host.pass_ms(200)
    host.forget()
    app = locked(host, keep_ms=1_000)
    assert app.held.nonce != nonce


def test_what_the_masters_show_of_the_last_lease_is_hidden_before_the_next_one(host: Host):
    other = beside(host)
    once(host)
    second = locked(host)
    host.unlocked(second)
    assert is_kept(host)
    third = locked(host)
    assert third.held.nonce == second.held.nonce
    assert other.unlocked(second).code == "NOTHELD"
    assert host.shown() == [third.held.nonce] * 5


def test_what_was_held_for_long_behind_its_last_proof_is_given_back_and_its_app_told_the_truth(host: Host):
    once(host)
    app = locked(host)
    host.pass_ms(1_001)
    host.forget()
    assert host.unlocked(app).code == "EXPIRED"
    assert not is_kept(host)


@pytest.mark.parametrize("how", ["recalled", "taken away", "drain", "keep no longer", "clocks moved"])
def test_it_is_given_back_at_once(kept: Host, how: str):
    nonce, now_ns = kept.shown()[0], kept.time.now_ns
    assert nonce is not None
    if how == "recalled":
        kept.locks.recalled(b"r", nonce, now_ns)
    elif how == "taken away":
        kept.locks.take_away(b"r", {nonce}, "force", now_ns)
    elif how == "drain":
        kept.locks.drain(now_ns)
    elif how == "keep no longer":
        kept.locks.keep_no_longer(now_ns)
    else:
        kept.locks.clocks_moved(now_ns)
    kept.pass_ms(0)
    kept.fleet.settle()
    assert kept.shown() == [None] * 5
    assert not kept.locks.queues
    assert kept.watched.count("kept no more", KeptEnd.RECALLED) == (how == "recalled")


def test_what_is_recalled_is_given_back_before_what_nobody_waits_for(kept: Host):
    """As is what ends with its time: it lets others go first."""
    nonce = kept.shown()[0]
    assert nonce is not None
    kept.locks.recalled(b"r", nonce, kept.time.now_ns)
    assert [release.patient for release in kept.asked(Release)] == [False]


def test_a_recall_of_another_tenure_means_nothing(kept: Host):
    kept.locks.recalled(b"r", b"0" * 32, kept.time.now_ns)
    assert is_kept(kept)


def test_what_another_host_waits_for_is_not_kept_and_after_that_it_begins_anew(kept: Host):
    app = locked(kept)
    kept.locks.recalled(b"r", app.held.nonce, kept.time.now_ns)
    kept.unlocked(app)
    assert kept.shown() == [None] * 5
    once(kept)
    assert not is_kept(kept)
    once(kept)
    assert is_kept(kept)


def test_the_lock_of_a_dead_app_is_not_kept(kept: Host):
    app = locked(kept)
    kept.app_dies(app)
    kept.fleet.settle()
    assert kept.shown() == [None] * 5


def test_one_who_cannot_be_told_yet_gets_it_when_he_can(kept: Host):
    app = kept.lock(wait_ms=60_000, keep_ms=KEEP_MS, ready=False)
    assert (app.code, is_kept(kept)) == ("", True)
    kept.becomes_ready(app)
    assert (app.code, kept.fleet.asked) == ("granted", [])


def test_an_extension_that_was_under_way_and_fails_has_it_given_back(kept: Host):
    app = locked(kept)
    kept.forget()
    kept.slow()
    kept.extend(app, 30_000)
    kept.unlock(app)
    assert is_kept(kept)
    kept.answer_all()
    assert not is_kept(kept)


def test_only_so_many_are_kept(host: Host, monkeypatch: pytest.MonkeyPatch):
    """Of each account."""
    keeping = host.locks._keeping
    monkeypatch.setattr(keeping, "_kept", Stock("kept", 128, 1, 1))
    for name in (b"a", b"a", b"r", b"r"):
        once(host, resource=name)
    assert not is_kept(host)
    for _ in range(2):
        once(host, resource=b"another's", account="another")
    assert keeping.count == 2
    host.pass_ms(KEEP_MS)
    for _ in range(2):
        once(host)
    assert is_kept(host)


# The next agent


def test_its_unlock_is_noted_before_it_is_answered(kept: Host):
    app = kept.lock(keep_ms=KEEP_MS)
    [held] = replay(kept.journal, kept.origin).held
    kept.unlock(app)
    noted = replay(kept.journal, kept.origin)
    assert (held, list(noted.endings), noted.held) == (app.held.nonce, [app.held.nonce], {})


def test_the_next_agent_gives_back_what_the_one_before_kept(kept: Host):
    agent = kept.next_agent()
    agent.fleet.settle()
    assert (agent.heirs, agent.shown()) == ([], [None] * 5)


def test_the_next_agent_goes_on_with_what_was_had_of_a_kept_tenure(kept: Host):
    app = locked(kept)
    agent = kept.next_agent()
    assert (agent.did, agent.heir.value) == (Taken.GOES_ON, app.held.token)


def test_it_is_kept_only_if_the_masters_show_that_it_may_be(host: Host):
    """Other hosts ask for it only then. What is handed on began for another lease."""
    once(host)
    first = host.locked(wait_ms=60_000)
    app = host.lock(wait_ms=60_000, keep_ms=KEEP_MS)
    host.unlocked(first)
    assert app.held.tenure is first.held.tenure
    host.time.now_ns += MS
    host.unlocked(app)
    assert not is_kept(host)
