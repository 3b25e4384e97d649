"""What an agent may do on the masters under the users that the role gives them, and what it may not."""

from __future__ import annotations

import base64
import importlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import redis

from lockd.dev.processes import LOOPBACK, LocalMaster, flavour
from lockd.guard.config import GuardConfig
from lockd.guard.guard import Guard
from lockd.guard.host import Host
from lockd.guard.stop import _rest
from lockd.masters import scripts
from tests.harness.app import App
from tests.harness.cluster import Cluster, MakeCluster
from tests.harness.lockctl import at_terminal
from tests.harness.masters import running_masters, short_folder
from tests.harness.on_masters import FENCES, IDENTITY
from tests.harness.waiting import eventually
from tests.harness.wire import as_map
from tests.redis.identities import state_of
from tests.redis.role_users import (
    AGENT,
    ANOTHER_AGENT,
    TEMPLATE,
    as_user,
    password_of,
    rights_of_agents,
    users_acl,
    version_of,
)
from tests.redis.scripted import Scripted

OPERATOR = ("AUTH", "lockd_operator", password_of("lockd_operator"))
TTL_MS = 60_000
REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs/reference/masters.md"


def asking(master: LocalMaster, user: str) -> redis.Redis:
    return redis.Redis(LOOPBACK, master.port, decode_responses=True, retry=None, **as_user(user))


def on_as(master: LocalMaster, user: str, *words: str | int) -> Any:
    """What the master answers this user."""
    with asking(master, user) as link:
        return link.execute_command(*words)


def refusal(master: LocalMaster, user: str, *words: str | int) -> str:
    with pytest.raises(redis.ResponseError) as refused:
        on_as(master, user, *words)
    # redis-py takes the first word away, and makes a type of it.
    lacking = isinstance(refused.value, redis.exceptions.NoPermissionError)
    return f"NOPERM {refused.value}" if lacking else str(refused.value)


def load_scripts(*masters: LocalMaster) -> None:
    """What the master's own unit does at each start."""
    for master in masters:
        with asking(master, "lockd_loader") as link:
            for script in scripts.ALL:
                link.script_load(script.text.decode())


@pytest.fixture
def make_guarded(make_cluster: MakeCluster, server_binary: Path, tmp_path: Path) -> MakeCluster:
    """A cluster that is not formed, under the users of the role. Scripts are not loaded."""

    def make(server: Path | None = None, **options: Any) -> Cluster:
        file = tmp_path / "users.acl"
        file.write_text(users_acl(version_of(server or server_binary)))
        settings = {"aclfile": str(file), "unixsocket": "master.sock"}
        options = {"masters": 3, "form": False, "auth": as_user(AGENT)} | options
        return make_cluster(server=server, master_settings=settings, **options)

    return make


def formed(cluster: Cluster) -> Cluster:
    load_scripts(*cluster.masters)
    wait_blank(cluster)
    app = App(cluster)
    # A master whose link was lost meanwhile is looked at anew: then FORM is refused for once.
    eventually(lambda: as_map(app.ask("FORM", "UNUSED", *OPERATOR))["status"] in ("formed", "already"))
    cluster.wait_voting(len(cluster.masters))
    return cluster


def wait_blank(cluster: Cluster) -> None:
    eventually(lambda: {one["state"] for one in cluster.master_states()} == {"blank"}, "all are blank")


def identities(cluster: Cluster) -> list[dict[str, str]]:
    return [on_as(master, "lockd_admin", "HGETALL", IDENTITY) for master in cluster.masters]


# What it may


def test_an_agent_works_and_is_never_refused(make_guarded: MakeCluster, any_server: Path) -> None:
    cluster = formed(make_guarded(any_server, masters=1))
    [master] = cluster.masters
    on_as(master, "lockd_admin", "ACL", "LOG", "RESET")
    app = App(cluster)
    lease = app.lock("a", TTL_MS, "DETACHED")
    app.ask("EXTEND", "a", lease["token"], TTL_MS)
    assert app.ask("HOLDER", "a")
    assert len(app.ask("LOCKS")) == 1
    assert app.ask("UNLOCK", "a", lease["token"]) == 1
    app.lock("b", TTL_MS, "DETACHED")
    assert app.ask("FORCERELEASE", "b") == 1
    held = app.lock("c", TTL_MS, "DETACHED")
    waiting = App(cluster)
    waiting.send("LOCK", "c", TTL_MS, "WAIT", TTL_MS)
    eventually(lambda: on_as(master, "lockd_admin", "HLEN", "lockd:places:c"), "it has left its place")
    assert app.ask("UNLOCK", "c", held["token"]) == 1
    assert waiting.locked()["token"]
    assert len(on_as(master, "lockd_admin", "PUBSUB", "CHANNELS")) == 1
    assert on_as(master, "lockd_admin", "ACL", "LOG") == []


