"""What root on a lost app host may write to the masters as its agent, and what becomes of it."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockd.core.fences import BLOCK, slot_of
from lockd.dev.processes import LOOPBACK, master_settings
from lockd.masters import scripts
from tests.harness.app import App
from tests.harness.cluster import Cluster
from tests.harness.lockctl import lockctl
from tests.harness.masters import running_masters, short_folder
from tests.harness.on_masters import FENCES, lease_key, on
from tests.harness.waiting import PATIENCE_S, eventually
from tests.harness.wire import as_map
from tests.redis.scripted import (
    ANOTHERS,
    ELECTORATE,
    HINT,
    MAX_TTL_MS,
    MINE,
    OWNER,
    RESOURCE,
    SLOT,
    TTL_MS,
    Scripted,
)

REPOSITORY = Path(__file__).resolve().parents[2]
KEY = lease_key(RESOURCE)
PLACES = f"lockd:places:{RESOURCE}"
SWEEP = (Path(scripts.__file__).parent / "scripts/plays/sweep.lua").read_text()
WRITTEN = {
    "another type": ("HSET", KEY, "f", "v"),
    "any text": ("SET", KEY, "mine now"),
    "an empty text": ("SET", KEY, ""),
    "a short nonce": ("SET", KEY, f"1234 1 0 {OWNER}"),
    "a nonce that is none": ("SET", KEY, f"{'z' * 32} 1 0 {OWNER}"),
    "for ten years": ("SET", KEY, "mine now", "PX", 10 * 365 * 86_400_000),
}


@pytest.fixture
def master(blank: Scripted) -> Scripted:
    """A master with an identity and nothing else."""
    assert blank.identify() == 1
    return blank


@pytest.mark.parametrize("words", WRITTEN.values(), ids=WRITTEN)
def test_what_is_no_lease_is_nobodys_vote_and_ends_as_a_lease_would(
    master: Scripted, words: tuple[Any, ...]
) -> None:
    """It may be over a lease on which its holder still relies: it must not end sooner (rules 1, 9)."""
    master.redis.execute_command(*words)
    assert master.extend()[:1] == [0]
    assert master.put_back()[:1] == [0]
    assert master.run(scripts.PROPOSE, [FENCES, KEY], SLOT, HINT, BLOCK, MINE, ELECTORATE)[0] == 3
    taken = (MINE, TTL_MS, "p1", "", 1, ANOTHERS, ELECTORATE)
    assert master.run(scripts.TAKE_OVER, [KEY], *taken)[0] == 0
    assert [master.release(), master.release(MINE, "app"), master.release(MINE, "forced")] == [0, 0, 0]
    for place in ("", "host 1"):
        assert master.acquire(place=place, grace_ms=5)[:2] == [-5, 0]
    assert MAX_TTL_MS - TTL_MS < master.remaining_ms() <= MAX_TTL_MS
    assert master.counter() is None
    assert master.acquire(resource="another")[0] == 1


@pytest.mark.parametrize("words", WRITTEN.values(), ids=WRITTEN)
def test_a_page_shows_it_and_a_release_by_force_takes_it_away(
    master: Scripted, words: tuple[Any, ...]
) -> None:
    master.acquire(ANOTHERS, resource="another")
    master.redis.execute_command(*words)
    _, flat = master.page("0")
    shown = dict(zip(flat[::3], flat[1::3], strict=True))
    assert set(shown) == {KEY, lease_key("another")}
    assert master.release(shown[KEY][:32], "forced") == 1
    assert master.acquire()[0] == 1


def test_a_page_has_no_text_or_name_that_is_longer_than_any(master: Scripted) -> None:
    master.redis.set(KEY, "x" * 1_000_000, px=TTL_MS)
    master.redis.set(lease_key("n" * 1_000_000), "x", px=TTL_MS)
    _, flat = master.page("0")
    assert flat[:2] == [KEY, ""]
    assert len(flat) == 3


def hgetalls(master: Scripted) -> int:
    return master.redis.info("commandstats").get("cmdstat_hgetall", {"calls": 0})["calls"]


@pytest.mark.parametrize("how", ["acquire", "granted", "turn", "release"])
@pytest.mark.parametrize("another_type", [False, True])
def test_more_places_than_agents_leave_are_dropped_before_they_are_read(
    master: Scripted, how: str, another_type: bool
) -> None:
    if how != "granted":
        master.acquire(ANOTHERS)
    if another_type:
        master.redis.set(PLACES, "x")
    else:
        ends_us = master.now_us() + 3_000_000
        many = {f"host {number}": f"{number} {ends_us} 5" for number in range(1_000)}
        master.redis.hset(PLACES, mapping=many)
    before = hgetalls(master)
    answers = {
        "acquire": lambda: master.acquire(place="host mine", grace_ms=5)[0],
        "granted": lambda: master.acquire(place="host mine", grace_ms=5)[0],
        "turn": lambda: master.release(ANOTHERS, "turn", "host mine", "5"),
        "release": lambda: master.release(ANOTHERS),
    }
    assert answers[how]() == (0 if how == "acquire" else 1)
    assert hgetalls(master) == before
    assert master.redis.exists(PLACES) == 0
    assert master.acquire(place="host mine", grace_ms=5)[0] == (0 if how == "acquire" else 1)


def test_counters_of_another_type_give_no_vote(master: Scripted) -> None:
    master.redis.delete(FENCES)
    master.redis.set(FENCES, "x")
    assert master.acquire()[:2] == [-3, 0]
    assert master.propose(HINT)[:2] == [-3, 0]
    assert master.lease() is None


# What revoke_agent.yml does


def sweep(master: Scripted) -> list[int]:
    """How many leases end sooner, how many things were dropped, how many counters are wrong."""
    cursor, sums = "0", [0, 0, 0]
    while True:
        cursor, *more = map(str, master.redis.eval(SWEEP, 2, scripts.IDENTITY_KEY, FENCES, cursor))
        sums = [a + int(b) for a, b in zip(sums, more, strict=True)]
        if cursor == "0":
            return sums


def test_a_sweep_leaves_what_agents_have_written_as_it_is(master: Scripted) -> None:
    master.acquire()
    master.acquire(ANOTHERS, place="host 1", grace_ms=5)
    master.redis.hset(FENCES, scripts.COPIED_FIELD, 1)
    before = (master.lease(), master.redis.hgetall(FENCES), master.redis.hkeys(PLACES))
    assert sweep(master) == [0, 0, 0]
    assert (master.lease(), master.redis.hgetall(FENCES), master.redis.hkeys(PLACES)) == before
    assert 0 < master.remaining_ms() <= TTL_MS


def test_a_sweep_ends_what_has_no_end_and_nothing_at_once(master: Scripted) -> None:
    """Not at once: it may be over a lease on which its holder still relies."""
    for number in range(1_000):
        master.redis.set(lease_key(f"for ever {number}"), "x")
    for number, words in enumerate(WRITTEN.values()):
        master.redis.execute_command(words[0], lease_key(f"written {number}"), *words[2:])
    master.redis.hset(PLACES, "host 1", "1 2 3")
    master.redis.set("lockd:places:other", "x")
    assert sweep(master) == [1_000 + len(WRITTEN), 2, 0]
    left = [master.redis.pttl(key) for key in master.redis.keys("lockd:lease:*")]
    assert len(left) == 1_000 + len(WRITTEN)
    assert all(MAX_TTL_MS - TTL_MS < one <= MAX_TTL_MS for one in left)
    assert master.redis.keys("lockd:places:*") == []


def test_a_sweep_drops_what_is_no_counter_and_names_counters_that_are_wrong(master: Scripted) -> None:
    counters = {str(slot): str(HINT + slot) for slot in range(4096)}
    junk = {f"junk {number}": "x" for number in range(1_000)}
    master.redis.hset(FENCES, mapping=counters | junk)
    assert sweep(master) == [0, 1_000, 0]
    assert master.redis.hgetall(FENCES) == counters
    master.redis.hset(FENCES, mapping={"1": "x", "2": str(1 << 52), "3": str(HINT + 2 * 86_400_000_000)})
    assert sweep(master) == [0, 0, 3]
    master.redis.set(FENCES, "x")
    assert sweep(master) == [0, 0, 4096]


def test_a_sweep_changes_nothing_of_what_is_no_master(blank: Scripted) -> None:
    blank.redis.set(KEY, "somebody's")
    assert sweep(blank) == [0, 0, 0]
    assert blank.remaining_ms() == -1


# The whole of it


def spoil(cluster: Cluster, count: int, words: tuple[Any, ...]) -> None:
    for one in cluster.masters[:count]:
        on(one, "DEL", KEY)
        on(one, *words)


@pytest.mark.parametrize("words", WRITTEN.values(), ids=WRITTEN)
def test_on_a_minority_it_stops_nobody(make_cluster: Callable[..., Cluster], words: tuple[Any, ...]) -> None:
    cluster = make_cluster()
    spoil(cluster, 2, words)
    app = App(cluster)
    lease = app.lock(RESOURCE, TTL_MS)
    assert app.refused("LOCK", RESOURCE, TTL_MS).startswith("TAKEN")
    assert app.ask("UNLOCK", RESOURCE, lease["token"]) == 1


@pytest.mark.parametrize("words", WRITTEN.values(), ids=WRITTEN)
def test_on_all_masters_that_lock_alone_is_away_until_an_operator_clears_it(
    make_cluster: Callable[..., Cluster], words: tuple[Any, ...]
) -> None:
    cluster = make_cluster()
    spoil(cluster, 5, words)
    app = App(cluster)
    # By as many masters as a quorum: the others are not waited for.
    assert app.refused("LOCK", RESOURCE, TTL_MS).count("=its-key-is-no-lease") >= 3
    assert "on 5 is a key that is no lease" in app.refused("HOLDER", RESOURCE)
    assert app.lock("another", TTL_MS)
    assert [as_map(row)["resource"] for row in app.ask("LOCKS")] == ["another"]
    [row] = app.ask("LOCKS", "*", "NOLEASE")
    assert as_map(row) == {"resource": RESOURCE, "masters": 5, "of": 5}
    assert cluster.voting() == 5
    found = {one["check"]: one for one in json.loads(lockctl(cluster, "doctor", "--json").stdout)["checks"]}
    assert found["keys"]["verdict"] == "failure"
    assert RESOURCE in found["keys"]["what"]
    done = lockctl(cluster, "force-release", RESOURCE)
    assert done.stdout == f"cleared {RESOURCE} on 5 masters: there was no lease\n"
    assert "key_cleared" in cluster.log_text()
    assert lockctl(cluster, "force-release", RESOURCE).returncode == 1
    assert app.lock(RESOURCE, TTL_MS)


def test_what_is_put_over_a_lease_lets_nobody_else_have_it(cluster: Cluster) -> None:
    """Its holder relies on it until the deadline that it was told."""
    assert App(cluster).lock(RESOURCE, TTL_MS, "DETACHED")
    other = cluster.add_agent()
    other.wait_voting(5)
    spoil(cluster, 5, WRITTEN["another type"])
    assert App(other).refused("LOCK", RESOURCE, TTL_MS).startswith("NOQUORUM")


def test_a_master_without_counters_has_no_vote_and_says_what_to_do(cluster: Cluster) -> None:
    spoilt = cluster.masters[0]
    on(spoilt, "DEL", FENCES)
    on(spoilt, "SET", FENCES, "x")
    app = App(cluster)
    assert app.lock(RESOURCE, TTL_MS)
    [row] = eventually(
        lambda: [one for one in cluster.master_states() if one["state"] == "miscounting"], "it is looked at"
    )
    assert (row["name"], row["vote"]) == ("m1", 0)
    eventually(lambda: "wipe and admit it" in cluster.master_states()[0]["reason"], "and says why")
    assert app.lock("another", TTL_MS)


def test_an_invalid_notice_blames_no_master(cluster: Cluster) -> None:
    """Another app host may publish anything, as long as its masters take."""
    host = socket.gethostname()
    before = cluster.master_states()
    for one in cluster.masters:
        for text in ("", "nonsense", "turn 1a 9999 a", "x" * (1 << 20)):
            assert on(one, "PUBLISH", f"lockd:host:{host}", text) == 1
    assert App(cluster).lock(RESOURCE, TTL_MS)
    assert [row["state"] for row in cluster.master_states()] == [row["state"] for row in before]
    assert cluster.metric("lockd_master_nonsense_total", master="m1") == 0
    assert cluster.metric("lockd_master_connects_total", master="m1") == 1


def ask_without_end(link: socket.socket, asked: bytes) -> None:
    """And read nothing."""
    while True:
        link.sendall(asked)


def test_unread_replies_and_endless_requests_are_bounded(any_server: Path) -> None:
    """By the settings that `lockd dev` and the role give a master."""
    with short_folder() as folder, running_masters(folder, 1, any_server) as [master]:
        asked = scripts.command("CONFIG", "GET", "*") * 1_000
        with socket.create_connection((LOOPBACK, master.port)) as link:
            link.settimeout(PATIENCE_S)
            with pytest.raises(OSError):
                ask_without_end(link, asked)
        with socket.create_connection((LOOPBACK, master.port)) as link:
            link.sendall(b"*2\r\n$4\r\nPING\r\n$1048577\r\n")
            assert b"invalid bulk length" in link.recv(1_000)
        assert on(master, "INFO", "memory")["used_memory_peak"] < 64 << 20


def test_the_role_gives_a_master_the_bounds_that_lockd_dev_gives_it(server_binary: Path) -> None:
    role = (REPOSITORY / "ansible/roles/redis_master/templates/master.conf.j2").read_text()
    dev = master_settings(Path("/x"), 1, server_binary)
    names = ("client-query-buffer-limit", "proto-max-bulk-len", "maxmemory-clients")
    names += ("lazyfree-lazy-user-del", "lazyfree-lazy-expire")
    for name in names:
        assert f"\n{name} {dev[name]}\n" in role
    for limit in ("normal 8mb 4mb 10", "pubsub 8mb 4mb 10"):
        assert f"\nclient-output-buffer-limit {limit}\n" in role
        assert limit in str(dev["client-output-buffer-limit"])


def test_an_agent_says_that_counters_fell(make_cluster: Callable[..., Cluster]) -> None:
    """They were raised, others got fences above the clock, and then they were taken away (rule 6)."""
    cluster = make_cluster(masters=1)
    [master] = cluster.masters
    slot = slot_of(RESOURCE.encode())
    ahead = int(time.time() * 1e6) + 3_600_000_000
    on(master, "HSET", FENCES, slot, ahead)
    app = App(cluster)
    assert app.lock(RESOURCE, TTL_MS)["fence"] > ahead
    on(master, "DEL", FENCES)
    eventually(lambda: cluster.metric("lockd_master_counters_fallen_total", master="m1") >= 1, "it is told")
