"""Redis's own lock commands, on two agents over real masters: what lock code that exists relies on."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from tests.harness.cluster import AS_IS, Cluster, running_cluster
from tests.harness.on_masters import holding, lease_key, on, paused
from tests.harness.waiting import PATIENCE_S, eventually
from tests.harness.wire import Wire, request, token_of

RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"
EXTEND = (
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) "
    "else return 0 end"
)
COMPARE = "return redis.call('get', KEYS[1]) == ARGV[1] and 1 or 0"
STEALS = "redis.call('set', KEYS[1], ARGV[1]) return redis.call('del', KEYS[1])"
LONG_MS, SHORTER_MS = 60_000, 30_000
"""Neither is over before its test is, also where the machine stands still meanwhile."""
MOMENT_MS = 200
"""Of what ends by itself. Nothing is said of the time before: it may be over when it is granted."""
MAX_HOLD_MS = 45_000
CLASSES = [
    {"name": "denied", "match": "denied:*", **AS_IS, "users": ["nobody"]},
    {"name": "bounded", "match": "bounded:*", **AS_IS, "max_hold_ms": MAX_HOLD_MS},
    {"name": "kept", "match": "kept:*", **AS_IS, "keep_ms": 60_000},
]


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with running_cluster(5, classes=CLASSES, defaults=AS_IS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def other(running: Cluster) -> Cluster:
    other = running.add_agent()
    other.wait_voting(5)
    return other


@pytest.fixture
def here(running: Cluster) -> redis.Redis:
    return running.client()


@pytest.fixture
def there(other: Cluster) -> redis.Redis:
    """An app on another host."""
    return other.client()


@pytest.fixture
def key() -> str:
    return f"key:{uuid.uuid4().hex[:8]}"


def fails(ask: Callable[[], Any]) -> str:
    with pytest.raises(redis.ResponseError) as failure:
        ask()
    return str(failure.value)


def for_a_moment(client: redis.Redis, key: str) -> None:
    """Lock it for that long. On a machine that stands still it is over before it is granted, and tried for
    again."""
    eventually(lambda: client.set(key, "v", nx=True, px=MOMENT_MS), "it is granted")


class Process:
    """Another process, which has done these commands, one after the other, and holds what it got."""

    def __init__(self, cluster: Cluster, *commands: tuple[str, ...]) -> None:
        program = (
            "import sys, redis\n"
            f"client = redis.Redis(unix_socket_path={str(cluster.socket)!r}, decode_responses=True)\n"
            f"print([client.execute_command(*words) for words in {list(commands)!r}], flush=True)\n"
            "sys.stdin.read()\n"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline().strip()

    def dies(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def process(running: Cluster) -> Iterator[Callable[..., Process]]:
    made: list[Process] = []

    def make(*commands: tuple[str, ...], of: Cluster = running) -> Process:
        made.append(Process(of, *commands))
        return made[-1]

    yield make
    for one in made:
        one.dies()


# Taking


def test_set_nx_locks_for_all_hosts(here: redis.Redis, there: redis.Redis, key: str) -> None:
    assert here.set(key, "v", nx=True, px=LONG_MS) is True
    assert here.set(key, "w", nx=True, px=LONG_MS) is None
    assert there.set(key, "w", nx=True, px=LONG_MS) is None


def test_who_has_the_same_value_is_refused_as_anybody(
    here: redis.Redis, there: redis.Redis, key: str
) -> None:
    """Constants and host names are usual values: the try tells them apart, not the value (rule 4)."""
    assert here.set(key, "1", nx=True, px=LONG_MS)
    assert here.set(key, "1", nx=True, px=LONG_MS) is None
    assert there.set(key, "1", nx=True, px=LONG_MS) is None


def test_either_of_two_with_one_value_releases_as_in_redis(
    here: redis.Redis, there: redis.Redis, key: str
) -> None:
    assert here.set(key, "1", nx=True, px=LONG_MS)
    assert there.eval(RELEASE, 1, key, "1") == 1
    assert there.set(key, "1", nx=True, px=LONG_MS)


def test_set_nx_get_returns_what_is_there_and_nothing_when_it_was_free(
    here: redis.Redis, there: redis.Redis, key: str
) -> None:
    assert here.set(key, "v", nx=True, px=LONG_MS, get=True) is None
    assert there.set(key, "w", nx=True, px=LONG_MS, get=True) == "v"


def test_a_lock_and_a_set_exclude_each_other(here: redis.Redis, there: redis.Redis, key: str) -> None:
    lease = here.execute_command("LOCK", key, LONG_MS)
    assert there.set(key, "v", nx=True, px=LONG_MS) is None
    assert here.execute_command("UNLOCK", key, lease[1]) == 1
    eventually(lambda: there.set(key, "v", nx=True, px=LONG_MS), "it is free")
    assert "TAKEN" in fails(lambda: here.execute_command("LOCK", key, LONG_MS))


def test_the_token_of_a_lock_is_shown_to_nobody(here: redis.Redis, there: redis.Redis, key: str) -> None:
    """Who reads it could release it."""
    token = here.execute_command("LOCK", key, LONG_MS)[1]
    for client in (here, there):
        assert token not in str(client.get(key))
        assert "LOCK" in str(client.get(key))
        assert client.eval(RELEASE, 1, key, client.get(key)) == 0


def test_a_set_that_would_take_a_lock_away_is_refused(here: redis.Redis, key: str) -> None:
    assert here.set(key, "v", nx=True, px=LONG_MS)
    assert "NX" in fails(lambda: here.set(key, "w"))
    assert "TAKEN" in fails(lambda: here.set(key, "w", xx=True, px=LONG_MS))
    assert here.get(key) == "v"


@pytest.mark.parametrize("bad", [("PX", "0"), ("EX", "-1"), ("PX", "x"), ("PX",), ("PX", "99999999999")])
def test_a_ttl_that_can_not_be_is_refused(here: redis.Redis, key: str, bad: tuple[str, ...]) -> None:
    fails(lambda: here.execute_command("SET", key, "v", "NX", *bad))
    assert here.exists(key) == 0


def test_a_value_has_512_bytes_at_most(here: redis.Redis, key: str) -> None:
    assert "LIMIT" in fails(lambda: here.set(key, "v" * 513, nx=True, px=LONG_MS))
    assert here.set(key, "v" * 512, nx=True, px=LONG_MS)
    assert here.get(key) == "v" * 512


def test_a_value_may_be_any_bytes(running: Cluster, other: Cluster, key: str) -> None:
    value = bytes(range(256)) + b" =p1 = \0"
    raw, elsewhere = running.client(decode_responses=False), other.client(decode_responses=False)
    assert raw.set(key, value, nx=True, px=LONG_MS)
    assert elsewhere.get(key) == value
    assert elsewhere.eval(RELEASE, 1, key, value[:-1]) == 0
    assert elsewhere.eval(RELEASE, 1, key, value) == 1


# Giving back


@pytest.mark.parametrize(
    "release",
    [("DELEX", "IFEQ"), ("DELIFEQ",), ("CAD",), ("EVAL",)],
    ids=lambda words: words[0],
)
def test_it_is_released_by_its_value_alone_from_any_host(
    here: redis.Redis, there: redis.Redis, key: str, release: tuple[str, ...]
) -> None:
    def released(client: redis.Redis, value: str) -> int:
        if release == ("EVAL",):
            return int(client.eval(RELEASE, 1, key, value))
        return int(client.execute_command(release[0], key, *release[1:], value))

    assert here.set(key, "v", nx=True, px=LONG_MS)
    assert (released(here, "w"), released(there, "w")) == (0, 0)
    assert released(there, "v") == 1
    assert released(here, "v") == (-1 if release == ("CAD",) else 0)


def test_a_value_that_was_released_may_lock_again_at_once(here: redis.Redis, key: str) -> None:
    """It names no request, as the token of a LOCK does."""
    for _ in range(3):
        assert here.set(key, "v", nx=True, px=LONG_MS)
        assert here.eval(RELEASE, 1, key, "v") == 1
        assert here.eval(RELEASE, 1, key, "v") == 0


def test_del_takes_away_what_this_process_holds_and_nothing_else(
    here: redis.Redis, there: redis.Redis, key: str, process: Callable[..., Process]
) -> None:
    process(("SET", key, "theirs", "NX", "PX", str(LONG_MS)))
    assert here.delete(key) == there.delete(key) == 0
    assert here.get(key) == "theirs"
    mine = [f"{key}:1", f"{key}:2"]
    assert all(here.set(one, "v", nx=True, px=LONG_MS) for one in mine)
    assert here.delete(key, *mine) == 2
    assert [here.exists(one) for one in (key, *mine)] == [1, 0, 0]


def test_it_ends_at_its_ttl(here: redis.Redis, there: redis.Redis, key: str) -> None:
    for_a_moment(here, key)
    eventually(lambda: there.set(key, "w", nx=True, px=LONG_MS), "its TTL is over")
    assert here.eval(RELEASE, 1, key, "v") == 0


# Reading


def test_what_is_left_is_its_validity(here: redis.Redis, there: redis.Redis, key: str) -> None:
    assert (here.pttl(key), here.ttl(key), here.exists(key), here.get(key)) == (-2, -2, 0, None)
    assert here.set(key, "v", nx=True, px=LONG_MS)
    for client in (here, there):
        assert 0 < client.pttl(key) < LONG_MS * 0.99
        assert 0 < client.ttl(key) <= LONG_MS // 1_000
        assert client.exists(key) == 1


@pytest.mark.parametrize(
    "words",
    [
        "GET {}", "EXISTS {}", "TTL {}", "SET {} v NX PX 5000", "SET {} v XX PX 5000", "EXPIRE {} 5",
        "PERSIST {}", "DELEX {} IFEQ v", "CAD {} v", "CAS {} v v PX 5000",
    ],
)  # fmt: skip
def test_who_may_not_lock_does_not_read_either(here: redis.Redis, words: str) -> None:
    assert "DENIED" in fails(lambda: here.execute_command(*words.format("denied:1").split()))


@pytest.mark.parametrize("script", [EXTEND, RELEASE], ids=["extend", "release"])
def test_nor_does_a_script_of_his(here: redis.Redis, script: str) -> None:
    assert "DENIED" in fails(lambda: here.eval(script, 1, "denied:1", "v", 5_000))


@pytest.fixture
def reloaded(running: Cluster, here: redis.Redis) -> Iterator[Callable[..., None]]:
    """`reloaded(one_class)`: with that class besides, for the rest of the test."""

    def reload_with(*more: dict[str, Any]) -> None:
        running.write_config(classes=[*CLASSES, *more])
        assert here.execute_command("RELOAD")[1] == "reloaded"

    yield reload_with
    reload_with()


def test_a_reload_takes_nothing_from_who_holds_it(
    here: redis.Redis, key: str, reloaded: Callable[..., None]
) -> None:
    assert here.set(key, "v", nx=True, px=SHORTER_MS)
    reloaded({"name": "reloaded", "match": f"{key}*", **AS_IS, "users": ["nobody"]})
    assert "DENIED" in fails(lambda: here.set(f"{key}:2", "v", nx=True, px=LONG_MS))
    assert here.get(key) == "v"
    assert here.eval(EXTEND, 1, key, "v", LONG_MS) == 1
    assert here.expire(key, 60) == 1
    assert here.eval(RELEASE, 1, key, "v") == 1


def test_wait_says_on_how_many_masters_the_last_lock_stands(here: redis.Redis, key: str) -> None:
    assert here.set(key, "v", nx=True, px=LONG_MS)
    assert here.wait(5, int(PATIENCE_S * 1_000)) == 5


def stands_on_none(client: redis.Redis) -> bool:
    return client.wait(0, 1) == 0


def test_wait_counts_no_master_for_a_lock_that_is_over(
    here: redis.Redis, there: redis.Redis, key: str
) -> None:
    for_a_moment(here, key)
    eventually(lambda: stands_on_none(here), "its TTL is over")
    for release in (lambda: here.delete(key), lambda: there.eval(RELEASE, 1, key, "v")):
        for options in ({"px": LONG_MS}, {}):
            eventually(lambda options=options: here.set(key, "v", nx=True, **options), "it is free")
            assert not stands_on_none(here)
            assert release() == 1
            eventually(lambda: stands_on_none(here), "it was released")


def test_wait_is_not_about_what_was_taken_before_a_refusal(
    here: redis.Redis, there: redis.Redis, key: str
) -> None:
    assert there.set(f"{key}:theirs", "v", nx=True, px=LONG_MS)
    assert here.set(key, "v", nx=True, px=LONG_MS)
    assert here.eval(ACQUIRE_OR_EXTEND, 1, key, "v", LONG_MS) == 1
    assert not stands_on_none(here)
    assert here.set(f"{key}:theirs", "w", nx=True, px=LONG_MS) is None
    assert stands_on_none(here)


# Extending


def test_a_script_extends_it_by_its_value_from_any_host(
    here: redis.Redis, there: redis.Redis, key: str
) -> None:
    assert here.set(key, "v", nx=True, px=SHORTER_MS)
    assert there.eval(EXTEND, 1, key, "w", LONG_MS) == 0
    assert there.eval(EXTEND, 1, key, "v", LONG_MS) == 1
    eventually(lambda: there.pttl(key) > SHORTER_MS, "it lasts longer")


@pytest.mark.parametrize("extend", ["XX", "IFEQ", "CAS", "PEXPIRE", "EXPIRE"])
def test_redis_own_commands_extend_it(here: redis.Redis, key: str, extend: str) -> None:
    commands: dict[str, tuple[tuple[Any, ...], Any]] = {
        "XX": (("SET", key, "v", "XX", "PX", LONG_MS), "OK"),
        "IFEQ": (("SET", key, "v", "IFEQ", "v", "PX", LONG_MS), "OK"),
        "CAS": (("CAS", key, "v", "v", "PX", LONG_MS), 1),
        "PEXPIRE": (("PEXPIRE", key, LONG_MS), 1),
        "EXPIRE": (("EXPIRE", key, LONG_MS // 1_000), 1),
    }
    words, said = commands[extend]
    assert here.set(key, "v", nx=True, px=SHORTER_MS)
    assert here.execute_command(*words) in (said, said == "OK")
    assert here.pttl(key) > SHORTER_MS


SHORTENS = [
    ("SET", "K", "v", "XX", "PX", 2_000),
    ("SET", "K", "v", "IFEQ", "v", "PX", 2_000),
    ("CAS", "K", "v", "v", "PX", 2_000),
    ("EVAL", EXTEND, 1, "K", "v", 2_000),
]


def of(key: str, words: tuple[Any, ...]) -> list[Any]:
    return [key if word == "K" else word for word in words]


def after_as_long(client: redis.Redis, ttl_ms: int) -> None:
    """All that was given this TTL before has ended: so has what was given it later."""
    name = uuid.uuid4().hex
    eventually(lambda: client.set(name, "v", nx=True, px=ttl_ms), "it is granted")
    eventually(lambda: client.set(name, "w", nx=True, px=LONG_MS), "it has ended")


@pytest.mark.parametrize("words", [*SHORTENS, ("PEXPIRE", "K", 2_000), ("EXPIRE", "K", 2, "LT")])
def test_with_a_shorter_ttl_it_is_given_back_at_that_time(
    here: redis.Redis, there: redis.Redis, key: str, words: tuple[Any, ...]
) -> None:
    """As ShedLock does for lockAtLeastFor. What was locked before it for as long is held still."""
    assert here.set(f"{key}:before", "v", nx=True, px=LONG_MS)
    assert here.set(key, "v", nx=True, px=LONG_MS)
    assert here.execute_command(*of(key, words)) in (True, 1, "OK")
    assert here.pttl(key) <= 2_000
    after_as_long(here, 2_000)
    eventually(lambda: there.exists(key) == 0, "it was given back")
    assert there.exists(f"{key}:before") == 1


def test_a_shorter_ttl_is_kept_to_only_as_long_as_no_other_host_extends_it(
    here: redis.Redis, there: redis.Redis, key: str
) -> None:
    assert here.set(key, "v", nx=True, px=SHORTER_MS)
    assert here.pexpire(key, 2_000) == 1
    assert there.eval(EXTEND, 1, key, "v", LONG_MS) == 1
    after_as_long(here, 2_000)
    assert there.get(key) == here.get(key) == "v"


@pytest.mark.parametrize("words", SHORTENS)
def test_what_another_host_has_extended_gets_no_shorter_ttl_by_either(
    here: redis.Redis, there: redis.Redis, key: str, words: tuple[Any, ...]
) -> None:
    """Who was told that it is extended relies on that."""
    assert here.set(key, "v", nx=True, px=SHORTER_MS)
    assert there.eval(EXTEND, 1, key, "v", LONG_MS) == 1
    for client in (here, there):
        assert "the TTL is shorter" in fails(lambda client=client: client.execute_command(*of(key, words)))
    assert eventually(lambda: there.pttl(key) > SHORTER_MS, "it lasts as long as before")


@pytest.mark.parametrize(
    ("option", "with_a_ttl", "without"),
    [("NX", {LONG_MS: 0, 2_000: 0}, {LONG_MS: 1}), ("XX", {LONG_MS: 1, 2_000: 1}, {LONG_MS: 0}),
     ("GT", {LONG_MS: 1, 2_000: 0}, {LONG_MS: 0}), ("lt", {LONG_MS: 0, 2_000: 1}, {LONG_MS: 1})],
)  # fmt: skip
def test_an_option_of_pexpire_is_about_the_ttl_that_there_is(
    here: redis.Redis, key: str, option: str, with_a_ttl: dict[int, int], without: dict[int, int]
) -> None:
    for ttl_ms, said in with_a_ttl.items():
        name = f"{key}:{ttl_ms}"
        assert here.set(name, "v", nx=True, px=SHORTER_MS)
        assert here.execute_command("PEXPIRE", name, ttl_ms, option) == said
        assert (here.pttl(name) <= ttl_ms) == (said == 1 or ttl_ms == LONG_MS)
        assert (here.pttl(name) > SHORTER_MS) == (said == 1 and ttl_ms == LONG_MS)
    for ttl_ms, said in without.items():
        assert here.set(key, "v", nx=True)
        assert here.execute_command("PEXPIRE", key, ttl_ms, option) == said
        assert (here.pttl(key) > 0) == (said == 1)


def test_a_script_that_only_makes_it_longer_does_so_through_any_host(
    here: redis.Redis, there: redis.Redis, key: str
) -> None:
    script = EXTEND.replace("ARGV[2])", "ARGV[2], 'GT')")
    assert here.set(key, "v", nx=True, px=SHORTER_MS)
    for client in (here, there):
        assert client.eval(script, 1, key, "v", 2_000) == 0
        assert client.eval(script, 1, key, "w", LONG_MS) == 0
    assert there.eval(script, 1, key, "v", LONG_MS) == 1
    eventually(lambda: there.pttl(key) > SHORTER_MS, "it lasts longer")


@pytest.mark.parametrize("words", [("NX", "XX"), ("KEEP",)])
def test_an_option_that_pexpire_does_not_have_is_an_error(
    here: redis.Redis, key: str, words: tuple[str, ...]
) -> None:
    assert here.set(key, "v", nx=True, px=SHORTER_MS)
    assert "PEXPIRE" in fails(lambda: here.execute_command("PEXPIRE", key, LONG_MS, *words)).upper()
    assert "use DEL" in fails(lambda: here.execute_command("PEXPIRE", key, 0, "XX"))
    assert here.pttl(key) <= SHORTER_MS


def test_a_ttl_in_whole_seconds_may_be_a_little_shorter(
    here: redis.Redis, there: redis.Redis, key: str
) -> None:
    assert here.set(key, "v", nx=True, px=30_900)
    assert here.expire(key, 30)
    assert there.eval(EXTEND, 1, key, "v", SHORTER_MS) == 1


def test_a_lock_that_was_taken_without_a_ttl_can_be_given_a_shorter_one(here: redis.Redis, key: str) -> None:
    """Only its own agent extends it."""
    assert here.set(key, "v", nx=True)
    for ttl_ms in (LONG_MS, SHORTER_MS):
        assert here.pexpire(key, ttl_ms) == 1
        assert here.pttl(key) <= ttl_ms


def test_expire_touches_only_what_this_process_holds(
    here: redis.Redis, key: str, process: Callable[..., Process]
) -> None:
    process(("SET", key, "theirs", "NX", "PX", str(SHORTER_MS)))
    assert here.pexpire(key, LONG_MS) == 0
    assert here.pttl(key) <= SHORTER_MS


def test_no_extension_goes_past_its_max_hold(here: redis.Redis, there: redis.Redis, key: str) -> None:
    """From whatever host."""
    assert here.set(f"bounded:{key}", "v", nx=True, px=SHORTER_MS)
    for client in (here, there):
        assert "EXPIRED" in fails(
            lambda client=client: client.eval(EXTEND, 1, f"bounded:{key}", "v", LONG_MS)
        )
        assert client.pttl(f"bounded:{key}") <= MAX_HOLD_MS
    assert here.get(f"bounded:{key}") == "v"


# Without a TTL


def test_without_a_ttl_it_lives_with_its_process(
    here: redis.Redis, there: redis.Redis, key: str, process: Callable[..., Process]
) -> None:
    holder = process(("SETNX", key, "v"))
    assert holder.said == "[True]"
    assert (here.ttl(key), there.ttl(key)) == (-1, -1)
    assert there.setnx(key, "w") == 0
    holder.dies()
    eventually(lambda: there.setnx(key, "w"), "it is free")


def test_without_a_ttl_another_host_releases_it_by_its_value(
    here: redis.Redis, there: redis.Redis, key: str
) -> None:
    assert here.setnx(key, "v")
    assert there.get(key) == "v"
    assert there.eval(RELEASE, 1, key, "v") == 1
    assert there.setnx(key, "w")


@pytest.mark.parametrize("ends", [False, True])
def test_without_a_ttl_another_host_that_extends_it_is_told_who_does(
    here: redis.Redis, there: redis.Redis, key: str, ends: bool
) -> None:
    """It is not another's. With a TTL that EXPIRE gave, too."""
    assert here.setnx(key, "v")
    assert not ends or here.expire(key, 60) == 1
    for words in (
        ("SET", key, "v", "XX", "PX", 5_000),
        ("SET", key, "v", "IFEQ", "v", "PX", 5_000),
        ("CAS", key, "v", "v", "PX", 5_000),
        ("EVAL", EXTEND, 1, key, "v", 5_000),
        ("EVAL", ACQUIRE_OR_EXTEND, 1, key, "v", 5_000),
    ):
        told = fails(lambda words=words: there.execute_command(*words))
        assert told.startswith("it is held with this value and needs no extension")
    assert "TAKEN" in fails(lambda: there.set(key, "w", xx=True, px=5_000))
    assert there.execute_command("CAS", key, "w", "w", "PX", 5_000) == 0
    assert there.eval(RELEASE, 1, key, "v") == 1


