"""LOCK … TOKEN: an app's own name for its request. One name, one grant (rule 4)."""

from __future__ import annotations

from typing import Any

import pytest

from lockd.core import names as names_module
from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.release import Release
from lockd.core.names import REMEMBERED_NS, Names
from lockd.core.values import Bound
from tests.harness.clocks import MS
from tests.harness.fleet_model import App, Host

NAME = b"job-4711"
UID, OTHERS_UID = 0, 7
OURS, UNSEEN = {"pid": 1, "started": 1}, {"pid": 1, "started": 0}
TIED = {**OURS, "bound": Bound.CONNECTION}
OF_ITS_NUMBER = {"pid": 1, "started": 2}


def named(host: Host, resource: bytes = b"r", **wanted: Any) -> App:
    """An app asks by name, and all masters that aren't slow answer."""
    return host.locked(resource, named=True, value=NAME, **wanted)


def unlocked(host: Host, app: App, uid: int = UID) -> str:
    return str(host.unlocked(app, NAME, uid).code)


@pytest.mark.parametrize("detached", [False, True])
def test_asked_again_while_it_is_held_it_is_the_same_lease(host, detached):
    first, again = (named(host, detached=detached) for _ in range(2))
    assert again.held is first.held
    assert again.held.token == NAME
    assert (host.locks.held, len(host.asked(Attempt))) == (1, 1)
    assert unlocked(host, first) == "done"
    assert host.locks.held == 0
    assert host.shown() == [None] * 5


def test_asked_again_while_it_waits_both_get_what_comes(host, app):
    waiting = [named(host, wait_ms=60_000), named(host, wait_ms=60_000, ready=False)]
    other = host.lock(wait_ms=60_000)
    host.unlocked(app)
    assert waiting[0].held is waiting[1].held
    assert (other.code, host.locks.waiting, host.locks.held) == ("", 1, 1)
    assert host.watched.count("granted", NAME) == 1
    unlocked(host, waiting[0])
    assert other.code == "granted"


def test_of_two_that_wait_one_may_go_or_give_up_and_the_other_waits_on(host, app):
    """The first one's connection was lost, and its app has asked again."""
    lost, brief, again = named(host, wait_ms=60_000), named(host, wait_ms=50), named(host, wait_ms=60_000)
    host.app_dies(lost)
    host.pass_ms(50)
    assert (brief.code, again.code) == ("TIMEOUT", "")
    host.unlocked(app)
    assert again.code == "granted"
    assert lost.answers == []


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(
    ("first", "other"), [(OURS, {"pid": 2}), (OURS, OF_ITS_NUMBER), (UNSEEN, UNSEEN), (TIED, TIED)]
)
def test_another_process_never_gets_it_nor_one_that_may_be_another(host, app, waits, first, other):
    if not waits:
        host.unlocked(app)
    named(host, wait_ms=60_000, **first)
    stranger = named(host, wait_ms=60_000, **other)
    assert stranger.code == "ERR"
    assert named(host, b"another resource", **other).code == "granted", "a name is one of its resource"


@pytest.mark.parametrize("wait_ms", [None, 60_000])
@pytest.mark.parametrize("slow", [False, True], ids=["held by another", "tried for"])
def test_unlocked_while_it_waits_it_is_withdrawn_and_granted_no_more(host, app, slow, wait_ms):
    if slow:
        host.unlocked(app)
        host.slow()
    waiting = [host.lock(named=True, value=NAME, wait_ms=wait_ms if slow else 60_000) for _ in range(2)]
    tries = len(host.asked(Attempt))
    assert unlocked(host, waiting[0]) == "done"
    assert [one.code for one in waiting] == ["NOTHELD"] * 2
    host.answer_all()
    assert len(host.asked(Attempt)) == tries, "nor is the other one tried for"
    assert host.shown() == ([None] * 5 if slow else [app.held.nonce] * 5)
    assert named(host, wait_ms=60_000).code == "NOTHELD"


def test_unlocked_before_it_came_it_is_refused_for_a_minute(host):
    app = App(host.time)
    for times in (1, 2):
        assert unlocked(host, app) == "NOTHELD"
        assert len(host.asked(Release)) == times, "it may be a detached lease of another host"
        assert not host.locks.knows_request(UID, b"r", NAME, host.time.now_ns)
    host.pass_ms(59_999)
    assert named(host).code == "NOTHELD"
    host.pass_ms(1)
    assert named(host).code == "granted"


