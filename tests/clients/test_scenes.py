"""What an app sees through the Redis client of its language: each scene with each that is on this machine.

docs/reference/clients.md says in a table what each of them needs; the programs here are set as it says.
"""

from __future__ import annotations

import re
import secrets
from concurrent.futures import FIRST_COMPLETED, wait
from pathlib import Path

import pytest

from tests.clients.languages import LIBRARIES, Library
from tests.clients.program import HASTY_MS, TTL_MS, Client, Program, Refused, as_map
from tests.harness.cluster import Cluster
from tests.harness.waiting import PATIENCE_S, eventually
from tests.harness.wire import Wire, token_of
from tests.harness.wire import as_map as wire_map

TASKS = 3
WAIT_MS = LONGER_MS = 60_000
PAGE = (Path(__file__).parents[2] / "docs/reference/clients.md").read_text()


@pytest.fixture
def resource(library: Library) -> str:
    return f"{library.name}:{secrets.token_hex(4)}"


def someone_waits(wire: Wire) -> None:
    eventually(lambda: wire.info()["waiters"] != "0", "it waits")


def nobody_waits(wire: Wire) -> None:
    eventually(lambda: wire.info()["waiters"] == "0", "it waits no more")


def is_free(wire: Wire, resource: str) -> None:
    eventually(lambda: wire.ask("HOLDER", resource) is None, "it is free")


def test_it_locks_extends_and_unlocks(program: Program, resource: str) -> None:
    client = program.client()
    lease = client.lock(resource)
    assert lease["bound"] == "process"
    with pytest.raises(Refused, match="TAKEN retry-after="):
        client.lock(resource)
    extended = as_map(client.ask("EXTEND", resource, lease["token"], LONGER_MS))
    assert (extended["token"], extended["fence"]) == (lease["token"], lease["fence"])
    assert int(extended["deadline_ns"]) > int(lease["deadline_ns"])
    assert client.ask("UNLOCK", resource, lease["token"]) == ["1"]


def test_it_waits_for_who_holds(program: Program, resource: str, wire: Wire) -> None:
    token = token_of(wire.ask("LOCK", resource, TTL_MS, "CONNECTION"))
    waiting = program.client().begin("LOCK", resource, TTL_MS, "WAIT", WAIT_MS)
    someone_waits(wire)
    assert wire.ask("UNLOCK", resource, token) == 1
    lease = as_map(waiting.result(PATIENCE_S))
    assert program.client().ask("UNLOCK", resource, lease["token"]) == ["1"]


def test_tasks_on_one_client_take_turns(program: Program, resource: str, wire: Wire) -> None:
    """All wait at once, and each gives back what it holds while others wait: on one connection, too, where
    the reply to that comes after theirs."""
    if program.serial:
        pytest.skip("its program has one task")
    client = program.client()
    waiting = [client.begin("LOCK", resource, TTL_MS, "WAIT", WAIT_MS) for _ in range(TASKS)]
    eventually(lambda: wire.info()["waiters"] == str(TASKS - 1), "all but one wait")
    fences, given_back = [], []
    while waiting:
        done, rest = wait(waiting, PATIENCE_S, FIRST_COMPLETED)
        [lease], waiting = [as_map(one.result()) for one in done], list(rest)
        fences.append(int(lease["fence"]))
        given_back.append(client.begin("UNLOCK", resource, lease["token"]))
    assert fences == sorted(set(fences))
    assert [one.result(PATIENCE_S) for one in given_back] == [["1"]] * TASKS


def test_a_lock_outlives_its_connection_and_another_gives_it_back(
    program: Program, resource: str, wire: Wire
) -> None:
    client = program.client()
    lease = client.lock(resource)
    client.drop()
    with pytest.raises(Refused, match="TAKEN"):
        client.lock(resource)
    assert as_map(client.ask("EXTEND", resource, lease["token"], LONGER_MS))["fence"] == lease["fence"]
    assert client.ask("UNLOCK", resource, lease["token"]) == ["1"]


def test_a_lock_ends_with_its_process(program: Program, resource: str, wire: Wire) -> None:
    program.client().lock(resource)
    program.kill()
    is_free(wire, resource)


