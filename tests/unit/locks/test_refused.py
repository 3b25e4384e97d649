"""Masters that answer one kind of question with an error, and all others as ever: what is known of them, and
what apps are told."""

import pytest

from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.ballot import Ballot
from lockd.core.ballots.extension import Extension
from lockd.core.ballots.release import Release
from tests.harness.fleet_model import App, Host

ALL = 0b11111
KINDS = {Attempt: "LOCK", Extension: "EXTEND", Release: "UNLOCK"}


def do(host: Host, kind: type[Ballot], resource: bytes = b"x") -> None:
    """Something of this kind, with all that has to be done before."""
    app = host.locked(resource)
    if kind is not Attempt:
        host.extended(app, 10_000)
    if kind is Release:
        host.unlocked(app)


def looked_again(host: Host) -> None:
    """At each master that answered with an error; what is owed to it is asked again."""
    for link in host.fleet.links:
        link.look_again()
    host.fleet.settle()


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_master_refuses_is_known_until_it_does_the_same(host: Host, kind: type[Ballot]) -> None:
    host.refuse(kind, 0)
    do(host, kind)
    assert host.fleet.giving() == ALL & ~1
    assert f"m1=it-refuses-{KINDS[kind]}:-NOPERM" in host.fleet.why_not(0)
    host.refuse(kind)
    do(host, kind, b"y")
    assert host.fleet.giving() == ALL


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", KINDS)
def test_what_it_does_of_another_kind_says_nothing(
    host: Host, kind: type[Ballot], other: type[Ballot]
) -> None:
    host.refuse(kind, 0)
    do(host, kind)
    if other is not kind:
        do(host, other, b"y")
    assert host.fleet.giving() == ALL & ~1


def test_several_refusals_are_named_together(host: Host) -> None:
    host.refuse(Extension, 0)
    host.refuse(Release, 0)
    do(host, Release)
    assert host.fleet.refusal_of(host.fleet.links[0]) == "it refuses EXTEND: NOPERM, UNLOCK: NOPERM"


def test_an_answer_for_which_nothing_was_written_does_not_show_that_it_could_be(
    host: Host, other: Host
) -> None:
    """A lease of another stands there: a disk that is full is not asked."""
    theirs = other.locked()
    host.refuse(Attempt, 0)
    host.locked(b"x")
    host.refuse(Release, 0)
    host.unlocked(App(host.time), b"unknown")
    assert set(host.fleet.links[0].refuses) == {"LOCK", "UNLOCK"}
    host.refuse(Attempt)
    host.refuse(Release)
    assert host.locked().code == "TAKEN"
    host.unlocked(App(host.time), b"unknown")
    assert set(host.fleet.links[0].refuses) == {"LOCK", "UNLOCK"}
    assert other.unlocked(theirs).code == "done"


def refusing_extensions(host: Host) -> None:
    """A quorum of its masters, as it knows: a lease of it was lost by that."""
    host.refuse(Extension, 0, 1, 2)
    app = host.locked(b"lost")
    assert host.extended(app, 10_000).code == "NOQUORUM"
    assert app.held.loss == "it could not be renewed: m1=error-NOPERM m2=error-NOPERM m3=error-NOPERM"
    host.unlocked(app)


def test_a_session_lock_that_can_not_be_renewed_is_not_granted(host: Host) -> None:
    """It would be lost at its TTL, and granted to the next host while its app goes on."""
    refusing_extensions(host)
    app = host.locked()
    assert app.refusal is not None
    assert app.code == "NOQUORUM"
    assert app.refusal.text == "it could not be renewed: m1=error-NOPERM m2=error-NOPERM m3=error-NOPERM"
    assert host.shown() == [None] * 5


def test_a_detached_lease_is_granted_where_nothing_can_be_renewed(host: Host) -> None:
    """It ends at its TTL in any case."""
    refusing_extensions(host)
    assert host.locked(detached=True).code == "granted"


def test_the_first_lock_is_granted_that_can_be_renewed_again(host: Host) -> None:
    """No canary is needed for that."""
    refusing_extensions(host)
    host.refuse(Extension)
    app = host.locked()
    assert app.code == "granted"
    assert app.held.deadline_ns == app.held.tenure.deadline_ns
    assert host.fleet.giving() == ALL
    assert host.unlocked(app).code == "done"