def test_by_another_user_nothing_is_withdrawn_before_it_came(host):
    assert unlocked(host, App(host.time), OTHERS_UID) == "NOTHELD"
    assert named(host).code == "granted"


def test_a_detached_lease_of_another_host_that_was_released_here_is_told_once_more(host, other):
    theirs = named(other, detached=True)
    assert [unlocked(host, theirs) for _ in range(2)] == ["done"] * 2
    assert len(host.asked(Release)) == 1


@pytest.mark.parametrize("uid", [UID, OTHERS_UID])
def test_who_did_not_hear_that_it_was_released_asks_again_and_it_is_locked_no_more(host, uid):
    app = named(host)
    assert [unlocked(host, app, uid) for _ in range(3)] == ["done"] * 3
    assert len(host.asked(Release)) == 1
    assert host.locks.knows_request(uid, b"r", NAME, host.time.now_ns)
    assert named(host).code == "NOTHELD"
    host.pass_ms(60_000)
    assert not host.locks.knows_request(uid, b"r", NAME, host.time.now_ns)
    assert unlocked(host, app, OTHERS_UID + 1) == "NOTHELD"


def test_who_asks_again_while_masters_are_still_asked_is_told_with_the_first(host):
    """Not before: from then on anybody gets it. And the same: here it was gone already."""
    app = named(host)
    host.forget()
    host.slow()
    answers = [host.unlock(app, NAME, UID) for _ in range(2)]
    assert [answer.all for answer in answers] == [[], []]
    host.answer_all()
    assert [answer.code for answer in answers] == ["EXPIRED"] * 2
    assert unlocked(host, app) == "EXPIRED"


def test_a_lease_that_was_lost_is_told_to_who_unlocks_it_and_locked_anew_by_who_does_not(host):
    app = named(host)
    host.locks.take_away(b"r", {app.held.nonce}, "released by force", host.time.now_ns)
    again = named(host)
    assert again.code == "granted"
    assert again.held is not app.held
    for master in host.fleet.masters:
        master.forget(b"r")
    host.pass_ms(5_000)
    assert unlocked(host, again) == "EXPIRED"
    assert named(host).code == "NOTHELD"


def test_an_agent_that_stops_forgets_who_waited(host, app):
    named(host, wait_ms=60_000)
    host.drain()
    assert not host.locks.names._waiting


def test_what_the_agent_has_named_itself_is_released_once(host, app):
    assert [host.unlocked(app, uid=UID).code for _ in range(2)] == ["done", "NOTHELD"]


def test_a_flood_of_one_users_makes_nobody_elses_be_forgotten_and_what_is_old_goes(monkeypatch):
    monkeypatch.setattr(names_module, "_MOST", 640)
    monkeypatch.setattr(names_module, "_FLOOR", 2)
    names = Names()

    def known(uid: int, token: bytes, now_ns: int = 0) -> bool:
        return names.over(uid, b"r", token, now_ns) is not None

    names.ends({1: "one"}, b"r", b"kept", 0, is_here=True)
    for number in range(1_000):
        names.ends({2: "two"}, b"r", b"%d" % number, 0, is_here=True)
        if number in (880, 950):
            names.ends({2: "two"}, b"r", b"once more", 0, is_here=True)
    assert known(1, b"kept")
    assert known(2, b"999")
    assert known(2, b"once more")
    assert not known(2, b"799")
    for uid in range(3, 60):
        names.ends({uid: f"{uid}"}, b"r", b"his", 0, is_here=True)
        assert known(uid, b"his")
    assert len(names._over) <= 640
    assert known(1, b"kept")
    names.ends({2: "two"}, b"r", b"new", REMEMBERED_NS + MS, is_here=True)
    assert not known(2, b"999")
    assert len(names._over) == 1 + 57 + 1


# Thousands of requests of one name

MANY = 200
TOLD_AT_ONCE = 16


def many_wait(host: Host, **wanted: Any) -> list[App]:
    return [named(host, wait_ms=60_000, account="greedy", **wanted) for _ in range(MANY)]


def answered(apps: list[App]) -> int:
    return sum(app.code != "" for app in apps)


