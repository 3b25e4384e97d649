"""The way to a master: its addresses, the encryption and the password.

All of it is looked up for each connection, as it may have changed, and in a thread: an event loop that waits
for a resolver or a disk grants nothing, renews nothing and does not end.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple, cast

from lockd.clock import boottime_ns
from lockd.config.model import Config, Master
from lockd.threads import Lookup
from lockd.transport import Transport


class Way(NamedTuple):
    """tls, name: the settings of the encryption, and the name that the master's certificate has to carry;
    None without TLS."""

    addresses: tuple[str, ...]
    tls: ssl.SSLContext | None
    name: str | None
    password: str | None


class Approach:
    def __init__(self, config: Config, master: Master) -> None:
        self._port = master.port
        self._connect_s = config.timeouts.connect_ms / 1000
        self._way = Lookup(partial(_way_to, config, master), boottime_ns)

    async def connect(self, made: Callable[[], asyncio.BaseProtocol]) -> tuple[Transport, str | None]:
        """A connection to the first of its addresses that takes one, and the agents' password. Each has an
        equal part of the time: one that drops packets says nothing. OSError, ConfigError."""
        way = await self._way.result()
        *others, last = way.addresses
        for address in others:
            with suppress(OSError):  # TimeoutError is one
                async with asyncio.timeout(self._connect_s / len(way.addresses)):
                    return await self._connect_to(address, way, made)
        return await self._connect_to(last, way, made)

    async def _connect_to(
        self, address: str, way: Way, made: Callable[[], asyncio.BaseProtocol]
    ) -> tuple[Transport, str | None]:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(
            made, address, self._port, ssl=way.tls, server_hostname=way.name
        )
        return cast("Transport", transport), way.password

    @property
    def is_looked_up(self) -> bool:
        """Just now."""
        return self._way.is_under_way


def _way_to(config: Config, master: Master) -> Way:
    found = socket.getaddrinfo(master.host, master.port, type=socket.SOCK_STREAM)
    addresses = tuple(str(address[0]) for _, _, _, _, address in found)
    return Way(addresses, _tls_context(config), tls_name(config, master), config.password())


def _tls_context(config: Config) -> ssl.SSLContext | None:
    if config.tls is None:
        return None
    context = ssl.create_default_context(cafile=str(config.tls.ca_file))
    if config.tls.cert_file is not None:
        context.load_cert_chain(config.tls.cert_file, config.tls.key_file)
    return context


def tls_name(config: Config, master: Master) -> str | None:
    """If that is the master's name, no other machine can answer in its place, whatever its address, and the
    master may move to another address."""
    if config.tls is None:
        return None
    name = config.tls.server_name or "{host}"
    return name.replace("{name}", master.name).replace("{host}", master.host)