def test_a_minority_that_refuses_extensions_is_in_no_way(host: Host) -> None:
    host.refuse(Extension, 0, 1)
    do(host, Extension)
    host.fleet.asked.clear()
    assert host.locked().code == "granted"
    assert host.asked(Extension) == [], "it was not asked for"


def test_nothing_is_handed_on_that_can_not_be_renewed(host: Host) -> None:
    app = host.locked(ttl_ms=60_000)
    second, third = (host.lock(wait_ms=1_000, ttl_ms=60_000) for _ in range(2))
    assert host.unlocked(app).code == "done"
    assert second.code == "granted"
    refusing_extensions(host)
    assert host.unlocked(second).code == "done"
    host.pass_ms(1_500)
    assert third.code == "NOQUORUM"
    assert host.shown() == [None] * 5


def test_a_try_whose_app_is_gone_while_it_is_extended_is_given_back(host: Host) -> None:
    refusing_extensions(host)
    host.refuse(Extension)
    host.slow()
    app = host.lock()
    for master in range(5):
        host.fleet.arrive(master)
        host.fleet.hear(master)
    assert app.code == "", "it is extended first"
    host.app_dies(app)
    host.answer_all()
    assert app.code == ""
    assert host.shown() == [None] * 5


def test_a_mistake_where_a_try_is_extended_is_that_requests_alone(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing_extensions(host)

    mistakes = [ZeroDivisionError("a mistake of ours")]

    def raising(master: int) -> str:
        """Where its refusal is put into words."""
        if mistakes:
            raise mistakes.pop()
        return f"m{master + 1}"

    def told_locks(ballot: Ballot, _failure: Exception, now_ns: int) -> None:
        host.locks.broke(ballot, now_ns)

    with monkeypatch.context() as broken:
        broken.setattr(host.fleet, "name", raising)
        broken.setattr(host.fleet, "broke", told_locks)
        app = host.locked()
    assert app.code == "ERR"
    host.refuse(Extension)
    assert host.locked().code == "granted"


def test_an_unlock_that_so_many_masters_refuse_that_it_is_not_free_is_no_success(
    host: Host, app: App
) -> None:
    host.refuse(Release, 0, 1, 2)
    told = host.unlocked(app)
    assert told.code == "NOQUORUM"
    assert "m1=error-NOPERM m2=error-NOPERM m3=error-NOPERM" in told.text
    assert "m4" not in told.text
    assert host.shown() == [app.held.nonce] * 3 + [None] * 2
    assert host.fleet.giving() == 0b11000


def test_its_agent_goes_on_asking_until_they_do_it(host: Host, app: App, other: Host) -> None:
    """Rule 3."""
    host.refuse(Release, 0, 1, 2)
    host.unlocked(app)
    looked_again(host)
    assert other.locked().code == "TAKEN"
    host.refuse(Release)
    looked_again(host)
    assert host.shown() == [None] * 5
    assert host.fleet.giving() == ALL


def test_an_unlock_that_a_minority_refuses_has_freed_it(host: Host, app: App, other: Host) -> None:
    host.refuse(Release, 0, 1)
    assert host.unlocked(app).code == "done"
    assert other.locked().code == "granted"


def test_an_unlock_that_masters_refuse_one_by_one_is_answered_by_what_they_do_in_the_end(
    host: Host, app: App
) -> None:
    """An error is heard, and the master asked again, before the others have answered."""
    host.slow(3, 4)
    host.refuse(Release, 0, 1, 2)
    told = host.unlocked(app)
    host.refuse(Release)
    looked_again(host)
    assert told.code == "done"


@pytest.mark.parametrize("named", [True, False])
def test_an_unlock_that_is_repeated_asks_the_masters_again(host: Host, named: bool) -> None:
    app = host.locked(value=b"mine" if named else b"", named=named)
    host.refuse(Release, 0, 1, 2)
    assert host.unlocked(app, uid=0).code == "NOQUORUM"
    assert host.unlocked(app, uid=0).code == "NOQUORUM"
    host.refuse(Release)
    assert host.unlocked(app, uid=0).code == "done"
    assert host.shown() == [None] * 5