def test_without_a_ttl_its_own_host_hears_at_once_of_a_release_elsewhere(
    here: redis.Redis, there: redis.Redis, key: str
) -> None:
    """Who polls there, and who waits."""
    for value in ("v", "w"):
        eventually(lambda value=value: here.setnx(key, value), "it is free here")
        assert there.eval(RELEASE, 1, key, value) == 1
    assert here.execute_command("LOCK", key, LONG_MS, "WAIT", LONG_MS)


def test_expire_gives_it_a_ttl_whatever_becomes_of_its_process(
    there: redis.Redis, key: str, process: Callable[..., Process]
) -> None:
    """As an app that locks for a minute, and ends."""
    lasts, ends, dies = (f"{key}:{name}" for name in ("lasts", "ends", "dies"))
    holder = process(
        *(("SETNX", one, "v") for one in (lasts, ends, dies)),
        ("PEXPIRE", lasts, str(LONG_MS)),
        ("PEXPIRE", ends, str(MOMENT_MS)),
    )
    assert holder.said == "[True, True, True, True, True]"
    holder.dies()
    eventually(lambda: there.setnx(dies, "w"), "its agent has seen that it died")
    eventually(lambda: there.setnx(ends, "w"), "its TTL is over")
    assert there.setnx(lasts, "w") == 0


