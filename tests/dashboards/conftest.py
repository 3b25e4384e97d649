"""The server that the masters run, as for the tests with real masters."""

from tests.redis.conftest import server_binary

__all__ = ["server_binary"]
