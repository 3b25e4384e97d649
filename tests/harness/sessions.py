"""What a connection needs of the agent around it."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any

from lockd.config.current import Current
from lockd.config.model import Limits
from lockd.core.claims import Claims
from lockd.server.buffers import Buffers
from lockd.server.endings import Endings
from lockd.server.hangups import HangUps
from lockd.server.lanes import Crowd
from lockd.server.losses import Losses
from lockd.server.processes import Processes
from lockd.server.quotas import Quotas
from lockd.server.spares import SpareConnections
from tests.harness.configs import a_config


class AroundSessions(SimpleNamespace):
    """As much of an agent as a connection needs: the real parts that do no more than count, and `more`."""

    def __init__(self, **more: Any) -> None:
        current = Current(a_config())
        quotas = Quotas(current)
        more.setdefault("crowd", Crowd(1 << 30))
        super().__init__(
            limits=Limits(), quotas=quotas, buffers=Buffers(current, quotas), hang_ups=HangUps(),
            losses=Losses(), claims=Claims(), spares=SpareConnections(), sessions=set(), stopped=False,
            host=b"host", next_session_id=count(1).__next__,
            tellings=SimpleNamespace(begins=lambda lease, ties, reply: ties.tells(lease, reply)),
            log=SimpleNamespace(debug_on=False, warning=lambda *_, **__: None), **more,
        )  # fmt: skip
        self.endings = Endings(more.get("locks"), self.crowd)  # type: ignore[arg-type]
        self.processes = Processes(self.endings.end)