@pytest.mark.parametrize("expire", [("EXPIRE", "0"), ("PEXPIRE", "-1")], ids=" ".join)
def test_an_expire_of_0_or_less_releases_what_this_process_holds(
    here: redis.Redis, there: redis.Redis, key: str, process: Callable[..., Process], expire: tuple[str, str]
) -> None:
    name, ttl = expire
    assert here.execute_command(name, key, ttl) == 0
    process(("SET", key, "theirs", "NX", "PX", str(LONG_MS)))
    assert (here.execute_command(name, key, ttl), here.get(key)) == (0, "theirs")
    for options in ("NX", f"NX PX {LONG_MS}"):
        mine = f"{key}:{options}"
        here.execute_command("SET", mine, "v", *options.split())
        assert (here.execute_command(name, mine, ttl), there.exists(mine)) == (1, 0)


@pytest.mark.parametrize("expire", ["PX 0", "PX -5", "EX 0", "EX -1"])
def test_a_set_with_a_ttl_of_0_or_less_gets_the_error_of_redis(
    here: redis.Redis, key: str, expire: str
) -> None:
    told = fails(lambda: here.execute_command("SET", key, "v", "NX", *expire.split()))
    assert told == "invalid expire time in 'set' command"
    told = fails(lambda: here.execute_command("CAS", key, "v", "v", *expire.split()))
    assert told == "invalid expire time in 'cas' command"


