"""Redis's own lock commands, for existing lock code: SET key value NX and its relatives. They are carried out
in server/dropin."""

from functools import partial

from lockd.core.flow import Place, WireReply
from lockd.server.commands.command import RESOURCE, Argument, Command, Group
from lockd.server.dropin.preparing import Preparing, begin
from lockd.server.session import Session

COMMANDS = Group()

_VALUE = Argument("value")
_KEYS = (RESOURCE, Argument("key", "key", optional=True, multiple=True))
_TTL = Argument(
    "expiration",
    "oneof",
    optional=True,
    arguments=(
        Argument("seconds", "integer", token="EX"),
        Argument("milliseconds", "integer", token="PX"),
        Argument("unix-time-seconds", "integer", token="EXAT"),
        Argument("unix-time-milliseconds", "integer", token="PXAT"),
    ),
)
_CONDITION = Argument(
    "condition",
    "oneof",
    optional=True,
    arguments=(
        Argument("nx", "pure-token", token="NX"),
        Argument("xx", "pure-token", token="XX"),
        Argument("comparison-value", token="IFEQ"),
    ),
)
_WHEN = Argument(
    "when",
    "oneof",
    optional=True,
    arguments=tuple(Argument(name.lower(), "pure-token", token=name) for name in ("NX", "XX", "GT", "LT")),
)
TAKES = ("RW", "access", "insert")
READS = ("RO", "access")
_CHANGES = ("RW", "access", "update")
_DELETES = ("RW", "delete")
_WRITE, _FAST, _READ = ("write", "denyoom"), ("write", "fast"), ("readonly", "fast")


def _command(
    name: str,
    arity: int,
    flags: tuple[str, ...],
    summary: str,
    reply: str,
    arguments: tuple[Argument, ...],
    access: tuple[str, ...],
    promise: str,
) -> Command:
    return Command(
        name,
        arity,
        "redis",
        flags,
        summary,
        reply,
        arguments,
        key_access=access,
        resources=(lambda words: words[1:]) if arguments is _KEYS else (lambda words: words[1:2]),
        queues=True,
        gives_back=access is _DELETES,
        promise=promise,
    )


