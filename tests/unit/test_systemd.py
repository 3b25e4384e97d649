"""What systemd hears, on a real socket."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockd.server.systemd import notifier, watchdog_interval_s
from tests.harness.waiting import PATIENCE_S


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket that systemd would listen on."""
    with listening(str(tmp_path / "notify")) as receiver:
        yield receiver


def listening(address: str) -> socket.socket:
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.settimeout(PATIENCE_S)
    receiver.bind(address)
    return receiver


def test_systemd_hears_each_message_as_an_assignment_and_no_other_in_a_status(manager: socket.socket) -> None:
    systemd = notifier({"NOTIFY_SOCKET": manager.getsockname()})
    assert systemd.ready()
    assert systemd.watchdog()
    before_us = time.monotonic_ns() // 1_000
    assert systemd.reloading()
    assert systemd.reloaded("it did\nMAINPID=1\n")
    assert systemd.stopping()
    heard = [manager.recv(4_096) for _ in range(5)]
    reloading, _, at_us = heard.pop(2).decode().rpartition("=")
    assert reloading == "RELOADING=1\nMONOTONIC_USEC"
    assert before_us <= int(at_us) <= time.monotonic_ns() // 1_000
    assert heard == [b"READY=1", b"WATCHDOG=1", b"READY=1\nSTATUS=it did MAINPID=1", b"STOPPING=1"]
    systemd.close()


def test_an_address_that_begins_with_an_at_sign_is_an_abstract_socket() -> None:
    name = f"lockd-test-{os.getpid()}"
    with listening("\0" + name) as manager:
        assert notifier({"NOTIFY_SOCKET": "@" + name}).ready()
        assert manager.recv(4_096) == b"READY=1"


@pytest.mark.parametrize("address", [None, "", "@", "vsock:2:1", "/nowhere/gone"])
def test_without_a_socket_or_with_one_that_went_away_it_is_silent(address: str | None) -> None:
    systemd = notifier({} if address is None else {"NOTIFY_SOCKET": address})
    assert not systemd.ready()
    assert not systemd.reloaded("nobody listens")
    assert not systemd.watchdog()
    systemd.close()


def test_a_queue_that_is_full_drops_the_heartbeat_and_does_not_hold_up_the_agent(
    manager: socket.socket,
) -> None:
    systemd = notifier({"NOTIFY_SOCKET": manager.getsockname()})
    sent = 0
    while systemd.watchdog():
        sent += 1
        assert sent < 100_000
    assert manager.recv(4_096) == b"WATCHDOG=1"
    assert systemd.watchdog()


@pytest.mark.parametrize(
    ("environ", "interval_s"),
    [
        ({"WATCHDOG_USEC": "10000000"}, 5.0),
        ({"WATCHDOG_USEC": "10000000", "WATCHDOG_PID": "42"}, 5.0),
        ({"WATCHDOG_USEC": "10000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "-5"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_fed_twice_in_its_time_when_there_is_one_for_this_process(
    environ: dict[str, str], interval_s: float | None
) -> None:
    assert watchdog_interval_s(environ, pid=42) == interval_s
