"""What an error of the agent costs: what counts, and who is told, has no say in what core is in the middle
of."""

from __future__ import annotations

from typing import Any

import pytest

from lockd.core.journal import Ledger
from lockd.core.several import Several
from tests.harness.fleet_model import App, Host, Watched
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


def test_what_can_not_be_noted_for_the_next_agent_is_not_granted(host: Host, monkeypatch: pytest.MonkeyPatch):
    fails(monkeypatch, Ledger, "held")
    app = host.locked()
    is_told_of(host)
    assert app.refusal is not None
    assert "internal error" in app.refusal.text
    assert host.shown() == [None] * 5
    assert host.locked().code == "granted"


def test_who_waits_behind_what_can_not_be_noted_is_granted_it(
    host: Host, app: App, monkeypatch: pytest.MonkeyPatch
):
    first, second = host.lock(wait_ms=60_000), host.lock(wait_ms=60_000)
    fails(monkeypatch, Ledger, "held")
    assert host.unlocked(app).code == "done"
    is_told_of(host)
    assert "internal error" in str(first.refusal)
    host.pass_ms(0)
    assert second.code == "granted"
    assert host.unlocked(second).code == "done"
    assert host.shown() == [None] * 5


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
