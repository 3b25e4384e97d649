"""Turns the words of Redis's own lock commands into operations that can be carried out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lockd.core.scripts.operations import (
    ErrorReply,
    Keys,
    Kind,
    NotRecognised,
    Operation,
    Reply,
    Special,
    Text,
)
from lockd.core.values import Refusal
from lockd.server.commands.arguments import BadRequest, Misused, whole
from lockd.server.dropin import known_operations as known
from lockd.server.dropin.answers import Found, Words, WrittenTtl
from lockd.server.dropin.looking import Seen, found_as
from lockd.server.dropin.many_keys import ManyKeys
from lockd.server.dropin.performing import Ground, OneKey, check_rights
from lockd.server.dropin.plain_locks import Answer
from lockd.server.dropin.script_cache import ScriptCache, Taken, refusal
from lockd.server.dropin.ttls import TTL_OPTIONS, ttl_of_expire, ttl_of_option
from lockd.server.resp import replies
from lockd.server.session import Session

GIVE_BACK = (Kind.RELEASE, Kind.DELETE)
NOSCRIPT = "NOSCRIPT No matching script. Please use EVAL."
_NOT_NX = (
    "ERR a SET without NX would take a lock from its holder. This is a lock agent: take a lock with SET "
    "key value NX PX milliseconds, extend it with SET key value XX PX milliseconds or IFEQ value"
)
_OTHER_VALUE = "ERR a lock keeps its value: the new value must equal the compared one"
_NO_TTL = "ERR set a TTL (PX milliseconds): without one, an extended lock would never end"
_GONE = replies.error("ERR its connection has ended")
_NOT_KEPT = "ERR KEEPTTL is not supported: set PX milliseconds"
_ENDS_WITH_OPTION = "ERR a TTL of 0 or less releases the lock, without an option: use DEL key"
_WOULD_STEAL = ErrorReply(
    Text((b"TAKEN it is held with another value: a lock keeps its value until it is released",))
)


Carried = OneKey | ManyKeys
Prepared = Callable[[Answer], "Carried | UnreadScript"]
"""An operation that can be carried out. Raises BadRequest where it can't."""


def begin(prepared: Prepared, answer: Answer, *, only_to_give_back: bool = False) -> None:
    """Carry it out; if something is wrong with it, the error is its answer. only_to_give_back: its client has
    gone, so nothing else is done."""
    try:
        begun = prepared(answer)
        if not only_to_give_back or begun.kind in GIVE_BACK:
            begun.begin()
        else:
            answer(_GONE)
    except BadRequest as bad:
        answer(replies.error(str(bad)))


def keys_in(words: list[bytes]) -> list[bytes]:
    """The words of an EVAL."""
    number = whole(words[2], least=0)
    if number > len(words) - 3:
        raise BadRequest("ERR Number of keys can't be greater than number of args")
    return words[3 : 3 + number]


@dataclass(frozen=True, slots=True)
class Watched:
    """A key that is watched: as it was found, and whose it is (`Looking.whose`)."""

    found: Found
    whose: bytes | None


