"""redis-py for one question to the agent, which waits where many others connect (lockd/client/in_line.py)."""

from __future__ import annotations

import socket

import redis
from redis.backoff import NoBackoff
from redis.connection import ConnectionPool, UnixDomainSocketConnection
from redis.retry import Retry

from lockd.client import in_line


class _Patient(UnixDomainSocketConnection):
    def _connect(self) -> socket.socket:
        return in_line.connected(self.path, self.socket_timeout or 0.0)


def client_of(path: str, within_s: float) -> redis.Redis:
    """It is connected: when this fails, nothing was asked."""
    client = redis.Redis(connection_pool=pool_of(path, within_s), single_connection_client=True)
    client.auto_close_connection_pool = True
    return client


def pool_of(path: str, within_s: float) -> ConnectionPool:
    """Nothing is asked twice."""
    return ConnectionPool(
        connection_class=_Patient,
        path=path,
        protocol=3,
        socket_timeout=within_s,
        retry=Retry(NoBackoff(), 0),
        decode_responses=True,
        encoding_errors="surrogateescape",
    )