def test_an_agent_may_end_its_old_session_before_it_asks_again(
    make_guarded: MakeCluster, any_server: Path
) -> None:
    cluster = formed(make_guarded(any_server, masters=1, timeouts={"dead_ms": 500}))
    [master] = cluster.masters
    sessions = _sessions(master)
    on_as(master, "lockd_admin", "ACL", "LOG", "RESET")
    master.pause()
    eventually(lambda: state_of(cluster, "m1") == "down", what="its link is given up")
    master.resume()
    cluster.wait_voting(1)
    eventually(lambda: not set(sessions) & set(_sessions(master)), what="the old session is gone")
    assert on_as(master, "lockd_admin", "ACL", "LOG") == []
    with asking(master, "lockd_admin") as link:
        used = link.info("commandstats")
    # Redis 6.2 counts no subcommands.
    assert ("cmdstat_client" if flavour(any_server) == "redis-6.2" else "cmdstat_client|kill") in used


def _sessions(master: LocalMaster) -> list[str]:
    with asking(master, "lockd_admin") as link:
        return [one["id"] for one in link.client_list() if one["user"] == AGENT]


# What it may not

EVERYTHING_ELSE = [
    "SCRIPT LOAD x", "SCRIPT FLUSH", "EVAL x 0", "FUNCTION LOAD x", "FCALL x 0", "MODULE LIST",
    "CONFIG SET maxmemory 1", "CONFIG REWRITE", "CONFIG RESETSTAT", "FLUSHALL", "FLUSHDB", "DEBUG SLEEP 0",
    "REPLICAOF 127.0.0.1 1", "FAILOVER", "SHUTDOWN", "MONITOR", "ACL LIST", "ACL WHOAMI", "SLOWLOG GET",
    "LATENCY LATEST", "MEMORY STATS", "KEYS *", "RANDOMKEY", "SUBSCRIBE x", "PUBLISH x y", "CLIENT LIST",
    "CLIENT PAUSE 1000", "CLIENT NO-EVICT on", "BGREWRITEAOF", "BGSAVE", "SAVE", "SWAPDB 0 1", "SELECT 1",
    "PERSIST lockd:lease:a", "RENAME lockd:lease:a lockd:lease:b", "MIGRATE 127.0.0.1 1 k 0 1", "DUMP k",
    "SET other 1", "GET other", "SET lockd:other 1", "HSET lockd:other a 1", "DEL lockd:other", "PSYNC ? -1",
]  # fmt: skip


@pytest.mark.parametrize("command", EVERYTHING_ELSE)
def test_an_agent_may_do_nothing_else(guarded_master: LocalMaster, command: str) -> None:
    no = ("NOPERM", "DEBUG command not allowed")
    assert refusal(guarded_master, AGENT, *command.split()).startswith(no)


@pytest.fixture(scope="module")
def guarded_master(server_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalMaster]:
    with one_master(server_binary, tmp_path_factory.mktemp("guarded")) as master:
        yield master


@contextmanager
def one_master(binary: Path, folder: Path) -> Iterator[LocalMaster]:
    file = folder / "users.acl"
    file.write_text(users_acl(version_of(binary)))
    settings = {"aclfile": str(file), "unixsocket": "master.sock"}
    with short_folder() as short, running_masters(short, 1, binary, settings) as [master]:
        load_scripts(master)
        yield master


WAYS_TO_ANOTHER_IDENTITY = [
    ("HSET", IDENTITY, "cluster", "mine"),
    ("DEL", IDENTITY),
    ("SET", IDENTITY, "x"),
    ("PEXPIRE", IDENTITY, 1),
    ("EVALSHA", scripts.IDENTIFY.digest.decode(), 2, IDENTITY, FENCES, "mine", "m1", 1_000),
    # Its KEYS are what the caller says.
    ("EVALSHA", scripts.RELEASE.digest.decode(), 1, IDENTITY, "x"),
]


