"""The Lua scripts by themselves, on each flavour of server: what random commands (test_script_model.py) come
to too seldom, and what the model of them has not."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from lockd.core.fences import BLOCK, COUNTER_AHEAD_US, HINT_AHEAD_US
from lockd.core.identities import Identity
from lockd.masters import scripts
from tests.redis.scripted import (
    ANOTHERS,
    ELECTORATE,
    HINT,
    IDENTITY,
    LATER,
    MAX_TTL_MS,
    MINE,
    OWNER,
    SLOT,
    Scripted,
    lease_key,
)


@pytest.fixture
def master(blank: Scripted) -> Scripted:
    """A master with an identity and nothing else."""
    assert blank.identify() == 1
    return blank


def test_servers_name_the_scripts_as_the_agent_does(blank: Scripted) -> None:
    for script in scripts.ALL:
        assert blank.redis.script_load(script.text.decode()) == script.digest.decode()


# acquire


def test_acquire_of_a_free_resource_is_granted_with_the_hint_as_its_fence(master: Scripted) -> None:
    before_us = master.now_us()
    status, fence, time_us = master.acquire(ttl_ms=50_000)
    assert (status, fence) == (1, HINT)
    assert before_us <= time_us <= master.now_us()
    assert 30_000 < master.remaining_ms() <= 50_000


def test_acquire_again_with_the_same_nonce_is_granted_again_with_a_higher_fence(master: Scripted) -> None:
    _, first, _ = master.acquire(ttl_ms=30_000)
    lease = master.lease()
    status, second, _ = master.acquire(ttl_ms=60_000)
    assert status == 1
    assert second == first + BLOCK
    assert master.lease() == lease
    assert 30_000 < master.remaining_ms() <= 60_000


@pytest.mark.parametrize("without_end", [False, True])
def test_a_lease_that_outlived_a_clock_set_back_lasts_no_longer_than_the_ceiling(
    without_end: bool, master: Scripted
) -> None:
    """Without that it would block for as long as the clock was set back: half an hour, or a year."""
    master.acquire(ANOTHERS)
    if without_end:
        master.redis.persist(lease_key())
    else:
        master.redis.pexpire(lease_key(), 3_600_000)
    status, left_ms, *_ = master.acquire(MINE)
    assert (status, left_ms) == (0, MAX_TTL_MS)
    assert 0 < master.remaining_ms() <= MAX_TTL_MS
    assert master.lease().startswith(ANOTHERS)


def test_a_lease_from_before_the_ceiling_was_lowered_is_not_cut(master: Scripted) -> None:
    master.acquire(ANOTHERS, ttl_ms=MAX_TTL_MS)
    master.redis.hset(scripts.IDENTITY_KEY, mapping={"max_ttl_ms": 1_000, "was_max_ttl_ms": MAX_TTL_MS})
    status, left_ms, *_ = master.acquire(MINE, ttl_ms=1_000)
    assert status == 0
    assert left_ms > 1_000
    assert master.remaining_ms() > 1_000
    assert master.acquire(MINE, ttl_ms=1_001)[:2] == [-2, 1_000]


MINUTE_US = 60_000_000
"""More than a test takes, less than matters."""


def test_a_hint_that_is_half_a_day_ahead_of_the_masters_clock_is_left_out_and_the_vote_is_given(
    master: Scripted,
) -> None:
    """An agent's clock in 2110 must not be the floor of this counter from now on."""
    master.redis.hset(scripts.FENCES_KEY, SLOT, HINT)
    for ahead_us in (HINT_AHEAD_US + MINUTE_US, COUNTER_AHEAD_US, 1 << 51, 1 << 52, 1 << 60):
        before = int(master.counter() or 0)
        assert master.acquire(hint=master.now_us() + ahead_us)[:2] == [1, before + 1]
    assert master.acquire(hint=master.now_us() + HINT_AHEAD_US - MINUTE_US)[1] > HINT


WRONG = ["9007199254740991", str(1 << 52), str((1 << 52) - 10), "1e300", "inf", "nan", "x", ""]


@pytest.mark.parametrize("counter", WRONG)
def test_a_wrong_counter_gives_no_vote_and_is_left_as_it_is(master: Scripted, counter: str) -> None:
    master.redis.hset(scripts.FENCES_KEY, SLOT, counter)
    assert master.acquire()[:2] == [-3, 0]
    assert master.propose(HINT)[:2] == [-3, 0]
    assert (master.lease(), master.counter()) == (None, counter)


