"""The way to a master whose name has several addresses."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress

import pytest

from lockd.config.model import Config
from lockd.masters.approach import Approach
from tests.harness.waiting import PATIENCE_S

GOOD, SILENT, REFUSES = "127.0.0.1", "127.0.0.9", "127.0.0.10"


@pytest.fixture
def port() -> Iterator[int]:
    """Where GOOD listens, and packets to SILENT are dropped: its queue is full."""
    with ExitStack() as stack:
        good = stack.enter_context(socket.create_server((GOOD, 0)))
        port = int(good.getsockname()[1])
        stack.enter_context(socket.create_server((SILENT, port), backlog=0))
        for _ in range(3):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            with suppress(BlockingIOError):
                one.connect((SILENT, port))
        yield port


@pytest.mark.parametrize(
    "addresses",
    [(SILENT, GOOD), (GOOD, SILENT), (REFUSES, SILENT, GOOD)],
    ids=["first", "last", "in the middle"],
)
async def test_an_address_that_drops_packets_does_not_hide_the_next(
    addresses: tuple[str, ...], port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(_host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    masters = [{"name": "m1", "address": f"m1:{port}"}]
    config = Config.read({"cluster": "shop", "masters": masters, "timeouts": {"connect_ms": 100}})
    monkeypatch.setattr(socket, "getaddrinfo", found)
    async with asyncio.timeout(PATIENCE_S):
        transport, _ = await Approach(config, config.masters[0]).connect(asyncio.Protocol)
    with closing(transport):
        assert transport.get_extra_info("peername") == (GOOD, port)
