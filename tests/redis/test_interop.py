"""redis-cli, and redis-py in each of its ways: they connect without an error or an option, lock and unlock.

What all clients have in common is in tests/clients.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import redis
import redis.asyncio

from tests.harness.cluster import Cluster
from tests.harness.terminal import Terminal
from tests.harness.waiting import PATIENCE_S, eventually
from tests.harness.wire import Wire, as_map
from tests.redis.module_cluster import module_cluster

TTL_MS = 60_000
TOKEN = re.compile(r"\b[0-9a-f]{32}\b")


cluster = module_cluster(3)


@pytest.fixture(autouse=True)
def nothing_is_left_and_nothing_was_wrong(cluster: Cluster) -> Iterator[None]:
    """After each test nothing is held, and no client has sent what the agent calls broken."""
    errors = cluster.log_text().count("protocol_error")
    yield
    with Wire(cluster.socket) as wire:
        eventually(lambda: wire.info()["leases"] == wire.info()["waiters"] == "0", "nothing is left")
    assert cluster.log_text().count("protocol_error") == errors


@pytest.fixture(params=["RESP2", "RESP3"])
def protocol(request: pytest.FixtureRequest) -> int:
    return int(request.param[-1])


# redis-cli


@pytest.fixture(scope="module")
def redis_cli() -> str:
    """PATH's redis-cli."""
    found = shutil.which("redis-cli")
    if found is None:
        pytest.skip("no redis-cli on this machine")
    return found


@pytest.fixture
def cli(redis_cli: str, cluster: Cluster, protocol: int) -> list[str]:
    """How redis-cli is called, as one would type it."""
    return [redis_cli, "-s", str(cluster.socket), *(["-3"] if protocol == 3 else [])]


def run(command: list[str], given: bytes | None = None) -> str:
    """What a program printed, that had to end well and print no error."""
    done = subprocess.run(command, input=given, capture_output=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stderr) == (0, b""), (done.returncode, done.stdout, done.stderr)
    return done.stdout.decode()


def test_one_shot_redis_cli_locks_and_unlocks(cli: list[str], cluster: Cluster) -> None:
    printed = run([*cli, "LOCK", "cli:one", str(TTL_MS), "DETACHED"])
    assert re.search(r"fence\s+\d+", printed)
    [token] = TOKEN.findall(printed)
    assert "TAKEN retry-after=" in run([*cli, "LOCK", "cli:one", str(TTL_MS)])
    assert "cli:one" in run([*cli, "HOLDER", "cli:one"])
    assert run([*cli, "UNLOCK", "cli:one", token]).strip() == "1"
    assert TOKEN.search(run([*cli, "LOCK", "cli:session", str(TTL_MS)]))
    with Wire(cluster.socket) as wire:
        eventually(lambda: wire.ask("HOLDER", "cli:session") is None, "a session lock ends with it")


def test_redis_cli_takes_the_protocol_itself_from_a_pipe(redis_cli: str, cluster: Cluster) -> None:
    commands = b"*3\r\n$4\r\nLOCK\r\n$8\r\ncli:mass\r\n$5\r\n60000\r\n" + b"*1\r\n$4\r\nPING\r\n" * 200
    printed = run([redis_cli, "-s", str(cluster.socket), "--pipe"], commands)
    assert "errors: 0, replies: 201" in printed


def test_redis_cli_shows_info_masters_and_help_texts(cli: list[str]) -> None:
    assert "masters_voting:3" in run([*cli, "INFO"])
    assert "m2" in run([*cli, "MASTERS"])
    assert "Releases a lease." in run([*cli, "COMMAND", "DOCS", "UNLOCK"])
    assert "[UNUSED|RECOVER|UPGRADE]" in run([*cli, "help", "@masters"])
    assert "cluster" in run([*cli, "--raw", "INFO", "server"])


AT_HOME = {"TERM": "xterm", "HOME": "/nonexistent"}
PROMPT = r"agent\.sock> "
"""Waited for before anything is typed: what comes before it is thrown away."""


def test_interactive_redis_cli_connects_in_silence_hints_and_locks(cli: list[str]) -> None:
    with Terminal(*cli, columns=250, environment=AT_HOME) as screen:
        before = screen.wait_for(rf"^(.*)redis [^>]*{PROMPT}")[1]
        assert before.strip() == "", f"printed at connect: {before!r}"
        screen.type("LOCK cli:tty ")
        screen.wait_for(r"ttl-ms \[WAIT ms\] \[MAXHOLD ms\] \[DETACHED\|CONNECTION\] \[NOTIFY\]")
        screen.type("60000\r")
        token = screen.wait_for(rf'"token".*?"([0-9a-f]{{32}})".*deadline_ns.*{PROMPT}')[1]
        screen.type("unlock ")
        screen.wait_for("resource token")
        screen.type(f"cli:tty {token}\r")
        screen.wait_for(rf"\(integer\) 1\r?\n.*{PROMPT}")
        screen.type("help UNLOCK\r")
        screen.wait_for(rf"Releases a lease\..*{PROMPT}")
        screen.type("lock cli:tty never\r")
        screen.wait_for(rf"\(error\) ERR the ttl must be.*{PROMPT}")