@pytest.mark.parametrize("words", WAYS_TO_ANOTHER_IDENTITY, ids=lambda words: str(words[0]))
def test_who_the_masters_are_an_agent_may_read_and_not_change(
    guarded_master: LocalMaster, words: tuple[str | int, ...]
) -> None:
    if flavour(guarded_master.binary) == "redis-6.2":
        pytest.skip("Redis 6.2 can't let a user read a key and not write it, as masters.md says")
    on_as(guarded_master, "lockd_admin", "HSET", IDENTITY, "cluster", "test", "name", "m1")
    assert "NOPERM" in refusal(guarded_master, AGENT, *words)
    assert on_as(guarded_master, AGENT, "HGETALL", IDENTITY) == {"cluster": "test", "name": "m1"}


def test_what_an_agent_may_read_of_the_configuration_has_no_secret(guarded_master: LocalMaster) -> None:
    settings = on_as(guarded_master, AGENT, "CONFIG", "GET", "*")
    secret = re.compile(r"pass$|auth$|password")
    assert {name: value for name, value in settings.items() if secret.search(name) and value} == {}
    assert password_of(AGENT) not in str(settings)
    role = (TEMPLATE.parent / "master.conf.j2").read_text()
    named = {line.split()[0] for line in role.splitlines() if line and not line.startswith(("#", "{"))}
    assert [name for name in named if secret.search(name)] == []


def test_operators_write_identities_and_the_loader_loads_and_neither_does_more(
    guarded_master: LocalMaster,
) -> None:
    neither = [("SET", "lockd:lease:a", 1), ("EVAL", "return 1", 0), ("FLUSHALL",), ("SHUTDOWN",)]
    neither += [("CONFIG", "SET", "appendonly", "no"), ("CLIENT", "LIST")]
    for words in (*neither, ("CONFIG", "GET", "*"), ("CLIENT", "PAUSE", 1)):
        assert "NOPERM" in refusal(guarded_master, "lockd_operator", *words)
    others = [("GET", "lockd:lease:a"), ("EVALSHA", "x", 0), ("SCRIPT", "FLUSH"), ("HGETALL", IDENTITY)]
    for words in (*neither, *others, ("CLIENT", "UNPAUSE")):
        assert "NOPERM" in refusal(guarded_master, "lockd_loader", *words)


def test_nobody_makes_a_copy_of_a_master(guarded_master: LocalMaster) -> None:
    """Neither by attaching a replica to it, nor by making it one. A backup is a copy, too."""
    for user in (AGENT, "lockd_operator", "lockd_loader", "lockd_admin"):
        for words in (("PSYNC", "?", -1), ("SYNC",), ("REPLCONF", "ack", 1), ("REPLICAOF", LOOPBACK, 1)):
            assert "NOPERM" in refusal(guarded_master, user, *words)


# Forming and admitting


def test_a_cluster_is_formed_by_operators_alone(make_guarded: MakeCluster) -> None:
    """lockctl asks for their password at a terminal."""
    cluster = make_guarded()
    load_scripts(*cluster.masters)
    wait_blank(cluster)
    app = App(cluster)
    for words in ("FORM AUTH x", "FORM UNUSED AUTH x", "FORM AUTH x y z", "ADMIT m1 AUTH x"):
        assert "syntax error" in app.refused(*words.split())
    said = app.refused("FORM", "UNUSED")
    assert "does not let this agent write identities" in said
    assert "--operator-user lockd_operator" in said
    wrong = app.refused("FORM", "UNUSED", "AUTH", "lockd_operator", "not-this-one")
    assert "m1 does not let 'lockd_operator' write identities (WRONGPASS" in wrong
    not_allowed = app.refused("FORM", "UNUSED", "AUTH", ANOTHER_AGENT, password_of(ANOTHER_AGENT))
    assert f"m1 does not let '{ANOTHER_AGENT}' write identities (NOPERM" in not_allowed
    assert identities(cluster) == [{}, {}, {}]
    words = ("cluster", "init", "--unused", "--operator-user", "lockd_operator")
    secret, prompt = password_of("lockd_operator"), "Password of lockd_operator on the masters:"
    done = at_terminal(cluster, *words, typed=f"{secret}\n", once=prompt.encode())
    assert done.returncode == 0, done.stdout
    assert "the cluster is formed" in done.stdout
    cluster.wait_voting(3)
    assert [one["name"] for one in identities(cluster)] == ["m1", "m2", "m3"]
    for secret in ("not-this-one", password_of("lockd_operator"), password_of(ANOTHER_AGENT)):
        assert secret not in cluster.log_text() + done.stdout + said + wrong + not_allowed
    assert app.lock("a", TTL_MS)


