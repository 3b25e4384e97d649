"""What the clients ask, and what an app gets of the answers, without an agent; and that both are alike."""

from __future__ import annotations

import ast
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lockd
import lockd.aio
from lockd.client import aio, requests, sync
from lockd.client.deadlines import AgentClock
from lockd.client.requests import Request, key_of, socket_path, to_ms
from lockd.client.state import names_of
from tests.harness.clocks import Clock, S

TOKEN = b"0123456789abcdef" * 2
NOW = Clock(1_000 * S)


@pytest.fixture(autouse=True)
def _time_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "boottime_ns", NOW)


def words_of(request: Request[Any]) -> list[bytes]:
    return request.packed.split(b"\r\n")[2::2]


def lock_of(resource: str | bytes | list[str] = "job", **options: Any) -> Request[Any]:
    given: dict[str, Any] = {"ttl_ms": 1_500, "wait": 0.0, "max_hold": None, "detached": False, "slots": None}
    given |= {"clock": AgentClock(), "token": TOKEN}
    return requests.lock(resource, requests.keys_of(resource), **given | options)


def granted(until_ns: int) -> dict[bytes, Any]:
    return {b"token": TOKEN, b"fence": 7, b"validity_ms": 1_500, b"deadline_ns": until_ns}


# Requests


def test_a_lock_asks_to_be_told_of_renewals_and_sends_every_option() -> None:
    assert words_of(lock_of()) == [b"LOCK", b"job", b"1500", b"NOTIFY", b"TOKEN", TOKEN]
    request = lock_of(wait=0.02, max_hold=60.5, detached=True)
    assert words_of(request) == [
        *b"LOCK job 1500 DETACHED TOKEN".split(),
        TOKEN,
        *b"WAIT 20 MAXHOLD 60500".split(),
    ]
    assert request.wait_s == 0.02, "it may take that much longer than usual"


def test_a_slot_is_extended_and_released_by_its_own_name() -> None:
    request = lock_of("gpu", slots=3)
    assert words_of(request)[-2:] == [b"SLOTS", b"3"]
    view = request.decode(granted(NOW() + S) | {b"resource": b"gpu:slot:2", b"slot": 2})
    assert (view.resource, view.slot, names_of(view)) == ("gpu", 2, [(b"gpu:slot:2", TOKEN)])


def test_of_several_each_is_extended_and_released_by_itself_and_all_are_asked_for_at_once() -> None:
    request = lock_of(["b", "a"], wait=1)
    assert words_of(request)[-4:] == [b"WAIT", b"1000", b"AND", b"a"]
    view = request.decode([granted(NOW() + 9 * S), granted(NOW() + S)])
    assert view.deadline_ns <= NOW() + S, "it is as good as the worst"
    assert [requests.unlock(*names_of(view)).replies, requests.extend(view, 20).replies] == [2, 2]


def test_requests_have_the_words_of_the_wire_and_a_lease_is_named_by_its_token() -> None:
    view = lock_of(b"\xff").decode(granted(NOW() + S))
    expected: list[tuple[Request[Any], list[bytes]]] = [
        (requests.unlock((view.key, view.token)), [b"UNLOCK", b"\xff", TOKEN]),
        (requests.extend(view, 20), [b"EXTEND", b"\xff", TOKEN, b"20", b"NOTIFY"]),
        (requests.holder("job"), [b"HOLDER", b"job"]),
        (requests.locks("job:*", local=False), [b"LOCKS", b"job:*"]),
        (requests.locks("*", local=True), [b"LOCKS", b"*", b"LOCAL"]),
        (requests.masters(), [b"MASTERS"]),
        (requests.ping(), [b"PING"]),
    ]
    assert [words_of(request) for request, _ in expected] == [words for _, words in expected]
    assert {request.wait_s for request, _ in expected} == {0}


def test_any_bytes_are_a_resource_and_text_is_utf_8() -> None:
    assert key_of("käse") == "käse".encode()
    assert key_of(b"\xff\r\n\x00") == b"\xff\r\n\x00"
    assert key_of(os.fsdecode(b"\xff")) == b"\xff"
    with pytest.raises(TypeError, match="not int"):
        key_of(42)  # type: ignore[arg-type]