def test_a_counter_a_day_ahead_of_the_masters_clock_gives_no_vote(master: Scripted) -> None:
    master.redis.hset(scripts.FENCES_KEY, SLOT, master.now_us() + COUNTER_AHEAD_US + MINUTE_US)
    assert (master.acquire()[0], master.propose(HINT)[0]) == (-3, -3)
    master.redis.hset(scripts.FENCES_KEY, SLOT, master.now_us() + COUNTER_AHEAD_US - MINUTE_US)
    assert master.acquire()[0] == 1


# extend


def test_extend_of_what_is_no_lease_of_ours_is_refused(master: Scripted) -> None:
    master.redis.set(lease_key(), MINE, px=5_000)
    assert master.extend()[0] == 0


def test_an_extension_never_shortens(master: Scripted) -> None:
    """One that reached only some masters would undo the promise made before it (rule 2)."""
    master.acquire(ttl_ms=60_000)
    assert master.extend(ttl_ms=2_000)[:2] == [1, 2_000]
    assert master.remaining_ms() > 2_000


def test_extend_by_an_agent_that_does_not_know_the_lease_stays_within_max_hold(master: Scripted) -> None:
    master.acquire(ttl_ms=30_000, max_hold_ms=55_000)
    assert master.extend(ttl_ms=35_000)[:2] == [1, 35_000]
    status, left_ms, _ = master.extend(ttl_ms=60_000)
    assert status == 1
    assert 35_000 < left_ms <= 55_000
    assert master.remaining_ms() <= 55_000


def test_to_another_agent_what_was_ever_put_back_proves_nothing(master: Scripted) -> None:
    """Only the agent that had it put back knows whether the lease has been proven since."""
    master.put_back(f"60000 {OWNER} p3", ttl_ms=30_000)
    assert master.extend(ttl_ms=35_000)[:2] == [2, 35_000]
    assert master.extend(ttl_ms=2_000, mark="p4")[:2] == [1, 2_000]


def test_its_own_agent_hears_that_another_has_extended_it(master: Scripted) -> None:
    """And does not give it back earlier (rule 2)."""
    master.acquire(ttl_ms=30_000, max_hold_ms=55_000)
    assert master.extend(ttl_ms=31_000, mark="p0")[0] == 1
    assert [master.extend(ttl_ms=32_000)[0] for _ in range(2)] == [1, 1]
    assert master.extend(ttl_ms=33_000, mark="p0")[0] == 7
    assert master.release(MINE, "early") == 0
    assert master.release() == 1


def test_what_nobody_else_has_extended_is_given_back_earlier(master: Scripted) -> None:
    master.acquire(ttl_ms=30_000, max_hold_ms=55_000)
    assert master.release(MINE, "early") == 1


def test_an_app_extends_by_the_token_that_it_chose_and_its_agent_by_the_nonce(master: Scripted) -> None:
    """Rule 4."""
    master.put_back(f"60000 {OWNER} p1 =its own p1 =token", age_ms=0)
    assert master.extend("its own p1 =token")[0] == 2
    assert master.extend(MINE)[0] == 0
    assert master.extend(MINE, mark="p2")[0] == 1
    assert master.extend("its own p1 =token", mark="p2")[0] == 0


# put back


def test_a_lease_is_put_back_with_the_age_that_it_had(master: Scripted) -> None:
    age_ms = 1_234_567
    before_us = master.now_us()
    assert master.put_back(f"9000000 {OWNER} p1", ttl_ms=50_000, age_ms=age_ms)[:2] == [2, 50_000]
    after_us = master.now_us()
    nonce, granted_us, rest = master.lease().split(" ", 2)
    assert (nonce, rest) == (MINE, f"9000000 {OWNER} p1")
    assert before_us <= int(granted_us) + age_ms * 1000 <= after_us
    assert 30_000 < master.remaining_ms() <= 50_000


def test_a_lease_that_was_put_back_is_bounded_by_the_age_that_it_had(master: Scripted) -> None:
    master.put_back(f"60000 {OWNER} p0", ttl_ms=30_000, age_ms=20_000)
    status, left_ms, _ = master.extend(ttl_ms=60_000)
    assert status == 2
    assert left_ms <= 40_000
    assert master.remaining_ms() <= 40_000


def test_nothing_is_put_back_where_something_is(master: Scripted) -> None:
    master.acquire(ANOTHERS, ttl_ms=30_000)
    lease = master.lease()
    status, left_ms, _ = master.put_back(ttl_ms=60_000)
    assert (status, 0 < left_ms <= 30_000) == (0, True)
    assert master.put_back(ttl_ms=60_000, token=ANOTHERS)[0] == 1
    assert master.lease() == lease
    assert master.remaining_ms() <= 30_000