def test_a_master_is_admitted_by_operators_alone(make_guarded: MakeCluster) -> None:
    cluster = formed(make_guarded(max_ttl_ms=1_000))  # that long it waits
    lost = cluster.masters[1]
    on_as(lost, "lockd_admin", "FLUSHALL")
    app = App(cluster)
    assert "blank" in eventually(lambda: state_of(cluster, "m2") == "blank" and "blank", "it is blank")
    waiting = as_map(app.ask("ADMIT", "m2", *OPERATOR))
    assert waiting["status"] == "waiting"
    refused = eventually(lambda: _refused(app, "ADMIT", "m2"), "the wait is over")
    assert "m2 does not let this agent write identities" in refused
    assert as_map(app.ask("ADMIT", "m2", *OPERATOR))["status"] == "admitted"
    cluster.wait_voting(3)


def _refused(app: App, *words: str) -> str:
    app.send(*words)
    reply = app.reply()
    return str(reply) if isinstance(reply, Exception) else ""


# Scripts


def reasons(cluster: Cluster) -> set[tuple[str, str]]:
    return {(one["state"], one["reason"]) for one in cluster.master_states()}


def test_a_master_without_our_scripts_has_no_vote_until_somebody_loads_them(
    make_guarded: MakeCluster, any_server: Path
) -> None:
    cluster = make_guarded(any_server, masters=1)
    [master] = cluster.masters
    [(state, why)] = eventually(
        lambda: found if "scripts" in str(found := reasons(cluster)) else None, what="it is told"
    )
    assert state == "misconfigured"
    assert f"it lacks the scripts {', '.join(script.name for script in scripts.ALL)}" in why
    assert "on its host, sudo systemctl reload lockd-master" in why
    with asking(master, "lockd_loader") as link:
        link.script_load(scripts.ACQUIRE.text.decode())
    eventually(lambda: "scripts extend, take_over, put_back" in str(reasons(cluster)), what="one is there")
    formed(cluster)
    on_as(master, "lockd_admin", "SCRIPT", "FLUSH")
    assert App(cluster).refused("LOCK", "a", TTL_MS).startswith("NOQUORUM")
    eventually(lambda: "it lacks the scripts acquire" in str(reasons(cluster)), what="it is told")
    load_scripts(master)
    cluster.wait_voting(1)
    assert App(cluster).lock("a", TTL_MS)


def test_a_release_survives_that_the_scripts_are_flushed(make_guarded: MakeCluster) -> None:
    cluster = formed(make_guarded(masters=1))
    [master] = cluster.masters
    app = App(cluster)
    lease = app.lock("a", TTL_MS, "DETACHED")
    on_as(master, "lockd_admin", "SCRIPT", "FLUSH")
    app.send("UNLOCK", "a", lease["token"])
    eventually(lambda: "it lacks the scripts" in str(reasons(cluster)), what="it is told")
    assert on_as(master, "lockd_admin", "EXISTS", "lockd:lease:a") == 1
    load_scripts(master)
    eventually(lambda: on_as(master, "lockd_admin", "EXISTS", "lockd:lease:a") == 0, what="it is given back")


@pytest.fixture
def loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program that a master's unit runs at each start; its socket is the test's to set."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "ansible/roles/redis_master/files"))
    module = importlib.import_module("load_scripts")
    folder, password = tmp_path / "scripts", tmp_path / "loader.password"
    folder.mkdir()
    password.write_text(password_of("lockd_loader") + "\n")
    monkeypatch.setattr(module, "FOLDER", str(folder))
    monkeypatch.setattr(module, "PASSWORD_FILE", str(password))
    return module


