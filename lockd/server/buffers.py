"""What is kept for connections that don't read their replies, or whose requests can't be run yet: counted in
bytes of the account's stake, and for how long."""

from collections.abc import Iterator

from lockd.clock import boottime_ns
from lockd.config.current import Current
from lockd.config.model import Limits
from lockd.core.validity import NS_PER_MS
from lockd.server.quotas import Buffered, Quotas, Usage

UNCOUNTED_BYTES = 4_096
"""For a connection: so little is not worth counting, and well-behaved connections usually have no more."""


class Buffers:
    """An account over its stake loses the connection for which something has been kept longest: one of its
    own, never another's. It is cut off in a later turn of the loop, since core may be in the middle of its
    work."""

    def __init__(self, current: Current, quotas: Quotas) -> None:
        self._current = current
        self._quotas = quotas
        # Connections that leave replies unread, and since when; the oldest first.
        self._deaf: dict[Buffered, int] = {}

    @property
    def _limits(self) -> Limits:
        return self._current.config.limits

    # Bytes

    def keeps(self, session: Buffered, size: int) -> None:
        """So many bytes are kept for this connection now."""
        size = size if size > UNCOUNTED_BYTES else 0
        usage, more = session.usage, size - session.kept_bytes
        if not more:
            return
        session.kept_bytes = size
        self._quotas.keeps(usage, more)
        if size:
            usage.keeping.setdefault(session)
        else:
            del usage.keeping[session]
        if more > 0:
            self._enforce(usage)

    def _enforce(self, usage: Usage) -> None:
        """What is kept for connections may be as much as a floor, whatever else the account holds."""
        bytes_of = self._quotas.bytes
        while usage.buffered_bytes > bytes_of.floor and (limit := bytes_of.refusal(usage.account, 0)):
            self._cut_off_one_of(usage, limit)

    def _cut_off_one_of(self, usage: Usage, limit: str) -> None:
        session = next(iter(usage.keeping))
        self.forget(session)
        session.cut_off_soon(limit)

    # Time

    def is_deaf(self, session: Buffered) -> None:
        """It does not read what it asked for."""
        self._deaf.setdefault(session, boottime_ns())

    def hears(self, session: Buffered) -> None:
        """It has read everything that was written."""
        self._deaf.pop(session, None)

    def cut_off_the_deaf(self, now_ns: int) -> None:
        """Those that have read nothing for too long."""
        most_ms = self._limits.unread_ms
        for session in list(self._too_long(now_ns - most_ms * NS_PER_MS)):
            self.forget(session)
            session.cut_off(f"unread_ms: it did not read its replies for {most_ms} ms")

    def _too_long(self, since_ns: int) -> Iterator[Buffered]:
        for session, deaf_ns in self._deaf.items():
            if deaf_ns > since_ns:
                return
            yield session

    def forget(self, session: Buffered) -> None:
        """It is closed, or will be in a moment."""
        self.hears(session)
        self.keeps(session, 0)
