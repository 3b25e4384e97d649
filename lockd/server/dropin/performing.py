"""Carries out an operation on one key, and answers as its outcomes say.

Between two steps, others may change the state in which the key was found, as on a Redis between two commands.
So each step is right by itself: a try, a compare-and-delete, an extension by value.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from lockd.clock import boottime_ns
from lockd.config.current import Current
from lockd.core.errors import ErrorWord
from lockd.core.errors import Kind as Meaning
from lockd.core.flow import WireReply
from lockd.core.leases import Holder, Lease, pid_and_uid
from lockd.core.locks import ROUNDED_NS
from lockd.core.plain_values import token_of, value_of
from lockd.core.refusals import HELD_OUT
from lockd.core.scripts.operations import (
    ANOTHERS,
    OWN,
    Change,
    ErrorReply,
    Kind,
    Left,
    Listed,
    Operation,
    Place,
    Reply,
    Special,
    State,
    Ttl,
)
from lockd.core.validity import NS_PER_MS, drift_ns
from lockd.core.values import Bound, Extended, Refusal
from lockd.metrics.leases import LeaseMetrics
from lockd.server.commands.arguments import BadRequest
from lockd.server.commands.checks import Checks
from lockd.server.dropin.answers import FREE, Found, Words, encoded
from lockd.server.dropin.looking import Looking, Seen, found_as, left_of
from lockd.server.dropin.plain_locks import GONE, Answer, PlainLock, PlainReply, is_over
from lockd.server.dropin.signals import Signals
from lockd.server.dropin.ttls import check_ttl, ttl_of_script
from lockd.server.dropin.usage import Usage
from lockd.server.lease_requests import LockRequest, refused_for_limits
from lockd.server.resp import replies
from lockd.server.session import Session
from lockd.server.shared import Shared

VALUE_BYTES_MOST = 512
RENEWED_TTL_MS = 10_000
"""The TTL of a lock that is taken without one: it is renewed while its process lives, and outlives its host
for this long at most."""
_TRIES_MOST = 3
_LEAST_GAIN_NS = 10 * NS_PER_MS
"""A smaller gain is not asked for."""
_TICK_NS = 10 * NS_PER_MS
"""The tick of the clock that shows when processes began."""
_UNSEEN = (
    "ERR a lock without a TTL lives as long as its process, and the process of this connection can't be "
    "seen (another container, or a proxy): set a TTL with SET key value NX PX milliseconds"
)
_NO_TTL_NOW = (
    "ERR the TTL of a lock can't be removed: take the lock without a TTL (SET key value NX), and it is "
    "renewed while its process lives"
)
_RENEWED_ELSEWHERE = (
    "ERR it is held with this value and needs no extension: it was taken without a TTL, so its agent "
    "renews it while its process lives, up to max_hold_ms. To extend it, use the host that took it"
)
_ENDS_NOTHING = (
    "ERR a script can't release a lock with a TTL of 0 or less: release with DELEX key IFEQ value, or a "
    "script that compares and deletes"
)
_TAKES = (Kind.ACQUIRE, Kind.ACQUIRE_OR_EXTEND)
_HELD = tuple(state for state in State if state is not State.FREE)
_CUT_SHORT = Refusal(ErrorWord.EXPIRED, "it can't be extended that far: it may not be held past max_hold")
_ENDED = Refusal(ErrorWord.EXPIRED, "its new TTL was over before the app could be told")
_NOT_SHORTENED = (
    "ERR the TTL is shorter than what is left, and nothing was changed: only the agent that granted the "
    "lock, and was not restarted since, can end it earlier. Release it, or take it with a shorter TTL"
)
_TRY_AGAIN = Refusal(ErrorWord.TIMEOUT, "it is taken and released too fast to look at: try again")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What operations need to be carried out."""

    current: Current
    shared: Shared
    looking: Looking
    signals: Signals
    metrics: LeaseMetrics
    usage: Usage
    checks: Checks


def nobody(_reply: WireReply) -> None:
    """Who asked has the answer."""


