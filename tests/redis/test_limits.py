"""Each limit and each policy of the configuration, met: told, counted, logged, and gone when its cause is."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import hiredis
import pytest

from lockd.clock import boottime_ns
from lockd.config.current import Current
from lockd.core import sizes
from lockd.core.stakes import Stock
from lockd.server.quotas import Quotas, renewals_of
from tests.harness.cluster import AS_IS, Cluster
from tests.harness.configs import a_config
from tests.harness.greed import CROWDED, GREEDY, is_let_in, is_refused, takes_everything
from tests.harness.processes import cpu_s
from tests.harness.users import (
    CONTAINERS,
    DAEMON,
    NOBODY,
    Connect,
    cluster_for_all_users,
    connected_as,
    living_as,
    name_of_group,
    refusals,
)
from tests.harness.waiting import PATIENCE_S, eventually
from tests.harness.wire import Wire, as_map, kind, pour, request, token_of

TTL_MS, WAIT_MS = 30_000, 60_000
TOKEN = "0" * 32
GAMES = 60

LIMITS = {
    "memory_mib": 64,
    "files": 1_184,
    "renewals_per_second": 100,
    "share_percent": 2,
    "resource_bytes": 32,
    "request_bytes": 1_024,
    "pipeline_bytes": 4_096,
    "unread_bytes": 200_000,
    "unread_ms": 60_000,
    "unknown_tokens_per_second": 20,
}


def most_of(limits: dict[str, int], stock: str) -> int:
    """How much one account gets when nobody else has anything."""
    one: Stock = getattr(Quotas(Current(a_config(limits=limits))), stock)
    return one.most_of("uid 1")


FILES_MOST, BYTES_MOST = most_of(LIMITS, "files"), most_of(LIMITS, "bytes")
LEASES_MOST = most_of(LIMITS, "renewals") // renewals_of(TTL_MS)


def name_of_user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        pytest.skip(f"no user {uid} on this machine")


@pytest.fixture(scope="module")
def limited(server_binary: Path) -> Iterator[Cluster]:
    """A cluster whose agent allows little."""
    classes = [{"name": "process", "match": "process:*", **AS_IS}]
    with cluster_for_all_users(limits=LIMITS, classes=classes) as running:
        yield running


@pytest.fixture
def crowded(server_binary: Path) -> Iterator[Cluster]:
    """A cluster whose agent has little, and gives nearly all of it to who comes first."""
    with cluster_for_all_users(limits=CROWDED, defaults=AS_IS) as running:
        yield running


@pytest.fixture(scope="module")
def ruled(server_binary: Path) -> Iterator[Cluster]:
    """A cluster whose agent has a class for each rule."""
    classes = [
        {"name": "daemons", "match": "users:*", "users": [name_of_user(DAEMON)]},
        {"name": "gamers", "match": "groups:*", "groups": [name_of_group(GAMES)]},
        {
            "name": "both",
            "match": "both:*",
            "users": [name_of_user(DAEMON)],
            "groups": [name_of_group(GAMES)],
        },
        {
            "name": "short",
            "match": "short:*",
            "max_ttl_ms": 20_000,
            "max_wait_ms": 200,
            "max_hold_ms": 40_000,
        },
        {"name": "held", "match": "held:*", "max_hold_ms": 2_000},
        {"name": "nowait", "match": "nowait:*", "max_wait_ms": 0},
        {"name": "shadowed", "match": "short:but:*"},
    ]
    with cluster_for_all_users(classes=classes, admin_group=name_of_group(GAMES)) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_is_in_use(request: pytest.FixtureRequest) -> None:
    """Of what the test before this one has used up."""
    names = {"limited", "ruled"} & set(request.fixturenames)
    clusters = [request.getfixturevalue(name) for name in names]
    eventually(lambda: {in_use(cluster) for cluster in clusters} <= {("0", "0", "1")}, "nothing is in use")


def in_use(cluster: Cluster) -> tuple[str, str, str]:
    with Wire(cluster.socket) as wire:
        info = wire.info()
    return info["leases"], info["waiters"], info["connected_clients"]


# Limits


def limit_hit(reply: Any, limit: str) -> bool:
    return str(reply).startswith(f"LIMIT {limit}: ") and kind(reply) == "LIMIT"


def all_files_of(limited: Cluster, connect: Connect, uid: int) -> list[Wire]:
    """Connections of that user, each made by a process that lives on, until there is no file left."""
    wires = [connect(limited, uid)]
    while is_let_in(wires[-1]):
        wires.append(connect(limited, uid))
        assert len(wires) <= FILES_MOST
    wires.pop().close()
    return wires


def test_an_account_has_so_many_files_and_others_still_get_theirs(limited: Cluster, connect: Connect) -> None:
    before = refusals(limited, "files")
    wires = all_files_of(limited, connect, NOBODY)
    assert len(wires) == FILES_MOST // 2, "and each of their processes is a file"
    assert is_refused(connect(limited, NOBODY), "files")
    assert is_let_in(connect(limited, DAEMON))
    assert refusals(limited, "files") == before + 2
    eventually(lambda: f'event=limit limit="files: uid {NOBODY} has ' in limited.log_text())
    for wire in wires[:2]:
        wire.close()
    eventually(lambda: is_let_in(connect(limited, NOBODY)), "there is room again")


def test_an_account_has_so_many_renewals_whatever_becomes_of_its_connections_and_others_get_theirs(
    limited: Cluster, connect: Connect
) -> None:
    before = refusals(limited, "renewals")
    with connect(limited, NOBODY) as gone:
        tokens = [token_of(gone.ask("LOCK", f"process:{number}", TTL_MS)) for number in range(LEASES_MOST)]
        assert limit_hit(gone.ask("LOCK", "limit:more", TTL_MS), "renewals")
    wire = connect(limited, NOBODY)
    assert limit_hit(wire.ask("LOCK", "limit:more", TTL_MS), "renewals")
    assert refusals(limited, "renewals") == before + 2
    token_of(wire.ask("LOCK", "limit:detached", 1_000, "DETACHED"))
    token_of(connect(limited, DAEMON).ask("LOCK", "limit:daemon", TTL_MS))
    for number, token in enumerate(tokens):
        assert wire.ask("UNLOCK", f"process:{number}", token) == 1
        token_of(wire.ask("LOCK", f"limit:again:{number}", TTL_MS))


def test_an_account_has_so_many_bytes_for_its_locks_and_what_it_gives_back_it_gets_again(
    limited: Cluster, connect: Connect
) -> None:
    before, tokens = refusals(limited, "bytes"), dict[str, bytes]()
    wire, second = (connect(limited, NOBODY) for _ in range(2))
    assert second.ask("PING") == b"PONG"
    for number in range(BYTES_MOST // sizes.lease(1, renewed=False)):
        reply = wire.ask("LOCK", name := f"limit:{number}", TTL_MS, "DETACHED")
        if isinstance(reply, hiredis.ReplyError):
            break
        tokens[name] = token_of(reply)
    assert limit_hit(reply, "bytes")
    assert limit_hit(second.ask("LOCK", "limit:more", TTL_MS), "bytes")
    assert refusals(limited, "bytes") == before + 2
    token_of(connect(limited, DAEMON).ask("LOCK", "limit:daemon", TTL_MS))  # its connection's
    given_back = list(tokens)[:20]
    for name in given_back:
        assert wire.ask("UNLOCK", name, tokens[name]) == 1
    # As many as before, but for what the others' connections have taken meanwhile.
    for name in given_back[:10]:
        tokens[name] = token_of(wire.ask("LOCK", name, TTL_MS, "DETACHED"))
    for name in {*tokens} - {*given_back[10:]}:
        wire.send("UNLOCK", name, tokens[name])
        assert wire.reply() == 1


def test_an_account_may_wait_for_so_much_and_others_may_still_wait(
    limited: Cluster, connect: Connect
) -> None:
    holder, slots = connect(limited), 16
    for _ in range(slots):
        as_map(holder.ask("LOCK", "limit:slot", TTL_MS, "SLOTS", slots))
    before = refusals(limited, "bytes")
    wire, again = (connect(limited, NOBODY) for _ in range(2))
    waits = ("LOCK", "limit:slot", TTL_MS, "DETACHED", "SLOTS", slots, "WAIT")

    def has_all_that_it_may_have() -> bool:
        wire.send(*waits, WAIT_MS)
        return limit_hit(again.ask(*waits, 10), "bytes")

    eventually(has_all_that_it_may_have)
    assert refusals(limited, "bytes") > before
    assert kind(connect(limited, DAEMON).ask(*waits, 10)) == "TIMEOUT"
    wire.close()
    eventually(lambda: kind(again.ask(*waits, 10)) == "TIMEOUT", "there is room")


def test_whatever_greedy_accounts_hold_one_below_its_floor_gets_what_it_asks_for(
    crowded: Cluster, connect: Connect
) -> None:
    with ExitStack() as stack:
        got = [
            stack.enter_context(living_as(uid, partial(takes_everything, crowded.socket))) for uid in GREEDY
        ]
        assert got[0] > 100
        assert max(got[2:]) <= 2, "nothing is left that is common"
        modest = connect(crowded, DAEMON)
        for number in range(2):
            lease = as_map(modest.ask("LOCK", f"modest:{number}", 10_000))
            assert lease[b"bound"] == b"process"
        assert kind(modest.ask("LOCK", "modest:0", 10_000, "DETACHED", "WAIT", 10)) == "TIMEOUT"
        used = crowded.metric("lockd_limit_used", limit="renewals")
        assert used > 0.5 * crowded.metric("lockd_limit_max", limit="renewals")

    def takes_more() -> bool:
        return isinstance(modest.ask("LOCK", f"more:{time.monotonic_ns()}", 1_000), list)

    eventually(takes_more, "they have given it back")


def processes_with_a_lock(path: Path) -> list[str]:
    """Forks until no more get a lock; each closes its connection. What each was told."""
    told = list[str]()
    while not told or told[-1] == "process":
        ours, its = os.pipe()
        if os.fork() == 0:
            with Wire(path) as wire:
                with suppress(BrokenPipeError, ConnectionResetError):
                    wire.send("LOCK", f"mine:{os.getpid()}", 10_000)
                reply = wire.reply()
                bound = as_map(reply)[b"bound"].decode() if isinstance(reply, list) else str(reply)
                os.write(its, bound.encode())
            signal.pause()
        os.close(its)
        told.append(os.read(ours, 1_000).decode())
        os.close(ours)
    return told


def test_processes_that_use_up_the_files_make_nobodys_lock_weaker(crowded: Cluster, connect: Connect) -> None:
    """A process that holds a lock is watched, also without a connection. Where there was no file for another
    one, its lock was bound to its connection: a pool closed that, and the lock was gone."""
    greedy = GREEDY[0]
    with living_as(greedy, partial(processes_with_a_lock, crowded.socket)) as told:
        assert len(told) > 100
        assert set(told[:-1]) == {"process"}
        assert told[-1].startswith(f"LIMIT files: uid {greedy} has ")
        for uid in (DAEMON, NOBODY):
            assert as_map(connect(crowded, uid).ask("LOCK", f"of {uid}", 10_000))[b"bound"] == b"process"

    def has_it_all_again() -> bool:
        return b"process" in connect(crowded, greedy).ask("LOCK", f"again:{time.monotonic_ns()}", 10_000)

    eventually(has_it_all_again, "its processes have ended")


def test_a_resource_has_so_many_bytes(limited: Cluster, connect: Connect) -> None:
    before = refusals(limited, "resource_bytes")
    wire, most = connect(limited), LIMITS["resource_bytes"]
    token = token_of(wire.ask("LOCK", "x" * most, TTL_MS))
    assert limit_hit(wire.ask("LOCK", "x" * (most + 1), TTL_MS), "resource_bytes")
    assert wire.ask("UNLOCK", "x" * most, token) == 1
    assert refusals(limited, "resource_bytes") == before + 1
    eventually(
        lambda: 'event=limit limit="resource_bytes: ' in limited.log_text(), "the log says whose it was"
    )


def test_a_request_has_so_many_bytes(limited: Cluster, connect: Connect) -> None:
    before = refusals(limited, "request_bytes")
    wire, most = connect(limited), LIMITS["request_bytes"]
    fits = max(size for size in range(most) if len(request("ECHO", "x" * size)) <= most)
    assert wire.ask("ECHO", "x" * fits) == b"x" * fits
    wire.send("ECHO", "x" * (fits + 1))
    assert is_refused(wire, "request_bytes")
    assert refusals(limited, "request_bytes") == before + 1


@pytest.mark.parametrize(
    "behind", [("ECHO", "x" * 900), ("LOCK", "behind", TTL_MS)], ids=lambda words: words[0]
)
def test_behind_a_waiting_lock_so_much_is_read_and_the_end_of_its_app_is_seen_all_the_same(
    limited: Cluster, connect: Connect, behind: tuple[Any, ...]
) -> None:
    holder, wire = connect(limited), connect(limited)
    token = as_map(holder.ask("LOCK", "waited for", TTL_MS))[b"token"]
    wire.send("LOCK", "waited for", TTL_MS, "WAIT", WAIT_MS)
    most = 20 * (LIMITS["unread_bytes"] + LIMITS["pipeline_bytes"])
    taken = pour(wire, request(*behind), most // len(request(*behind)), holder)
    assert taken < most - len(request(*behind)), "it was taken without end"
    assert holder.info()["waiters"] == "1"
    wire.close()
    eventually(lambda: holder.info()["waiters"] == "0", "it is seen to be gone")
    assert holder.ask("UNLOCK", "waited for", token) == 1


def test_half_sent_requests_cost_no_time(limited: Cluster, connect: Connect) -> None:
    for _ in range(8):
        connect(limited).send_raw(request("PING") + request("ECHO", "x")[:-3])
    # One that goes round and round has at least its share of a busy machine, whenever one looks.
    eventually(lambda: busy_share(limited.agent.pid) < 0.1, "it is idle")


def busy_share(pid: int) -> float:
    """How much of a quarter of a second that process was computing."""
    start_s, before_s = time.monotonic(), cpu_s(pid)
    time.sleep(0.25)
    return (cpu_s(pid) - before_s) / (time.monotonic() - start_s)


def test_a_user_has_the_masters_asked_so_often_for_what_the_agent_does_not_know(
    limited: Cluster, connect: Connect
) -> None:
    before, rate = refusals(limited, "unknown_tokens_per_second"), LIMITS["unknown_tokens_per_second"]
    guesses, other = connect(limited, NOBODY), connect(limited, DAEMON)
    token = token_of(guesses.ask("LOCK", "limit:held", TTL_MS))
    detached = token_of(guesses.ask("LOCK", "limit:detached", TTL_MS, "DETACHED"))
    asked = [("UNLOCK", "limit:held", TOKEN), ("EXTEND", "limit:held", TOKEN, TTL_MS)]
    asked += [("UNLOCK", "limit:guess", TOKEN), ("UNLOCK", "limit:guess", detached)]

    def told() -> set[str]:
        for words in asked * rate:
            guesses.send(*words)
        return {str(guesses.reply()).split(":")[0] for _ in asked * rate}

    assert eventually(lambda: "LIMIT unknown_tokens_per_second" in told(), "he is stopped")
    assert refusals(limited, "unknown_tokens_per_second") > before
    assert kind(other.ask("UNLOCK", "limit:guess", TOKEN)) == "NOTHELD"
    # What the agent knows is never held up by it.
    told()
    assert token_of(guesses.ask("EXTEND", "limit:held", token, TTL_MS)) == token
    assert guesses.ask("UNLOCK", "limit:held", token) == 1
    assert guesses.ask("UNLOCK", "limit:detached", detached) == 1
    guesses.ask("LOCK", "limit:named", TTL_MS, "TOKEN", "a-name")
    assert [guesses.ask("UNLOCK", "limit:named", "a-name") for _ in range(3)] == [1] * 3
    eventually(lambda: kind(guesses.ask("UNLOCK", "limit:guess", TOKEN)) == "NOTHELD", "it goes on")


# Policies


def refused(wire: Wire, *words: str | int | bytes, error: str = "DENIED") -> str:
    reply = wire.ask(*words)
    assert kind(reply) == error, (words, reply)
    return str(reply)


def may_lock(wire: Wire, resource: str) -> bool:
    reply = wire.ask("LOCK", resource, TTL_MS)
    if isinstance(reply, hiredis.ReplyError):
        assert kind(reply) == "DENIED", reply
        return False
    assert wire.ask("UNLOCK", resource, token_of(reply)) == 1
    return True


def test_a_class_is_locked_by_its_users_and_its_groups_alone(ruled: Cluster, connect: Connect) -> None:
    daemon, nobody = connect(ruled, DAEMON), connect(ruled, NOBODY)
    gamer = connect(ruled, NOBODY, 12, GAMES, 13)
    of_many_groups = connect(ruled, NOBODY, *range(1_000, 1_200), GAMES)
    allowed = {
        "users:x": [daemon],
        "groups:x": [gamer, of_many_groups],
        "both:x": [daemon, gamer, of_many_groups],
        "USERS:x": [daemon, nobody, gamer, of_many_groups],  # of no class
    }
    for resource, lockers in allowed.items():
        for wire in (daemon, nobody, gamer, of_many_groups):
            assert may_lock(wire, resource) == (wire in lockers), resource


def test_a_denial_is_counted_and_logged(ruled: Cluster, connect: Connect) -> None:
    def denials() -> float:
        return ruled.metric("lockd_refusals_total", **{"class": "daemons", "reason": "denied"})

    before = denials()
    told = refused(connect(ruled, NOBODY), "LOCK", "users:logged", TTL_MS)
    assert "daemons" in told
    assert str(NOBODY) in told
    assert denials() == before + 1
    eventually(lambda: "event=denied resource=users:logged" in ruled.log_text(), "it is in the log")


def test_a_class_has_its_own_most_and_the_first_that_matches_counts(ruled: Cluster, connect: Connect) -> None:
    wire = connect(ruled)
    token = token_of(wire.ask("LOCK", "short:x", 20_000))
    for words, right in (
        (("LOCK", "short:x", 20_001), "100 to 20000 (class 'short')"),
        (("LOCK", "short:but:shadowed", 20_001), "100 to 20000 (class 'short')"),
        (("EXTEND", "short:x", token, 20_001), "100 to 20000 (class 'short')"),
        (("LOCK", "short:x", 500, "WAIT", 201), "0 to 200 (class 'short')"),
        (("LOCK", "nowait:x", TTL_MS, "WAIT", 1), "0 to 0 (class 'nowait')"),
        (("LOCK", "short:x", 500, "MAXHOLD", 40_001), "1 to 40000 (class 'short')"),
    ):
        assert right in refused(wire, *words, error="ERR")
    assert token_of(wire.ask("EXTEND", "short:x", token, 20_000)) == token
    token_of(wire.ask("LOCK", "nowait:x", TTL_MS, "WAIT", 0))


def test_the_most_hold_of_a_class_is_its_default(ruled: Cluster, connect: Connect) -> None:
    wire = connect(ruled)
    wire.ask("HELLO", 3)

    def held_to_the_end() -> int:
        """Until when; 0 when it was lost before, because this machine stood still: once more."""
        before_ns = boottime_ns()
        token_of(wire.ask("LOCK", "held:x", 1_000, "NOTIFY"))
        after_ns = boottime_ns()
        while (push := wire.push())[0] == b"renewed":
            pass
        assert push[:2] == [b"lost", b"held:x"]
        assert push[4] <= after_ns + 2_000_000_000
        return 0 if b"max_hold" not in push[3] else int(push[4] > before_ns + 1_500_000_000)

    eventually(held_to_the_end, "it is held for as long as its class allows")


# Operators


ADMIN_ONLY = [["FORM"], ["FORM", "UNUSED"], ["ADMIT", "m1"], ["FORCERELEASE", "admin:x"]]


def test_what_operators_do_root_and_the_admin_group_do_and_others_are_denied(
    ruled: Cluster, connect: Connect
) -> None:
    holder = connect(ruled)
    for wire in (connect(ruled, NOBODY, 12), connect(ruled, DAEMON, 12)):
        for words in ADMIN_ONLY:
            refused(wire, *words)
    for operator in (connect(ruled), connect(ruled, NOBODY, GAMES)):
        token = token_of(holder.ask("LOCK", "admin:x", TTL_MS))
        for words in ADMIN_ONLY:
            assert not isinstance(operator.ask(*words), hiredis.ReplyError), words
        assert kind(holder.ask("UNLOCK", "admin:x", token)) == "EXPIRED"


ASKS = """
import socket, sys
from tests.harness.wire import request
with socket.socket(socket.AF_UNIX) as link:
    link.connect(sys.argv[1])
    for words in sys.argv[2:]:
        link.sendall(request(*words.split()))
        print(link.recv(4096).decode().splitlines()[0])
