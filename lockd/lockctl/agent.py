"""The agent, as the commands of `lockctl` ask it. redis-py takes a while to load: only asking loads it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lockd.config.socket import operators_socket
from lockd.lockctl.errors import Refused, Unreachable

if TYPE_CHECKING:
    import redis

ANSWER_WITHIN_S = 10.0
LISTING_WITHIN_S = 120.0
"""Reading everything that the masters hold takes longer than a lock."""
_AS_APPS = ("LOCK", "UNLOCK", "EXTEND")
"""Nothing is locked on the operators' socket."""

Row = Mapping[str, Any]


class AgentClient:
    """The agent of this host, asked one thing at a time: by the operators' socket, where we are let in, else
    by that for apps."""

    def __init__(self, socket_path: str) -> None:
        self.socket_path = socket_path

    def ask(self, *words: str | bytes | int, within_s: float = ANSWER_WITHIN_S) -> Any:
        """The reply to a command. Raises Refused or Unreachable."""
        import redis

        try:
            with self._client(str(words[0]), within_s) as client:
                return client.execute_command(*words)
        except redis.ResponseError as error:
            raise Refused.by(str(error), command=str(words[0])) from error
        except redis.TimeoutError as error:
            raise Unreachable("the agent doesn't answer") from error
        except (redis.RedisError, OSError) as error:
            raise Unreachable(
                f"can't reach the agent at {self.socket_path}: {_system_error(error)}"
            ) from error

    def _client(self, command: str, within_s: float) -> redis.Redis:
        """A connection for that command."""
        import redis

        from lockd.lockctl.patient import client_of

        if command not in _AS_APPS:
            # It isn't there, or we are no operators.
            with suppress(redis.ConnectionError, redis.ResponseError):
                return client_of(operators_socket(self.socket_path), within_s)
        return client_of(self.socket_path, within_s)


def _system_error(error: BaseException) -> str:
    """The system's error text. redis-py adds words about hosts and ports."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return str(error)