class OneKey:
    """One operation on one key, for a connection. via: how it was asked for."""

    __slots__ = (
        "_answer", "_asked_ns", "_begun_ns", "_changed_since", "_ends_ns", "_ground", "_lock_class",
        "_operation", "_resource", "_session", "_tries", "_ttl_ms", "_value", "_via", "_words", "kind",
        "taken",
    )  # fmt: skip

    def __init__(
        self, ground: Ground, session: Session, operation: Operation, words: Words, answer: Answer, via: str
    ) -> None:
        """Raises BadRequest: it can't be carried out."""
        self._ground = ground
        self._session = session
        self._operation = operation
        self.kind = operation.kind
        self._words = words
        self._answer = answer
        self._via = via
        self._tries = 0
        self._asked_ns = self._begun_ns = 0
        self._ends_ns: int | None = None
        self.taken: list[Lease] = []
        self._changed_since: Callable[[], None] | None = None
        if via != "set":
            check_places(operation, words)
        self._resource = words.at(operation.key)
        check_rights(ground, session, self._resource, operation.kind)
        self._lock_class = ground.current.config.class_of(self._resource)
        self._value = _value_in(operation, words)
        self._ttl_ms = self._ttl_in()

    @property
    def keys(self) -> Sequence[bytes]:
        return (self._resource,)

    @property
    def is_over(self) -> bool:
        """What it has taken or extended, and an app may not be told any more (rule 1)."""
        has_ended = self._ends_ns is not None and boottime_ns() >= self._ends_ns
        return has_ended or any(map(is_over, self.taken))

    def watched(self, there: Mapping[bytes, Found], changed_since: Callable[[], None]) -> None:
        """Its app relies on these keys being as they were found. If this could change its key then, and can't
        any more, the app is told so instead of the answer."""
        found = there.get(self._resource)
        if found is None:
            return
        state = found.state
        if state is not State.FREE and self._value is not None and found.value == self._value:
            state = State.OWN if state is State.ANOTHERS else State.OWN_ENDLESS
        if self._operation.outcome(state).change is not Change.NONE:
            self._changed_since = changed_since

    def is_answered(self) -> None:
        """Who asked refers to it, to know what it has taken."""
        self._answer, self._changed_since = nobody, None

    def begin(self) -> None:
        self._asked_ns = boottime_ns()
        self._ground.usage.asked(self._session.library)
        _BEGINNINGS[self._operation.kind](self)

    # Its answers

    def _says(self, found: Found) -> None:
        if self._changed_since is not None and self._operation.outcome(found.state).change is Change.NONE:
            self._changed_since()
        else:
            self._came_to(found)

    def _came_to(self, found: Found) -> None:
        outcome, session = self._operation.outcome(found.state), self._session
        if self._via == "set" and outcome.reply is Special.STORED and session.watch is not None:
            session.watch.is_shown(self._resource, found.value)
        reply = self._encoded(outcome.reply, found)
        self._answer(reply if self._ends_ns is None else partial(self._unless_over, reply))

    def _unless_over(self, reply: bytes) -> bytes:
        """Composed when it is written: others may have come before it."""
        return replies.error(str(_ENDED)) if self.is_over else reply

    def _encoded(self, reply: Reply, found: Found) -> bytes:
        return encoded(reply, found, self._words, self._session.protocol)

    def _fails(self, refusal: Refusal) -> None:
        self._answer(replies.error(str(refusal)))

    def _looks(self, then: Callable[[Found], None], *, anew: bool = False) -> None:
        """What it shows of its app's own value was asked for after the command had arrived: another agent may
        have released it just before."""

        def told(seen: Seen | Refusal | None) -> None:
            if isinstance(seen, Refusal):
                self._fails(seen)
                return
            found = found_as(seen, self._value)
            is_shown = self._is_shown(found)
            if is_shown and seen is not None and seen.asked_ns < self._asked_ns:
                self._looks(then, anew=True)
                return
            if is_shown and found.value is not None:
                self._is_named(found.value)
            then(found)

        self._ground.looking.look(self._session, self._resource, told, anew=anew)

    def _says_of_others(self) -> None:
        """Another has it, or nobody: looked at only if that makes a difference."""
        states = (State.FREE, State.ANOTHERS, State.ANOTHERS_ENDLESS)
        said = {self._operation.outcome(state).reply for state in states}
        if len(said) == 1 and not _depends(*said):
            self._says(FREE)
        else:
            self._looks(self._says_unless_own)

    def _says_unless_own(self, found: Found) -> None:
        """It was not this app's a moment ago: another has the same value by now."""
        others = {State.OWN: State.ANOTHERS, State.OWN_ENDLESS: State.ANOTHERS_ENDLESS}
        self._says(replace(found, state=others.get(found.state, found.state)))

    # Taking

    def _forget_last(self) -> None:
        """WAIT is about the last lock that was asked for. For an app that polls with acquire or extend, that
        is the lock it has."""
        last = self._session.last_taken
        if self.kind is Kind.ACQUIRE or (last is not None and last.resource != self._resource):
            self._session.last_taken = None

    def _take(self) -> None:
        session, config = self._session, self._ground.current.config
        self._forget_last()
        has_ttl = self._ttl_ms is not None
        if not has_ttl and session.ties.bound(Bound.PROCESS) is not Bound.PROCESS:
            raise BadRequest(_UNSEEN)
        ttl_ms = self._ttl_ms or min(RENEWED_TTL_MS, self._lock_class.max_ttl_ms or config.max_ttl_ms)
        assert self._value is not None
        request = PlainLock(
            session,
            self._resource,
            self._lock_class,
            ttl_ms,
            self._value,
            has_ttl=has_ttl,
            min_validity_ms=config.min_validity_ms,
            via=self._via,
        )
        granted = self._operation.outcome(State.FREE).reply
        request.answers(self._encoded(granted, FREE), self._granted, self._not_granted)
        self._ground.metrics.asked(self._via)
        refusal = refused_for_limits(session, request, self._ground.metrics)
        if refusal is not None:
            self._fails(refusal)
            return
        request.begins(boottime_ns(), ready=True)

    def _granted(self, reply: WireReply) -> None:
        self._is_taken()
        self._answer(reply)

    def _is_taken(self) -> None:
        assert self._session.last_taken is not None
        self._ground.looking.forget(self._resource)
        self.taken = [self._session.last_taken]

    def _not_granted(self, refusal: Refusal) -> None:
        if refusal is GONE:
            assert self._value is not None
            self._ground.looking.is_given_back(
                self._session.account, self._resource, self._value, self._session.owner
            )
        if refusal.code.kind is not Meaning.CONTENDED or self._session.is_gone:
            self._fails(refusal)
        elif self._operation.kind is Kind.ACQUIRE_OR_EXTEND:
            self._set_ttl(lambda: self._another_has_it(ANOTHERS, self._says_unless_own))
        else:
            self._another_has_it(_HELD, self._says)

    def _another_has_it(self, states: Iterable[State], says: Callable[[Found], None]) -> None:
        """It is in one of these states. If it turns out to be free it is tried for again: the answer for a
        free key is that it was granted."""

        def found_as(found: Found) -> None:
            if found.state is not State.FREE:
                says(found)
            elif self._tries < _TRIES_MOST:
                self._tries += 1
                self._ground.looking.forget(self._resource)
                self._ground.shared.locks.seems_free(self._resource)
                self._take()
            else:
                self._fails(_TRY_AGAIN)

        said = {self._operation.outcome(state).reply for state in states}
        if self._changed_since is not None:
            self._changed_since()
        elif len(said) == 1 and not _depends(*said):
            self._answer(self._encoded(said.pop(), FREE))
        else:
            self._looks(found_as)

    # Giving back

    def _release(self) -> None:
        assert self._value is not None
        self._release_value(self._value)

    def _release_value(self, value: bytes) -> None:
        if self._ask_for_unknown("unlock", value):
            reply = PlainReply(
                self._session,
                self._released,
                lambda refusal: self._not_held(refusal, self._says_of_others),
            )
            self._ground.shared.locks.release(self._resource, value, reply, boottime_ns())

    def _released(self, _lease: Extended | None) -> None:
        self._ground.looking.forget(self._resource)
        signal = self._operation.signal
        if signal is not None and signal.pushed_to is not None:
            self._ground.signals.given(self._words.at(signal.pushed_to))
        self._says(Found(State.OWN, self._value, 0))

    def _not_held(self, refusal: Refusal, then: Callable[[], None]) -> None:
        """Its lease has ended, or never existed: the answer is the one for another's lease."""
        self._ground.shared.incidents.lease_refused(self._resource, refusal)
        if refusal is HELD_OUT:
            self._answer(replies.error(_RENEWED_ELSEWHERE))
        elif refusal.code in (ErrorWord.NOTHELD, ErrorWord.EXPIRED):
            self._ground.looking.forget(self._resource)
            then()
        else:
            self._fails(refusal)

    def _ask_for_unknown(self, command: str, value: bytes) -> bool:
        """An invented value makes the agent ask all masters, so a user may send only so many a second."""
        shared, session = self._ground.shared, self._session
        if shared.locks.knows(self._resource, token_of(value)):
            return True
        refusal = shared.quotas.refuse_unknown_token(session.account, boottime_ns())
        if refusal is None:
            return True
        shared.incidents.limit_hit(refusal, session.peer)
        self._fails(Refusal(ErrorWord.LIMIT, refusal))
        return False

    def _delete(self) -> None:
        """Only what this process holds: it can't delete another's lock."""
        lease = self._own_here()
        if lease is not None:
            value = value_of(lease.token)
            assert value is not None
            self._value = value
            self._release_value(value)
        else:
            self._of_own_elsewhere(self._release_value)

    # What this process holds

    def _own_here(self) -> Lease | None:
        """Even if it may have been released elsewhere: requests about it name its value."""
        held = self._ground.shared.locks.held_of(self._resource, boottime_ns())
        mine = [one for one in held if value_of(one.token) is not None and self._is_own(one.holder)]
        return mine[-1] if mine else None

    def _is_own(self, holder: Holder) -> bool:
        """Whether it is this process's. A process that can't be seen may be any other: then it has to be this
        connection's."""
        session, process = self._session, self._session.ties.process
        if process is None or not process.started:
            return isinstance(holder, PlainLock) and holder.session is session
        return holder.owner == session.owner and holder.started == process.started

    def _of_own_elsewhere(self, then: Callable[[bytes], None]) -> None:
        """A lease of the previous agent on this host: the masters show whose it is. They show a pid, so the
        process must have been running already when the lease was granted."""
        session, process = self._session, self._session.ties.process

        def told(seen: Seen | Refusal | None) -> None:
            if isinstance(seen, Refusal):
                self._fails(seen)
            elif (
                seen is None
                or seen.value is None
                or seen.owner != session.owner
                or process is None
                or not process.started
                or (process.started + 1) * _TICK_NS > seen.since_ns
            ):
                self._says(FREE)
            else:
                self._value = seen.value
                then(seen.value)

        # Who does not wait for the answer does not have the masters asked for it.
        held = self._ground.shared.locks.held_of(self._resource, boottime_ns())
        if process is None or session.is_gone or held:
            self._says(FREE)
        else:
            # Not as it was a moment ago: the commands that follow name its value.
            self._ground.looking.forget(self._resource)
            self._ground.looking.look(session, self._resource, told)

    # Another TTL

    def _extend(self) -> None:
        if self._ttl_ms is not None and self._ttl_ms <= 0:
            # Not as it was a moment ago: it is the answer to a command that changes something.
            self._ground.looking.forget(self._resource)
            self._looks(self._ends_nothing)
        elif self._value is not None:
            self._extend_value(self._value)
        else:
            self._extend_own()

    def _extend_own(self) -> None:
        lease = self._own_here()
        if lease is not None:
            value = value_of(lease.token)
            assert value is not None
            self._value = value
            self._extend_value(value)
        else:
            self._of_own_elsewhere(self._extend_value)

    def _ends_nothing(self, found: Found) -> None:
        """A script's TTL of 0 or less is a release for PEXPIRE and an error for SET, and it is not known here
        which of them the script has. If the key is another's, or free, the script does nothing with it."""
        if self._operation.outcome(found.state).change is Change.NONE:
            self._says(found)
        else:
            self._answer(replies.error(_ENDS_NOTHING))

    def _extend_value(self, value: bytes) -> None:
        """If the remaining TTL matters, it is looked at first: a lock without a TTL may be left as it is."""
        ttl, changes = self._operation.ttl, {self._operation.outcome(state).change for state in OWN}
        assert ttl is not None
        lease = self._ground.shared.locks.with_value(self._resource, value, boottime_ns())
        if lease is not None and not ttl.adds:
            self._extend_here(lease, value)
        elif ttl.adds or ttl.only or len(changes) > 1:
            self._looks(self._extend_found)
        else:
            self._set_ttl(self._says_of_others)

    def _extend_here(self, lease: Lease, value: bytes) -> None:
        left_ms = left_of(lease, boottime_ns())
        found = Found(State.OWN_ENDLESS if left_ms is None else State.OWN, value, left_ms)
        if self._sets_ttl(found):
            self._set_ttl(self._says_of_others)
        else:
            self._proves(lease, found)

    def _proves(self, lease: Lease, found: Found) -> None:
        """Another agent may have released it since its last proof (rule 2)."""
        reply = PlainReply(
            self._session,
            lambda _lease: self._says(found),
            lambda refusal: self._not_held(refusal, self._says_of_others),
        )
        self._ground.shared.locks.extend(self._resource, lease.token, 0, reply, boottime_ns())

    def _sets_ttl(self, found: Found) -> bool:
        outcome, ttl = self._operation.outcome(found.state), self._operation.ttl
        assert ttl is not None
        assert self._ttl_ms is not None
        return outcome.change is Change.TTL and ttl.is_set(self._ttl_ms, found.left_ms)

    def _extend_found(self, found: Found) -> None:
        ttl = self._operation.ttl
        assert ttl is not None
        assert self._ttl_ms is not None
        if not self._sets_ttl(found):
            self._says(found)
            return
        if ttl.adds:
            self._ttl_ms += found.left_ms or 0
            self._check_most()
        self._set_ttl(self._says_of_others)

    def _set_ttl(self, not_mine: Callable[[], None]) -> None:
        value, ttl_ms = self._value, self._ttl_ms
        assert value is not None
        if ttl_ms is None:
            not_mine()  # an acquire without a TTL leaves what is there as it is
        elif self._ask_for_unknown("extend", value):
            self._is_named(value)
            self._begun_ns = boottime_ns()
            reply = PlainReply(
                self._session, self._extended, lambda refusal: self._not_held(refusal, not_mine)
            )
            self._ground.shared.locks.set_ttl(self._resource, value, ttl_ms, reply, boottime_ns())

    def _is_named(self, value: bytes) -> None:
        """Its app knows of it, whatever happened to the connection that should have told it."""
        lease = self._ground.shared.locks.known(self._resource, token_of(value))
        if lease is None or not self._is_own(lease.holder):
            return
        if isinstance(lease.holder, LockRequest):
            lease.holder.was_named(lease)
        else:
            self._ground.shared.locks.told(lease, boottime_ns())

    def _is_shown(self, found: Found) -> bool:
        """An app that reads that its own value is there may go on with the lock, so it has named it. Reading
        only that the lock is held names nothing."""
        return found.state in OWN or self._operation.outcome(found.state).reply is Special.STORED

    def _extended(self, extended: Extended | None) -> None:
        """Its app is told no deadline, and relies on the whole TTL that it asked for."""
        self._ground.looking.forget(self._resource)
        ttl_ms = self._ttl_ms or 0
        whole_ns = self._begun_ns + ttl_ms * NS_PER_MS - drift_ns(ttl_ms) - _LEAST_GAIN_NS
        if extended is not None and extended.deadline_ns < whole_ns:
            self._fails(_CUT_SHORT)
            return
        if extended is not None and ttl_ms >= self._ground.current.config.min_ttl_ms:
            self._ends_ns = extended.deadline_ns  # a shorter TTL only ends it: its app relies on nothing
        if extended is not None and extended.fence is None:
            self._looks(self._is_extended_elsewhere)
        else:
            self._is_set()

    def _is_set(self) -> None:
        state = next(state for state in OWN if self._operation.outcome(state).change is not Change.NONE)
        self._says(Found(state, self._value, self._ttl_ms, is_set=True))

    def _is_extended_elsewhere(self, found: Found) -> None:
        """Only the masters know how long a lease of another agent lasts."""
        most_ms = (self._ttl_ms or 0) + ROUNDED_NS // NS_PER_MS
        if found.value == self._value and found.left_ms is not None and found.left_ms > most_ms:
            self._answer(replies.error(_NOT_SHORTENED))
        else:
            self._is_set()

    def _persist(self) -> None:
        lease = self._own_here()
        value = None if lease is None else value_of(lease.token)
        if lease is None or value is None or (self._value is not None and value != self._value):
            self._says_of_others()
        elif lease.holder.detached:
            raise BadRequest(_NO_TTL_NOW)
        elif lease.let_go_ns is None:
            self._proves(lease, Found(State.OWN_ENDLESS, value))
        else:
            self._is_named(value)
            reply = PlainReply(
                self._session,
                lambda _lease: self._says(Found(State.OWN, value, 0)),
                lambda refusal: self._not_held(refusal, lambda: self._says(FREE)),
            )
            self._ground.shared.locks.persist(lease, reply, boottime_ns())

    def _read(self) -> None:
        self._looks(self._says)

    # The words that came with it

    def _ttl_in(self) -> int | None:
        ttl = self._operation.ttl
        if ttl is None:
            return None
        written = self._words.ttl or ttl_of_script(ttl, self._words)
        config = self._ground.current.config
        most_ms = self._lock_class.max_ttl_ms or config.max_ttl_ms
        check_ttl(written, self._least_ms(ttl), most_ms, self._lock_class.name)
        return written.ms

    def _least_ms(self, ttl: Ttl) -> int | None:
        if self._operation.kind in _TAKES:
            return self._ground.current.config.min_ttl_ms
        return 1 if ttl.adds else None

    def _check_most(self) -> None:
        """The remaining and the added time together are no more than a lease may have."""
        assert self._ttl_ms is not None
        most_ms = self._lock_class.max_ttl_ms or self._ground.current.config.max_ttl_ms
        self._ttl_ms = min(self._ttl_ms, most_ms)


