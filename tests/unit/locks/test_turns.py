"""Hosts take turns: while others wait, a host hands on for a while only, and gives its tenure back."""

import pytest

from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.extension import Extension
from lockd.core.ballots.release import How, Release
from lockd.core.leases import TURN_GRANTS
from lockd.core.notices import Kind, Notice, read
from tests.harness.ballots import NONCE
from tests.harness.clocks import MS
from tests.harness.fleet_model import App, Host, Time, beside, cluster, masters_of
from tests.harness.script_model import PLACES, Key, Store

GRACE_MS = 250
"""Of a host that has no measure of how long tries take, or a slow one."""


def in_line(host: Host, apps: int) -> list[App]:
    """So many that wait for `r`, of which the first has it, and the masters show nobody's token."""
    first = host.locked()
    line = [host.lock(wait_ms=60_000) for _ in range(apps)]
    host.unlocked(first)
    return line


def recall(host: Host, app: App) -> None:
    host.locks.recalled(app.resource, app.held.nonce, host.time.now_ns)


def test_until_its_turn_is_over_a_host_hands_on_and_then_gives_back():
    host = cluster()
    first, second, third = in_line(host, 3)
    recall(host, first)
    host.time.now_ns += 9 * MS
    host.unlock(first)
    assert second.held.nonce == first.held.nonce
    host.time.now_ns += 1 * MS
    host.unlock(second)
    assert (third.code, len(host.asked(Release))) == ("", 1)
    host.pass_ms(1)
    assert third.held.nonce != first.held.nonce, "it has tried like everybody else"


def test_a_turn_begins_with_the_first_recall_however_often_it_is_said():
    host = cluster()
    first, second = in_line(host, 2)
    for _ in range(3):
        recall(host, first)
        host.time.now_ns += 4 * MS
    host.unlock(first)
    host.pass_ms(1)
    assert second.held.nonce != first.held.nonce


def test_in_its_turn_a_host_gives_so_many_leases_at_most():
    host = cluster()
    line = in_line(host, TURN_GRANTS + 2)
    recall(host, line[0])
    for app in line[:-1]:
        host.unlocked(app)
    host.pass_ms(1)
    assert len({app.held.nonce for app in line[:-1]}) == 1
    assert line[-1].held.nonce != line[0].held.nonce


def test_a_host_that_hears_no_recall_gives_back_after_a_while_all_the_same():
    """Each may be lost, and all are where an agent may not hear notices."""
    host = cluster()
    for master in host.fleet.masters:
        master.notifies.clear()
    other = beside(host)
    line = in_line(host, 80)
    began_ns = host.time.now_ns
    waiting = other.locked(wait_ms=60_000)
    for app in line:
        pass_ms(20, other)
        host.unlocked(app)
        other.fleet.settle()
        other.pass_ms(1)
        if waiting.code:
            break
    assert waiting.code == "granted"
    assert 1_000 * MS <= waiting.answered_ns - began_ns <= 1_100 * MS


def test_a_recall_of_another_tenure_means_nothing():
    host = cluster()
    first, second = in_line(host, 2)
    host.locks.recalled(b"r", b"f" * 32, host.time.now_ns)
    host.locks.recalled(b"another", first.held.nonce, host.time.now_ns)
    host.time.now_ns += 50 * MS
    host.unlock(first)
    assert second.held.nonce == first.held.nonce


# Places, and who is told


@pytest.fixture
def hosts() -> list[Host]:
    """Three of them over the same masters; the first has `r`, and the others wait for it since then, one
    after the other."""
    first = cluster()
    all_three = [first, beside(first), beside(first)]
    all_three[0].holding = first.locked()
    for host in all_three[1:]:
        first.time.now_ns += 20 * MS
        host.waiting = host.lock(wait_ms=60_000)
        host.fleet.settle()
    return all_three


def pass_ms(ms: float, *hosts: Host) -> None:
    """On all of them, a millisecond at a time: time is one."""
    began_ns = hosts[0].time.now_ns
    for step in range(int(ms) + 1):
        for host in hosts:
            host.pass_until(began_ns + step * MS)


def reserved_for(host: Host) -> set[bytes | None]:
    return {None if key is None else key.reserved for key in keys(host)}


def keys(host: Host) -> list[Key | None]:
    return [master.store.lease(b"r", master.now_us) for master in host.fleet.masters]


def place_of(host: Host) -> bytes:
    return host.asked(Attempt)[-1].place


