"""What a quorum says yes to is granted, while it can be relied upon (rules 1, 2 and 4)."""

import pytest

from lockd.core.ballots.attempt import Attempt
from lockd.core.leases import Lease
from lockd.core.validity import deadline_ns
from tests.harness.clocks import MS
from tests.harness.fleet_model import App, Host, cluster


def test_an_app_is_granted_what_a_quorum_says_yes_to_and_later_answers_count_for_where_it_is(host):
    """Rule 2: three of five is one lost key away from two holders. It costs one question to all at once."""
    app = host.lock()
    assert [host.sent_to(master) for master in range(5)] == [["Attempt"]] * 5
    host.answer(3, 0)
    assert app.code == ""
    host.answer(4)
    assert app.held.proven == 0b11001
    host.answer(1, 2)
    assert app.held.proven == 0b11111
    assert host.shown() == [app.held.nonce] * 5
    assert [type(ballot) for ballot in host.fleet.asked] == [Attempt]
    assert host.watched.count("fence round") == 0


@pytest.mark.parametrize(("late_ns", "code"), [(-1, "granted"), (0, "NOQUORUM")])
def test_answers_that_leave_less_than_the_least_validity_grant_nothing(late_ns, code):
    """Rule 1: a deadline counts from before the first byte was sent, and is looked at when it is answered."""
    host = cluster(min_validity_ms=10)
    app = host.lock(ttl_ms=100)
    deadline = deadline_ns(app.asked_ns, 100)
    host.time.now_ns = deadline - 10 * MS + late_ns
    host.fleet.settle()
    assert app.code == code
    if app.lease is not None:
        assert app.held.deadline_ns == deadline
    else:
        assert "too long for a ttl of 100 ms" in app.refusal.text
        assert host.shown() == [None] * 5


def test_every_try_has_a_nonce_of_its_own(host, other):
    """Rule 4: a late answer to an old try can't be taken for one to the new."""
    held = other.locked().held
    host.lock(wait_ms=5_000)
    host.pass_ms(1_000)
    nonces = [attempt.nonce for attempt in host.asked(Attempt)]
    assert len(nonces) > 3
    assert len({held.nonce, *nonces}) == 1 + len(nonces)


def test_a_try_whose_answer_was_lost_is_not_beaten_by_itself(host):
    """Rule 4: 'free or mine'. The connection broke after the master said yes, and the link asks again."""
    host.slow()
    app = host.lock()
    for master in range(5):
        host.fleet.break_off(master, arrived=1)
        host.come_back(master)
    host.answer()
    assert app.code == "granted"
    assert host.shown() == [app.held.nonce] * 5


@pytest.mark.parametrize("masters", [1, 3, 7, 9])
def test_clusters_of_other_sizes_work_the_same(masters):
    host = cluster(masters)
    for master in range(masters // 2):
        host.break_off(master)
    assert host.locked().code == "granted"
    host.break_off(masters // 2)
    assert host.locked(b"other").code == "NOQUORUM"


# Tokens that apps choose: 'mine' is one try, not its token (rule 4)


def test_two_apps_that_chose_the_same_token_exclude_each_other(host, other):
    """What failed gives back itself, and not what has the same token."""
    first = host.locked(value=b"same")
    assert first.held.token == b"same"
    other.slow(3, 4)
    second = other.lock(value=b"same")
    other.answer_all()
    assert second.code == "TAKEN"
    assert host.shown() == [first.held.nonce] * 5


def test_a_late_release_of_one_try_does_not_delete_the_lease_of_the_next_with_the_same_token(host, other):
    """The connection was away for the release, and is back when the next one holds."""
    first = host.locked(value=b"same")
    host.break_off(4)
    host.unlocked(first)
    host.forget(4)
    second = other.locked(value=b"same")
    assert host.shown() == [second.held.nonce] * 5
    host.come_back(4)
    host.fleet.settle()
    assert host.shown() == [second.held.nonce] * 5


def test_by_the_token_that_it_chose_an_app_extends_and_releases_through_any_agent(host, other):
    app = host.locked(value=b"=a \r\n p1 =b\x00", detached=True)
    assert other.extended(app, 20_000, app.held.nonce).code == "NOTHELD"
    assert other.extended(app, 20_000).code == "done"
    assert other.unlocked(app, app.held.nonce).code == "NOTHELD"
    assert other.unlocked(app).code == "done"
    assert host.shown() == [None] * 5
    other.pass_ms(300)
    assert other.at_rest()


def test_what_is_put_back_keeps_the_token_that_its_app_chose(host, other):
    host.break_off(3, 4)
    app = host.locked(value=b"mine", detached=True)
    host.come_back(3, 4)
    host.extended(app, 30_000)
    assert other.unlocked(app, b"mine").code == "done"
    assert host.shown() == [None] * 5


def test_one_token_chosen_for_two_resources_makes_two_leases(host):
    here = host.locked(value=b"same", detached=True)
    there = host.locked(b"other", value=b"same", detached=True)
    host.unlocked(here)
    assert host.shown() == [None] * 5
    assert host.shown(b"other") == [there.held.nonce] * 5


def test_a_detached_lease_locked_again_with_its_token_is_the_one_that_is_known(host, other):
    """The first was given back through another agent."""
    first = host.locked(value=b"same", detached=True, ttl_ms=5_000)
    assert other.unlocked(first).code == "done"
    second = host.locked(value=b"same", detached=True, ttl_ms=20_000)
    host.pass_ms(6_000)
    assert host.locks.knows(b"r", b"same"), "the end of the first is not its end"
    assert host.locks.held == 1
    assert host.unlocked(second).code == "done"
    assert host.locks.detached == {}


@pytest.mark.parametrize("detached", [True, False])
def test_an_app_that_is_told_of_its_grant_may_ask_for_the_same_at_once(
    host: Host, monkeypatch: pytest.MonkeyPatch, detached: bool
):
    """As the next command of its MULTI. What it asks for is a request like any other: nothing is lost."""
    asks_again: list[App] = []

    def granted(app: App, lease: Lease, now_ns: int) -> None:
        tell(app, lease, now_ns)
        if len(asks_again) < 3:
            asks_again.append(host.lock(ttl_ms=100, detached=detached))

    tell = App.granted
    monkeypatch.setattr(App, "granted", granted)
    first, waiter = host.lock(ttl_ms=100, detached=detached), host.lock(b"r", wait_ms=5_000)
    host.pass_ms(2_000)
    if not detached:
        assert host.unlocked(first).code == "done"
    assert (first.code, waiter.code) == ("granted", "granted")
    assert [app.code for app in asks_again] == ["TAKEN"] * len(asks_again)
    assert host.unlocked(waiter).code == "done"
    host.pass_ms(1_000)
    assert host.shown() == [None] * 5
    assert (host.locks.held, host.locks.waiting) == (0, 0)


def test_requests_that_share_a_detached_lease_leave_no_line_behind(host: Host):
    first, second = (host.lock(detached=True, named=True, value=b"t", wait_ms=5_000) for _ in range(2))
    host.pass_ms(10)
    assert first.held is second.held
    assert host.locks.queues == {}
    assert host.locks.waiting == 0
