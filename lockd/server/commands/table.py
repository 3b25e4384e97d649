"""The table of commands: words in, a reply out, or None when it comes later through the session."""

from collections.abc import Callable

from lockd.config.current import Current
from lockd.masters.fleet import Fleet
from lockd.metrics.collector import Metrics
from lockd.server.commands import catalog, connection, info, leases, listings, operators, reload
from lockd.server.commands.arguments import BadRequest, Misused
from lockd.server.commands.checks import Check, Checks
from lockd.server.commands.command import Command, Handler, arity_error
from lockd.server.commands.readings import Readings
from lockd.server.reload import Reload
from lockd.server.resp import replies
from lockd.server.session import Session
from lockd.server.shared import Shared

_REFUSED_IN_MULTI = b"-ERR not run: it came in a MULTI, and there is none here\r\n"


class Commands:
    """Bound to an agent: its descriptors, by the names that clients send."""

    def __init__(
        self, current: Current, shared: Shared, fleet: Fleet, metrics: Metrics, reloading: Reload
    ) -> None:
        checks = Checks(current, shared, metrics.leases)
        readings = Readings()
        bound = (
            leases.COMMANDS.handlers(leases.Leases(current, shared, metrics.leases)),
            listings.COMMANDS.handlers(listings.Listings(current, shared, fleet, readings)),
            operators.COMMANDS.handlers(operators.Operators(fleet, shared.locks, metrics.agent, shared.log)),
            reload.COMMANDS.handlers(reload.Reloading(reloading, shared.locks)),
            info.COMMANDS.handlers(info.Info(current, shared, fleet, metrics, readings)),
            connection.COMMANDS.handlers(),
            catalog.COMMAND.handlers(catalog.Catalog(readings)),
        )
        self._table: dict[bytes, tuple[Command, tuple[Check, ...], Handler]] = {
            command.name.upper().encode(): (command, checks.of(command), handler)
            for group in bound
            for command, handler in group
        }
        self._in_order = self._names(lambda command: command.in_order)
        self._in_multi = self._names(lambda command: command.ends_multi)
        self.brings_no_loss = self._names(lambda command: command.brings_no_loss)

    def _names(self, wanted: Callable[[Command], bool]) -> frozenset[bytes]:
        return frozenset(name for name, (command, *_) in self._table.items() if wanted(command))

    def run(self, session: Session, words: list[bytes]) -> bytes | None:
        """Carry out one command."""
        name = words[0].upper()
        if session.in_multi and name not in self._in_multi:
            return _REFUSED_IN_MULTI
        found = self._table.get(name)
        if found is None:
            quoted = words[0][:64].decode(errors="backslashreplace")
            return replies.error(f"ERR unknown command '{quoted}'. COMMAND LIST names those that there are")
        command, checks, handler = found
        if not command.accepts(len(words)):
            return replies.error(f"ERR {arity_error(command.name)}: {command.usage()}")
        try:
            resources = command.resources(words) if checks else []
            for check in checks:
                check(session, command, words, resources)
            return handler(session, words)
        except Misused as misused:
            return replies.error(f"{misused} {command.usage()}")
        except BadRequest as bad:
            return replies.error(str(bad))

    def waits_for_all_before(self, words: list[bytes]) -> bool:
        """What changes how replies are written, or ends them."""
        return words[0].upper() in self._in_order