@pytest.mark.parametrize("withdrawn", [False, True], ids=["granted", "withdrawn"])
def test_thousands_that_asked_by_one_name_hear_of_it_in_turns_and_others_are_served_between(
    host: Host, app: App, withdrawn: bool
) -> None:
    many, modest = many_wait(host), host.lock(wait_ms=60_000, account="modest")
    unlocked(host, many[0]) if withdrawn else host.unlocked(app)
    assert answered(many) <= TOLD_AT_ONCE + 1
    done: list[int] = []
    host.locks.turns.at("modest", host.time.now_ns, lambda _now_ns: done.append(answered(many)))
    host.locks.turns.run(host.time.now_ns)
    assert done[0] <= TOLD_AT_ONCE + 2, "before the others of the name"
    assert {one.code for one in many} == {"NOTHELD" if withdrawn else "granted"}
    assert len({one.lease for one in many}) == 1
    host.unlocked(app) if withdrawn else unlocked(host, many[0])
    assert modest.code == "granted"
    assert (host.locks.waiting, host.locks.names._waiting) == (0, {})


@pytest.mark.parametrize("is_held", [False, True], ids=["tried for", "held by another"])
def test_of_thousands_that_were_withdrawn_none_is_granted_it_before_it_has_heard(
    host: Host, app: App, is_held: bool
) -> None:
    many = many_wait(host, ready=True)
    late = named(host, wait_ms=60_000, account="greedy", ready=False)
    modest = host.lock(wait_ms=60_000, account="modest")
    if not is_held:
        host.slow()
        host.unlock(app)
    unlocked(host, many[0])
    host.becomes_ready(late)
    if is_held:
        host.unlocked(app)
    host.answer_all()
    assert modest.code == "granted", "it does not wait for them"
    host.unlocked(modest)
    assert not any(one.code == "granted" for one in (*many, late))
    host.pass_ms(1)
    assert {one.code for one in (*many, late)} == {"NOTHELD"}
    assert host.locks.queues == {}


def test_one_of_thousands_whose_lease_was_given_back_before_it_has_heard_of_it_is_not_granted_it(
    host: Host, app: App
) -> None:
    many, modest = many_wait(host), host.lock(wait_ms=60_000, account="modest")
    host.unlocked(app)
    assert unlocked(host, many[0]) == "done"
    assert modest.code == "granted", "nor are they before it in line"
    host.pass_ms(1)
    assert {one.code for one in many[TOLD_AT_ONCE + 1 :]} == {"NOTHELD"}
    assert host.locks.names._waiting == {}
    host.unlocked(modest)
    assert host.locks.queues == {}


def test_who_hears_late_of_the_grant_to_its_name_hears_it_when_the_masters_still_have_it(
    host: Host, app: App
) -> None:
    """Any agent may have released it meanwhile."""
    many = many_wait(host)
    host.unlocked(app)
    host.time.now_ns += 200 * MS
    host.forget()
    host.locks.turns.run(host.time.now_ns)
    assert answered(many) == TOLD_AT_ONCE + 1
    host.pass_ms(1)
    assert "granted" not in {one.code for one in many[TOLD_AT_ONCE + 1 :]}


def test_one_of_thousands_that_goes_or_whose_wait_ends_before_it_has_heard_is_answered_once(
    host: Host, app: App
) -> None:
    many = [*many_wait(host), named(host, wait_ms=50, account="greedy")]
    host.unlocked(app)
    host.app_dies(many[-2])
    for _ in range(100):
        host.time.now_ns += MS
        host.locks.turns.run(host.time.now_ns, 1)
    host.pass_ms(1)
    assert many[-2].answers == []
    assert {one.code for one in (*many[:-2], many[-1])} == {"granted"}
    assert {len(one.answers) for one in (*many[:-2], many[-1])} == {1}
    assert host.locks.waiting == 0


def test_thousands_that_do_not_wait_and_joined_one_try_are_refused_in_turns_as_it_was(
    host: Host, other: Host
) -> None:
    other.locked()
    host.slow()
    many = [host.lock(account="greedy") for _ in range(MANY)]
    host.pass_ms(0)
    host.answer_all()
    assert answered(many) <= TOLD_AT_ONCE
    host.pass_ms(0)
    assert {one.code for one in many} == {"TAKEN"}
    assert host.locks.waiting == 0
