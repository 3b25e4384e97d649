"""The commands of a MULTI, one after the other: each is a separate lock operation.

What is watched is compared before the first of them. A DEL or EXPIRE of a key whose value the app has read
since its WATCH is about the lease with that value, so it does nothing to a later one: its app, any process,
has compared it. Where a command on a watched key comes too late all the same, EXEC is nil.

SETNX, or SET with NX and no TTL, and the EXPIRE of the same key are one acquire with a TTL. As two
operations, an app that dies in between would leave a lock without a TTL, and an app that was refused would
extend another's lock. So an EXPIRE after a refusal is answered 0 even if this process holds the key: then
another of its threads does, and Redis's 1 would repeat the old bug of this recipe between threads.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lockd.core.flow import WireReply
from lockd.core.scripts.operations import Kind, State
from lockd.server.commands.arguments import BadRequest, Misused
from lockd.server.dropin.answers import Found
from lockd.server.dropin.many_keys import HALF_DONE
from lockd.server.dropin.plain_locks import Answer, give_back
from lockd.server.dropin.preparing import (
    GIVE_BACK,
    Carried,
    Prepared,
    Preparing,
    UnreadScript,
    Watched,
    begin,
)
from lockd.server.resp import replies
from lockd.server.session import Session, Watch

ABORTED = "EXECABORT Transaction discarded because of previous errors: none of its commands ran"
_EXPIRES = (b"EXPIRE", b"PEXPIRE")
_COMPARED = (*_EXPIRES, b"DEL", b"UNLINK")
_CONDITIONS = {b"NX", b"XX", b"IFEQ"}
_OF_SEVERAL = (b"DEL", b"UNLINK", b"EVAL", b"EVALSHA", b"EVAL_RO")
_READ = (b"GET", b"EXISTS")


Usage = Callable[[bytes], str]
"""The usage of the command of that name."""


@dataclass(frozen=True, slots=True)
class _WithTtl:
    """A command that takes a lock without a TTL, and the EXPIRE that gives it one."""

    words: list[bytes]
    expire: list[bytes]


class Transaction:
    """The MULTI of a connection, whose EXEC is answered with all the replies."""

    def __init__(
        self,
        preparing: Preparing,
        usage: Usage,
        session: Session,
        queued: list[list[bytes]],
        answer: Answer,
        watch: Watch | None,
    ) -> None:
        self._preparing = preparing
        self._usage = usage
        self._session = session
        self._answer = answer
        self._watch = watch
        self._found: dict[bytes, Found] = {}
        self._has_done = False
        self._planned = _with_ttls(queued)
        self._replies: list[bytes] = []
        self._open: dict[int, Callable[[], bytes]] = {}
        """Replies that have to be true when EXEC is answered, by their places."""
        self._carried: dict[int, Carried] = {}

    def begins(self) -> None:
        """What is watched is looked at first. Each command on it is then right by itself: a try, or about the
        value that its app has compared."""
        watch, session = self._watch, self._session
        if watch is None:
            self._goes_on()
        elif watch.is_broken:
            self._answer(replies.error(ABORTED))
        elif not session.is_gone:
            self._preparing.look(session, list(watch.whose), self._compares, self._answer)

    def _compares(self, now: dict[bytes, Watched]) -> None:
        assert self._watch is not None
        self._found = {key: one.found for key, one in now.items()}
        if any(one.whose is None or one.whose != self._watch.whose[key] for key, one in now.items()):
            self._has_changed()
        else:
            self._goes_on()

    def _has_changed(self) -> None:
        """What was watched. An app relies on nil: nothing was done. Else it has to hear an error."""
        nil = replies.nil_array(self._session.protocol)
        self._ends_with(HALF_DONE if self._has_done else nil)

    def _ends_with(self, reply: bytes) -> None:
        """Instead of all replies: apps that watch rely on EXEC, and some don't read what is in it."""
        self._gives_back()
        self._carried, self._open = {}, {}
        self._answer(reply)

    def _gives_back(self) -> None:
        give_back(self._session, (lease for one in self._carried.values() for lease in one.taken))

    def _goes_on(self) -> None:
        if len(self._replies) == len(self._planned):
            self._answer(self._told)
            return
        planned = self._planned[len(self._replies)]
        if isinstance(planned, int):
            self._answered(b"")
            return
        words = planned.words if isinstance(planned, _WithTtl) else planned
        try:
            prepared = self._prepared(planned)
        except Misused as misused:
            self._answered(replies.error(f"{misused} {self._usage(words[0])}"))
        except BadRequest as bad:
            self._answered(replies.error(str(bad)))
        else:
            is_gone = self._session.is_gone
            begin(lambda answer: self._begun(prepared, answer), self._answered, only_to_give_back=is_gone)

    def _begun(self, prepared: Prepared, answer: Answer) -> Carried | UnreadScript:
        begun = prepared(answer)
        if isinstance(begun, UnreadScript):
            begun.is_made = self._carries
        else:
            self._carries(begun)
        return begun

    def _carries(self, begun: Carried) -> None:
        self._carried[len(self._replies)] = begun
        if begun.kind in GIVE_BACK:
            self._closes(begun.keys)
        if begun.kind is not Kind.READ:
            found = {key: self._found.pop(key) for key in begun.keys if key in self._found}
            begun.watched(found, self._has_changed)

    def _closes(self, keys: Sequence[bytes]) -> None:
        """They are given back by its own app: what was true until then stays as it was said."""
        for at, reply in list(self._open.items()):
            if not set(keys).isdisjoint(self._carried[at].keys) and not reply().startswith(b"-"):
                del self._open[at]

    def _prepared(self, planned: list[bytes] | _WithTtl) -> Prepared:
        if isinstance(planned, _WithTtl):
            return self._preparing.with_ttl(self._session, planned.words, planned.expire)
        name, found = planned[0].upper(), self._found.get(planned[1])
        if name in _COMPARED and self._watch is not None:
            shown = self._watch.shown
            there = [key for key in planned[1:] if key in self._found and key in shown]
            compared = {key: shown[key] for key in there if shown[key] == self._found[key].value}
            return self._preparing.as_compared(self._session, planned, compared)
        is_plain = name == b"SET" and _CONDITIONS.isdisjoint(map(bytes.upper, planned[3:]))
        is_free = found is not None and found.state is State.FREE
        words = [*planned, b"NX"] if is_plain and is_free else planned
        return self._preparing.prepared(self._session, words)

    def _answered(self, reply: WireReply) -> None:
        """Composed now, and again at the end: what it has taken or extended may be over by then (rule 1)."""
        told = reply if isinstance(reply, bytes) else reply()
        if self._watch is not None and told.startswith(b"-"):
            self._ends_with(told)
            return
        at = len(self._replies)
        carried = self._carried.get(at)
        if carried is not None:
            carried.is_answered()
            self._has_done |= carried.kind is not Kind.READ
        if not isinstance(reply, bytes):
            self._open[at] = reply
        self._replies.append(told)
        self._goes_on()

    def _told(self) -> bytes:
        """Composed when it is written, with the leases as they are then (rule 1)."""
        for at, reply in self._open.items():
            self._replies[at] = reply()
            if self._watch is not None and self._replies[at].startswith(b"-"):
                self._gives_back()
                return self._replies[at]
        for at, planned in enumerate(self._planned):
            if isinstance(planned, int):
                self._replies[at] = self._of_expire(planned)
        return replies.array(self._replies)

    def _of_expire(self, taken_at: int) -> bytes:
        """It is one operation with the command at that place."""
        reply = self._replies[taken_at]
        if reply.startswith(b"-"):
            return reply
        return replies.integer(len(self._carried[taken_at].taken))