# release


def test_an_app_releases_by_the_token_that_it_chose_and_its_agent_by_the_nonce(master: Scripted) -> None:
    """Rule 4."""
    for text in (f"60000 {OWNER} =mine", f"60000 {OWNER} p3 =mine"):
        master.put_back(text)
        assert [master.release("mine"), master.release(MINE, "app")] == [0, 0]
        assert master.release("mine", "app") == 1
        master.put_back(text)
        assert master.release(MINE) == 1


# propose


def test_propose_refuses_what_is_half_a_day_ahead_of_the_masters_clock(master: Scripted) -> None:
    for ahead_us in (HINT_AHEAD_US + MINUTE_US, COUNTER_AHEAD_US, 1 << 51, 1 << 52, 1 << 60):
        assert master.propose(master.now_us() + ahead_us)[:2] == [-4, 0]
    assert master.counter() is None
    fence = master.now_us() + HINT_AHEAD_US - MINUTE_US
    assert master.propose(fence)[:2] == [1, fence]


def test_propose_accepts_only_what_is_larger_than_the_counter(master: Scripted) -> None:
    """Rule 6: else two who propose the same value get the same fence."""
    assert master.propose(HINT)[:2] == [1, HINT]
    last = master.counter()
    assert last is not None
    assert [master.propose(fence)[:2] for fence in (int(last) - 1, int(last))] == [[0, int(last)]] * 2
    assert master.propose(int(last) + 1)[:2] == [1, int(last) + 1]


# identify


def test_identify_gives_a_blank_master_its_identity_and_its_counters(blank: Scripted) -> None:
    assert blank.identify({1: HINT + 63, 4_095: HINT}) == 1
    assert blank.redis.hgetall(scripts.IDENTITY_KEY) == IDENTITY.fields
    assert Identity.parse(IDENTITY.fields) == IDENTITY
    assert blank.redis.hgetall(scripts.FENCES_KEY) == {"1": str(HINT + 63), "4095": str(HINT)}


def test_identify_changes_nothing_on_a_server_with_somebodys_data(blank: Scripted) -> None:
    blank.redis.set("shop:cart", "1")
    assert [blank.identify(expected=expected) for expected in ("", "old")] == [0, 0]
    assert blank.redis.keys("*") == ["shop:cart"]


@pytest.mark.parametrize("expected", ["", "old", LATER.members_digest])
def test_identify_changes_nothing_where_it_shows_something_else(master: Scripted, expected: str) -> None:
    assert master.identify({1: HINT}, expected, LATER.fields) == 0
    assert master.redis.hgetall(scripts.IDENTITY_KEY) == IDENTITY.fields
    assert not master.redis.exists(scripts.FENCES_KEY)


def test_a_list_of_members_is_brought_up_to_date_and_nothing_else(master: Scripted) -> None:
    master.acquire()
    assert master.identify(expected=ELECTORATE, fields=LATER.list_fields) == 1
    assert master.redis.hgetall(scripts.IDENTITY_KEY) == LATER.fields
    assert master.lease().startswith(MINE)
    assert master.acquire()[:2] == [-1, 0]
    assert master.acquire(electorate=LATER.members_digest)[0] == 1


def test_an_identity_of_an_earlier_format_is_brought_up_to_date(blank: Scripted) -> None:
    blank.redis.hset(scripts.IDENTITY_KEY, mapping={"cluster": "test", "name": "m1", "max_ttl_ms": 9})
    assert blank.acquire()[0] == -1
    assert blank.identify(expected="old") == 1
    assert blank.redis.hgetall(scripts.IDENTITY_KEY) == IDENTITY.fields


def test_identify_lowers_no_counter(master: Scripted) -> None:
    master.redis.hset(scripts.FENCES_KEY, mapping={1: HINT, 2: HINT, 3: "?"})
    assert master.identify({1: HINT - 1, 2: HINT + 1, 3: HINT, 4: HINT}, ELECTORATE, LATER.list_fields) == 1
    assert master.redis.hgetall(scripts.FENCES_KEY) == {
        "1": str(HINT),
        "2": str(HINT + 1),
        "3": "?",
        "4": str(HINT),
    }


# What only plays do, as lockd_admin: the max TTL in an identity


PLAYS = Path(scripts.__file__).parent / "scripts" / "plays"


