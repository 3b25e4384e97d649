"""The table of commands: words in, a reply out, or None when it comes later through the session."""

from collections.abc import Callable

from lockd.config.current import Current
from lockd.masters.fleet import Fleet
from lockd.metrics.collector import Metrics
from lockd.server.commands import (
    catalog,
    connection,
    info,
    instead,
    leases,
    listings,
    operators,
    plain,
    reload,
    scripting,
    transactions,
    waiting,
)
from lockd.server.commands.arguments import BadRequest, Misused, quoted
from lockd.server.commands.checks import Check, Checks
from lockd.server.commands.command import Command, Handler, arity_error
from lockd.server.commands.readings import Readings
from lockd.server.dropin.looking import Looking
from lockd.server.dropin.performing import Ground
from lockd.server.dropin.preparing import Preparing
from lockd.server.dropin.script_cache import ScriptCache
from lockd.server.dropin.signals import Signals
from lockd.server.dropin.usage import Usage
from lockd.server.reload import Reload
from lockd.server.resp import replies
from lockd.server.session import MULTI_BYTES, Multi, Session
from lockd.server.shared import Shared

_NOT_IN_MULTI = "ERR '%s' can't be used in a MULTI, which takes only Redis's own lock commands. Send it alone"
_QUEUED = b"+QUEUED\r\n"


class Commands:
    """Bound to an agent: its descriptors, by the names that clients send."""

    def __init__(
        self, current: Current, shared: Shared, fleet: Fleet, metrics: Metrics, reloading: Reload
    ) -> None:
        checks = Checks(current, shared, metrics.leases)
        readings = Readings()
        looking = Looking(shared, fleet, readings)
        scripts = ScriptCache(shared)
        signals = Signals(looking)
        usage = Usage()
        ground = Ground(
            current=current,
            shared=shared,
            looking=looking,
            signals=signals,
            metrics=metrics.leases,
            usage=usage,
            checks=checks,
        )
        preparing = Preparing(ground, scripts)
        bound = (
            leases.COMMANDS.handlers(leases.Leases(current, shared, metrics.leases)),
            plain.COMMANDS.handlers(plain.Plain(preparing)),
            scripting.COMMANDS.handlers(scripting.Scripting(preparing, scripts)),
            transactions.COMMANDS.handlers(transactions.Transactions(preparing, self._usage)),
            waiting.COMMANDS.handlers(waiting.Waiting(current, signals, checks)),
            listings.COMMANDS.handlers(listings.Listings(current, shared, fleet, readings)),
            operators.COMMANDS.handlers(operators.Operators(fleet, shared.locks, metrics.agent, shared.log)),
            reload.COMMANDS.handlers(reload.Reloading(reloading, shared.locks)),
            info.COMMANDS.handlers(info.Info(current, shared, fleet, metrics, readings, usage, scripts)),
            connection.COMMANDS.handlers(),
            catalog.COMMAND.handlers(catalog.Catalog(shared.turns)),
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

    def _usage(self, name: bytes) -> str:
        return self._table[name.upper()][0].usage()

    def run(self, session: Session, words: list[bytes]) -> bytes | None:
        """Carry out one command."""
        name = words[0].upper()
        if name == b"WATCH":
            session.watches()
        if session.multi is not None and name not in self._in_multi:
            return self._queue(session, words)
        found = self._table.get(name)
        if found is None:
            return replies.error(instead.unknown(quoted(words[0])))
        command, checks, handler = found
        if not command.accepts(len(words)):
            return replies.error(f"ERR {arity_error(command.name)}: {command.usage()}")
        try:
            self._check(session, command, checks, words)
            return handler(session, words)
        except Misused as misused:
            return replies.error(f"{misused} {command.usage()}")
        except BadRequest as bad:
            return replies.error(str(bad))

    def is_not_run(self, session: Session, words: list[bytes]) -> None:
        """As `session.Runner` has it."""
        if words[0].upper() == b"WATCH":
            session.watches()
        if session.multi is not None:
            session.multi.is_broken = True

    def give_back(self, session: Session, words: list[bytes]) -> None:
        """As `session.Runner` has it."""
        command, _, _ = self._table.get(words[0].upper(), (None, (), None))
        if command is not None and command.gives_back:
            self.run(session, words)

    def _queue(self, session: Session, words: list[bytes]) -> bytes:
        """For a command in a MULTI: checked now, run by its EXEC. A command that can't be in one breaks the
        MULTI."""
        multi = session.multi
        assert multi is not None
        refusal = self._why_not_queued(session, multi, words)
        if refusal:
            multi.is_broken = True
            return replies.error(refusal)
        multi.queues(words)
        return _QUEUED

    def _why_not_queued(self, session: Session, multi: Multi, words: list[bytes]) -> str:
        command, checks, _ = self._table.get(words[0].upper(), (None, (), None))
        if command is None:
            return instead.unknown(quoted(words[0]))
        if not command.queues:
            return _NOT_IN_MULTI % quoted(words[0])
        if not command.accepts(len(words)):
            return f"ERR {arity_error(command.name)}: {command.usage()}"
        if len(multi.queued) >= transactions.QUEUED_MOST:
            return f"LIMIT multi: at most {transactions.QUEUED_MOST} commands are allowed"
        if not multi.has_room(words):
            return f"LIMIT multi: at most {MULTI_BYTES} bytes of commands are allowed"
        try:
            self._check(session, command, checks, words)
        except BadRequest as bad:
            return str(bad)
        return ""

    def _check(
        self, session: Session, command: Command, checks: tuple[Check, ...], words: list[bytes]
    ) -> None:
        resources = command.resources(words) if checks else []
        for check in checks:
            check(session, command, words, resources)

    def waits_for_all_before(self, words: list[bytes]) -> bool:
        """Commands that change how replies are written, or end them."""
        return words[0].upper() in self._in_order