def check_rights(ground: Ground, session: Session, key: bytes, kind: Kind) -> None:
    """It is for users that may lock the key, or hold it: values can be guessed. A process may always delete
    what it holds. Raises BadRequest."""
    if kind is Kind.DELETE:
        return
    takes = kind in _TAKES
    held = () if takes else ground.shared.locks.held_of(key, boottime_ns())
    holds = any(pid_and_uid(lease.holder.owner)[1] == session.peer.uid for lease in held)
    about = {Kind.EXTEND: "extend", Kind.PERSIST: "extend", Kind.RELEASE: "unlock"}.get(kind, "")
    ground.checks.may(session, key, takes=takes, about=about, holds=holds)


_BEGINNINGS: dict[Kind, Callable[[OneKey], None]] = {
    Kind.ACQUIRE: OneKey._take,
    Kind.ACQUIRE_OR_EXTEND: OneKey._take,
    Kind.RELEASE: OneKey._release,
    Kind.EXTEND: OneKey._extend,
    Kind.PERSIST: OneKey._persist,
    Kind.DELETE: OneKey._delete,
    Kind.READ: OneKey._read,
}


def _depends(*said: Reply) -> bool:
    """On what is found."""
    return any(reply is Special.STORED or isinstance(reply, Left) or _depends(*_in(reply)) for reply in said)