@pytest.mark.parametrize("ttl", [0, -1])
def test_a_script_that_extends_by_0_or_less_answers_as_redis_where_it_changes_nothing(
    here: redis.Redis, there: redis.Redis, key: str, ttl: int
) -> None:
    """Where it is his, what Redis does depends on the script."""
    assert here.eval(EXTEND, 1, key, "v", ttl) == 0
    assert there.set(key, "v", nx=True, px=LONG_MS)
    assert here.eval(EXTEND, 1, key, "w", ttl) == 0
    for client in (here, there):
        told = fails(lambda client=client: client.eval(EXTEND, 1, key, "v", ttl))
        assert "can't release a lock with a TTL of 0 or less: release with DELEX" in told
    assert here.get(key) == "v"


@pytest.mark.parametrize("ttl", [0, -1])
def test_a_script_that_takes_with_0_or_less_gets_an_error(here: redis.Redis, key: str, ttl: int) -> None:
    """As sherlock's without `expire`: on Redis it would go on without its lock."""
    assert f"ARGV[2] '{ttl}' is too short" in fails(lambda: here.eval(ACQUIRE_OR_EXTEND, 1, key, "v", ttl))
    assert here.exists(key) == 0


def test_a_refused_expire_leaves_it_without_a_ttl(here: redis.Redis, key: str) -> None:
    assert here.setnx(key, "v")
    assert "EXPIRE 3600 is too long" in fails(lambda: here.expire(key, 3_600))
    assert here.ttl(key) == -1
    assert here.expire(key, 60) == 1
    assert 0 < here.ttl(key) <= 60


def test_persist_takes_back_the_ttl_that_expire_gave(here: redis.Redis, key: str) -> None:
    assert here.setnx(key, "v")
    assert here.persist(key) == 0
    assert here.expire(key, 60) == 1
    assert 0 < here.ttl(key) <= 60
    assert here.persist(key) == 1
    assert here.ttl(key) == -1


def test_a_lock_with_a_ttl_keeps_one(here: redis.Redis, key: str) -> None:
    assert here.set(key, "v", nx=True, px=LONG_MS)
    assert "the TTL of a lock can't be removed" in fails(lambda: here.persist(key))


def keeps(client: redis.Redis, resource: str) -> None:
    """It was locked twice within a moment."""

    def kept() -> bool:
        token = client.execute_command("LOCK", resource, LONG_MS)[1]
        assert client.execute_command("UNLOCK", resource, token) == 1
        return bool(client.execute_command("LOCKS", resource, "LOCAL"))

    eventually(kept, "it is kept")
    assert "kept" in client.execute_command("LOCKS", resource, "LOCAL")[0]


def test_a_kept_tenure_is_not_handed_to_a_value(here: redis.Redis, there: redis.Redis, key: str) -> None:
    """Masters would not show the value, and nobody elsewhere could release it."""
    keeps(here, f"kept:{key}")
    assert here.setnx(f"kept:{key}", "v")
    assert there.eval(RELEASE, 1, f"kept:{key}", "v") == 1


def test_what_another_host_only_keeps_is_given_to_a_value(
    here: redis.Redis, there: redis.Redis, key: str
) -> None:
    keeps(here, f"kept:{key}")
    assert there.set(f"kept:{key}", "v", nx=True, px=LONG_MS)


# A reply that nobody reads


def unread(running: Cluster, there: redis.Redis, key: str, *words: str) -> Wire:
    """A connection of this process that has locked, and has not read that."""
    wire = Wire(running.socket)
    wire.send(*words)
    eventually(lambda: there.get(key) == "v", "it is held")
    return wire


def sees_the_end_of_what_was_closed(running: Cluster, there: redis.Redis) -> None:
    """What is closed later, and not its app's, is free on the masters. Releases are sent in their order."""
    witness = f"witness:{uuid.uuid4().hex[:8]}"
    unread(running, there, witness, "SETNX", witness, "v").close()
    eventually(lambda: there.exists(witness) == 0, "the one that was closed last is given back")


def test_without_a_ttl_it_is_free_at_once_when_its_reply_was_never_read(
    running: Cluster, here: redis.Redis, there: redis.Redis, key: str
) -> None:
    """Its client has timed out, and will ask again. That its process has seen that somebody holds it means
    nothing."""
    wire = unread(running, there, key, "SETNX", key, "v")
    assert (here.exists(key), here.ttl(key), here.setnx(key, "v")) == (1, -1, 0)
    wire.close()
    eventually(lambda: here.setnx(key, "w"), "it is free")


def test_with_a_ttl_it_ends_at_that_though_its_reply_was_never_read(
    running: Cluster, here: redis.Redis, there: redis.Redis, key: str
) -> None:
    """Who knows its value may have extended it, through any host."""
    unread(running, there, key, "SET", key, "v", "NX", "PX", str(LONG_MS)).close()
    assert there.eval(EXTEND, 1, key, "v", LONG_MS) == 1
    sees_the_end_of_what_was_closed(running, there)
    assert here.set(key, "w", nx=True, px=LONG_MS) is None
    assert here.eval(RELEASE, 1, key, "v") == 1


@pytest.mark.parametrize("names", ["GET", "SET NX GET", "EXPIRE", "EXTEND", "COMPARE"])
def test_what_its_process_has_named_on_another_connection_is_its_own(
    running: Cluster, here: redis.Redis, there: redis.Redis, key: str, names: str
) -> None:
    """A constant, or the name of a worker, say: who finds it there goes on with it."""
    commands: dict[str, tuple[Any, ...]] = {
        "GET": ("GET", key),
        "SET NX GET": ("SET", key, "v", "NX", "GET"),
        "EXPIRE": ("EXPIRE", key, 60),
        "EXTEND": ("EVAL", EXTEND, 1, key, "v", LONG_MS),
        "COMPARE": ("EVAL", COMPARE, 1, key, "v"),
    }
    wire = unread(running, there, key, "SETNX", key, "v")
    here.execute_command(*commands[names])
    wire.close()
    sees_the_end_of_what_was_closed(running, there)
    assert there.get(key) == "v"
    assert here.setnx(key, "w") == 0


# What another host has released


PERSISTS = (
    "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('persist', KEYS[1]) return 1 end return 0"
)
EXTENDS_IF_IT_ENDS = (
    "if redis.call('get', KEYS[1]) == ARGV[1] then if redis.call('pttl', KEYS[1]) < 0 then return 1 end "
    "return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0"
)


@pytest.mark.parametrize(
    "script", [COMPARE, PERSISTS, EXTENDS_IF_IT_ENDS], ids=["compares", "persists", "extends"]
)
def test_a_script_does_not_say_from_memory_that_its_lock_is_held(
    here: redis.Redis, there: redis.Redis, key: str, script: str
) -> None:
    """Its app would go on, and another have it meanwhile."""
    for number in range(20):
        one = f"{key}:{number}"
        assert here.setnx(one, "v")
        assert here.eval(script, 1, one, "v", SHORTER_MS) == 1
        assert there.execute_command("DELEX", one, "IFEQ", "v") == 1
        assert here.eval(script, 1, one, "v", SHORTER_MS) == 0
        assert here.get(one) is None


# MULTI


