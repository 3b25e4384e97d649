"""An app at the agent's socket, with text where the wire has bytes."""

from __future__ import annotations

import select
from typing import Any

import hiredis

from tests.harness.cluster import Cluster
from tests.harness.wire import Wire, Word, as_map


class App:
    def __init__(self, agent: Cluster, protocol: int = 2) -> None:
        self._wire = Wire(agent.raw(), protocol)
        self.send = self._wire.send
        self.close = self._wire.close

    def reply(self) -> Any:
        """The next reply as it came; pushes that come before it are kept for `push`."""
        return self._wire.reply()

    def ask(self, *words: Word) -> Any:
        """What is answered, which must be no error."""
        self.send(*words)
        return self._answer()

    def refused(self, *words: Word) -> str:
        """The error that is answered."""
        self.send(*words)
        return self.refusal()

    def refusal(self) -> str:
        reply = self.reply()
        assert isinstance(reply, hiredis.ReplyError), reply
        return str(reply)

    def lock(self, resource: str, ttl_ms: int, *options: Word) -> dict[str, Any]:
        self.send("LOCK", resource, ttl_ms, *options)
        return self.locked()

    def extend(self, resource: str, token: str, ttl_ms: int) -> dict[str, Any]:
        """The lease, longer. Asked again where this host stood still: what was on its way proves nothing."""
        while True:
            self.send("EXTEND", resource, token, ttl_ms)
            reply = self.reply()
            if not (isinstance(reply, hiredis.ReplyError) and "clock-not-watched-yet" in str(reply)):
                assert not isinstance(reply, hiredis.ReplyError), reply
                return as_map(as_text(reply))

    def locked(self) -> dict[str, Any]:
        """The lease that a LOCK sent before is answered with."""
        return as_map(self._answer())

    def push(self) -> list[Any]:
        return as_text(self._wire.push())

    @property
    def answered(self) -> bool:
        """True when something has come that was not read yet."""
        return bool(select.select([self._wire], [], [], 0)[0])

    def _answer(self) -> Any:
        reply = self.reply()
        assert not isinstance(reply, hiredis.ReplyError), reply
        return as_text(reply)


def as_text(reply: Any) -> Any:
    if isinstance(reply, bytes):
        return reply.decode()
    if isinstance(reply, dict):
        return {as_text(key): as_text(value) for key, value in reply.items()}
    return [as_text(one) for one in reply] if isinstance(reply, list) else reply


def look_again(cluster: Cluster) -> None:
    """Have the agent look at its masters now, as FORM does first of all, and not within five seconds."""
    app = App(cluster)
    app.send("FORM")
    app.reply()