class Preparing:
    def __init__(self, ground: Ground, scripts: ScriptCache) -> None:
        self._ground = ground
        self._scripts = scripts

    def prepared(self, session: Session, words: list[bytes]) -> Prepared:
        """The operation of a command with these words. Raises BadRequest."""
        return _OF_COMMAND[words[0].upper()](self, session, words)

    def look(
        self,
        session: Session,
        keys: Sequence[bytes],
        then: Callable[[dict[bytes, Watched]], None],
        failed: Answer,
    ) -> None:
        """What holds each of the keys now, as the masters show it. It names nothing: its app is told no more
        than whether it has changed."""
        _Looks(self._ground, session, keys, then, failed).goes_on()

    def as_compared(self, session: Session, words: list[bytes], shown: Mapping[bytes, bytes]) -> Prepared:
        """A DEL or EXPIRE. Of a key whose value its app was shown, and has compared: of the lease with this
        value, whichever process holds it."""
        if words[0].upper() in (b"DEL", b"UNLINK") and (len(words) > 2 or shown):
            return self._del_each(session, words, shown)
        value = shown.get(words[1])
        if value is None or len(words) > 3:
            return self.prepared(session, words)
        ttl = ttl_of_expire(words[0].upper(), words[2])
        if ttl.ms <= 0:
            return self._one(session, known.DELETE_IF_EQUAL, words[1], value)
        return self._one(session, known.EXPIRE_IF_EQUAL, words[1], value, ttl=ttl)

    def _one(
        self, session: Session, operation: Operation, key: bytes, *value: bytes, ttl: WrittenTtl | None = None
    ) -> Prepared:
        words = Words([key], value, ttl)
        return lambda answer: OneKey(self._ground, session, operation, words, answer, "set")

    def _set(self, session: Session, words: list[bytes], expire: WrittenTtl | None = None) -> Prepared:
        key, value, options = words[1], words[2], _Options(words[3:], "set")
        if options.condition == b"NX":
            ttl = options.ttl or expire
            operation = (known.SET_NX_GET if options.gets else known.SET_NX)[ttl is not None]
            return self._one(session, operation, key, value, ttl=ttl)
        if not options.condition:
            raise BadRequest(_NOT_NX)
        if options.compared not in (None, value):
            raise BadRequest(_OTHER_VALUE)
        if options.ttl is None:
            raise BadRequest(_NO_TTL)
        done = Special.STORED if options.gets else known.OK
        refused: Reply = Special.STORED if options.gets else Special.NIL
        if options.condition == b"XX":
            refused = _WOULD_STEAL
        return self._one(session, known.extend(done=done, refused=refused), key, value, ttl=options.ttl)

    def _setnx(self, session: Session, words: list[bytes]) -> Prepared:
        return self._one(session, known.SETNX, words[1], words[2])

    def with_ttl(self, session: Session, words: list[bytes], expire: list[bytes]) -> Prepared:
        """A SETNX or a SET with NX, and the EXPIRE that follows it in its MULTI."""
        ttl = ttl_of_expire(expire[0].upper(), expire[2])
        if words[0].upper() == b"SET":
            return self._set(session, words, ttl)
        return self._one(session, known.SETNX_WITH_TTL, words[1], words[2], ttl=ttl)

    def _reading(self, session: Session, words: list[bytes]) -> Prepared:
        return self._one(session, _READINGS[words[0].upper()], words[1])

    def _expire(self, session: Session, words: list[bytes]) -> Prepared:
        ttl, option = ttl_of_expire(words[0].upper(), words[2]), b"".join(words[3:]).upper()
        if len(words) > 4 or option not in known.EXPIRE:
            raise Misused
        if ttl.ms <= 0 and option:
            raise BadRequest(_ENDS_WITH_OPTION)
        if ttl.ms <= 0:  # as in Redis
            return self._one(session, known.DELETE, words[1])
        return self._one(session, known.EXPIRE[option], words[1], ttl=ttl)

    def _persist(self, session: Session, words: list[bytes]) -> Prepared:
        return self._one(session, known.PERSIST, words[1])

    def _del(self, session: Session, words: list[bytes]) -> Prepared:
        if len(words) == 2:
            return self._one(session, known.DELETE, words[1])
        return self._del_each(session, words, {})

    def _del_each(self, session: Session, words: list[bytes], shown: Mapping[bytes, bytes]) -> Prepared:
        of_each = Operation(Kind.DELETE, known.KEY, None, Keys.EACH, known.DELETE.outcomes)
        several = Words(list(dict.fromkeys(words[1:])), ())
        return lambda answer: ManyKeys(self._ground, session, of_each, several, answer, "set", shown)

    def _delete_if_equal(self, session: Session, words: list[bytes]) -> Prepared:
        if words[0].upper() == b"DELEX" and words[2].upper() != b"IFEQ":
            raise Misused
        operation = known.CAD if words[0].upper() == b"CAD" else known.DELETE_IF_EQUAL
        return self._one(session, operation, words[1], words[-1])

    def _cas(self, session: Session, words: list[bytes]) -> Prepared:
        options = _Options(words[4:], "cas")
        if words[2] != words[3]:
            raise BadRequest(_OTHER_VALUE)
        if options.condition or options.gets:
            raise Misused
        if options.ttl is None:
            raise BadRequest(_NO_TTL)
        return self._one(session, known.CAS, words[1], words[2], ttl=options.ttl)

    def _eval(self, session: Session, words: list[bytes]) -> Prepared:
        name, keys = words[0].upper(), keys_in(words)
        given = Words(keys, words[3 + len(keys) :])
        return lambda answer: self._of_script(session, name, words[1], given, answer)

    def _of_script(
        self, session: Session, name: bytes, word: bytes, given: Words, answer: Answer
    ) -> "Carried | UnreadScript":
        """When its turn comes: a command before it on its connection may have loaded the script."""
        is_named = name == b"EVALSHA"
        taken = self._scripts.loaded(word) if is_named else self._known(session, word)
        if taken is not None:
            return self._of_known(session, name, taken, given, answer)
        if is_named:
            raise BadRequest(NOSCRIPT)
        return UnreadScript(
            self._scripts, session, word, answer,
            lambda read, answer: self._of_known(session, name, read, given, answer),
        )  # fmt: skip

    def _known(self, session: Session, text: bytes) -> Taken | None:
        return self._scripts.known(text, session.peer, session.library)

    def _of_known(self, session: Session, name: bytes, taken: Taken, given: Words, answer: Answer) -> Carried:
        if isinstance(taken, NotRecognised):
            raise BadRequest(refusal(taken))
        try:
            operation = taken.operation(given.keys, given.arguments)
        except ValueError as why:
            raise BadRequest(f"ERR the script can't use its keys and arguments: {why}") from None
        if name == b"EVAL_RO" and operation.kind is not Kind.READ:
            raise BadRequest("ERR the script changes something: send it with EVAL")
        kind = OneKey if operation.keys is Keys.ONE else ManyKeys
        return kind(self._ground, session, operation, given, answer, "script")