def test_setnx_and_expire_in_a_multi_are_one_acquire(
    here: redis.Redis, there: redis.Redis, key: str, process: Callable[..., Process]
) -> None:
    def both(client: redis.Redis, value: str, seconds: int) -> list[Any]:
        pipeline = client.pipeline(transaction=True)
        pipeline.setnx(key, value)
        pipeline.expire(key, seconds)
        return [int(one) for one in pipeline.execute()]

    assert both(here, "v", 30) == [1, 1]
    assert both(there, "w", 60) == [0, 0]
    assert here.get(key) == "v"
    assert here.ttl(key) <= 30


def in_a_multi(client: redis.Redis, *commands: tuple[Any, ...]) -> list[Any]:
    pipeline = client.pipeline(transaction=True)
    for words in commands:
        pipeline.execute_command(*words)
    return pipeline.execute(raise_on_error=False)


def test_a_refused_setnx_does_not_extend_what_another_thread_of_its_process_holds(
    here: redis.Redis, key: str
) -> None:
    """Redis would answer [0, 1]: then a thread that polls keeps the lock of one that hangs."""
    assert here.set(key, "v", nx=True, px=SHORTER_MS)
    assert in_a_multi(here, ("SETNX", key, "w"), ("PEXPIRE", key, LONG_MS)) == [0, 0]
    assert in_a_multi(here, ("SETNX", key, "v"), ("PEXPIRE", key, LONG_MS)) == [0, 0]
    assert here.pttl(key) <= SHORTER_MS


def test_a_set_nx_without_a_ttl_and_its_expire_in_a_multi_are_one_acquire(
    here: redis.Redis, there: redis.Redis, key: str
) -> None:
    """From two threads of one process, too."""

    def both(client: redis.Redis, ms: int, *, get: bool = False) -> list[Any]:
        pipeline = client.pipeline(transaction=True)
        pipeline.set(key, "v", nx=True, get=get)
        pipeline.pexpire(key, ms)
        return pipeline.execute()

    assert both(here, SHORTER_MS) == [True, 1]
    assert both(here, LONG_MS) == [None, 0]
    assert both(here, LONG_MS, get=True) == ["v", 0]
    assert both(there, LONG_MS) == [None, 0]
    assert 0 < here.pttl(key) <= SHORTER_MS
    assert here.delete(key) == 1
    assert both(here, SHORTER_MS, get=True) == [None, 1]
    assert 0 < here.pttl(key) <= SHORTER_MS


def test_a_set_nx_whose_expire_can_not_be_locks_nothing(here: redis.Redis, key: str) -> None:
    told = in_a_multi(here, ("SET", key, "v", "NX"), ("EXPIRE", key, 3_600))
    assert ["EXPIRE 3600 is too long" in str(one) for one in told] == [True, True]
    assert here.exists(key) == 0


def test_the_expire_of_a_setnx_need_not_be_right_behind_it(here: redis.Redis, key: str) -> None:
    setnx = [("SETNX", f"{key}:{number}", "v") for number in range(2)]
    expire = [("EXPIRE", f"{key}:{number}", 60) for number in range(2)]
    assert in_a_multi(here, *setnx, *expire) == [1, 1, 1, 1]
    assert in_a_multi(here, *setnx, *expire) == [0, 0, 0, 0]
    assert 0 < here.ttl(f"{key}:0") <= 60


def test_a_reading_between_a_setnx_and_its_expire_does_not_part_them(here: redis.Redis, key: str) -> None:
    commands = ("SETNX", key, "v"), ("GET", key), ("EXISTS", key)
    assert in_a_multi(here, *commands, ("PEXPIRE", key, SHORTER_MS)) == [1, "v", 1, 1]
    assert in_a_multi(here, *commands, ("PEXPIRE", key, LONG_MS)) == [0, "v", 1, 0]
    assert here.pttl(key) <= SHORTER_MS


@pytest.mark.parametrize(
    ("ttl", "why"),
    [
        ("0", "EXPIRE 0 is too short"),
        ("-1", "EXPIRE -1 is too short"),
        ("3600", "EXPIRE 3600 is too long"),
        ("x", "not an integer or out of range"),
        ("9" * 20, "not an integer or out of range"),
    ],
)
def test_with_an_expire_that_can_not_be_nothing_is_locked(
    here: redis.Redis, key: str, ttl: str, why: str
) -> None:
    """It would stay without a TTL, or be released at once."""
    *told, exists = in_a_multi(here, ("SETNX", key, "v"), ("EXPIRE", key, ttl), ("EXISTS", key))
    assert [why in str(one) for one in told] == [True, True]
    assert exists == 0


def test_what_is_misused_in_a_multi_is_told_its_usage(here: redis.Redis, key: str) -> None:
    right = ("SET", key, "v", "NX", "PX", LONG_MS)
    said = fails(lambda: here.execute_command(*right, "NOSUCH"))
    assert "SET resource value" in said
    misused, done = in_a_multi(here, (*right, "NOSUCH"), right)
    assert said in str(misused)
    assert done


def test_a_multi_with_what_is_no_lock_runs_nothing(here: redis.Redis, key: str) -> None:
    pipeline = here.pipeline(transaction=True)
    pipeline.set(key, "v", nx=True, px=LONG_MS)
    pipeline.execute_command("LOCK", key, LONG_MS)
    with pytest.raises(redis.RedisError, match="MULTI"):
        pipeline.execute()
    assert here.exists(key) == 0


def test_commands_of_one_connection_find_what_those_before_left(here: redis.Redis, key: str) -> None:
    pipeline = here.pipeline(transaction=False)
    pipeline.set(key, "v", nx=True, px=LONG_MS)
    pipeline.get(key)
    pipeline.set(key, "w", nx=True, px=LONG_MS)
    pipeline.eval(RELEASE, 1, key, "v")
    pipeline.set(key, "w", nx=True, px=LONG_MS)
    assert pipeline.execute() == [True, "v", None, 1, True]


# Scripts


def test_scripts_are_loaded_and_called_by_their_sha(here: redis.Redis, key: str) -> None:
    release = here.register_script(RELEASE)
    assert here.set(key, "v", nx=True, px=LONG_MS)
    assert release(keys=[key], args=["v"]) == 1
    assert here.script_exists(release.sha, "0" * 40) == [True, False]


def test_an_unknown_sha_is_told_so_that_its_client_sends_the_script(here: redis.Redis, key: str) -> None:
    with pytest.raises(redis.exceptions.NoScriptError):
        here.evalsha("0" * 40, 1, key)


def test_a_new_script_in_a_multi_is_read_in_its_place(here: redis.Redis, key: str) -> None:
    pipeline = here.pipeline(transaction=True)
    pipeline.set(key, "v", nx=True, px=LONG_MS)
    pipeline.eval(f"{RELEASE} -- {key}", 1, key, "v")
    pipeline.set(key, "w", nx=True, px=LONG_MS)
    assert pipeline.execute() == [True, 1, True]
    assert here.eval(f"{RELEASE} -- {key}", 1, key, "w") == 1


@pytest.mark.parametrize("send", ["EVAL", "LOAD"])
def test_a_script_that_is_not_recognised_is_refused_and_logged_with_its_normal_form(
    running: Cluster, here: redis.Redis, key: str, send: str
) -> None:
    script = f"{STEALS} -- {send} {key}"
    asked = ("SCRIPT", "LOAD", script) if send == "LOAD" else ("EVAL", script, 1, key, "v")
    text = fails(lambda: here.execute_command(*asked))
    assert "acquire, acquire or extend, release" in text
    assert "script_not_recognised" in running.log_text()
    assert here.exists(key) == 0


def test_the_error_of_a_script_names_what_came_with_it(here: redis.Redis, key: str) -> None:
    script = RELEASE.replace("return 0", "return redis.error_reply(string.format('NOTMINE %s', KEYS[1]))")
    assert fails(lambda: here.eval(script, 1, key, "v")) == f"NOTMINE {key}"
    tells = "if redis.call('setnx', KEYS[1], ARGV[1]) == 1 then return 1 end "
    tells += "return {err = 'HELD by ' .. redis.call('get', KEYS[1])}"
    assert here.eval(tells, 1, key, "v") == 1
    assert fails(lambda: here.eval(tells, 1, key, "w")) == "HELD by v"