def test_seconds_become_milliseconds_and_never_nothing() -> None:
    assert to_ms(10, "ttl") == 10_000
    assert to_ms(0.0304, "ttl") == 30
    assert to_ms(0.00001, "wait") == 1
    assert to_ms(0, "wait") == 0


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["ttl", "wait", "max_hold"])
def test_what_is_no_span_of_time_is_refused_by_name(name: str, seconds: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must be"):
        lockd.Client("/nowhere").acquire("job", **{name: seconds})  # type: ignore[arg-type]


def test_the_socket_is_the_one_given_else_that_of_the_environment_else_the_usual_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LOCKD_SOCKET", "/from/environment")
    assert socket_path(Path("/given")) == "/given"
    assert socket_path(None) == "/from/environment"
    monkeypatch.delenv("LOCKD_SOCKET")
    assert socket_path(None) == "/run/lockd/lockd.sock"


# Replies


def test_a_grant_becomes_a_lease_as_its_app_knows_it() -> None:
    until_ns = NOW() + 1_500_000_000
    view = lock_of("käse", detached=True).decode(granted(until_ns))
    assert (view.resource, view.key, view.ttl_ms, view.detached) == ("käse", "käse".encode(), 1_500, True)
    assert (view.token, view.fence) == (TOKEN, 7)
    assert view.deadline_ns == until_ns


def test_leases_of_one_agent_have_one_clock() -> None:
    clock = AgentClock()
    lock_of(clock=clock).decode(granted(NOW() + 600 * S))
    view = lock_of(clock=clock).decode(granted(NOW() + 600 * S))
    assert clock.ahead_ns == 598_500_000_000
    assert view.deadline_ns == NOW() + 1_500_000_000


def test_an_extension_is_known_once_its_answer_is_read() -> None:
    view = lock_of().decode(granted(NOW() + S))
    later = {b"validity_ms": 20_000, b"deadline_ns": NOW() + 20 * S}
    requests.extend(view, 20_000).decode(later)
    assert view.ttl_ms == 20_000
    assert view.deadline_ns == NOW() + 20 * S


def test_maps_come_as_text_and_bytes_that_are_none_survive() -> None:
    reply = {b"resource": b"\xff", b"masters": 5, b"host": b"a"}
    row = {"resource": os.fsdecode(b"\xff"), "masters": 5, "host": "a"}
    assert requests.holder("x").decode(reply) == row
    assert requests.locks("*", local=False).decode([reply, reply]) == [row, row]
    assert requests.masters().decode([reply]) == [row]
    assert requests.holder("x").decode(None) is None, "it is free"
    assert [requests.ping().decode("PONG"), requests.unlock(b"job", TOKEN).decode(1)] == [None, None]


# Two clients


@pytest.mark.parametrize("room", [sync, aio], ids=lambda room: room.__name__)
def test_neither_client_has_words_of_the_wire_of_its_own(room: Any) -> None:
    for path in Path(room.__file__).parent.glob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text()))
        words = [node.value for node in nodes if isinstance(node, ast.Constant)]
        assert [word for word in words if isinstance(word, bytes)] == [], path


def arguments(kind: type) -> dict[str, list[Any]]:
    """Of all that a class has for apps; `aclose` is asyncio's `close`."""

    def of(member: Callable[..., Any]) -> list[Any]:
        return [(one.name, one.kind, one.default) for one in inspect.signature(member).parameters.values()]

    members = {name: member for name, member in inspect.getmembers(kind) if not name.startswith("_")}
    return {
        "close" if name == "aclose" else name: of(member) if callable(member) else []
        for name, member in {**members, "": kind}.items()
    }


OF_THE_WATCHER = {"file", "listen", "resume", "view"}
"""What a lease of threads has besides, and not for apps."""


def test_both_clients_take_the_same_arguments_by_the_same_names() -> None:
    assert arguments(lockd.aio.Client) == arguments(lockd.Client)
    ours, theirs = arguments(lockd.Lease), arguments(lockd.aio.Lease)
    assert {name: ours[name] for name in ours.keys() - OF_THE_WATCHER} == theirs