def set_max_ttl(master: Scripted, max_ttl_ms: int) -> str:
    return master.redis.eval(
        (PLAYS / "set_max_ttl.lua").read_text(), 1, scripts.IDENTITY_KEY, str(max_ttl_ms)
    )


def longest_ttl(master: Scripted) -> str:
    return master.redis.eval((PLAYS / "longest_ttl.lua").read_text(), 1, scripts.IDENTITY_KEY)


def ttls(master: Scripted) -> list[str | None]:
    """The max TTL of its identity, and the one of before."""
    return master.redis.hmget(scripts.IDENTITY_KEY, "max_ttl_ms", "was_max_ttl_ms")


def test_a_max_ttl_that_is_raised_leaves_none_of_before(master: Scripted) -> None:
    assert set_max_ttl(master, 90_000) == "changed"
    assert ttls(master) == ["90000", None]
    assert longest_ttl(master) == "90000"
    assert set_max_ttl(master, 90_000) == "same"
    assert master.redis.hgetall(scripts.IDENTITY_KEY) == IDENTITY.fields | {"max_ttl_ms": "90000"}


def test_a_max_ttl_that_is_lowered_is_kept_as_the_one_of_before(master: Scripted) -> None:
    """Leases that were granted under it live on: nobody may take the master for one of short leases."""
    assert set_max_ttl(master, 5_000) == "changed"
    assert ttls(master) == ["5000", str(MAX_TTL_MS)]
    assert longest_ttl(master) == str(MAX_TTL_MS)
    identity = Identity.parse(master.redis.hgetall(scripts.IDENTITY_KEY))
    assert identity is not None
    assert identity.longest_ttl_ms == MAX_TTL_MS


def test_the_largest_of_several_that_were_lowered_is_kept_until_one_is_above_it(master: Scripted) -> None:
    for max_ttl_ms in (5_000, 2_000, 30_000):
        assert set_max_ttl(master, max_ttl_ms) == "changed"
        assert ttls(master) == [str(max_ttl_ms), str(MAX_TTL_MS)]
    assert set_max_ttl(master, MAX_TTL_MS) == "changed"
    assert ttls(master) == [str(MAX_TTL_MS), None]


def test_a_blank_master_gets_no_max_ttl_and_has_granted_nothing(blank: Scripted) -> None:
    assert set_max_ttl(blank, 5_000) == "blank"
    assert longest_ttl(blank) == "0"
    assert blank.redis.dbsize() == 0


def test_what_only_plays_do_is_not_among_what_masters_load() -> None:
    loaded = {script.text for script in scripts.ALL}
    assert len(loaded) == len(list(PLAYS.parent.glob("*.lua")))
    assert loaded.isdisjoint(path.read_bytes() for path in PLAYS.glob("*.lua"))


# page


def test_pages_show_every_lease_with_what_is_left_of_it(master: Scripted) -> None:
    wanted = {f"job-{number}" for number in range(300)}
    for resource in wanted:
        master.acquire(resource=resource, ttl_ms=50_000)
    master.acquire(resource="other")
    cursor, found, pages = "0", {}, 0
    while pages == 0 or cursor != "0":
        cursor, flat = master.page(cursor, "job-*", count=50)
        for key, lease, ttl_ms in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
            found[key] = (lease, ttl_ms)
        pages += 1
    assert set(found) == {lease_key(resource) for resource in wanted}
    assert all(lease.startswith(MINE) and 20_000 < ttl <= 50_000 for lease, ttl in found.values())
    assert pages > 1


def test_pages_only_read(master: Scripted) -> None:
    master.acquire()
    before = {key: master.redis.dump(key) for key in master.redis.keys("*")}
    master.page("0")
    assert {key: master.redis.dump(key) for key in master.redis.keys("*")} == before


# A master that is full


def test_a_full_master_refuses_new_leases_whole_and_goes_on_with_those_it_has(master: Scripted) -> None:
    master.acquire(ttl_ms=30_000)
    counter = master.counter()
    master.redis.config_set("maxmemory", "1")
    with pytest.raises(redis.RedisError, match=r"(?i)oom|memory"):
        master.acquire(ANOTHERS, resource="another")
    assert (master.counter(), master.redis.exists(lease_key("another"))) == (counter, 0)
    assert master.extend(ttl_ms=60_000, mark="p0")[0] == 1
    with pytest.raises(redis.RedisError, match=r"(?i)oom|memory"):  # it could not be marked
        master.extend(ttl_ms=60_000)
    assert master.release() == 1
