"""The table of commands: words in, a reply out, or None when it comes later through the session."""

from typing import TYPE_CHECKING

from lockd.server.commands import catalog, connection
from lockd.server.commands.arguments import BadRequest
from lockd.server.commands.info import Info
from lockd.server.commands.leases import Leases
from lockd.server.commands.operators import Operators
from lockd.server.resp import replies
from lockd.server.session import Handler, Session

if TYPE_CHECKING:
    from lockd.server.agent import Agent

_IN_ORDER = frozenset((b"HELLO", b"AUTH", b"QUIT"))
_IN_MULTI = frozenset((b"EXEC", b"DISCARD", b"QUIT"))
_REFUSED_IN_MULTI = b"-ERR not run: it came in a MULTI, and there is none here\r\n"


class Commands:
    """Bound to an agent."""

    def __init__(self, agent: "Agent") -> None:
        self._handlers: dict[bytes, Handler] = {
            **Leases(agent).handlers(),
            **Info(agent).handlers(),
            **Operators(agent).handlers(),
            **connection.HANDLERS,
        }
        known = (catalog.find(name.decode().lower()) for name in self._handlers)
        self._shapes = {command.name.upper().encode(): command for command in known if command is not None}

    def run(self, session: Session, words: list[bytes]) -> bytes | None:
        """Carry out one command."""
        name = words[0].upper()
        if session.in_multi and name not in _IN_MULTI:
            return _REFUSED_IN_MULTI
        handler = self._handlers.get(name)
        if handler is None:
            shown = words[0][:64].decode(errors="backslashreplace")
            return replies.error(f"ERR unknown command '{shown}'. COMMAND LIST names those that there are")
        shape = self._shapes.get(name)
        if shape is not None and not shape.accepts(len(words)):
            return replies.error(f"ERR {catalog.arity_error(shape.name)}: {catalog.usage(shape.name)}")
        try:
            return handler(session, words)
        except BadRequest as bad:
            return replies.error(str(bad))

    def waits_for_all_before(self, words: list[bytes]) -> bool:
        """What changes how replies are written, or ends them."""
        return words[0].upper() in _IN_ORDER
