"""The table of commands: words in, a reply out, or None when it comes later through the session."""

from collections.abc import Callable

from lockd.config.model import Config
from lockd.masters.fleet import Fleet
from lockd.metrics.collector import Metrics
from lockd.server.commands import catalog, connection, info, leases, listings, operators
from lockd.server.commands.arguments import BadRequest, Misused
from lockd.server.commands.command import Command, Handler, arity_error
from lockd.server.commands.readings import Readings
from lockd.server.resp import replies
from lockd.server.session import Session
from lockd.server.shared import Shared

_REFUSED_IN_MULTI = b"-ERR not run: it came in a MULTI, and there is none here\r\n"
_DENIED = "DENIED this is for operators on this host: root, the agent's own user, or a member of admin_group"


class Commands:
    """Bound to an agent: its descriptors, by the names that clients send."""

    def __init__(self, config: Config, shared: Shared, fleet: Fleet, metrics: Metrics) -> None:
        self._shared = shared
        readings = Readings()
        bound = (
            leases.COMMANDS.handlers(leases.Leases(config, shared, metrics.leases)),
            listings.COMMANDS.handlers(listings.Listings(config, shared, fleet, readings)),
            operators.COMMANDS.handlers(operators.Operators(fleet, shared.locks, metrics.agent, shared.log)),
            info.COMMANDS.handlers(info.Info(config, shared, fleet, metrics, readings)),
            connection.COMMANDS.handlers(),
            catalog.COMMAND.handlers(catalog.Catalog(readings)),
        )
        self._table = {
            command.name.upper().encode(): (command, self._for_whom(command, handler))
            for group in bound
            for command, handler in group
        }
        self._in_order = self._names(lambda command: command.in_order)
        self._in_multi = self._names(lambda command: command.ends_multi)
        self.brings_no_loss = self._names(lambda command: command.brings_no_loss)

    def _names(self, wanted: Callable[[Command], bool]) -> frozenset[bytes]:
        return frozenset(name for name, (command, _) in self._table.items() if wanted(command))

    def _for_whom(self, command: Command, handler: Handler) -> Handler:
        """What operators do is theirs alone."""
        if "admin" not in command.flags:
            return handler

        def for_operators(session: Session, words: list[bytes]) -> bytes | None:
            self._check_operator(session, command.name)
            return handler(session, words)

        return for_operators

    def _check_operator(self, session: Session, command: str) -> None:
        why_not = "not one of them"
        if self._shared.permissions.is_admin(session.peer):
            why_not = session.why_not_on_this_host() or ""
        if why_not:
            self._shared.incidents.operator_denied(session.peer, command, why_not)
            raise BadRequest(f"{_DENIED} ({why_not})")

    def run(self, session: Session, words: list[bytes]) -> bytes | None:
        """Carry out one command."""
        name = words[0].upper()
        if session.in_multi and name not in self._in_multi:
            return _REFUSED_IN_MULTI
        found = self._table.get(name)
        if found is None:
            quoted = words[0][:64].decode(errors="backslashreplace")
            return replies.error(f"ERR unknown command '{quoted}'. COMMAND LIST names those that there are")
        command, handler = found
        if not command.accepts(len(words)):
            return replies.error(f"ERR {arity_error(command.name)}: {command.usage()}")
        try:
            return handler(session, words)
        except Misused as misused:
            return replies.error(f"{misused} {command.usage()}")
        except BadRequest as bad:
            return replies.error(str(bad))

    def waits_for_all_before(self, words: list[bytes]) -> bool:
        """What changes how replies are written, or ends them."""
        return words[0].upper() in self._in_order
