"""Locks with a value that their app chose, as Redis's own commands have it (core/plain_values.py)."""

import pytest

from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.extension import Extension
from lockd.core.ballots.release import Release
from lockd.core.notices import Kind, Notice
from lockd.core.plain_values import is_plain, token_of, value_of
from lockd.core.takeover import Seen, Taken
from tests.harness.clocks import MS
from tests.harness.fleet_model import Answer, App, Host, Successor, beside, fresh_token

VALUE = b"worker 7"


def wanted(value: bytes = VALUE, **terms: object) -> dict[str, object]:
    return {"value": token_of(value), "detached": True, **terms}


def ask(host: Host, value: bytes = VALUE, **terms: object) -> App:
    return host.lock(**wanted(value, **terms))


def locked(host: Host, value: bytes = VALUE, **terms: object) -> App:
    """With a TTL."""
    return host.locked(**wanted(value, **terms))


def locked_without_ttl(host: Host, value: bytes = VALUE, **terms: object) -> App:
    """It lives with its process."""
    return locked(host, value, detached=False, **terms)


def release(host: Host, value: bytes = VALUE) -> Answer:
    answer = Answer()
    host.locks.release(b"r", value, answer, host.time.now_ns)
    return answer


def released(host: Host, value: bytes = VALUE) -> Answer:
    answer = release(host, value)
    host.fleet.settle()
    return answer


def ttl_set(host: Host, ttl_ms: int, value: bytes = VALUE) -> Answer:
    answer = Answer()
    host.locks.set_ttl(b"r", value, ttl_ms, answer, host.time.now_ns)
    host.fleet.settle()
    return answer


def persisted(host: Host, app: App) -> Answer:
    answer = Answer()
    host.locks.persist(app.held, answer, host.time.now_ns)
    host.fleet.settle()
    return answer


