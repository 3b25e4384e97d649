"""MULTI and EXEC, as lock libraries and articles use them: around Redis's own lock commands. A LOCK can't be
in one: it may wait, and is answered separately."""

from functools import partial

from lockd.core.flow import Place
from lockd.server.commands.arguments import BadRequest
from lockd.server.commands.command import Command, Group
from lockd.server.commands.plain import answer_at
from lockd.server.dropin.preparing import Preparing
from lockd.server.dropin.transactions import Transaction, Usage
from lockd.server.session import Multi, Session

COMMANDS = Group()

QUEUED_MOST = 64
_OK = b"+OK\r\n"
_ABORTED = "EXECABORT Transaction discarded because of previous errors: none of its commands ran"


class Transactions:
    def __init__(self, preparing: Preparing, usage: Usage) -> None:
        self._preparing = preparing
        self._usage = usage

    @COMMANDS(
        Command(
            "multi",
            1,
            "transactions",
            ("noscript", "fast"),
            "Starts a transaction.",
            "OK",
            brings_no_loss=True,
            promise="`OK`: `EXEC` runs the commands that follow. Only Redis's own commands, not `LOCK`",
        )
    )
    def _multi(self, session: Session, words: list[bytes]) -> bytes:
        session.multi = Multi()
        return _OK

    @COMMANDS(
        Command(
            "exec",
            1,
            "transactions",
            ("noscript",),
            "Runs the commands since MULTI.",
            "array of replies",
            ends_multi=True,
            brings_no_loss=True,
            promise=(
                "the replies. Each command is a separate operation, except that `SETNX`, or `SET NX` "
                "without a TTL, and the `EXPIRE` of its key are one"
            ),
        )
    )
    def _exec(self, session: Session, words: list[bytes]) -> None:
        multi = _ended(session, "EXEC")
        if multi.is_broken:
            raise BadRequest(_ABORTED)
        place = Place()
        place.size = multi.size
        answer = partial(answer_at, session, place)
        transaction = Transaction(self._preparing, self._usage, session, multi.queued, answer)
        session.in_turn(lambda _place: transaction.goes_on(), place)

    @COMMANDS(
        Command(
            "discard",
            1,
            "transactions",
            ("noscript", "fast"),
            "Discards the commands since MULTI.",
            "OK",
            ends_multi=True,
            brings_no_loss=True,
        )
    )
    def _discard(self, session: Session, words: list[bytes]) -> bytes:
        _ended(session, "DISCARD")
        return _OK

    @COMMANDS(Command("unwatch", 1, "transactions", (), "Does nothing.", "OK", listed=False))
    def _unwatch(self, session: Session, words: list[bytes]) -> bytes:
        return _OK


def _ended(session: Session, name: str) -> Multi:
    multi, session.multi = session.multi, None
    if multi is None:
        raise BadRequest(f"ERR {name} without MULTI")
    return multi