def _with_ttls(queued: list[list[bytes]]) -> list[list[bytes] | _WithTtl | int]:
    """An int stands for an EXPIRE, and is the place of the command that takes its lock."""
    planned: list[list[bytes] | _WithTtl | int] = list(queued)
    for at, words in enumerate(queued):
        first = _taken_before(queued[:at], words)
        if first is not None:
            planned[first] = _WithTtl(queued[first], words)
            planned[at] = first
    return planned


def _taken_before(before: list[list[bytes]], words: list[bytes]) -> int | None:
    """The place of the command that takes the lock of this EXPIRE: the last one that names its key, leaving
    out commands that read the same with a TTL and without."""
    if words[0].upper() not in _EXPIRES or [word.upper() for word in words[3:]] not in ([], [b"NX"]):
        return None
    about_it = (at for at in reversed(range(len(before))) if _names(before[at], words[1]))
    last = next((at for at in about_it if before[at][0].upper() not in _READ), None)
    return last if last is not None and _takes_without_ttl(words[1], before[last]) else None


def _names(words: list[bytes], key: bytes) -> bool:
    return key in words[1 : None if words[0].upper() in _OF_SEVERAL else 2]


def _takes_without_ttl(key: bytes, words: list[bytes]) -> bool:
    name, options = words[0].upper(), {word.upper() for word in words[3:]}
    is_set_nx = name == b"SET" and {b"NX"} <= options <= {b"NX", b"GET"}
    return words[1] == key and (name == b"SETNX" or is_set_nx)
