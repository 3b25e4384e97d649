"""Operators have a separate socket, beside that for apps. Its line in the kernel is theirs alone, and so
are its few files: whatever apps do, `lockctl` gets in. Nothing is locked on it.

It lets in the agent's user and root, and the members of `admin_group` by an access control list: only a
member could give the file to a group, and the agent need not be one.
"""

import os
import struct
from pathlib import Path
from typing import Final

from lockd.clock import boottime_ns
from lockd.config.socket import operators_socket
from lockd.core.owners import Connection
from lockd.core.turns import HOUSE
from lockd.core.validity import NS_PER_S
from lockd.server.peer import FOR_OPERATORS
from lockd.server.resp import replies
from lockd.server.session import Runner, Session
from lockd.server.shared import Shared
from lockd.server.unix_socket import UnixSocket

_ACL: Final = "system.posix_acl_access"
_VERSION: Final = 2
# As linux/posix_acl.h has them.
_OWNER, _OWNERS_GROUP, _GROUP, _MASK, _OTHERS = 0x01, 0x04, 0x08, 0x10, 0x20
_UNNAMED: Final = 0xFFFFFFFF
_CONNECT, _NOTHING = 6, 0

PLACES: Final = 8
_LEFT_ALONE_NS: Final = NS_PER_S
"""A connection that has just asked something does not have to make room."""


class OperatorsSocket(UnixSocket):
    def __init__(self, app_socket: Path, shared: Shared) -> None:
        super().__init__(operators_socket(str(app_socket)))
        self._shared = shared

    def let_in(self) -> None:
        """By the present configuration. Where that can't be, all but root still reach the socket for apps."""
        if self.trouble():
            return
        groups = self._shared.permissions.admin_groups
        try:
            if groups:
                os.setxattr(self.path, _ACL, _acl(groups))
            else:
                os.chmod(self.path, 0o600)
        except OSError as failure:
            why = f"nobody but root can be let in: {failure.strerror}"
            self._shared.log.warning("operators_socket", socket=self.path, why=why)


def _acl(groups: frozenset[int]) -> bytes:
    """The owner may connect, and these groups, and nobody else but root."""
    entries = [
        (_OWNER, _CONNECT, _UNNAMED),
        (_OWNERS_GROUP, _NOTHING, _UNNAMED),
        *((_GROUP, _CONNECT, group) for group in sorted(groups)),
        (_MASK, _CONNECT, _UNNAMED),
        (_OTHERS, _NOTHING, _UNNAMED),
    ]
    return struct.pack("<I", _VERSION) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


class Places:
    """For a few connections. When all are taken, the one that was idle longest makes room for the next."""

    def __init__(self) -> None:
        # The one that was used longest ago is the first.
        self._used_ns: dict[OperatorsSession, int] = {}

    def admit(self, session: "OperatorsSession", now_ns: int) -> bool:
        if len(self._used_ns) >= PLACES and not self._make_room(now_ns):
            return False
        self._used_ns[session] = now_ns
        return True

    def _make_room(self, now_ns: int) -> bool:
        idle, used_ns = next(iter(self._used_ns.items()))
        if now_ns < used_ns + _LEFT_ALONE_NS:
            return False
        self.forget(idle)
        idle.give_way()
        return True

    def used(self, session: "OperatorsSession", now_ns: int) -> None:
        """It has asked something."""
        if self._used_ns.pop(session, None) is not None:
            self._used_ns[session] = now_ns

    def forget(self, session: "OperatorsSession") -> None:
        """It is closed."""
        self._used_ns.pop(session, None)


class OperatorsSession(Session):
    """What it asks goes first, as all that the agent does for itself. Its process is not watched, as nothing
    belongs to it."""

    def __init__(self, shared: Shared, commands: Runner, places: Places) -> None:
        super().__init__(shared, commands)
        self.for_operators = True
        self._places = places

    def _why_not_let_in(self) -> str:
        self._account = HOUSE
        incidents = self.shared.incidents
        if why_not := self.why_no_operator():
            incidents.operator_denied(self.peer, "connect", why_not)
            return f"{FOR_OPERATORS} ({why_not})"
        if not self._places.admit(self, boottime_ns()):
            limit = f"files: operators have {PLACES} connections, and all are in use"
            incidents.limit_hit(limit, self.peer)
            return f"LIMIT {limit}"
        self.ties = Connection(self, None)
        return ""

    def give_way(self) -> None:
        """To another operator."""
        self.close(replies.error("LIMIT files: another operator has connected"))

    def takes(self, data: bytes, at_once: bool = True) -> bool:
        self._places.used(self, boottime_ns())
        return super().takes(data, at_once)

    def connection_lost(self, exc: Exception | None) -> None:
        self._places.forget(self)
        super().connection_lost(exc)
