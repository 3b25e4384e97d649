"""What an error of the agent costs: what counts, and who is told, has no say in what core is in the middle
of."""

from __future__ import annotations

from typing import Any

import pytest

from lockd.core.journal import replay
from lockd.core.plain_values import token_of
from lockd.core.several import Several
from tests.harness.fleet_model import Answer, App, Host, Watched, written_anew
from tests.harness.joint import JointApp


class Mistake(Exception):
    pass


def fails(monkeypatch: pytest.MonkeyPatch, of: Any, what: str) -> list[object]:
    """The next call of that raises. What that has raised is noted. of: a class, where its objects are
    compiled and take no function of ours."""
    right, failed = getattr(of, what), list[object]()

    def once(*words: Any) -> Any:
        if failed:
            return right(*words)
        failed.append(words)
        raise Mistake(what)

    monkeypatch.setattr(of, what, once)
    return failed


def is_told_of(host: Host) -> None:
    """It is raised again where it is reported."""
    with pytest.raises(Mistake):
        host.pass_ms(0)


@pytest.mark.parametrize("detached", [False, True])
def test_a_grant_that_can_not_be_counted_is_granted(
    host: Host, monkeypatch: pytest.MonkeyPatch, detached: bool
):
    assert fails(monkeypatch, host.watched, "granted") == []
    app = host.locked(detached=detached)
    is_told_of(host)
    assert app.code == "granted"
    assert host.unlocked(app).code == "done"
    assert host.shown() == [None] * 5


@pytest.mark.parametrize("what", ["handed_on", "released", "granted"])
def test_what_is_handed_on_and_can_not_be_counted_is_handed_on(
    host: Host, app: App, monkeypatch: pytest.MonkeyPatch, what: str
):
    waiter = host.lock(wait_ms=60_000)
    fails(monkeypatch, host.watched, what)
    assert host.unlocked(app).code == "done"
    is_told_of(host)
    assert waiter.code == "granted"


def test_what_is_renewed_and_can_not_be_counted_is_renewed(
    host: Host, app: App, monkeypatch: pytest.MonkeyPatch
):
    failed = fails(monkeypatch, Watched, "renewed")
    with pytest.raises(Mistake):
        host.pass_ms(5_000)
    host.pass_ms(60_000)
    assert failed
    assert (app.losses, host.shown()) == ([], [app.held.nonce] * 5)


def test_one_that_is_not_told_of_its_loss_keeps_others_out_until_it_is_over(
    host: Host, app: App, monkeypatch: pytest.MonkeyPatch
):
    fails(monkeypatch, app, "lost")
    host.forget()
    with pytest.raises(Mistake):
        host.pass_until(app.held.promised_ns)
    host.pass_until(app.held.promised_ns - 1)
    assert host.locked().code == "TAKEN"
    host.pass_ms(1)
    assert host.locked().code == "granted"


@pytest.fixture
def unnoted(host: Host, monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """No note can be made any more. What is called for each of them."""
    failures: list[Exception] = []

    def fails_always(_record: bytes) -> None:
        raise Mistake

    monkeypatch.setattr(host.ledger, "_broke", failures.append)
    monkeypatch.setattr(host.ledger, "_write", fails_always)
    return failures


def test_what_can_not_be_noted_for_the_next_agent_is_granted_and_in_no_later_journal(
    host: Host, unnoted: list[Exception]
):
    waiter = host.lock(wait_ms=60_000)
    app = host.locked(b"s")
    assert app.code == waiter.code == "granted"
    assert len(unnoted) >= 2
    assert replay(written_anew(host.ledger), host.origin).held == {}


def test_an_unlock_by_name_that_can_not_be_noted_is_answered_as_often_as_it_is_asked(
    host: Host, unnoted: list[Exception]
):
    app = host.locked(named=True, value=b"t")
    replies = [host.unlock(app, uid=1) for _ in range(2)]
    host.pass_ms(10)
    assert [reply.code for reply in (*replies, host.unlock(app, uid=1))] == ["done"] * 3
    assert unnoted
    assert host.shown() == [None] * 5


def test_a_ttl_that_can_not_be_noted_is_set(host: Host, unnoted: list[Exception]):
    app = host.locked(value=token_of(b"v"))
    answer = Answer()
    host.locks.set_ttl(b"r", b"v", 5_000, answer, host.time.now_ns)
    host.pass_ms(1)
    assert answer.code == "done"
    assert unnoted
    host.pass_ms(10_000)
    assert app.losses == []
    assert host.shown() == [None] * 5


def test_what_is_not_proven_and_whose_end_can_not_be_noted_is_free_for_those_who_wait(
    host: Host, app: App, unnoted: list[Exception]
):
    waiter = host.lock(wait_ms=60_000)
    host.pass_ms(2_000)
    host.slow(*range(5))
    reply = host.unlock(app)
    host.pass_ms(3_000)
    host.quick(*range(5))
    host.pass_ms(3_000)
    assert (reply.code, waiter.code) == ("done", "granted")
    assert unnoted


def test_what_was_kept_and_whose_end_can_not_be_noted_is_free(host: Host, unnoted: list[Exception]):
    for _ in range(2):
        assert host.unlocked(host.locked(keep_ms=1_000)).code == "done"
    assert host.locks.queues[b"r"].kept is not None
    host.pass_ms(5_000)
    assert unnoted
    assert b"r" not in host.locks.queues
    assert host.locked().code == "granted"


def test_what_can_not_be_handed_on_is_given_back(host: Host, app: App, monkeypatch: pytest.MonkeyPatch):
    waiter = host.lock(wait_ms=60_000)
    failed = fails(monkeypatch, host, "token")
    assert host.unlocked(app).code == "done"
    assert failed, "the next lease got no token"
    is_told_of(host)
    host.pass_ms(0)
    assert waiter.code == "granted"
    assert waiter.held.nonce != app.held.nonce


def test_a_list_whose_next_step_fails_is_refused_and_has_given_back_what_it_had(
    host: Host, monkeypatch: pytest.MonkeyPatch
):
    whole = JointApp(host)
    parts = [whole.part(resource) for resource in (b"r", b"s")]
    whole.core = Several(host.locks, whole.claims, parts, whole, min_validity_ns=0)
    whole.core.begins(host.time.now_ns)
    fails(monkeypatch, host.locks._masters, "acquire")
    is_told_of(host)
    host.pass_ms(0)
    assert "internal error" in whole.refusal.text
    assert (host.locks.held, host.locks.waiting, host.shown()) == (0, 0, [None] * 5)