def _in(reply: Reply) -> Sequence[Reply]:
    """The parts of which it is made."""
    if isinstance(reply, Listed):
        return reply.items
    return reply.text.parts if isinstance(reply, ErrorReply) else ()


def check_places(operation: Operation, words: Words) -> None:
    """Every string that it names came with it, and no two of them are the same."""
    signal, ttl = operation.signal, operation.ttl
    pushed_to = None if signal is None else signal.pushed_to
    places = (
        operation.key,
        operation.value,
        None if ttl is None else ttl.source,
        pushed_to,
        *_places_in(*(outcome.reply for outcome in operation.outcomes)),
    )
    for place in places:
        if isinstance(place, Place) and place.of(words.keys, words.arguments) is None:
            raise BadRequest(f"ERR the script needs {place}, which was not given")
    if pushed_to is not None and words.at(pushed_to) == words.at(operation.key):
        raise BadRequest("ERR the list of the signal is the lock itself")


def _places_in(*said: Reply) -> Iterator[Place]:
    for reply in said:
        if isinstance(reply, Place):
            yield reply
        else:
            yield from _places_in(*_in(reply))


def _value_in(operation: Operation, words: Words) -> bytes | None:
    source = operation.value
    value = source if source is None or isinstance(source, bytes) else words.at(source)
    if value is not None and len(value) > VALUE_BYTES_MOST:
        raise BadRequest(
            f"LIMIT value: it has {len(value)} bytes, at most {VALUE_BYTES_MOST} are allowed: the value "
            "identifies the holder"
        )
    return value