def test_who_waits_for_the_longest_is_told_and_gets_it(hosts: list[Host]):
    one, two, three = hosts
    one.unlocked(one.holding)
    assert reserved_for(one) == {place_of(two)}
    three.pass_ms(1)
    two.pass_ms(1)
    assert (two.waiting.code, three.waiting.code) == ("granted", "")


def test_how_long_a_host_waits_counts_and_not_what_its_clock_shows_nor_when_it_asked_last(hosts: list[Host]):
    one, two, three = hosts
    for master in one.fleet.masters:
        master.store.lines.clear()
    two.locks.wall_ahead_ns += 600_000 * MS
    for host in (three, two):  # each once more, the younger one first
        host.pass_ms(500)
    one.unlocked(one.holding)
    assert reserved_for(one) == {place_of(two)}


def test_hosts_that_go_round_seldom_try_in_vain(hosts: list[Host]):
    app, turns = hosts[0].holding, 30
    waiting = {host: host.waiting for host in hosts[1:]}
    tried_before = sum(tries_in_vain(host) for host in hosts)
    pass_ms(1, *hosts)
    for turn in range(turns):
        host = hosts[turn % 3]
        host.unlock(app)
        waiting[host] = host.lock(wait_ms=60_000)
        pass_ms(2, *hosts)
        app = waiting.pop(hosts[(turn + 1) % 3])
        assert app.code == "granted", turn
    # At most one by who has just had it, for his place.
    assert sum(tries_in_vain(host) for host in hosts) - tried_before <= turns


def tries_in_vain(host: Host) -> int:
    return sum(event[0] == "tried in vain" for event in host.watched.events)


def test_what_is_reserved_is_refused_to_others_and_not_said_to_be_taken(hosts: list[Host]):
    one = hosts[0]
    one.unlocked(one.holding)
    assert beside(one).locked().code == "TIMEOUT"


def test_a_reservation_is_waited_for_until_its_grace_ends_whatever_else_is_shown_beside_it(hosts: list[Host]):
    """A release that has not come everywhere yet, and a try that has not either: no quorum shows one lease,
    and each may last for ten seconds."""
    one, two, _ = hosts
    one.slow(3, 4)
    one.unlocked(one.holding)
    two.fleet.settle()
    two.slow()
    two.pass_ms(1, answering=False)
    for master in (1, 2):
        two.fleet.arrive(master)
    host = beside(one)
    host.slow()
    host.lock()
    waiting = host.lock(wait_ms=60_000)
    host.answer_all()
    host.pass_ms(1)
    assert (reserved_for(one), waiting.code) == ({place_of(two), None}, "")
    [queue] = host.locks.queues.values()
    assert queue.rest is not None
    assert queue.rest_until_ns <= host.time.now_ns + (GRACE_MS + 10) * MS


def test_who_waits_has_a_place_at_once_also_behind_a_try_of_one_who_does_not(hosts: list[Host]):
    """That try left none: the other hosts would have turn after turn until the grace ends that it met."""
    one = hosts[0]
    host = beside(one)
    one.unlocked(one.holding)
    host.slow()
    host.lock()
    host.lock(wait_ms=60_000)
    host.answer_all()
    host.pass_ms(0)
    assert [not attempt.asks for attempt in host.asked(Attempt)] == [False, True]
    assert all(place_of(host) in master.store.lines[b"r"].places for master in host.fleet.masters)


def in_lines(host: Host) -> list[list[bytes]]:
    """Who waits on each master, the oldest first."""
    lines = (master.store.line(b"r", master.now_us).places for master in host.fleet.masters)
    return [sorted(line, key=lambda place: line[place].began_us) for line in lines]


def test_a_try_that_fails_leaves_its_host_its_place_where_it_got_votes(hosts: list[Host]):
    """Else that master would call up another host than the others do, and what comes of that is the next try
    in vain."""
    one, two, three = hosts
    one.forget(0, 1)
    two.pass_ms(500)
    assert two.asked(Attempt)[-1].landed == 0b11
    two.fleet.settle()
    assert in_lines(one) == 5 * [[place_of(two), place_of(three)]]


