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
    """Nothing is asked twice."""
    return redis.Redis.from_pool(
        ConnectionPool(
            connection_class=_Patient,
            path=path,
            protocol=3,
            socket_timeout=within_s,
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
            encoding_errors="surrogateescape",
        )
    )