class _Looks:
    """At several keys, one after the other. A class: functions that call each other would be left behind, as
    nothing is collected."""

    def __init__(
        self,
        ground: Ground,
        session: Session,
        keys: Sequence[bytes],
        then: Callable[[dict[bytes, Watched]], None],
        failed: Answer,
    ) -> None:
        self._ground = ground
        self._session = session
        self._keys = keys
        self._then = then
        self._failed = failed
        self._found: dict[bytes, Watched] = {}

    def goes_on(self) -> None:
        if len(self._found) == len(self._keys):
            self._then(self._found)
            return
        key = self._keys[len(self._found)]
        try:
            check_rights(self._ground, self._session, key, Kind.READ)
        except BadRequest as bad:
            self._failed(replies.error(str(bad)))
        else:
            self._ground.looking.look(self._session, key, self._is_seen, anew=True)

    def _is_seen(self, seen: Seen | Refusal | None) -> None:
        if isinstance(seen, Refusal):
            self._failed(replies.error(str(seen)))
            return
        key = self._keys[len(self._found)]
        self._found[key] = Watched(found_as(seen, None), self._ground.looking.whose(key, seen))
        self.goes_on()


class UnreadScript:
    """An EVAL whose script has to be read first. Until then it may be one that gives something back, so it is
    begun like one, even if its app has gone. is_made: called before what it turns out to be is begun."""

    def __init__(
        self,
        scripts: ScriptCache,
        session: Session,
        text: bytes,
        answer: Answer,
        made: Callable[[Taken, Answer], Carried],
    ) -> None:
        self.kind = Kind.RELEASE
        self._scripts = scripts
        self._session = session
        self._text = text
        self._answer = answer
        self._made = made
        self.is_made: Callable[[Carried], None] = lambda _made: None

    def begin(self) -> None:
        session = self._session
        self._scripts.read(self._text, session.account, session.peer, session.library, self._is_read)

    def _is_read(self, taken: Taken | Refusal) -> None:
        if isinstance(taken, Refusal):
            self._answer(replies.error(str(taken)))
        else:
            is_gone = self._session.is_gone
            begin(lambda answer: self._as_read(taken, answer), self._answer, only_to_give_back=is_gone)

    def _as_read(self, taken: Taken, answer: Answer) -> Carried:
        made = self._made(taken, answer)
        self.is_made(made)
        return made


class _Options:
    """The options of SET and CAS, after the value."""

    def __init__(self, words: list[bytes], command: str) -> None:
        self.condition = b""
        self.compared: bytes | None = None
        self.gets = False
        self.ttl: WrittenTtl | None = None
        self._command = command
        options = iter(words)
        for word in options:
            self._take(word.upper(), options)

    def _take(self, option: bytes, following: Iterator[bytes]) -> None:
        if option in (b"NX", b"XX", b"IFEQ") and not self.condition:
            self.condition = option
            if option == b"IFEQ":
                self.compared = next(following, None)
                if self.compared is None:
                    raise Misused
        elif option == b"GET":
            self.gets = True
        elif option in TTL_OPTIONS and self.ttl is None:
            self.ttl = ttl_of_option(option, next(following, b""), self._command)
        elif option == b"KEEPTTL":
            raise BadRequest(_NOT_KEPT)
        else:
            raise Misused


_READINGS = {b"GET": known.GET, b"EXISTS": known.EXISTS, b"PTTL": known.PTTL, b"TTL": known.TTL_S}
_OF_COMMAND: dict[bytes, Callable[[Preparing, Session, list[bytes]], Prepared]] = {
    b"SET": Preparing._set,
    b"SETNX": Preparing._setnx,
    **dict.fromkeys((b"GET", b"EXISTS", b"PTTL", b"TTL"), Preparing._reading),
    **dict.fromkeys((b"EXPIRE", b"PEXPIRE"), Preparing._expire),
    b"PERSIST": Preparing._persist,
    **dict.fromkeys((b"DEL", b"UNLINK"), Preparing._del),
    **dict.fromkeys((b"DELEX", b"DELIFEQ", b"CAD"), Preparing._delete_if_equal),
    b"CAS": Preparing._cas,
    **dict.fromkeys((b"EVAL", b"EVAL_RO", b"EVALSHA"), Preparing._eval),
}
