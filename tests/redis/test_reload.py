"""The configuration is read anew while the agent works: all of it counts at once or nothing does, and nobody
who holds or waits loses anything."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.harness.cluster import Cluster, merged
from tests.harness.lockctl import lockctl
from tests.harness.users import DAEMON, NOBODY, Connect, cluster_for_all_users
from tests.harness.waiting import PATIENCE_S, eventually
from tests.harness.wire import Wire, as_map, kind, request, token_of

DONE, NO, WRONG = 0, 1, 65
LONG_MS = 40_000


@pytest.fixture(scope="module")
def running(server_binary: Any) -> Iterator[Cluster]:
    with cluster_for_all_users() as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    """With the configuration that it was started with."""
    with running.configuration_kept():
        yield running
    assert reloaded(running)["status"] in ("reloaded", "unchanged")


def reloaded(cluster: Cluster) -> dict[str, Any]:
    """What an operator is told."""
    with cluster.operator() as operator:
        return as_map(operator.execute_command("RELOAD"))


def write(cluster: Cluster, **settings: Any) -> None:
    """The file, in one piece."""
    new = cluster.config_path.with_suffix(".new")
    new.write_text(json.dumps(merged(cluster.config(), settings)))
    new.replace(cluster.config_path)


def reload(cluster: Cluster, **settings: Any) -> dict[str, Any]:
    write(cluster, **settings)
    return reloaded(cluster)


def reloads(cluster: Cluster) -> int:
    return cluster.log_text().count("event=reload ")


def info(cluster: Cluster) -> dict[str, Any]:
    return dict(cluster.client().info())


def a_class(name: str, **policy: Any) -> dict[str, Any]:
    return {"name": name, "match": f"{name}:*", **policy}


def test_a_hangup_signal_brings_classes_that_count_for_new_locks_and_takes_nothing_from_holders(
    cluster: Cluster,
) -> None:
    assert reload(cluster, classes=[a_class("old"), a_class("short")])["changed"] == ["classes"]
    wire, pid, before = Wire(cluster.socket), cluster.agent.pid, reloads(cluster)
    held = token_of(wire.ask("LOCK", "old:held", LONG_MS))
    detached = token_of(wire.ask("LOCK", "short:held", LONG_MS, "DETACHED"))
    waiter = Wire(cluster.socket)
    waiter.send("LOCK", "old:held", LONG_MS, "WAIT", LONG_MS)
    eventually(lambda: cluster.metric("lockd_waiters", **{"class": "old"}) == 1, what="it waits")
    write(cluster, classes=[a_class("short", max_ttl_ms=500, max_wait_ms=0), a_class("new")])
    os.kill(pid, signal.SIGHUP)
    eventually(lambda: reloads(cluster) > before, what="the reload")
    # What is new goes by the new classes.
    assert kind(wire.ask("LOCK", "short:new", LONG_MS)) == "ERR"
    assert cluster.metric("lockd_grants_total", **{"class": "new"}) == 0
    token_of(wire.ask("LOCK", "new:1", LONG_MS))
    assert cluster.metric("lockd_grants_total", **{"class": "new"}) == 1
    # What was there before has its terms.
    assert token_of(wire.ask("EXTEND", "old:held", held, LONG_MS)) == held
    assert token_of(wire.ask("EXTEND", "short:held", detached, LONG_MS)) == detached
    assert wire.ask("UNLOCK", "old:held", held) == 1
    token_of(waiter.reply())
    assert cluster.metric("lockd_grants_total", **{"class": "old"}) == 2
    said = lockctl(cluster, "doctor", "--json", "--config", cluster.config_path).json["checks"]
    assert [one["verdict"] for one in said if one["check"] in ("configuration", "reload")] == ["ok"]
    assert info(cluster)["config_fingerprint"] in {
        series.partition('fingerprint="')[2][:12] for series in cluster.metrics() if "config_info" in series
    }
    assert cluster.agent.pid == pid


def test_a_lease_is_extended_by_what_it_was_granted_for_though_that_is_too_short_or_too_long_now(
    cluster: Cluster,
) -> None:
    short_ms, wire = 30_000, Wire(cluster.socket)
    held = {ms: token_of(wire.ask("LOCK", f"own:{ms}", ms)) for ms in (short_ms, LONG_MS)}
    reload(cluster, min_ttl_ms=short_ms + 1, classes=[a_class("own", max_ttl_ms=short_ms + 2)])
    assert [kind(wire.ask("LOCK", "own:new", ms)) for ms in held] == ["ERR", "ERR"]
    assert [token_of(wire.ask("EXTEND", f"own:{ms}", held[ms], ms)) for ms in held] == list(held.values())
    cluster.agent.kill()
    cluster.agent.start()
    cluster.wait_voting(3)
    wire = Wire(cluster.socket)
    assert [token_of(wire.ask("EXTEND", f"own:{ms}", held[ms], ms)) for ms in held] == list(held.values())
    assert kind(wire.ask("EXTEND", f"own:{LONG_MS}", held[LONG_MS], LONG_MS + 1)) == "ERR"


def test_who_may_not_lock_any_more_keeps_and_extends_what_he_holds(
    cluster: Cluster, connect: Connect
) -> None:
    wire = connect(cluster, NOBODY)
    token = token_of(wire.ask("LOCK", "jobs:1", LONG_MS, "DETACHED"))
    reload(cluster, classes=[a_class("jobs", users=["daemon"])])
    assert kind(wire.ask("LOCK", "jobs:2", LONG_MS)) == "DENIED"
    assert kind(wire.ask("EXTEND", "jobs:1", "0" * 32, LONG_MS)) == "DENIED"
    assert kind(connect(cluster, DAEMON + 1).ask("EXTEND", "jobs:1", token, LONG_MS)) == "DENIED"
    assert token_of(wire.ask("EXTEND", "jobs:1", token, LONG_MS)) == token
    token_of(connect(cluster, DAEMON).ask("LOCK", "jobs:2", LONG_MS))


@pytest.mark.parametrize(
    ("stock", "less", "number", "words"),
    [
        ("renewals", {"renewals_per_second": 100, "share_percent": 1}, 20, ()),
        ("bytes", {"memory_mib": 64, "share_percent": 1}, 500, ("DETACHED",)),
    ],
)
def test_less_than_what_is_in_use_takes_nothing_away_and_stops_only_what_is_new(
    cluster: Cluster, stock: str, less: dict[str, int], number: int, words: tuple[str, ...]
) -> None:
    wire, other, names = Wire(cluster.socket), Wire(cluster.socket), [f"{stock}:{n}" for n in range(number)]
    tokens = [token_of(wire.ask("LOCK", name, LONG_MS, *words)) for name in names]
    assert {f"limits.{key}" for key in less} <= {*reload(cluster, limits=less)["changed"]}
    assert str(wire.ask("LOCK", f"{stock}:more", LONG_MS, *words)).startswith(f"LIMIT {stock}: ")
    assert [token_of(wire.ask("EXTEND", *one, LONG_MS)) for one in zip(names, tokens, strict=True)] == tokens
    reload(cluster)
    token_of(other.ask("LOCK", f"{stock}:more", LONG_MS, *words))


def test_with_fewer_files_than_are_in_use_connections_stay_and_no_more_come(
    cluster: Cluster, connect: Connect
) -> None:
    # Each is made by a process of its own, which is a file, too.
    there = [connect(cluster, NOBODY) for _ in range(4)]
    assert [one.ask("PING") for one in there] == [b"PONG"] * 4
    reload(cluster, limits={"files": 672, "share_percent": 1})
    assert str(connect(cluster, NOBODY).reply()).startswith(f"LIMIT files: uid {NOBODY} has 8, ")
    assert [one.ask("PING") for one in there] == [b"PONG"] * 4
    reload(cluster, limits={"files": 1_440, "share_percent": 1})
    assert connect(cluster, NOBODY).ask("PING") == b"PONG"


def test_the_rate_of_unknown_tokens_is_another_at_once(cluster: Cluster) -> None:
    wire = Wire(cluster.socket)
    reload(cluster, limits={"unknown_tokens_per_second": 1})
    # In one piece: a second goes by between commands on a slow machine.
    wire.send_raw(3 * request("UNLOCK", "x", "0" * 32))
    assert "LIMIT" in [kind(wire.reply()) for _ in range(3)]
    reload(cluster, limits={"unknown_tokens_per_second": 500})
    assert [kind(wire.ask("UNLOCK", "x", "0" * 32)) for _ in range(3)] == ["NOTHELD"] * 3


def test_the_log_says_more_and_less_again(cluster: Cluster) -> None:
    wire = Wire(cluster.socket)

    def told(name: str) -> bool:
        token = token_of(wire.ask("LOCK", name, LONG_MS))
        assert wire.ask("UNLOCK", name, token) == 1
        return f"event=granted resource={name}" in cluster.log_text()

    assert not told("quiet:1")
    reload(cluster, log_level="debug")
    assert told("loud")
    reload(cluster)
    assert not told("quiet:2")


def test_the_canary_begins_and_ends(cluster: Cluster) -> None:
    sung = {"name": "lockd_canary_seconds_count", "outcome": "granted"}
    before = cluster.metric(**sung)
    assert reload(cluster, canary_ms=20)["changed"] == ["canary_ms"]
    eventually(lambda: cluster.metric(**sung) > before + 3, what="it sings")
    assert cluster.metric("lockd_canary_interval_seconds") == 0.02
    reload(cluster)
    after = cluster.metric(**sung)
    assert cluster.metric(**sung) - after <= 1
    assert cluster.metric("lockd_canary_interval_seconds") == 0


@contextmanager
def nothing_changes(cluster: Cluster) -> Iterator[None]:
    wire, before = Wire(cluster.socket), info(cluster)["config_fingerprint"]
    loaded = cluster.metric("lockd_config_last_reload_success_timestamp_seconds")
    held = token_of(wire.ask("LOCK", "held", LONG_MS))
    yield
    assert info(cluster)["config_fingerprint"] == before
    assert cluster.metric("lockd_config_last_reload_successful") == 0
    assert cluster.metric("lockd_config_last_reload_success_timestamp_seconds") == loaded
    assert wire.ask("UNLOCK", "held", held) == 1
    new = token_of(wire.ask("LOCK", "new", LONG_MS))
    assert wire.ask("UNLOCK", "new", new) == 1


def test_what_takes_a_restart_is_named_and_nothing_is_changed(cluster: Cluster) -> None:
    settings = {"max_ttl_ms": 50_000, "timeouts": {"dead_ms": 9_999}}
    with nothing_changes(cluster):
        said = reload(cluster, classes=[a_class("new", max_ttl_ms=100)], **settings)
        assert (said["status"], said["restart_needed"]) == ("refused", ["max_ttl_ms", "timeouts.dead_ms"])
    by_setting = {"name": "lockd_config_restart_needed"}
    assert cluster.metric(**by_setting) == 2
    assert cluster.metric(setting="timeouts.dead_ms", **by_setting) == 1
    assert info(cluster)["config_restart_needed"] == "max_ttl_ms timeouts.dead_ms"
    assert "status=refused changed=classes restart_needed=max_ttl_ms,timeouts.dead_ms" in cluster.log_text()
    [found] = [one for one in lockctl(cluster, "doctor", "--json").json["checks"] if one["check"] == "reload"]
    assert found["verdict"] == "warning"
    assert "a restart is needed for max_ttl_ms, timeouts.dead_ms" in found["what"]
    # Taken back, all is well again.
    assert reload(cluster)["status"] == "unchanged"
    assert cluster.metric("lockd_config_last_reload_successful") == 1
    assert cluster.metric(**by_setting) == 0


def test_each_mistake_is_told_as_check_config_does_and_nothing_is_changed(cluster: Cluster) -> None:
    classes = [a_class(f"c{n}", max_wait_ms=-1) for n in range(40)]
    with nothing_changes(cluster):
        said = reload(cluster, classes=classes, log_level="loud")
    assert (said["status"], len(said["problems"])) == ("invalid", 41)
    logged = cluster.log_text()
    for problem in said["problems"]:
        assert problem.replace('"', r"\"") in logged
    done = lockctl(cluster, "reload")
    assert done.returncode == WRONG
    assert done.stderr.splitlines()[1:] == said["problems"]
    assert "lockd check-config" in lockctl(cluster, "doctor").stdout


def test_reloads_that_come_together_leave_what_is_in_the_file(cluster: Cluster) -> None:
    links = [Wire(cluster.socket) for _ in range(8)]
    before = reloads(cluster)
    for number, link in enumerate(links):
        write(cluster, classes=[a_class(f"c{number}")])
        link.send("RELOAD")
        os.kill(cluster.agent.pid, signal.SIGHUP)
    assert {as_map(link.reply())[b"status"] for link in links} <= {b"reloaded", b"unchanged"}
    eventually(lambda: reloads(cluster) > before + len(links), what="one that a signal asked for")
    assert lockctl(cluster, "reload", "--check").returncode == DONE


def test_reload_is_for_operators_and_says_by_its_exit_status_what_it_did_or_would_do(
    cluster: Cluster, connect: Connect
) -> None:
    assert kind(connect(cluster, NOBODY).ask("RELOAD")) == "DENIED"
    assert kind(Wire(cluster.socket).ask("RELOAD", "NOW")) == "ERR"
    new = {"classes": [a_class("new")]}
    same = (DONE, "the agent already uses the settings in its file\n")
    refused = (WRONG, "nothing is reloaded: a restart is needed for metrics\n")
    for settings, looked, done in (
        (new, (NO, "a reload would change classes\n"), (DONE, "reloaded: classes\n")),
        (new, same, same),
        ({"metrics": None}, refused, refused),
    ):
        write(cluster, **settings)
        for words, expected in ((("reload", "--check"), looked), (("reload",), done)):
            ended = lockctl(cluster, *words)
            assert (ended.returncode, ended.stdout + ended.stderr) == expected


def test_an_agent_that_stops_leaves_a_reload_to_the_next(cluster: Cluster) -> None:
    own = cluster.add_agent()
    holder = Wire(own.socket)
    token_of(holder.ask("LOCK", "while:stopping", LONG_MS))
    os.kill(own.agent.pid, signal.SIGTERM)
    eventually(lambda: "event=stopping" in own.log_text(), what="it stops")
    os.kill(own.agent.pid, signal.SIGHUP)
    assert own.agent.wait(PATIENCE_S)
    assert own.agent.exit_status == 0
    assert reloads(own) == 0


def test_no_hangup_signal_ends_an_agent_however_late_it_comes(cluster: Cluster) -> None:
    own = cluster.add_agent()
    pid = own.agent.pid
    os.kill(pid, signal.SIGTERM)
    while own.agent.running:
        os.kill(pid, signal.SIGHUP)
    assert own.agent.exit_status == 0


def test_a_file_that_can_not_be_read_to_its_end_keeps_no_agent_from_stopping(cluster: Cluster) -> None:
    config = cluster.config_path.read_text()
    cluster.config_path.unlink()
    os.mkfifo(cluster.config_path)
    try:
        wire = Wire(cluster.socket)
        wire.send("RELOAD")
        assert Wire(cluster.socket).ask("PING") == b"PONG"
        cluster.agent.stop(PATIENCE_S)
        assert cluster.agent.exit_status == 0
    finally:
        cluster.config_path.unlink()
        cluster.config_path.write_text(config)
        cluster.agent.start()
        cluster.wait_voting(3)