def test_after_its_turn_a_host_is_the_last_also_where_it_was_refused(hosts: list[Host]):
    one, two, three = hosts
    behind = two.lock(wait_ms=60_000)
    for master in one.fleet.masters[:2]:
        master.store.leases[b"r"] = Key(b"reserved " + place_of(three), master.now_us // 1_000 + GRACE_MS)
    one.unlocked(one.holding)
    two.pass_ms(1)
    three.fleet.settle()
    assert two.waiting.code == "granted"
    two.time.now_ns += 10 * MS
    two.unlock(two.waiting)
    two.fleet.settle()
    assert behind.code == ""
    assert [line[-1] for line in in_lines(one)] == 5 * [place_of(two)]
    three.pass_ms(1)
    three.unlocked(three.waiting)
    assert reserved_for(one) == {place_of(two)}


def test_a_dead_first_costs_one_grace(hosts: list[Host]):
    one, two, three = hosts
    two.break_off()
    one.unlocked(one.holding)
    assert reserved_for(one) == {place_of(two)}
    three.pass_ms(GRACE_MS - 1)
    assert three.waiting.code == ""
    three.pass_ms(GRACE_MS)
    assert three.waiting.code == "granted"


def test_who_is_told_and_wants_nothing_any_more_passes_it_on(hosts: list[Host]):
    one, two, three = hosts
    two.app_dies(two.waiting)
    one.unlocked(one.holding)
    two.fleet.settle()
    assert reserved_for(one) == {place_of(three)}
    three.pass_ms(1)
    assert three.waiting.code == "granted"


def test_a_place_that_nobody_renews_is_forgotten(hosts: list[Host]):
    one, two, three = hosts
    two.break_off()
    three.pass_ms(4_100)
    one.time.now_ns = three.time.now_ns
    one.unlocked(one.holding)
    assert reserved_for(one) == {place_of(three)}


def test_a_single_try_leaves_no_place():
    host = cluster()
    beside(host).locked()
    assert host.locked().code == "TAKEN"
    assert not any(master.store.lines for master in host.fleet.masters)


@pytest.mark.parametrize(("after_ms", "tries"), [(5, 0), (120, 1)])
def test_who_does_not_wait_is_refused_by_what_was_true_just_now_or_by_another_try(
    hosts: list[Host], after_ms: int, tries: int
):
    """Beside one who waits until he is told."""
    _, two, _ = hosts
    two.pass_ms(350)
    last_ns = two.asked(Attempt)[-1].t1_ns
    two.pass_until(last_ns + after_ms * MS)
    before = len(two.asked(Attempt))
    impatient = two.lock()
    two.pass_ms(1)
    assert (impatient.code, len(two.asked(Attempt)) - before) == ("TAKEN", tries)


def test_a_try_that_fails_gives_back_what_it_got_and_tells_nobody():
    host = cluster()
    beside(host).locked()
    host.forget(0, 1)
    host.lock(wait_ms=60_000)
    host.fleet.settle()
    assert [release.how for release in host.asked(Release)] == [How.TRY]


def test_a_try_that_got_it_and_is_not_wanted_any_more_goes_to_the_next(hosts: list[Host]):
    one, two, three = hosts
    one.unlocked(one.holding)
    two.slow()
    for master in range(5):
        two.fleet.hear(master)
    two.pass_ms(1, answering=False)
    two.app_dies(two.waiting)
    two.answer_all()
    assert reserved_for(one) == {place_of(three)}


def test_what_is_given_back_where_it_is_not_takes_nobodys_place():
    store, now_us = waiting_store(1)
    assert store.release(b"r", b"9" * 32, now_us) == 0
    store.leases.clear()
    assert store.release(b"r", NONCE, now_us) == 0
    assert (store.published, list(store.line(b"r", now_us).places)) == ([], [b"host 0"])


def test_a_release_of_a_failed_try_takes_nobodys_place():
    store, now_us = waiting_store(1)
    assert store.release(b"r", NONCE, now_us, how=How.TRY.value) == 1
    assert (store.published, store.leases, list(store.line(b"r", now_us).places)) == ([], {}, [b"host 0"])


def test_a_full_line_has_no_place_for_who_came_last():
    store, now_us = waiting_store(40)
    assert list(store.line(b"r", now_us).places) == [b"host %d" % number for number in range(PLACES)]
    waits(store, b"older", now_us, waited_us=1_000_000)
    places = store.line(b"r", now_us).places
    assert (len(places), b"older" in places, b"host 31" in places) == (PLACES, True, False)


def waiting_store(hosts: int) -> tuple[Store, int]:
    """A master on which somebody has `r`, and so many hosts wait, each a little shorter than the last."""
    master = masters_of(Time(), 1)[0]
    store, now_us = master.store, master.now_us
    assert store.electorate is not None
    store.acquire(b"r", NONCE, b"0 host 1 0", 1_000, 1, 1, store.electorate, now_us)
    for number in range(hosts):
        waits(store, b"host %d" % number, now_us, waited_us=500_000 - number)
    store.published.clear()
    return store, now_us


def waits(store: Store, place: bytes, now_us: int, waited_us: int) -> None:
    assert store.electorate is not None
    store.acquire(
        b"r", b"8" * 32, b"0 host 1 0", 1_000, 1, 1, store.electorate, now_us,
        place=place, waited_us=waited_us, grace_ms=7,
    )  # fmt: skip


# Turns follow each other


def test_who_gets_it_while_others_wait_is_recalled_at_once(hosts: list[Host]):
    one, two, _ = hosts
    behind = two.lock(wait_ms=60_000)
    one.unlocked(one.holding)
    two.pass_ms(1)
    two.time.now_ns += 10 * MS
    two.unlocked(two.waiting)
    assert behind.code == ""
    assert reserved_for(one) == {place_of(hosts[2])}


def test_a_host_whose_turn_is_over_leaves_its_place_with_what_it_gives_back(hosts: list[Host]):
    one, two, three = hosts
    behind = one.lock(wait_ms=60_000)
    one.fleet.settle()
    one.time.now_ns += 10 * MS
    before = len(one.asked(Attempt))
    one.unlocked(one.holding)
    one.pass_ms(1)
    assert (behind.code, len(one.asked(Attempt)) - before) == ("", 0)
    for host in (two, three):
        host.pass_ms(1)
        host.unlocked(host.waiting)
    one.pass_ms(1)
    assert behind.code == "granted"


@pytest.mark.parametrize("after_ms", [0, 5])
def test_who_does_not_wait_is_answered_also_when_the_turn_ends_before_anybody_has_it_again(after_ms: int):
    """While masters are asked whether it may be handed on, everybody leaves who could wait for the next
    turn."""
    host = cluster()
    first, second = host.locked(), host.lock(wait_ms=60_000)
    passed_over = host.lock(wait_ms=60_000, ready=False)
    beside(host).locked(wait_ms=60_000)
    host.fleet.settle()
    host.slow()
    host.unlock(first)
    host.time.now_ns += after_ms * MS
    impatient = host.lock()
    host.app_dies(second)
    host.pass_ms(250 - after_ms, answering=False)
    host.quick()
    host.pass_ms(2)
    assert impatient.code == "TIMEOUT"
    host.pass_ms(1_000)
    host.becomes_ready(passed_over)
    assert passed_over.code == "granted"


def test_a_turn_that_is_over_with_the_last_wait_here_is_tried_for_no_more(hosts: list[Host]):
    one, two, _ = hosts
    behind = one.lock(wait_ms=300)
    one.fleet.settle()
    one.time.now_ns += 400 * MS
    one.unlocked(one.holding)
    one.pass_ms(1_000)
    assert behind.code == "TIMEOUT"
    assert b"r" not in one.locks.queues
    two.pass_ms(1)
    assert two.waiting.code == "granted"


def test_who_comes_next_does_not_try_when_the_first_has_taken_it(hosts: list[Host]):
    one, two, three = hosts
    one.unlocked(one.holding)
    three.fleet.settle()
    two.pass_ms(1)
    before = len(three.asked(Attempt))
    three.pass_ms(GRACE_MS + 20)
    assert len(three.asked(Attempt)) == before
    two.unlocked(two.waiting)
    three.pass_ms(1)
    assert three.waiting.code == "granted"


def test_a_host_that_gets_its_answers_quickly_takes_a_short_grace():
    host = cluster()
    for _ in range(100):
        host.unlocked(host.locked())
    other = beside(host)
    other.locked()
    host.lock(wait_ms=60_000)
    other.lock(b"another", wait_ms=60_000)
    assert [one.asked(Attempt)[-1].grace_ms for one in (host, other)] == [5, GRACE_MS]


def test_a_turn_may_begin_before_what_was_tried_for_is_granted():
    host = cluster()
    host.slow()
    first, second = (host.lock(wait_ms=60_000) for _ in range(2))
    host.locks.recalled(b"r", host.asked(Attempt)[-1].nonce, host.time.now_ns)
    host.answer_all()
    host.time.now_ns += 10 * MS
    host.unlocked(first)
    assert second.code == ""


def test_who_comes_next_tries_when_what_the_first_has_detached_ends():
    """Nobody would tell it."""
    one = cluster()
    two, three = beside(one), beside(one)
    holding = one.locked()
    first = two.lock(wait_ms=60_000, detached=True, ttl_ms=100)
    two.fleet.settle()
    one.time.now_ns += 20 * MS
    behind = three.lock(wait_ms=60_000)
    three.fleet.settle()
    one.unlocked(holding)
    three.fleet.settle()
    two.pass_ms(1)
    assert first.code == "granted"
    pass_ms(150, two, three)
    assert behind.code == "granted"


def test_what_is_proven_for_one_who_has_gone_is_given_back_at_once():
    host = cluster()
    first = host.locked()
    waiter = host.lock(wait_ms=60_000)
    host.unlocked(first)
    host.time.now_ns += 5_000 * MS
    last = host.lock(wait_ms=60_000)
    host.slow()
    host.unlock(waiter)
    assert host.asked(Release) == []
    host.app_dies(last)
    assert len(host.asked(Release)) == 1
    host.answer_all()
    assert host.shown() == [None] * 5


# What masters say may be wrong


def test_one_masters_word_makes_a_host_try_a_little_sooner_and_only_once(hosts: list[Host]):
    _, two, _ = hosts
    two.pass_ms(1)
    agent, before = place_of(two).split(b" ")[1], len(two.asked(Attempt))
    for _ in range(50):
        two.locks.noticed(3, Notice(Kind.TURN, agent, b"r"), two.time.now_ns)
        two.pass_ms(1)
    assert len(two.asked(Attempt)) - before <= 2
    assert two.waiting.code == ""


def test_a_turn_that_comes_while_no_master_votes_is_not_tried_for_over_and_over(hosts: list[Host]):
    _, two, _ = hosts
    agent, [queue] = place_of(two).split(b" ")[1], two.locks.queues.values()
    two.demote()
    for master in range(5):
        two.locks.noticed(master, Notice(Kind.TURN, agent, b"r"), two.time.now_ns)
    two.pass_ms(20)
    assert queue.tries < 10


@pytest.mark.parametrize("kind", list(Kind))
def test_a_notice_of_what_nobody_here_knows_changes_nothing(kind: Kind):
    host = cluster()
    host.locks.noticed(0, Notice(kind, b"f" * 32, b"r"), host.time.now_ns)
    assert host.at_rest()


def test_what_is_said_to_be_gone_is_handed_on_only_behind_a_proof():
    host = cluster()
    first, second, _ = in_line(host, 3)
    host.time.now_ns += 1 * MS
    host.locks.noticed(0, Notice(Kind.GONE, first.held.nonce, b"r"), host.time.now_ns)
    host.slow()
    host.unlock(first)
    assert (second.code, len(host.asked(Extension))) == ("", 2)
    host.answer_all()
    assert second.held.nonce == first.held.nonce


def test_a_holder_learns_at_once_that_its_lease_was_taken_away_elsewhere():
    host, other = cluster(), None
    app = host.locked()
    other = beside(host)
    host.pass_ms(1_000)
    for master in host.fleet.masters:
        master.store.release(b"r", app.held.nonce, master.now_us, how=How.FORCED.value)
        master.deliver()
    host.pass_ms(1)
    assert app.losses
    assert other.locked().code == "granted"


@pytest.mark.parametrize(
    "payload",
    [
        None, 7, b"", b"recall", b"turn x", b"turn x y r", b"turn x 251 r", b"turn x 7",
        b"hello " + b"f" * 32 + b" r", b"recall " + b"f" * 5_000,
    ],
)  # fmt: skip
def test_what_is_no_notice_of_ours_is_none(payload: object):
    assert read(payload) is None


def test_a_resource_may_be_of_any_bytes():
    assert read(b"turn 1a 7 a b\r\n\x00") == Notice(Kind.TURN, b"1a", b"a b\r\n\x00", 7)
    assert read(b"recall 1a  ") == Notice(Kind.RECALL, b"1a", b" ")


def test_a_turn_is_timed_from_the_first_recall_to_where_it_is_given_back():
    host = cluster()
    first, second = in_line(host, 2)
    for _ in range(3):
        recall(host, first)
        host.time.now_ns += 2 * MS
    host.unlock(first)
    host.time.now_ns += 5 * MS
    host.unlocked(second)
    assert host.watched.count("turn over", 11) == 1


def test_what_nobody_has_recalled_is_no_turn():
    host = cluster()
    line = in_line(host, 80)
    for app in line:
        host.pass_ms(20)
        host.unlocked(app)
    assert not any(event == "turn over" for event, *_ in host.watched.events)
