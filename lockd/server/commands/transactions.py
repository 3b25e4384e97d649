"""MULTI and EXEC, as lock libraries and articles use them: around Redis's own lock commands. A LOCK can't be
in one: it may wait, and is answered separately."""

from functools import partial

from lockd.core import sizes
from lockd.core.flow import Place
from lockd.server.commands.arguments import BadRequest
from lockd.server.commands.command import RESOURCE, Argument, Command, Group
from lockd.server.commands.plain import READS, answer_at
from lockd.server.dropin.performing import VALUE_BYTES_MOST
from lockd.server.dropin.preparing import Preparing, Watched
from lockd.server.dropin.transactions import ABORTED, Transaction, Usage
from lockd.server.session import MULTI_BYTES, Multi, Session

COMMANDS = Group()

QUEUED_MOST = 64
_OK = b"+OK\r\n"


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
            session.watch = None
            raise BadRequest(ABORTED)
        watch, session.watch = session.watch, None
        place = Place()
        place.size = multi.size
        answer = partial(answer_at, session, place)
        transaction = Transaction(self._preparing, self._usage, session, multi.queued, answer, watch)
        session.in_turn(lambda _place: transaction.begins(), place)

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
        session.watch = None
        return _OK

    @COMMANDS(
        Command(
            "watch",
            -2,
            "transactions",
            ("noscript", "fast"),
            "Lets the next EXEC do nothing if the keys have changed by then.",
            "OK",
            (RESOURCE, Argument("key", "key", optional=True, multiple=True)),
            key_access=READS,
            resources=lambda words: words[1:],
            promise=(
                "`OK`: the next `EXEC` answers nil and runs nothing if by then another lease has one of the "
                "keys, or a free one was taken. Nil also where that can't be seen: a `LOCK` of another host "
                "has it, and others wait there, or it may be kept. If `WATCH` is refused, that `EXEC` is "
                "`EXECABORT`"
            ),
        )
    )
    def _watch(self, session: Session, words: list[bytes]) -> None:
        watch, keys, place = session.watch, list(dict.fromkeys(words[1:])), Place()
        assert watch is not None  # it counts the WATCH that have arrived
        watch.size += sizes.request(keys) + VALUE_BYTES_MOST * len(keys)
        if watch.size > MULTI_BYTES:
            raise BadRequest(f"LIMIT watch: at most {MULTI_BYTES} bytes of keys are allowed")
        answer = partial(answer_at, session, place)

        def found(now: dict[bytes, Watched]) -> None:
            for key, one in now.items():
                watch.whose.setdefault(key, one.whose)
            watch.done += 1
            answer(_OK)

        session.in_turn(lambda _place: self._preparing.look(session, keys, found, answer), place)

    @COMMANDS(Command("unwatch", 1, "transactions", ("noscript", "fast"), "Forgets all watched keys.", "OK"))
    def _unwatch(self, session: Session, words: list[bytes]) -> bytes:
        session.watch = None
        return _OK


def _ended(session: Session, name: str) -> Multi:
    multi, session.multi = session.multi, None
    if multi is None:
        raise BadRequest(f"ERR {name} without MULTI")
    return multi