_SET = _command(
    "set", -3, _WRITE, "Locks a resource (SET key value NX), or extends a lock (XX or IFEQ).",
    "OK; nil if another has it; with GET the value before",
    (RESOURCE, _VALUE, _CONDITION, Argument("get", "pure-token", token="GET", optional=True), _TTL), TAKES,
    "`NX`: `OK`, or nil if another has it; with `GET` nil, or the current value. Without a TTL it is "
    "renewed while its process lives. `XX` and `IFEQ` extend it if the value is the same. If not: nil, and "
    "for `XX` the error `TAKEN` if another has it",
)  # fmt: skip
_SETNX = _command(
    "setnx", 3, _WRITE, "Locks a resource, without a TTL.", "1, or 0 if another has it",
    (RESOURCE, _VALUE), TAKES,
    "`1`, or `0` if another has it. Renewed while its process lives; `EXPIRE` gives it a TTL",
)  # fmt: skip
_GET = _command(
    "get", 2, _READ, "Returns the value of a lock.", "bulk string, or nil",
    (RESOURCE,), READS, (
        "the value of the lock, or nil. For a `LOCK` it is the host that has it, never the token"
    ),
)  # fmt: skip
_EXISTS = _command(
    "exists", 2, _READ, "Tells whether a resource is locked.", "1, or 0",
    (RESOURCE,), READS, "`1` if it is locked, otherwise `0`",
)  # fmt: skip
_PTTL = _command(
    "pttl", 2, _READ, "Returns the remaining validity of a lock in ms.", "integer; -1: no TTL, -2: free",
    (RESOURCE,), READS, "its remaining validity in ms; `-1` without a TTL, `-2` when it is free",
)  # fmt: skip
_TTL_COMMAND = _command(
    "ttl", 2, _READ, "Returns the remaining validity of a lock in seconds.", "integer; -1: no TTL, -2: free",
    (RESOURCE,), READS, "as `PTTL`, in seconds",
)  # fmt: skip
_PEXPIRE = _command(
    "pexpire", -3, _FAST, "Sets the TTL of a lock of this process.", "1, or 0",
    (RESOURCE, Argument("milliseconds", "integer"), _WHEN), _CHANGES,
    "`1`, or `0` if this process does not hold it. With less than is left the agent gives it back "
    "then, unless another host has extended it. 0 or less releases it, as `DEL` does. `NX`: only if it has "
    "no TTL, `XX`: only if it has one; `GT`, `LT`: only if that is more, or less, than what is left",
)  # fmt: skip
_EXPIRE = _command(
    "expire", -3, _FAST, "Sets the TTL of a lock of this process.", "1, or 0",
    (RESOURCE, Argument("seconds", "integer"), _WHEN), _CHANGES, "as `PEXPIRE`, in seconds",
)  # fmt: skip
_PERSIST = _command(
    "persist", 2, _FAST, "Removes the TTL that EXPIRE set on a lock of this process.", "1, or 0",
    (RESOURCE,), _CHANGES,
    "`1` if this process has locked it without a TTL and `EXPIRE` set one, otherwise `0`; an error if it "
    "was locked with a TTL",
)  # fmt: skip
_DEL = _command(
    "del", -2, _WRITE, "Releases locks of this process.", "integer: how many", _KEYS, _DELETES,
    "how many of them this process held and has released. It never releases a lock of another process",
)  # fmt: skip
_UNLINK = _command(
    "unlink", -2, _FAST, "Releases locks of this process.", "integer: how many", _KEYS, _DELETES, "as `DEL`",
)  # fmt: skip
_DELEX = _command(
    "delex", 4, _FAST, "Releases a lock if it has that value.", "1, or 0",
    (RESOURCE, Argument("value", token="IFEQ")), _DELETES,
    "`1`, or `0` if it is not locked with that value",
)  # fmt: skip
_DELIFEQ = _command(
    "delifeq", 3, _FAST, "Releases a lock if it has that value.", "1, or 0",
    (RESOURCE, _VALUE), _DELETES, "as `DELEX` (Valkey)",
)  # fmt: skip
_CAD = _command(
    "cad", 3, _FAST, "Releases a lock if it has that value.", "1; 0 if another has it, -1 if it is free",
    (RESOURCE, _VALUE), _DELETES, "as `DELEX`; `-1` when it is free (Tair)",
)  # fmt: skip
_CAS = _command(
    "cas", -4, _WRITE, (
        "Extends a lock if it has that value."
    ), "1; 0 if another has it, -1 if it is free",
    (RESOURCE, Argument("old"), Argument("new"), _TTL), _CHANGES,
    "`1`; `0` if another has it, `-1` if it is free (Tair). The old and the new value must be equal",
)  # fmt: skip


class Plain:
    """Each takes its turn on its connection: a command after it finds what it left. The last decorator is the
    first in listings."""

    def __init__(self, preparing: Preparing) -> None:
        self._preparing = preparing

    @COMMANDS(_CAS)
    @COMMANDS(_CAD)
    @COMMANDS(_DELIFEQ)
    @COMMANDS(_DELEX)
    @COMMANDS(_UNLINK)
    @COMMANDS(_DEL)
    @COMMANDS(_PERSIST)
    @COMMANDS(_EXPIRE)
    @COMMANDS(_PEXPIRE)
    @COMMANDS(_TTL_COMMAND)
    @COMMANDS(_PTTL)
    @COMMANDS(_EXISTS)
    @COMMANDS(_GET)
    @COMMANDS(_SETNX)
    @COMMANDS(_SET)
    def _run(self, session: Session, words: list[bytes]) -> None:
        run_in_turn(self._preparing, session, words)


def run_in_turn(preparing: Preparing, session: Session, words: list[bytes]) -> None:
    """Raises BadRequest."""
    prepared, place = preparing.prepared(session, words), Place(gives_back=True)

    def start(_place: Place) -> None:
        if session.is_gone:
            begin(prepared, session.given_back(), only_to_give_back=True)
        else:
            begin(prepared, partial(answer_at, session, place))

    session.in_turn(start, place)


def answer_at(session: Session, place: Place, reply: WireReply) -> None:
    """A client that has gone is told nothing."""
    if not session.is_gone:
        session.answer(place, reply)
