"""What a connection needs of the agent around it."""

from __future__ import annotations

import socket
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from lockd.config.current import Current
from lockd.core.claims import Claims
from lockd.core.turns import Turns
from lockd.server.accounts import by_uid
from lockd.server.buffers import Buffers
from lockd.server.endings import Endings
from lockd.server.inlets import Inlets
from lockd.server.losses import Losses
from lockd.server.processes import Processes
from lockd.server.quotas import Quotas
from lockd.server.session import Session
from lockd.server.turns import LoopTurns, Work
from tests.harness.configs import a_config


class NeverBusy(LoopTurns):
    """However slow the machine is, what may be done at once is."""

    def __init__(self) -> None:
        super().__init__(Turns(), _raise)

    def went_first(self, account: str, began_ns: int) -> None: ...


class TurnsByHand(NeverBusy):
    """Without an event loop: what waits for its turn is in `jobs`."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[Work] = []

    def add(self, account: str, work: Work) -> None:
        self.jobs.append(work)


def _raise(failure: Exception) -> None:
    raise failure


class AroundSessions(SimpleNamespace):
    """As much of an agent as a connection needs: the real parts that do no more than count, and `more`."""

    def __init__(self, current: Current | None = None, **more: Any) -> None:
        current = current or Current(a_config())
        quotas = Quotas(current)
        more.setdefault("turns", NeverBusy())
        super().__init__(
            current=current, limits=current.config.limits, quotas=quotas, buffers=Buffers(current, quotas),
            losses=Losses(), claims=Claims(), sessions=set(),
            stopped=False, host=b"host", next_session_id=count(1).__next__, account_of=by_uid,
            tellings=SimpleNamespace(begins=lambda lease, ties, reply: ties.tells(lease, reply)),
            log=SimpleNamespace(debug_on=False, warning=lambda *_, **__: None), **more,
        )  # fmt: skip
        self.inlets = Inlets(self.turns)
        self.endings = Endings(more.get("locks"), self.turns)  # type: ignore[arg-type]
        self.processes = Processes(self.endings.end, quotas)


class Transport:
    """Takes what is written to it; like uvloop's, it tells of its end in a turn of its own, and takes no more
    until then."""

    def __init__(self) -> None:
        self.socket, self._app = socket.socketpair()
        self.socket.setblocking(False)
        self.written = b""
        self.reading, self.aborted, self.closed = True, False, False
        self._stuck: Session | None = None
        self._unsent = 0

    def get_extra_info(self, _name: str) -> socket.socket:
        return self.socket

    def write(self, data: bytes) -> None:
        if self.is_closing():
            return
        self.written += data
        if self._stuck is not None:
            self._unsent += len(data)
            self._stuck.pause_writing()

    def is_not_read(self, session: Session) -> None:
        """By the app of this connection, until `is_read`."""
        self._stuck = session

    @property
    def is_stuck(self) -> bool:
        return self._stuck is not None

    def is_read(self) -> None:
        assert self._stuck is not None
        session, self._stuck, self._unsent = self._stuck, None, 0
        session.resume_writing()

    def set_write_buffer_limits(self, high: int) -> None: ...

    def get_write_buffer_size(self) -> int:
        return self._unsent

    def resume_reading(self) -> None:
        self.reading = True

    def pause_reading(self) -> None:
        self.reading = False

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed or self.aborted

    def leaves(self, sent: bytes) -> None:
        """Its app has sent that and closed."""
        self._app.sendall(sent)
        self._app.close()

    def app_closes(self) -> None:
        """With all unread that was written; its reset is read, and told of in a moment."""
        self.socket.sendall(b"unread")
        self._app.close()
        with pytest.raises(ConnectionResetError):
            self.socket.recv(1)
        self.closed = True

    def end(self) -> None:
        self.socket.close()
        self._app.close()


class Incidents:
    def __init__(self) -> None:
        self.failures: list[BaseException] = []

    def limit_hit(self, *_: object) -> None: ...

    def lease_refused(self, *_: object) -> None: ...

    def internal_error(self, _what: str, failure: BaseException) -> None:
        self.failures.append(failure)