def test_a_script_that_returns_what_it_was_not_given_is_told_so(here: redis.Redis, key: str) -> None:
    script = "if redis.call('get', KEYS[1]) == ARGV[1] then return ARGV[2] end return 0"
    assert "needs ARGV[2], which was not given" in fails(lambda: here.eval(script, 1, key, "v"))


def test_a_script_deletes_all_its_keys_together(here: redis.Redis, key: str) -> None:
    keys = [f"{key}:{number}" for number in range(3)]
    for name in keys[:2]:
        assert here.set(name, "v", nx=True, px=LONG_MS)
    assert here.eval("return redis.call('del', unpack(KEYS))", 3, *keys) == 2
    assert here.exists(keys[0]) == 0


def test_a_script_of_several_keys_takes_all_or_none(here: redis.Redis, there: redis.Redis, key: str) -> None:
    """As node-redlock's."""
    acquire = """
        for i, key in ipairs(KEYS) do
            if redis.call("exists", key) == 1 then return 0 end
        end
        for i, key in ipairs(KEYS) do
            redis.call("set", key, ARGV[1], "PX", ARGV[2])
        end
        return #KEYS"""
    release = """
        local count = 0
        for i, key in ipairs(KEYS) do
            if redis.call("get", key) == ARGV[1] then
                redis.call("del", key)
                count = count + 1
            end
        end
        return count"""
    keys = [f"{key}:{number}" for number in (3, 1, 2)]
    assert there.set(keys[2], "w", nx=True, px=LONG_MS)
    assert here.eval(acquire, 3, *keys, "v", LONG_MS) == 0
    assert [there.exists(one) for one in keys] == [0, 0, 1]
    assert there.eval(RELEASE, 1, keys[2], "w") == 1
    eventually(lambda: here.eval(acquire, 3, *keys, "v", LONG_MS) == 3, "all three are taken")
    assert there.eval(acquire, 3, *keys, "w", LONG_MS) == 0
    assert there.eval(release, 3, *keys, "w") == 0
    assert there.eval(release, 3, *keys, "v") == 3


ACQUIRE_OR_EXTEND = """
    local holder = redis.call("get", KEYS[1])
    if holder == ARGV[1] then
        redis.call("pexpire", KEYS[1], ARGV[2])
        return 1
    elseif not holder then
        redis.call("set", KEYS[1], ARGV[1], "PX", ARGV[2])
        return 1
    end
    return 0"""


def test_who_polls_with_acquire_or_extend_is_told_that_it_is_his_only_when_it_is(
    here: redis.Redis, there: redis.Redis, key: str
) -> None:
    """Its end comes while others are told from memory that it is held."""
    for _ in range(2):
        eventually(lambda: here.eval(ACQUIRE_OR_EXTEND, 1, key, "v", MOMENT_MS) == 1, "it is his")
    eventually(lambda: there.eval(ACQUIRE_OR_EXTEND, 1, key, "w", LONG_MS) == 1, "it is free")
    assert (there.get(key), here.get(key)) == ("w", "w")
    assert here.eval(ACQUIRE_OR_EXTEND, 1, key, "v", LONG_MS) == 0


def test_who_sees_that_it_is_free_gets_it_though_he_was_just_told_that_it_is_held(
    here: redis.Redis, there: redis.Redis, key: str
) -> None:
    """Who polls is told so from memory, for a moment; what is said of a free key is that it was granted."""
    assert there.set(key, "v", nx=True, px=LONG_MS)
    assert here.set(key, "w", nx=True, px=LONG_MS) is None
    assert there.eval(RELEASE, 1, key, "v") == 1
    assert here.set(key, "w", nx=True, px=LONG_MS, get=True) is None
    assert there.get(key) == "w"


# What is no lock


@pytest.mark.parametrize(
    "words",
    [("HSET", "a", "b", "c"), ("SUBSCRIBE", "a"), ("CLIENT", "TRACKING", "ON"), ("LPUSH", "a", "b")],
    ids=lambda words: " ".join(words[:2]),
)
def test_what_is_no_lock_is_told_that_this_is_a_lock_agent(here: redis.Redis, words: tuple[str, ...]) -> None:
    assert "lock agent" in fails(lambda: here.execute_command(*words))


def test_who_subscribes_before_he_locks_is_told_how_to_wait(here: redis.Redis, key: str) -> None:
    messages = here.pubsub()
    messages.subscribe(f"released:{key}")
    assert "LOCK resource ttl-ms WAIT ms" in fails(lambda: messages.get_message(timeout=PATIENCE_S))
    messages.close()
    assert here.set(key, "v", nx=True, px=LONG_MS)


# WATCH


class Watching:
    """A connection that has watched a key and read it, and has a MULTI to send."""

    def __init__(self, client: redis.Redis, key: str) -> None:
        self._pipeline = client.pipeline()
        self._pipeline.watch(key)
        self.value = self._pipeline.get(key)
        self._pipeline.multi()

    def does(self, *words: Any) -> list[Any] | None:
        """None: nothing was done, since the key has changed."""
        self._pipeline.execute_command(*words)
        try:
            return self._pipeline.execute()
        except redis.WatchError:
            return None


def anew(client: redis.Redis, key: str, value: str) -> None:
    """Another grant of what is held with this value."""
    assert client.execute_command("DELEX", key, "IFEQ", value) == 1
    assert client.set(key, value, nx=True, px=LONG_MS)


OF_WATCHED = pytest.mark.parametrize("words", [("DEL",), ("UNLINK",), ("PEXPIRE", LONG_MS), ("EXPIRE", 50)])


@OF_WATCHED
def test_who_watches_and_compares_changes_what_has_the_value_even_of_another_host(
    here: redis.Redis, other: Cluster, key: str, process: Callable[..., Process], words: tuple[Any, ...]
) -> None:
    """As StackExchange.Redis releases and extends: WATCH, GET, and a MULTI with DEL or PEXPIRE."""
    process(("SET", key, "v", "NX", "PX", str(SHORTER_MS)), of=other)
    watching = Watching(here, key)
    assert watching.value == "v"
    assert watching.does(words[0], key, *words[1:]) == [1]
    assert here.pttl(key) == -2 if words[0] in ("DEL", "UNLINK") else here.pttl(key) > SHORTER_MS


@OF_WATCHED
@pytest.mark.parametrize("value", ["v", "w"])
def test_exec_is_nil_when_another_lease_has_what_is_watched(
    here: redis.Redis, there: redis.Redis, key: str, words: tuple[Any, ...], value: str
) -> None:
    """Also one of the same value: on Redis that is a change as well."""
    assert here.set(key, "v", nx=True, px=SHORTER_MS)
    watching = Watching(here, key)
    assert there.execute_command("DELEX", key, "IFEQ", "v") == 1
    assert there.set(key, value, nx=True, px=SHORTER_MS)
    assert watching.does(words[0], key, *words[1:]) is None
    assert 0 < there.pttl(key) <= SHORTER_MS


@OF_WATCHED
def test_exec_is_nil_when_what_is_watched_was_released(
    here: redis.Redis, there: redis.Redis, key: str, words: tuple[Any, ...]
) -> None:
    assert here.set(key, "v", nx=True, px=LONG_MS)
    watching = Watching(here, key)
    assert there.execute_command("DELEX", key, "IFEQ", "v") == 1
    assert watching.does(words[0], key, *words[1:]) is None


def test_exec_is_nil_when_another_took_the_free_key_that_is_watched(
    here: redis.Redis, there: redis.Redis, key: str
) -> None:
    """A SET without NX is one with NX here: nobody had the key."""
    watching = Watching(here, key)
    assert there.set(key, "w", nx=True, px=LONG_MS)
    assert watching.does("SET", key, "v", "PX", LONG_MS) is None
    assert there.execute_command("DELEX", key, "IFEQ", "w") == 1
    assert Watching(here, key).does("SET", key, "v", "PX", LONG_MS) == [True]
    assert there.get(key) == "v"


def test_exec_is_nil_when_a_key_that_only_guards_has_changed(
    here: redis.Redis, there: redis.Redis, key: str
) -> None:
    guarded = f"{key}:guarded"
    assert there.set(key, "v", nx=True, px=LONG_MS)
    assert Watching(here, key).does("SET", guarded, "v", "NX", "PX", LONG_MS) == [True]
    assert here.delete(guarded) == 1
    watching = Watching(here, key)
    anew(there, key, "v")
    assert watching.does("SET", guarded, "v", "NX", "PX", LONG_MS) is None
    assert there.exists(guarded) == 0