def timed_out(client: Client, resource: str, *options: object) -> None:
    with pytest.raises(Refused, match=r"\A(?!TIMEOUT|TAKEN|ERR)"):
        client.lock(resource, "WAIT", WAIT_MS, *options)


def test_what_comes_after_a_time_out_is_nobody_s(
    program: Program, library: Library, resource: str, wire: Wire
) -> None:
    """A client that closes its connection takes its LOCK back with it. One whose connection goes on, for all
    others, has to say so: by the name that it gave its request."""
    token = token_of(wire.ask("LOCK", resource, TTL_MS, "CONNECTION"))
    client = program.client(HASTY_MS)
    if library.shared:
        its_name = secrets.token_hex(16)
        timed_out(client, resource, "TOKEN", its_name)
        assert in_time(client, "UNLOCK", resource, its_name) == ["1"]
    else:
        timed_out(client, resource)
    nobody_waits(wire)
    assert wire.ask("UNLOCK", resource, token) == 1
    patient = program.client()
    lease = patient.lock(resource)
    assert patient.ask("UNLOCK", resource, lease["token"]) == ["1"]
    assert in_time(client, "ECHO", "on") == ["on"]


def in_time(client: Client, *words: object) -> list[str]:
    """What it is answered, which a busy machine may take longer for than it waits: it asks again."""
    return eventually(lambda: client.ask(*words), "an answer in time", not_yet=(Refused,))


def test_a_transaction_takes_redis_own_lock_commands_alone_and_a_plain_pipeline_all(
    program: Program, resource: str, wire: Wire
) -> None:
    client = program.client()
    client.transact("SET", resource, "value", "NX", "PX", TTL_MS)
    assert wire.ask("GET", resource) == b"value"
    assert client.ask("DELEX", resource, "IFEQ", "value") == ["1"]
    with pytest.raises(Refused):
        client.transact("LOCK", resource, TTL_MS)
    before, *lease, after = client.pipe("LOCK", resource, TTL_MS)
    assert (before, after) == ("a", "b")
    assert client.ask("UNLOCK", resource, as_map(lease)["token"]) == ["1"]


def test_pushes_confuse_no_client(program: Program, resource: str, wire: Wire) -> None:
    """They come between replies, or when nothing is asked, to who speaks RESP3. Some clients take that for
    a broken connection and open another."""
    client = program.client()
    ttl_ms = 1_500
    lease = as_map(client.ask("LOCK", resource, ttl_ms, "NOTIFY"))

    def renewed() -> bool:
        return wire_map(wire.ask("HOLDER", resource))[b"held_ms"] > ttl_ms

    eventually(renewed, "it was renewed, which is pushed")
    for number in range(5):
        assert client.ask("ECHO", number) == [str(number)]
    assert client.ask("UNLOCK", resource, lease["token"]) == ["1"]


def test_an_agent_s_restart_ends_no_lock(
    program: Program, resource: str, cluster: Cluster, wire: Wire
) -> None:
    """Who waits is asked to wait again, by a client that retries, or hears of it and holds nothing."""
    client = program.client()
    lease = client.lock(resource)
    waiting = (
        program.client().begin("LOCK", resource, TTL_MS, "WAIT", WAIT_MS) if not program.serial else None
    )
    if waiting:
        someone_waits(wire)
    cluster.agent.kill()
    cluster.agent.start()
    cluster.wait_voting(5)

    def extended() -> dict[str, str]:
        """Some clients say once that their connection is gone."""
        return as_map(client.ask("EXTEND", resource, lease["token"], LONGER_MS))

    assert eventually(extended, "it goes on", not_yet=(Refused,))["token"] == lease["token"]
    assert client.ask("UNLOCK", resource, lease["token"]) == ["1"]
    if waiting and not waiting.exception(PATIENCE_S):
        assert client.ask("UNLOCK", resource, as_map(waiting.result())["token"]) == ["1"]


def test_the_table_says_which_clients_are_tried_here() -> None:
    rows = re.findall(r"^\| ([\w-]+) [^|]*`\*`", PAGE, re.M)
    assert sorted(rows) == sorted(library.name for library in LIBRARIES)