def left_ms(host: Host) -> list[int]:
    """On each master that shows it."""
    leases = (master.store.lease(b"r", master.now_us) for master in host.fleet.masters)
    return [key.expires_ms - host.fleet.masters[0].now_us // 1000 for key in leases if key is not None]


EITHER = pytest.mark.parametrize("lock", [locked, locked_without_ttl])


def test_a_value_is_told_from_every_token():
    assert (value_of(token_of(VALUE)), value_of(VALUE), is_plain(VALUE)) == (VALUE, None, False)
    assert value_of(token_of(b"")) == b""


# Who has it


@EITHER
def test_two_hosts_with_the_same_value_exclude_each_other(host: Host, other: Host, lock):
    mine, theirs = lock(host), lock(other)
    assert (mine.code, theirs.code) == ("granted", "TAKEN")
    assert host.shown() == [mine.held.nonce] * 5


@EITHER
def test_two_apps_of_one_host_with_the_same_value_exclude_each_other(host: Host, lock):
    assert [lock(host).code, lock(host).code] == ["granted", "TAKEN"]


def test_they_exclude_each_other_also_where_both_try_at_once(host: Host, other: Host):
    mine, theirs = ask(host), ask(other)
    for master in range(5):
        (host if master < 3 else other).answer(master)
    other.fleet.settle()
    host.fleet.settle()
    assert (mine.code, theirs.code) == ("granted", "TAKEN")
    assert host.shown()[:3] == [mine.held.nonce] * 3


def test_a_late_release_of_one_try_never_deletes_the_next_lease_of_its_value(host: Host, other: Host):
    """It names the try (rule 4)."""
    mine = locked(host)
    host.slow()
    told = release(host)
    assert len(host.asked(Release)) == 1
    assert released(other).code == "done"
    theirs = locked(other)
    host.answer_all()
    assert told.code == "EXPIRED"
    assert other.shown() == [theirs.held.nonce] * 5 != [mine.held.nonce] * 5


def test_what_is_given_back_of_a_failed_try_leaves_the_lease_of_its_value(host: Host, other: Host):
    mine = locked(host)
    assert locked(other).code == "TAKEN"
    other.pass_ms(300)
    assert host.shown() == [mine.held.nonce] * 5


def test_what_this_host_keeps_is_not_handed_to_a_value(host: Host):
    """The masters show no value under another's tenure, so no other agent could release it."""
    for _ in range(3):
        kept = host.locked(keep_ms=1_000)
        host.unlocked(kept)
    assert host.shown() == [kept.held.nonce] * 5
    app = locked_without_ttl(host)
    assert app.held.nonce != kept.held.nonce
    assert released(beside(host)).code == "done"


def test_what_is_in_use_is_not_handed_to_a_value(host: Host, app: App, other: Host):
    waiter = host.lock(**wanted(detached=False, wait_ms=60_000))
    host.unlocked(app)
    host.pass_ms(1)
    assert waiter.held.nonce != app.held.nonce
    assert released(other).code == "done"


# Who may release it


@EITHER
def test_any_agent_releases_it_by_its_value(host: Host, other: Host, lock):
    lock(host)
    assert released(other).code == "done"
    assert lock(other).code == "granted"


@EITHER
@pytest.mark.parametrize(("here", "code"), [(True, "EXPIRED"), (False, "NOTHELD")])
def test_of_two_that_release_it_at_once_one_is_told_that_it_has(
    host: Host, other: Host, lock, here: bool, code: str
):
    """The first one's release is under way to two masters, where the second finds it still. It may come
    through the agent that granted it, or one that does not know of it."""
    lock(host)
    second = host if here else beside(host)
    second.slow()
    other.slow(3, 4)
    assert released(other).code == "done"
    told = release(second)
    second.answer(3, 4, 0, 1)
    assert not told.came
    second.answer(2)
    assert told.code == code


@EITHER
def test_its_own_agent_releases_it_by_its_value(host: Host, lock):
    lock(host)
    assert released(host).code == "done"
    assert host.shown() == [None] * 5
    host.pass_ms(300)
    assert host.at_rest()


@EITHER
@pytest.mark.parametrize("value", [b"", b"worker 8", b"worker 7 ", b"w", VALUE + bytes(1), token_of(VALUE)])
def test_nobody_releases_it_by_another_value(host: Host, other: Host, lock, value: bytes):
    app = lock(host)
    for agent in (host, other):
        assert released(agent, value).code == "NOTHELD"
    assert host.shown() == [app.held.nonce] * 5


def test_the_masters_show_the_value_also_where_others_wait_in_line(host: Host, other: Host):
    """What others wait for will be handed on, and shows no token then; any agent may be asked for a value."""
    theirs = other.locked(detached=True)
    mine = ask(host, detached=False, wait_ms=60_000)
    waiter = host.lock(wait_ms=60_000)
    host.fleet.settle()
    other.unlocked(theirs)
    host.pass_ms(1)
    assert (mine.code, waiter.code) == ("granted", "")
    assert released(other).code == "done"


def test_the_value_is_shown_no_more_once_its_tenure_is_handed_on(host: Host, other: Host):
    mine = locked_without_ttl(host)
    waiter = host.lock(wait_ms=60_000)
    assert released(host).code == "done"
    assert waiter.held.nonce == mine.held.nonce
    assert released(other).code == "NOTHELD"


def test_what_was_released_elsewhere_is_no_matter_for_who_locks_here_with_the_same_value(
    host: Host, other: Host
):
    first = locked(host)
    released(other)
    second = locked(host)
    assert released(host).code == "done"
    assert host.shown() == [None] * 5
    assert (first.ends != [], second.ends != []) == (True, True)


def test_the_same_where_the_one_before_had_a_ttl_and_this_one_has_none(host: Host, other: Host):
    """A constant as the value, say. What a quorum has granted is no quorum's word for the one before."""
    locked(host, ttl_ms=60_000)
    released(other)
    app = locked_without_ttl(host)
    assert ttl_set(host, 30_000).code == "done"
    assert released(host).code == "done"
    assert (host.shown(), app.ends != []) == ([None] * 5, True)


# Its own agent hears of a release elsewhere


@pytest.mark.parametrize("rested_ms", [1, 500])
def test_what_was_released_elsewhere_is_free_here_at_once_and_no_loss(
    host: Host, other: Host, rested_ms: int
):
    """On its own host too, where it was taken for held."""
    app = locked_without_ttl(host)
    host.pass_ms(rested_ms)
    assert released(other).code == "done"
    host.pass_ms(1)
    assert locked_without_ttl(host, b"worker 8").code == "granted"
    assert [reason for _, reason in app.losses] == ["it was released through another agent"]
    assert app.held.deadline_ns < host.time.now_ns
    assert host.watched.count("released", "released elsewhere") == len(app.ends) == 1
    assert host.watched.count("lost", app.held.token) == 0


def test_who_waits_here_gets_what_was_released_elsewhere(host: Host, other: Host):
    locked_without_ttl(host)
    waiter = host.lock(wait_ms=60_000)
    host.pass_ms(500)
    released(other)
    host.pass_ms(1)
    assert waiter.code == "granted"


def test_what_a_release_elsewhere_did_not_reach_is_given_back_by_its_own_agent(host: Host, other: Host):
    app = locked_without_ttl(host)
    host.pass_ms(500)
    other.break_off(4)
    assert released(other).code == "done"
    assert host.shown() == [None] * 4 + [app.held.nonce]
    host.pass_ms(1)
    assert host.shown() == [None] * 5


def test_that_it_was_released_is_believed_only_when_the_masters_have_it_no_more(host: Host):
    """A notice may be wrong, or of one master alone."""
    app = locked_without_ttl(host)
    host.pass_ms(500)
    host.locks.noticed(0, Notice(Kind.RELEASED, app.held.nonce, b"r"), host.time.now_ns)
    host.pass_ms(1_000)
    assert len(host.asked(Extension)) == 1
    assert host.shown() == [app.held.nonce] * 5
    assert (locked(host, b"worker 8").code, app.losses) == ("TAKEN", [])


def test_what_was_not_given_back_but_is_gone_is_kept_from_others_here_while_it_may_be_believed_in(host: Host):
    app = locked_without_ttl(host)
    host.pass_ms(500)
    host.forget()
    host.pass_until(app.held.promised_ns - 1 * MS)
    assert host.watched.count("lost", app.held.token) == 1
    assert locked(host, b"worker 8").code == "TAKEN"
    host.pass_ms(2)
    assert locked(host, b"worker 8").code == "granted"


def test_a_release_that_lands_behind_the_proof_that_it_led_to_is_seen_at_once(host: Host, other: Host):
    """It comes to one master after the other, and the first that says so has its agent ask all. The notices
    of the last get lost."""
    locked_without_ttl(host)
    host.pass_ms(500)
    for master in host.fleet.masters[3:]:
        master.notifies.clear()
    other.slow()
    release(other)
    other.fleet.arrive(0)
    host.answer(0)
    host.slow()
    host.locks.turns.run(host.time.now_ns)
    assert len(host.asked(Extension)) == 1
    host.time.now_ns += 1 * MS
    for master in (1, 2, 3):
        host.fleet.arrive(master)
        other.fleet.arrive(master)
        host.answer(master)
    other.answer_all()
    host.answer_all()
    assert [extension.agreed for extension in host.asked(Extension)] == [True]
    host.pass_ms(1)
    assert locked(host, b"worker 8").code == "granted"


def test_what_was_taken_over_and_is_not_proven_its_new_agent_does_not_give_back(host: Host, other: Host):
    """What masters are left with may be another's word by now (rule 13)."""
    app = locked_without_ttl(host)
    agent = host.next_agent()
    other.break_off(3, 4)
    assert released(other).code == "done"
    agent.pass_ms(1)
    assert [reason for _, reason in agent.heir.losses] != []
    assert (agent.shown()[:3], None in agent.shown()[3:]) == ([None] * 3, False)
    assert app.held.token == agent.heir.value


def test_what_has_a_ttl_and_was_released_elsewhere_is_no_loss_either(host: Host, other: Host):
    app = locked(host)
    host.pass_ms(500)
    released(other)
    host.pass_ms(1)
    assert ttl_set(host, 30_000).code == "NOTHELD"
    assert host.watched.count("released", "released elsewhere") == len(app.ends) == 1
    assert host.watched.count("lost", app.held.token) == 0


@pytest.mark.parametrize("ask", [released, lambda host: ttl_set(host, 30_000)], ids=["release", "ttl"])
def test_who_has_the_same_value_elsewhere_is_found_by_it_behind_a_release_there(host: Host, other: Host, ask):
    """Either may release it, as in Redis (rule 4)."""
    locked(host)
    released(other)
    locked(other)
    host.pass_ms(1)
    assert ask(host).code == "done"


def test_what_is_said_late_of_a_value_is_not_said_of_who_was_handed_its_tenure(host: Host):
    """That is a LOCK, whose app was told a deadline (rule 12)."""
    first = locked_without_ttl(host)
    app = host.lock(wait_ms=60_000)
    released(host)
    host.pass_ms(500)
    host.locks.noticed(0, Notice(Kind.RELEASED, first.held.nonce, b"r"), host.time.now_ns)
    host.forget()
    host.pass_ms(1)
    assert host.watched.count("lost", app.held.token) == len(app.losses) == 1
    assert host.locked().code == "TAKEN"


# A release names a lease, and no request


@EITHER
def test_the_same_value_may_lock_again_at_once(host: Host, lock):
    for _ in range(3):
        assert lock(host).code == "granted"
        assert released(host).code == "done"
        assert released(host).code == "NOTHELD"


def test_a_release_that_comes_before_its_lock_is_not_remembered(host: Host):
    assert released(host).code == "NOTHELD"
    assert locked(host).code == "granted"


def test_nothing_of_a_value_is_kept_by_its_agent_when_it_is_released(host: Host):
    """Masters would show others that it is held."""
    for _ in range(3):
        locked_without_ttl(host, keep_ms=10_000)
        assert released(host).code == "done"
        assert host.shown() == [None] * 5


def test_who_polls_is_not_refused_for_what_masters_said_before_he_saw_that_it_is_free(
    host: Host, other: Host
):
    locked(other)
    assert locked(host, b"worker 8").code == "TAKEN"
    released(other)
    assert locked(host, b"worker 8").code == "TAKEN"
    host.locks.seems_free(b"r")
    assert locked(host, b"worker 8").code == "granted"


def test_nothing_of_a_release_is_remembered_for_anybody(host: Host, other: Host):
    for _ in range(3):
        locked(other)
        assert released(host).code == "done"
        assert host.shown() == [None] * 5
    assert not host.locks.knows_request(0, b"r", token_of(VALUE), host.time.now_ns)


def test_a_release_does_not_withdraw_a_lock_that_waits_with_that_token(host: Host, other: Host):
    theirs = other.locked(detached=True)
    waiter = host.lock(value=VALUE, named=True, wait_ms=60_000)
    assert released(host).code == "NOTHELD"
    assert waiter.code == ""
    other.unlocked(theirs)
    host.pass_ms(10)
    assert waiter.code == "granted"


@pytest.mark.parametrize("detached", [False, True])
def test_a_release_does_not_touch_what_was_locked_with_that_token(host: Host, other: Host, detached: bool):
    app = host.locked(value=VALUE, named=True, detached=detached)
    for agent in (host, other):
        assert released(agent).code == "NOTHELD"
        assert ttl_set(agent, 1_000).code == "NOTHELD"
    assert host.shown() == [app.held.nonce] * 5
    assert host.unlocked(app).code == "done"


# Another TTL


def test_a_ttl_is_extended_here(host: Host):
    app = locked(host, ttl_ms=1_000)
    assert ttl_set(host, 30_000).extended.deadline_ns == app.held.deadline_ns
    host.pass_ms(29_000)
    assert left_ms(host) == [1_000] * 5
    assert app.losses == []


def test_a_ttl_is_extended_through_another_agent(host: Host, other: Host):
    locked(host, ttl_ms=1_000)
    assert ttl_set(other, 30_000).code == "done"
    host.pass_ms(29_000)
    assert left_ms(host) == [1_000] * 5


def test_one_with_a_shorter_ttl_is_given_back_at_that_time(host: Host, other: Host):
    locked(host, ttl_ms=30_000)
    told = ttl_set(host, 2_000)
    assert told.extended.deadline_ns == host.time.now_ns + 2_000 * MS
    host.pass_ms(1_999)
    assert left_ms(host) == [28_001] * 5
    host.pass_ms(2)
    assert host.shown() == [None] * 5
    assert locked(other).held
    assert host.watched.count("released", "expired") == 1
    host.pass_ms(300)
    assert host.at_rest()


@pytest.mark.parametrize("ttl_ms", [28_500, 29_500])
def test_a_ttl_that_is_shorter_by_what_is_rounded_changes_nothing(host: Host, ttl_ms: int):
    """Those are a second less than what is left at most: some libraries count in seconds."""
    app = locked(host, ttl_ms=29_499)
    assert ttl_set(host, ttl_ms).code == "done"
    host.pass_ms(29_000)
    assert host.shown() == [app.held.nonce] * 5


@pytest.mark.parametrize("longer_ms", [4_000, 30_000, 60_000])
def test_of_a_shorter_ttl_and_a_longer_one_the_later_counts(host: Host, longer_ms: int):
    app = locked(host, ttl_ms=30_000)
    assert ttl_set(host, 2_000).code == "done"
    assert ttl_set(host, longer_ms).code == "done"
    host.pass_ms(longer_ms - 1_000)
    assert host.shown() == [app.held.nonce] * 5
    host.pass_ms(1_001)
    assert host.shown() == [None] * 5


def test_what_another_agent_has_extended_is_not_shortened(host: Host, other: Host):
    """Its app relies on what it was told there (rule 2)."""
    app = locked(host, ttl_ms=30_000)
    assert ttl_set(other, 20_000).code == "done"
    assert ttl_set(host, 500).code == "ERR"
    host.pass_ms(29_000)
    assert host.shown() == [app.held.nonce] * 5


def test_what_another_agent_extends_after_that_is_not_given_back(host: Host, other: Host):
    """Even by less than the masters had it for in any case (rule 2)."""
    app = locked(host, ttl_ms=30_000)
    assert ttl_set(host, 2_000).code == "done"
    host.pass_ms(1_000)
    assert ttl_set(other, 20_000).code == "done"
    host.pass_ms(20_000)
    assert host.shown() == [app.held.nonce] * 5
    host.pass_ms(9_001)
    assert host.shown() == [None] * 5


def test_an_extension_elsewhere_that_comes_in_the_middle_is_kept_or_refused(host: Host, other: Host):
    """On masters that have given it back it is gone, on the others it stays: a quorum has either (rule 2)."""
    app = locked(host, ttl_ms=30_000)
    assert ttl_set(host, 2_000).code == "done"
    host.pass_ms(1_000)
    other.slow()
    told = Answer()
    other.locks.set_ttl(b"r", VALUE, 20_000, told, host.time.now_ns)
    for master in range(3):
        other.answer(master)
    assert told.code == "done"
    host.pass_ms(1_001)
    assert host.shown() == [*[app.held.nonce] * 3, None, None]


def test_only_the_agent_that_granted_it_shortens_it(host: Host, other: Host):
    app = locked(host, ttl_ms=30_000)
    assert ttl_set(other, 500).code == "done"  # server/dropin looks how long it lasts
    host.pass_ms(29_000)
    assert host.shown() == [app.held.nonce] * 5


@EITHER
def test_a_new_ttl_for_another_value_is_none(host: Host, other: Host, lock):
    app = lock(host)
    for agent in (host, other):
        assert ttl_set(agent, 500, b"worker 8").code == "NOTHELD"
    host.pass_ms(5_000)
    assert host.shown() == [app.held.nonce] * 5


def test_one_that_has_run_out_gets_no_new_ttl(host: Host):
    app = locked(host, ttl_ms=1_000)
    host.pass_ms(1_001)
    assert ttl_set(host, 1_000).code == "NOTHELD"
    assert app.losses == []


@pytest.mark.parametrize("dies", [False, True])
def test_one_without_a_ttl_is_kept_until_it_whatever_becomes_of_its_process(host: Host, dies: bool):
    app = locked_without_ttl(host, ttl_ms=2_000)
    told = ttl_set(host, 9_000)
    assert told.extended.deadline_ns == app.held.deadline_ns
    if dies:
        host.app_dies(app)
    host.pass_ms(8_990)
    assert host.shown() == [app.held.nonce] * 5
    host.pass_ms(20)
    assert host.shown() == [None] * 5
    assert host.watched.count("released", "expired") == 1
    host.pass_ms(300)
    assert host.at_rest()


def test_that_may_be_a_ttl_below_what_is_left(host: Host):
    locked_without_ttl(host)
    assert ttl_set(host, 500).extended.deadline_ns == host.time.now_ns + 500 * MS
    host.pass_ms(501)
    assert host.shown() == [None] * 5


@EITHER
def test_a_ttl_below_what_is_left_is_set_only_where_the_masters_still_have_it(host: Host, lock):
    """Another agent may have released it, and the notice of that be lost."""
    app = lock(host)
    assert ttl_set(host, 5_000).code == "done"
    host.forget()
    assert ttl_set(host, 5_000).code == "EXPIRED"
    assert app.losses


@EITHER
def test_what_the_masters_say_to_that_makes_it_no_longer_and_no_shorter(host: Host, lock):
    lock(host)
    host.pass_ms(500)
    before = left_ms(host)
    told = ttl_set(host, 5_000)
    assert (told.code, left_ms(host)) == ("done", before)
    assert len(host.asked(Extension)) == 1
    host.pass_ms(4_999)
    assert host.shown() != [None] * 5


@EITHER
def test_the_masters_may_take_as_long_to_say_so_as_for_anything(host: Host, lock):
    lock(host)
    host.pass_ms(500)
    host.slow()
    answer = ttl_set(host, 20)
    host.pass_ms(200, answering=False)
    host.answer_all()
    assert answer.code == "done"


@EITHER
def test_a_ttl_below_what_is_left_is_not_set_while_the_masters_are_away(host: Host, lock):
    lock(host)
    host.pass_ms(500)
    host.slow(0, 1, 2)
    answer = ttl_set(host, 5_000)
    host.pass_ms(300)
    assert answer.code == "NOQUORUM"


def test_a_lost_lease_gets_no_ttl_though_that_would_end_before_it(host: Host):
    app = locked_without_ttl(host)
    host.locks.cut_off(app.held, "its connection was closed", host.time.now_ns)
    assert ttl_set(host, 500).code == "EXPIRED"
    assert (app.held.let_go_ns, app.held.ends_early) == (None, False)


def test_it_is_never_kept_past_its_max_hold(host: Host):
    app = locked_without_ttl(host, ttl_ms=2_000, max_hold_ms=5_000)
    assert ttl_set(host, 60_000).code == "done"
    host.pass_ms(4_800)
    assert host.shown() == [app.held.nonce] * 5
    host.pass_ms(201)
    assert host.shown() == [None] * 5


def test_one_with_a_ttl_is_not_extended_past_its_max_hold(host: Host, other: Host):
    locked(host, ttl_ms=2_000, max_hold_ms=5_000)
    until_ns = host.time.now_ns + 5_000 * MS
    for agent in (host, other):
        assert ttl_set(agent, 60_000).extended.deadline_ns <= until_ns
    host.pass_ms(5_100)
    assert host.shown() == [None] * 5


def test_without_one_another_agent_gives_it_none(host: Host, other: Host):
    """Its own agent renews it: nobody else knows for how long."""
    app = locked_without_ttl(host)
    assert ttl_set(other, 1_000).code == "EXPIRED"
    host.pass_ms(60_000)
    assert host.shown() == [app.held.nonce] * 5


def test_what_persists_lives_with_its_process_again(host: Host):
    app = locked_without_ttl(host, ttl_ms=2_000)
    ttl_set(host, 3_000)
    persisted(host, app)
    host.pass_ms(10_000)
    assert host.shown() == [app.held.nonce] * 5
    host.app_dies(app)
    host.fleet.settle()
    assert host.shown() == [None] * 5


def test_it_persists_only_where_the_masters_still_have_it(host: Host):
    app = locked_without_ttl(host)
    ttl_set(host, 5_000)
    host.pass_ms(500)
    host.forget()
    assert persisted(host, app).code == "EXPIRED"
    assert app.held.ends_early


def test_what_persists_is_noted_for_the_next_agent(host: Host):
    """Its process is dead by then."""
    app = locked_without_ttl(host)
    ttl_set(host, 9_000)
    persisted(host, app)
    agent = host.next_agent(Seen.DEAD)
    agent.pass_ms(1)
    assert agent.shown() == [None] * 5


def test_one_with_a_ttl_that_is_lost_is_kept_from_others_as_long_though_its_process_dies(host: Host):
    """As a lock with a TTL on one Redis is: that its process ends says nothing of what it was locked for."""
    app = locked_without_ttl(host)
    ttl_set(host, 9_000)
    host.locks.cut_off(app.held, "its connection was closed", host.time.now_ns)
    host.app_dies(app)
    host.pass_ms(8_990)
    assert host.shown() == [app.held.nonce] * 5
    host.pass_ms(20)
    assert host.shown() == [None] * 5


def test_one_that_is_waited_for_goes_to_the_next_when_its_ttl_is_over(host: Host):
    locked_without_ttl(host)
    waiter = host.lock(wait_ms=60_000)
    ttl_set(host, 500)
    host.pass_ms(499)
    assert waiter.code == ""
    host.pass_ms(50)
    assert waiter.code == "granted"


# What is held


@EITHER
def test_what_is_held_of_a_resource_is_found(host: Host, lock):
    app = lock(host)
    assert host.locks.held_of(b"r", host.time.now_ns) == [app.held]
    assert host.locks.held_of(b"other", host.time.now_ns) == []
    released(host)
    assert host.locks.held_of(b"r", host.time.now_ns) == []


def test_of_those_that_others_may_have_released_each_is_found_while_it_lasts(host: Host, other: Host):
    values = (b"1", b"2", b"3")
    apps = []
    for value in values:
        apps.append(locked(host, value))
        host.time.now_ns += 1_000 * MS
        released(other, value)
    assert host.locks.held_of(b"r", host.time.now_ns) == [app.held for app in apps]
    assert [host.locks.detached_with(b"r", app.held.nonce) for app in apps] == [app.held for app in apps]
    assert host.locks.detached_with(b"r", fresh_token()) is None
    assert released(host, b"2").code == "NOTHELD"
    assert host.locks.held_of(b"r", host.time.now_ns) == [apps[0].held, apps[2].held]
    host.time.now_ns = apps[0].held.deadline_ns
    assert host.locks.held_of(b"r", host.time.now_ns) == [apps[2].held]


def test_nothing_of_them_is_left_when_they_are_over(host: Host, other: Host):
    for value in (b"1", b"2", b"3"):
        locked(host, value)
        released(other, value)
    host.pass_ms(11_000)
    assert host.locks.held_of(b"r", host.time.now_ns) == []
    assert host.locks._returns._detached_of == {}
    assert host.at_rest()


def test_an_operator_takes_one_with_a_value_from_its_holder(host: Host):
    app, elsewhere = locked(host), locked(host, resource=b"other")
    host.locks.take_away(b"r", {app.held.nonce}, "force", host.time.now_ns)
    assert [reason for _, reason in app.losses] == ["force"]
    assert elsewhere.losses == []
    assert host.locks.fences_of(b"other", {elsewhere.held.nonce}) == {elsewhere.held.fence}


# The next agent


def test_the_next_agent_goes_on_with_one_without_a_ttl(host: Host, other: Host):
    locked_without_ttl(host)
    agent = host.next_agent()
    agent.fleet.settle()
    assert agent.heir.value == token_of(VALUE)
    assert released(other).code == "done"


@pytest.mark.parametrize("seen", [Seen.ALIVE, Seen.DEAD])
def test_the_next_agent_keeps_what_was_given_a_ttl_until_then(host: Host, seen: Seen):
    locked_without_ttl(host, ttl_ms=2_000)
    ttl_set(host, 9_000)
    agent = host.next_agent(seen)
    agent.pass_ms(1_000)
    if seen is Seen.ALIVE:
        agent.locks.holder_gone(agent.lease, agent.time.now_ns)
    agent.pass_ms(7_900)
    assert agent.shown() == [agent.lease.nonce] * 5
    agent.pass_ms(200)
    assert agent.shown() == [None] * 5


def test_a_stale_journal_does_not_end_what_was_given_a_ttl_when_it_was_written(host: Host):
    """It may have none since, under the same nonce: what could not be proven is not released (rule 13)."""
    app = locked_without_ttl(host)
    ttl_set(host, 2_000)
    old = host.journal
    persisted(host, app)
    agent = Successor(host, Seen.UNKNOWN, old)
    assert agent.did is Taken.LEFT
    for _ in range(20):
        host.pass_ms(1_000)
        agent.pass_ms(0)
    assert agent.locks.held == 0
    assert agent.shown() == [app.held.nonce] * 5


def test_who_gives_it_a_ttl_or_none_has_named_it(host: Host):
    """As who extends it has (rule 13): the next agent knows that it is wanted."""
    locked_without_ttl(host, reads=False, ttl_ms=2_000)
    agent = host.next_agent()
    agent.fleet.settle()
    assert ttl_set(agent, 9_000).code == "done"
    agent.pass_ms(8_900)
    assert agent.shown() == [agent.lease.nonce] * 5


def test_who_has_it_persist_has_named_it(host: Host):
    app = locked_without_ttl(host, reads=False)
    ttl_set(host, 9_000)
    app.held.told = False
    persisted(host, app)
    assert app.held.told


def test_what_waits_for_the_network_is_one_try_alone(host: Host):
    """A value lock with a TTL is on the masters as it is: no renewal follows, and no release but one."""
    locked(host, ttl_ms=2_000)
    host.pass_ms(3_000)
    assert [type(ballot) for ballot in host.fleet.asked] == [Attempt]


# A try whose app has gone


@pytest.mark.parametrize("detached", [True, False])
def test_a_try_whose_app_has_gone_goes_on(host: Host, detached: bool) -> None:
    """By its value it may have been found meanwhile, and extended, by who has given up the connection."""
    host.slow()
    app = ask(host, detached=detached)
    assert not host.locks.gone(app, host.time.now_ns)
    host.answer_all()
    assert app.code == "granted"
    assert host.shown() == [app.held.nonce] * 5


def test_who_waits_in_line_behind_such_a_try_is_dropped_when_he_goes(host: Host) -> None:
    host.slow()
    ask(host)
    second = ask(host, b"another")
    assert host.locks.gone(second, host.time.now_ns)


def test_what_is_given_back_by_its_value_while_it_is_tried_for_is_tried_for_no_more(host: Host) -> None:
    """As libraries do whose time is up. While its app is there it is another's that is meant."""
    host.slow()
    app = ask(host)
    release(host)
    assert not app.code
    host.locks.gone(app, host.time.now_ns)
    release(host, b"another")
    assert not app.code
    release(host)
    assert app.code == "NOTHELD"
    host.answer_all()
    host.pass_ms(3_000)
    assert (host.shown(), host.at_rest()) == ([None] * 5, True)


def test_what_is_still_tried_for_is_not_extended(host: Host) -> None:
    """It may come to nothing yet: nobody is told that he has it."""
    host.slow()
    app = ask(host)
    assert ttl_set(host, 20_000).code == "NOTHELD"
    assert host.locks.tried_by(b"r", VALUE) == app.owner
    host.answer_all()
    assert host.locks.tried_by(b"r", VALUE) == b""
    assert ttl_set(host, 20_000).code == "done"