def test_who_has_not_read_what_is_watched_releases_only_what_its_process_holds(
    here: redis.Redis, key: str, process: Callable[..., Process]
) -> None:
    process(("SET", key, "v", "NX", "PX", str(LONG_MS)))
    with here.pipeline() as pipeline:
        pipeline.watch(key)
        pipeline.multi()
        pipeline.delete(key)
        assert pipeline.execute() == [0]
    assert here.get(key) == "v"


def test_what_fails_in_a_multi_that_watches_is_the_answer_of_its_exec(running: Cluster, key: str) -> None:
    """Who watches relies on EXEC, and may not read what is in it: StackExchange.Redis does not."""
    with Wire(running.socket) as wire:
        assert wire.ask("SET", key, "v", "NX", "PX", LONG_MS) == b"OK"
        assert [wire.ask("WATCH", key), wire.ask("GET", key)] == [b"OK", b"v"]
        assert [wire.ask("MULTI"), wire.ask("PEXPIRE", key, 3_600_000)] == [b"OK", b"QUEUED"]
        assert "is too long" in str(wire.ask("EXEC"))


@pytest.mark.parametrize("before", [0, 1])
def test_exec_is_nil_when_what_guards_was_handed_on(
    running: Cluster, other: Cluster, key: str, before: int
) -> None:
    """Under one tenure, from a LOCK to the next in line. before: how often that was done already."""
    guarded = f"{key}:guarded"
    with contextlib.ExitStack() as all_of_them:
        wires = [all_of_them.enter_context(Wire(of.socket)) for of in (running, running, running, other)]
        holder, waiter, *watching = wires
        token = token_of(holder.ask("LOCK", key, LONG_MS))
        for number in range(before + 1):
            waiter.send("LOCK", key, LONG_MS, "WAIT", LONG_MS)
            eventually(lambda: watching[0].in_use()[2] == "1", "it waits")
            if number == before:
                assert [wire.ask("WATCH", key) for wire in watching] == [b"OK", b"OK"]
            assert holder.ask("UNLOCK", key, token) == 1
            token, holder, waiter = token_of(waiter.reply()), waiter, holder
        for wire in watching:
            assert [wire.ask("MULTI"), wire.ask("SETNX", guarded, "v")] == [b"OK", b"QUEUED"]
            assert wire.ask("EXEC") is None


def test_exec_runs_where_a_lock_guards_that_is_still_held(running: Cluster, other: Cluster, key: str) -> None:
    with Wire(running.socket) as holder, Wire(running.socket) as here, Wire(other.socket) as there:
        holder.ask("LOCK", key, LONG_MS)
        for number, wire in enumerate((here, there)):
            assert [wire.ask("WATCH", key), wire.ask("MULTI")] == [b"OK", b"OK"]
            wire.ask("SETNX", f"{key}:{number}", "v")
            assert wire.ask("EXEC") == [1]


def test_exec_runs_on_its_own_host_where_a_lock_guards_that_was_handed_on_before(
    running: Cluster, key: str
) -> None:
    with Wire(running.socket) as first, Wire(running.socket) as second, Wire(running.socket) as wire:
        token = token_of(first.ask("LOCK", key, LONG_MS))
        second.send("LOCK", key, LONG_MS, "WAIT", LONG_MS)
        eventually(lambda: wire.in_use()[2] == "1", "it waits")
        first.ask("UNLOCK", key, token)
        second.reply()
        assert [wire.ask("WATCH", key), wire.ask("MULTI")] == [b"OK", b"OK"]
        wire.ask("SETNX", f"{key}:guarded", "v")
        assert wire.ask("EXEC") == [1]


def test_a_lock_is_not_compared_by_what_is_shown_of_it(running: Cluster, key: str) -> None:
    """It has no value. Nil would have its app try for ever."""
    with Wire(running.socket) as holder, Wire(running.socket) as wire:
        holder.ask("LOCK", key, LONG_MS)
        assert wire.ask("WATCH", key) == b"OK"
        assert wire.ask("GET", key).startswith(b"a LOCK, by ")
        assert [wire.ask("MULTI"), wire.ask("DEL", key), wire.ask("EXEC")] == [b"OK", b"QUEUED", [0]]


def test_a_watch_names_nothing(running: Cluster, here: redis.Redis, there: redis.Redis, key: str) -> None:
    """Its app reads no more than OK."""
    wire = unread(running, there, key, "SETNX", key, "v")
    with here.pipeline() as pipeline:
        pipeline.watch(key)
        pipeline.multi()
        pipeline.exists(key)
        assert pipeline.execute() == [1]
    wire.close()
    eventually(lambda: here.setnx(key, "w"), "it is free")


@pytest.mark.parametrize("value", ["nx", "XX", "IFEQ"])
def test_a_value_is_no_option(running: Cluster, key: str, value: str) -> None:
    with Wire(running.socket) as wire:
        assert [wire.ask("WATCH", key), wire.ask("MULTI")] == [b"OK", b"OK"]
        wire.ask("SET", key, value, "PX", LONG_MS)
        assert wire.ask("EXEC") == [b"OK"]


def test_a_value_is_no_key(here: redis.Redis, key: str) -> None:
    """The EXPIRE is about the SETNX before it, though its key is written between them."""
    told = in_a_multi(here, ("SETNX", key, "v"), ("SETNX", f"{key}:2", key), ("EXPIRE", key, 30))
    assert told == [1, 1, 1]
    assert "taken without a TTL" not in fails(lambda: here.persist(key)), "it was taken with one"


def test_several_keys_that_were_compared_are_deleted_together(
    here: redis.Redis, other: Cluster, there: redis.Redis, key: str, process: Callable[..., Process]
) -> None:
    """Whichever process holds them."""
    keys = [f"{key}:{number}" for number in range(3)]
    process(*(("SET", one, "v", "NX", "PX", str(LONG_MS)) for one in keys), of=other)
    with here.pipeline() as pipeline:
        pipeline.watch(*keys)
        assert [pipeline.get(one) for one in keys] == ["v"] * 3
        pipeline.multi()
        pipeline.delete(*keys[:2])
        assert pipeline.execute() == [2]
    eventually(lambda: [there.exists(one) for one in keys] == [0, 0, 1], "those two are free")


TAKES_ALL = (
    "for i = 1, #KEYS do if redis.call('exists', KEYS[i]) == 1 then return 0 end end "
    "for i = 1, #KEYS do redis.call('set', KEYS[i], ARGV[1]%s) end return 1"
)


@pytest.mark.parametrize("options", ["", ", 'PX', 40000"])
def test_what_scripts_have_taken_is_given_back_where_a_later_command_fails(
    running: Cluster, there: redis.Redis, key: str, options: str
) -> None:
    keys, script = [f"{key}:{number}" for number in range(3)], TAKES_ALL % options
    with Wire(running.socket) as wire:
        assert [wire.ask("WATCH", key), wire.ask("MULTI")] == [b"OK", b"OK"]
        wire.ask("EVAL", script, len(keys), *keys, "v")
        wire.ask("PEXPIRE", keys[0], 3_600_000)
        assert "is too long" in str(wire.ask("EXEC"))
        eventually(lambda: not any(map(there.exists, keys)), "all are free")


@pytest.mark.parametrize(
    ("words", "why"),
    [(("denied:1",), "DENIED"), ((), "wrong number"), (("k" * 5_000,), "LIMIT"), (("",), "ERR")],
)
def test_behind_a_refused_watch_no_multi_runs(
    running: Cluster, here: redis.Redis, key: str, words: tuple[str, ...], why: str
) -> None:
    """Its client may have dropped the error."""
    with Wire(running.socket) as wire:
        assert why in str(wire.ask("WATCH", *words))
        assert [wire.ask("MULTI"), wire.ask("SET", key, "v", "NX")] == [b"OK", b"QUEUED"]
        assert "EXECABORT" in str(wire.ask("EXEC"))
        assert here.exists(key) == 0
        assert [wire.ask("MULTI"), wire.ask("SET", key, "v", "NX")] == [b"OK", b"QUEUED"]
        assert wire.ask("EXEC") == [b"OK"], "it was about that one only"


