"""A lease may be released through any agent, by its token or by force. Its own agent is told, and promises
nothing from memory: what it says that an app may rely on is proven after it was asked (rule 2)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lockd.core.ballots.extension import Extension
from lockd.core.ballots.release import How
from lockd.core.notices import Kind, Notice
from tests.harness.clocks import MS
from tests.harness.fleet_model import App, Host

NAME = b"job-4711"


def unlocked_elsewhere(host: Host, other: Host, app: App) -> None:
    assert other.unlocked(app).code == "done"


def forced_elsewhere(host: Host, other: Host, app: App) -> None:
    for master in host.fleet.masters:
        master.store.release(b"r", app.held.nonce, master.now_us, how=How.FORCED.value)
        master.deliver()


def nothing_is_heard(host: Host) -> None:
    for master in host.fleet.masters:
        master.notifies.clear()


by_any = pytest.mark.parametrize("released", [unlocked_elsewhere, forced_elsewhere])
Released = Callable[[Host, Host, App], None]


@by_any
def test_what_was_released_elsewhere_is_free_on_its_own_host_too(
    host: Host, other: Host, app: App, released: Released
):
    waiter = host.lock(wait_ms=60_000)
    host.pass_ms(500)
    released(host, other, app)
    host.pass_ms(1)
    assert waiter.code == "granted"
    assert len(app.losses) == len(app.ends) == 1


def test_what_was_taken_away_by_force_elsewhere_is_a_loss_and_what_its_app_released_is_none(
    host: Host, other: Host
):
    for released, losses in ((unlocked_elsewhere, 0), (forced_elsewhere, 1)):
        app = host.locked()
        host.pass_ms(500)
        released(host, other, app)
        host.pass_ms(1)
        assert host.watched.count("lost", app.held.token) == losses


@pytest.mark.parametrize("kind", [Kind.GONE, Kind.RELEASED])
def test_that_it_was_released_is_believed_only_when_the_masters_have_it_no_more(
    host: Host, app: App, kind: Kind
):
    """A notice may be wrong, or of one master alone."""
    host.pass_ms(500)
    host.locks.noticed(0, Notice(kind, app.held.nonce, b"r"), host.time.now_ns)
    host.pass_ms(1_000)
    assert len(host.asked(Extension)) == 1
    assert (app.losses, host.locked().code) == ([], "TAKEN")


@pytest.mark.parametrize("kind", [Kind.GONE, Kind.RELEASED])
def test_a_notice_from_before_a_proof_says_nothing_of_a_loss_behind_it(host: Host, app: App, kind: Kind):
    """Its holder may believe in it until its deadline (rule 12)."""
    host.pass_ms(500)
    host.locks.noticed(0, Notice(kind, app.held.nonce, b"r"), host.time.now_ns)
    host.pass_ms(1_000)
    host.forget()
    host.pass_until(app.held.promised_ns - 1 * MS)
    assert host.watched.count("lost", app.held.token) == 1
    assert host.locked().code == "TAKEN"


@pytest.mark.parametrize("detached", [False, True])
def test_a_notice_that_came_after_a_proof_was_asked_for_outlives_it(host: Host, detached: bool):
    """The masters may have answered before what it tells of."""
    app = host.locked(detached=detached)
    host.slow()
    extending = host.extend(app, 10_000)
    host.pass_ms(1, answering=False)
    host.locks.noticed(0, Notice(Kind.RELEASED, app.held.nonce, b"r"), host.time.now_ns)
    for master in range(5):
        host.fleet.arrive(master)
        host.fleet.hear(master)
    assert extending.code == "done"
    assert app.held.said_gone is Kind.RELEASED


def test_what_was_taken_over_and_is_not_proven_is_not_given_back_for_a_notice(host: Host, app: App):
    """What masters are left with may be another's word by now (rule 13)."""
    agent = host.next_agent()
    for master in host.fleet.masters[:3]:
        master.store.release(b"r", app.held.nonce, master.now_us, how=How.FORCED.value)
        master.deliver()
    agent.pass_ms(1)
    assert (agent.shown()[:3], None in agent.shown()[3:]) == ([None] * 3, False)


# What is said from memory: nothing


@by_any
@pytest.mark.parametrize("detached", [False, True])
def test_what_was_released_elsewhere_can_not_be_extended_though_nothing_was_heard_of_it(
    host: Host, other: Host, released: Released, detached: bool
):
    app = host.locked(detached=detached)
    nothing_is_heard(host)
    host.pass_ms(1)
    released(host, other, app)
    assert host.extended(app, 10_000).code in ("EXPIRED", "NOTHELD")
    assert other.locked().code == "granted"


def test_an_extension_that_gains_nothing_is_proven_and_makes_it_no_shorter(host: Host, app: App):
    deadline_ns = app.held.deadline_ns
    [extended] = host.extended(app, 1_000).all
    assert extended.deadline_ns == app.held.deadline_ns == deadline_ns
    assert len(host.asked(Extension)) == 1


@pytest.mark.parametrize("detached", [False, True])
def test_an_extension_that_can_not_be_proven_says_no_more_than_that(host: Host, detached: bool):
    app = host.locked(detached=detached)
    host.break_off(0, 1, 2)
    assert host.extended(app, 1_000).code == "NOQUORUM"
    assert app.losses == []


@by_any
@pytest.mark.parametrize("detached", [False, True])
def test_who_asks_again_by_its_name_is_not_granted_what_was_released_elsewhere(
    host: Host, other: Host, released: Released, detached: bool
):
    app = host.locked(named=True, value=NAME, detached=detached)
    nothing_is_heard(host)
    host.pass_ms(1)
    released(host, other, app)
    again = host.locked(named=True, value=NAME, detached=detached)
    assert again.code not in ("", "granted")
    assert other.locked().code == "granted"


def test_who_asks_again_and_is_gone_before_it_is_proven_is_granted_nothing(host: Host):
    app = host.locked(named=True, value=NAME)
    host.slow()
    again = host.lock(named=True, value=NAME)
    host.locks.gone(again, host.time.now_ns)
    host.answer_all()
    assert again.answers == []
    assert host.unlocked(app).code == "done"


def test_an_unlock_while_it_is_proven_for_who_asks_again_refuses_that(host: Host):
    app = host.locked(named=True, value=NAME)
    host.slow()
    again = host.lock(named=True, value=NAME)
    answer = host.unlock(app)
    host.answer_all()
    assert (answer.code, again.code, len(again.answers)) == ("done", "EXPIRED", 1)