"""


def asked_from(cluster: Cluster, *where: str) -> list[str]:
    """What root is told there: of a LOCK, and of a release by force of what nobody holds."""
    asks = [*where, sys.executable, "-c", ASKS, cluster.socket, "LOCK there 1000", "FORCERELEASE nobodys"]
    done = subprocess.run(asks, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if done.returncode and "unshare" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make namespaces")
@pytest.mark.parametrize("what", CONTAINERS)
def test_root_in_a_container_locks_and_is_no_operator(ruled: Cluster, what: str) -> None:
    assert asked_from(ruled)[1].startswith("-NOTHELD "), "on the host it is one"
    lease, released = asked_from(ruled, *CONTAINERS[what])
    assert lease == "*10"
    assert released.startswith("-DENIED ")
    assert f"it has a separate {what}" in released
    eventually(lambda: "event=operator_denied command=forcerelease why=" in ruled.log_text())


def test_one_whose_process_has_ended_is_no_operator_since_it_cannot_be_looked_at(ruled: Cluster) -> None:
    with ExitStack() as lives:
        wire = Wire(connected_as(NOBODY, (GAMES,), ruled, lives))
        assert kind(wire.ask("FORCERELEASE", "nobodys")) == "NOTHELD"
    with wire:
        refused(wire, "FORCERELEASE", "nobodys")


def seen(wire: Wire, *words: str) -> set[bytes]:
    return {as_map(entry)[b"resource"] for entry in wire.ask("LOCKS", *words)}


def test_one_sees_the_leases_that_one_may_lock_and_operators_see_all(
    ruled: Cluster, connect: Connect
) -> None:
    daemon, gamer = connect(ruled, DAEMON), connect(ruled, NOBODY, GAMES)
    for wire, names in ((daemon, ("users:seen", "both:seen", "open:seen")), (gamer, ("groups:seen",))):
        for name in names:
            token_of(wire.ask("LOCK", name, TTL_MS))
    everything = {b"users:seen", b"both:seen", b"open:seen", b"groups:seen"}
    viewers = {
        connect(ruled): everything,
        connect(ruled, NOBODY, GAMES): everything,  # of the admin_group
        connect(ruled, DAEMON): everything - {b"groups:seen"},
        connect(ruled, NOBODY): {b"open:seen", b"groups:seen"},  # one lease is this user's own
    }
    for viewer, sees in viewers.items():
        for words in (("*:seen",), ("*:seen", "LOCAL")):
            assert seen(viewer, *words) == sees, words
        for name in everything:
            reply = viewer.ask("HOLDER", name.decode())
            assert (kind(reply) == "DENIED") if name not in sees else as_map(reply)[b"resource"] == name


def test_one_who_may_not_look_is_not_told_whether_it_is_free(ruled: Cluster, connect: Connect) -> None:
    holder, other = connect(ruled, DAEMON), connect(ruled, NOBODY)
    free = str(other.ask("HOLDER", "users:told"))
    token_of(holder.ask("LOCK", "users:told", TTL_MS))
    assert kind(other.ask("HOLDER", "users:told")) == "DENIED"
    assert str(other.ask("HOLDER", "users:told")) == free
    eventually(lambda: "event=denied resource=users:told" in ruled.log_text(), "it is in the log")


def test_everybody_may_look_and_sees_no_whole_token_of_another(ruled: Cluster, connect: Connect) -> None:
    token = token_of(connect(ruled).ask("LOCK", "admin:secret", TTL_MS)).decode()
    wire = connect(ruled, NOBODY)
    for words in (["HOLDER", "admin:secret"], ["LOCKS"], ["LOCKS", "LOCAL"], ["MASTERS"], ["INFO"]):
        reply = wire.ask(*words)
        assert not isinstance(reply, hiredis.ReplyError)
        assert token not in str(reply)
    assert token not in ruled.log_text()


def test_every_release_by_force_is_in_the_log(ruled: Cluster, connect: Connect) -> None:
    operator, holder = connect(ruled), connect(ruled, NOBODY)
    for number in range(40):
        token_of(holder.ask("LOCK", f"forced:{number}", TTL_MS))
        operator.ask("FORCERELEASE", f"forced:{number}")
        holder.ask("PING")

    def is_in_the_log(number: int) -> bool:
        forced = f"event=forced_release resource=forced:{number} by_pid={os.getpid()} by_uid=0"
        return forced in ruled.log_text()

    eventually(lambda: all(map(is_in_the_log, range(40))), "all are in the log")
    assert ruled.log_text().count(f"uid {NOBODY}") >= 40