@pytest.mark.parametrize("forgets", ["UNWATCH", "DISCARD"])
def test_what_is_watched_is_forgotten(running: Cluster, there: redis.Redis, key: str, forgets: str) -> None:
    with Wire(running.socket) as wire:
        assert wire.ask("WATCH", key) == b"OK"
        assert forgets == "UNWATCH" or wire.ask("MULTI") == b"OK"
        assert wire.ask(forgets) == b"OK"
        assert there.set(key, "v", nx=True, px=LONG_MS)
        assert [wire.ask("MULTI"), wire.ask("EXISTS", key), wire.ask("EXEC")] == [b"OK", b"QUEUED", [1]]


def test_who_wants_no_replies_is_disconnected(running: Cluster) -> None:
    """It would take the error, and each reply after it, for those of other commands."""
    with Wire(running.socket) as wire:
        wire.send_raw(request("CLIENT", "REPLY", "SKIP") + request("PING"))
        assert wire.rest().count(b"\r\n") == 1


# Waiting for another's release, as python-redis-lock does


@pytest.mark.parametrize("event", ["lock-signal:", "lock.event:"], ids=["python-redis-lock", "walrus"])
def test_blpop_returns_when_the_lock_may_be_free(
    here: redis.Redis, there: redis.Redis, key: str, event: str
) -> None:
    assert there.set(f"lock:{key}", "v", nx=True, px=LONG_MS)
    popped: list[Any] = []
    waiting = threading.Thread(target=lambda: popped.append(here.blpop(event + key, 60)))
    waiting.start()
    assert there.eval(RELEASE, 1, f"lock:{key}", "v") == 1
    waiting.join(PATIENCE_S)
    assert popped == [(event + key, "1")]


def test_blpop_returns_nothing_while_it_is_held(here: redis.Redis, key: str) -> None:
    assert here.set(f"lock:{key}", "v", nx=True, px=LONG_MS)
    assert here.blpop(f"lock-signal:{key}", 0.2) is None


# That it is free: the word of a quorum


def compared_and_deleted(client: redis.Redis, key: str, value: str) -> int:
    return int(client.execute_command("CAD", key, value))


def test_cad_says_that_a_lock_is_free_only_when_the_masters_show_that_it_is(
    here: redis.Redis, there: redis.Redis, key: str
) -> None:
    """Whatever was known of it a moment ago."""
    assert compared_and_deleted(here, key, "v") == -1
    assert there.set(key, "w", nx=True, px=LONG_MS)
    assert compared_and_deleted(here, key, "v") == 0
    assert here.get(key) == "w"
    assert compared_and_deleted(there, key, "w") == 1
    assert compared_and_deleted(here, key, "v") == -1
    for_a_moment(here, key)
    eventually(lambda: there.set(key, "w", nx=True, px=LONG_MS), "its TTL is over")
    assert compared_and_deleted(here, key, "v") == 0


PERSIST = """
    local value = redis.call('get', KEYS[1])
    if not value then return -1 end
    if value == ARGV[1] then return redis.call('persist', KEYS[1]) end
    return 0"""


def test_so_does_a_script_that_persists(here: redis.Redis, there: redis.Redis, key: str) -> None:
    assert here.eval(PERSIST, 1, key, "v") == -1
    assert there.set(key, "w", nx=True, px=LONG_MS)
    assert here.eval(PERSIST, 1, key, "v") == 0


def test_a_master_without_a_vote_does_not_make_a_lock_seem_free(make_cluster: Callable[..., Cluster]) -> None:
    """It is on two of three, as when the third was away; one of the two is wiped."""
    cluster = make_cluster(3, defaults=AS_IS)
    client = cluster.client()
    assert client.set("k", "v", nx=True, px=LONG_MS)
    eventually(lambda: len(holding(cluster.masters, "k")) == 3, "it is on all")
    on(cluster.masters[2], "DEL", lease_key("k"))
    on(cluster.masters[1], "FLUSHALL")
    cluster.wait_voting(2)
    assert holding(cluster.masters, "k") == [cluster.masters[0].name]
    assert compared_and_deleted(client, "k", "w") == 0
    assert (client.get("k"), client.exists("k")) == ("v", 1)
    assert client.set("k", "w", nx=True, px=LONG_MS) is None


# Outages


def test_an_outage_is_never_told_as_contention(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(3, timeouts={"master_ms": 250})
    client = cluster.client()
    with paused(cluster.masters[:2]):
        for ask in (
            lambda: client.set("k", "v", nx=True, px=5_000),
            lambda: client.eval(RELEASE, 1, "k", "v"),
            lambda: client.execute_command("CAD", "k", "v"),
            lambda: client.execute_command("CAS", "k", "v", "v", "PX", 5_000),
            lambda: client.get("k"),
        ):
            assert fails(ask).split()[0] in ("NOQUORUM", "CLOCK")


def test_readings_do_not_wait_for_a_master_that_is_paused(make_cluster: Callable[..., Cluster]) -> None:
    """Not for the minute that it has here."""
    cluster = make_cluster(3, timeouts={"master_ms": 60_000, "dead_ms": 600_000})
    there = cluster.add_agent()
    there.wait_voting(3)
    assert cluster.client().set("k", "v", nx=True, px=LONG_MS)
    client = there.client()
    with paused(cluster.masters[:1]):
        assert [client.exists("free"), client.get("free"), client.pttl("free")] == [0, None, -2]
        assert [client.exists("k"), client.get("k")] == [1, "v"]
        assert compared_and_deleted(client, "k", "w") == 0


def lasts_longer(client: redis.Redis, key: str) -> None:
    """A lock without a TTL is renewed every few seconds, for ten. Now it has a minute left, and no TTL."""
    assert (client.expire(key, 60), client.persist(key), client.ttl(key)) == (1, 1, -1)


def test_after_a_restart_of_its_agent_it_is_released_and_extended_as_before(
    running: Cluster, here: redis.Redis, key: str
) -> None:
    ttl, deleted, none = (f"{key}:{name}" for name in ("ttl", "deleted", "none"))
    assert here.set(ttl, "v", nx=True, px=LONG_MS)
    assert here.set(deleted, "v", nx=True, px=LONG_MS)
    assert here.setnx(none, "v")
    lasts_longer(here, none)
    running.agent.kill()
    running.agent.start()
    running.wait_voting(5)
    client = running.client()
    assert (client.get(ttl), client.ttl(none)) == ("v", -1)
    assert client.pexpire(ttl, LONG_MS) == 1
    assert client.eval(RELEASE, 1, ttl, "v") == 1
    assert client.delete(deleted) == 1
    eventually(lambda: client.eval(RELEASE, 1, none, "v") == 1, "it is proven")
    assert [client.exists(one) for one in (ttl, deleted, none)] == [0, 0, 0]


@pytest.mark.parametrize("turn", ["waits for its turn", "unread"])
def test_what_is_given_back_by_who_closes_without_waiting_for_the_answer_is_given_back(
    running: Cluster, here: redis.Redis, key: str, turn: str
) -> None:
    """Behind what masters are asked about, and behind more than is read at a time."""
    releases = {
        f"{key}/del": ("DEL", f"{key}/del"),
        f"{key}/cad": ("CAD", f"{key}/cad", "mine"),
        f"{key}/eval": ("EVAL", RELEASE, 1, f"{key}/eval", "mine"),
        f"{key}/evalsha": ("EVALSHA", here.script_load(RELEASE), 1, f"{key}/evalsha", "mine"),
    }
    for each in releases:
        assert here.set(each, "mine", nx=True, px=LONG_MS)
    connected = here.info("clients")["connected_clients"]
    app = running.raw()
    before = [request("SET", f"{key}/other", "mine", "NX", "PX", LONG_MS)]
    if turn == "unread":
        before += [request("GET", f"{key}/none")] * 300
    taken_late = request("SET", f"{key}/late", "mine", "NX", "PX", LONG_MS)
    with paused(running.masters):
        app.sendall(b"".join([*before, *(request(*words) for words in releases.values()), taken_late]))
        app.close()
        eventually(
            lambda: here.info("clients")["connected_clients"] == connected, what="the agent has seen its end"
        )
    for each in releases:
        eventually(lambda each=each: here.get(each) is None, what=f"{each} is free")  # type: ignore[misc]
    assert here.get(f"{key}/late") is None