def test_a_loss_shows_in_interactive_redis_cli(redis_cli: str, cluster: Cluster) -> None:
    command = (redis_cli, "-3", "-s", cluster.socket)
    with Terminal(*command, columns=250, environment=AT_HOME) as screen, Wire(cluster.socket) as wire:
        screen.wait_for(PROMPT)
        screen.type("LOCK cli:lost 60000 NOTIFY\r")
        screen.wait_for(f"deadline_ns.*{PROMPT}")
        wire.ask("FORCERELEASE", "cli:lost")
        screen.type("PING\r")
        screen.wait_for('"lost".*"cli:lost".*"released by force')


# redis-py


@contextmanager
def without_a_warning(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Warnings are errors, and nothing is logged that anybody should look at."""
    with warnings.catch_warnings(), caplog.at_level(logging.WARNING):
        warnings.simplefilter("error")
        yield
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


OPTIONS: list[dict[str, Any]] = [
    {},
    {"protocol": 2},
    {"protocol": 3},
    {"protocol": 3, "decode_responses": True},
]


def renewals(cluster: Cluster) -> float:
    return cluster.metric("lockd_renewals_total", outcome="worked")


def is_renewed(cluster: Cluster, client: redis.Redis, before: float) -> bool:
    """A short lease of this client's. On a machine that stands still it is over first, and taken again."""
    with suppress(redis.ResponseError):
        client.execute_command("LOCK", "py:pool:short", 1_500)
    return renewals(cluster) > before


POOLED = [f"py:pool:{number}" for number in range(4)]


def text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def lease_of(reply: Any) -> dict[str, Any]:
    return {text(name): value for name, value in as_map(reply).items()}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_redis_py_locks_and_unlocks(
    cluster: Cluster, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with without_a_warning(caplog), redis.Redis(unix_socket_path=str(cluster.socket), **options) as client:
        assert client.ping() is True
        assert client.info()["loading"] == 0
        lease = lease_of(client.execute_command("LOCK", "py:one", TTL_MS))
        assert TOKEN.fullmatch(text(lease["token"]))
        with pytest.raises(redis.ResponseError, match="TAKEN retry-after="):
            client.execute_command("LOCK", "py:one", TTL_MS)
        assert client.execute_command("UNLOCK", "py:one", lease["token"]) == 1
        commands = client.command()
        assert client.command_count() == len(commands)
        assert commands["lock"]["arity"] == -3
        assert client.client_id() > 0


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_pool_of_redis_py_loses_no_lock_and_no_command_by_another_s_loss(
    cluster: Cluster, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """In RESP3, its default, it takes a push that waits for a broken connection, and opens another: all that
    the first one held would be free. In RESP2 the next command of the pool is another's."""
    with (
        without_a_warning(caplog),
        redis.Redis(unix_socket_path=str(cluster.socket), **options) as client,
        Wire(cluster.socket) as wire,
    ):
        tokens = {name: lease_of(client.execute_command("LOCK", name, TTL_MS))["token"] for name in POOLED}
        connections = wire.info()["connected_clients"]
        before = renewals(cluster)
        wire.ask("FORCERELEASE", "py:pool:0")
        eventually(lambda: is_renewed(cluster, client, before), "one of it is renewed")
        for number in range(20):
            assert text(client.echo(str(number))) == str(number)
        assert wire.info()["connected_clients"] == connections
        with pytest.raises(redis.ResponseError, match=r"EXPIRED the lease of 'py:pool:0' was lost: .* force"):
            client.execute_command("UNLOCK", "py:pool:0", tokens.pop("py:pool:0"))
        for name, token in tokens.items():
            assert client.execute_command("UNLOCK", name, token) == 1


def test_in_resp2_redis_py_raises_a_loss_on_the_next_command_where_notify_was_said(cluster: Cluster) -> None:
    with (
        redis.Redis(unix_socket_path=str(cluster.socket), protocol=2) as client,
        Wire(cluster.socket) as wire,
    ):
        client.execute_command("LOCK", "py:loss", TTL_MS, "NOTIFY")
        wire.ask("FORCERELEASE", "py:loss")
        with pytest.raises(redis.ResponseError, match="EXPIRED"):
            client.ping()
        assert client.ping() is True


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_redis_py_asyncio_locks_and_unlocks(
    cluster: Cluster, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def locks_and_unlocks() -> None:
        async with redis.asyncio.Redis(unix_socket_path=str(cluster.socket), **options) as client:
            assert await client.ping() is True
            lease = lease_of(await client.execute_command("LOCK", "aio:one", TTL_MS))
            with pytest.raises(redis.ResponseError, match="TAKEN retry-after="):
                await client.execute_command("LOCK", "aio:one", TTL_MS)
            assert await client.execute_command("UNLOCK", "aio:one", lease["token"]) == 1

    with without_a_warning(caplog):
        asyncio.run(locks_and_unlocks())