def test_the_masters_own_unit_loads_the_scripts_of_all_versions_that_are_there(
    loader: ModuleType, make_guarded: MakeCluster, any_server: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = make_guarded(any_server, masters=1)
    [master] = cluster.masters
    loader.SOCKET = str(master.folder / "master.sock")
    assert "there is no script" in loader.main()
    words = [base64.b64encode(script.text).decode() for script in scripts.ALL]
    Path(loader.FOLDER, "new").write_text(" ".join(words) + "\n")
    Path(loader.FOLDER, "old").write_text(base64.b64encode(b"return 'old'").decode() + "\n")
    assert loader.main() == 0
    assert len(capsys.readouterr().out.split()) == len(scripts.ALL) + 1
    wait_blank(cluster)
    assert loader.main() == 0
    assert capsys.readouterr().out == ""
    Path(loader.PASSWORD_FILE).write_text("wrong\n")
    assert "WRONGPASS" in loader.main()


# Before a stop


def test_the_guard_may_ask_before_a_stop_with_what_the_role_gives_the_loader(
    any_server: Path, tmp_path: Path
) -> None:
    with one_master(any_server, tmp_path) as master:
        password = tmp_path / "loader.password"
        password.write_text(password_of("lockd_loader") + "\n")
        given = GuardConfig(60_000, master.folder, "m1.service", password_file=password)
        config = replace(given, socket=master.folder / "master.sock", state_dir=tmp_path / "state")
        wrong = tmp_path / "wrong.password"
        wrong.write_text("wrong\n")
        assert "WRONGPASS" in why_no_rest(replace(config, password_file=wrong), master)
        assert why_no_rest(config, master) == ""


def test_the_guard_asks_where_and_as_whom_the_role_says() -> None:
    role = TEMPLATE.parent.parent
    variables = (role / "vars/main.yml").read_text()
    assert f"lockd_redis_master_socket: {GuardConfig.socket}\n" in variables
    assert f"path: {GuardConfig.password_file}\n" in variables
    assert f"user {GuardConfig.user} on" in TEMPLATE.read_text()


def why_no_rest(config: GuardConfig, master: LocalMaster) -> str:
    return _rest(Guard(config, Host({"MAINPID": str(master.pid)})))[1]


# Shutting one out


def test_an_agent_that_is_no_user_any_more_has_no_vote_and_the_others_go_on(
    make_guarded: MakeCluster,
) -> None:
    cluster = formed(make_guarded())
    lost = cluster.add_agent(auth=as_user(ANOTHER_AGENT))
    lost.wait_voting(3)
    for master in cluster.masters:
        assert on_as(master, "lockd_admin", "ACL", "DELUSER", ANOTHER_AGENT) == 1
    lost.wait_voting(0)
    app = App(lost)  # its links are cut off first, and refused when they come again
    eventually(lambda: "WRONGPASS" in app.refused("LOCK", "a", TTL_MS), what="an agent that is told so")
    assert cluster.voting() == 3
    assert App(cluster).lock("a", TTL_MS)


def test_a_master_that_may_not_tell_an_agent_whose_turn_it_is_votes_and_the_agent_knows(
    make_guarded: MakeCluster,
) -> None:
    cluster = formed(make_guarded())
    assert told_by(cluster) == {"m1", "m2", "m3"}
    mute = cluster.masters[0]
    on_as(mute, "lockd_admin", "ACL", "SETUSER", AGENT, "-subscribe", "resetchannels")
    on_as(mute, "lockd_admin", "CLIENT", "KILL", "USER", AGENT)
    eventually(lambda: told_by(cluster) == {"m2", "m3"}, "it is introduced anew")
    cluster.wait_voting(3)


def told_by(cluster: Cluster) -> set[str]:
    rows = map(as_map, App(cluster).ask("MASTERS"))
    return {row["name"] for row in rows if row["notices"]}


def test_documentation_tells_what_the_role_gives_an_agent() -> None:
    [told] = re.findall(r"(?m)^user agent-app1 on >PASSWORD (.*)$", PAGE.read_text())
    assert rights_of_agents("7.0.15") == told
    assert rights_of_agents("6.2.14") == told.replace("%R~", "~")


def test_an_agent_of_before_there_were_places_votes_all_the_same(one_server: Scripted) -> None:
    """As long as the masters' users are those of before."""
    one_server.reset()
    one_server.identify()
    one_server.acquire("1" * 32, place="host 1")
    rights = rights_of_agents("6.2.14").replace("~lockd:places:* ", "").replace("&lockd:host:* ", "")
    one_server.redis.execute_command("ACL", "SETUSER", "before", "on", ">x", *rights.split())
    before = one_server.as_user("before", "x")
    assert before.acquire("2" * 32, place="host 2")[0] == 0
    assert before.release("1" * 32, "turn", "host 1", "7") == 1
    assert before.acquire("2" * 32, place="host 2")[0] == 1
    assert one_server.redis.keys("lockd:places:*") == []
