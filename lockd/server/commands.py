"""The commands of the socket: words in, a reply out, or None when it comes later through the session."""

import re
from functools import partial
from typing import TYPE_CHECKING

from lockd import __version__
from lockd.clock import boottime_ns
from lockd.config.globs import PATTERN_BYTES_MOST
from lockd.config.model import LockClass
from lockd.core.flow import Place
from lockd.core.ports import Refusal
from lockd.masters.aside import Credentials
from lockd.server import catalog
from lockd.server.canary import RESERVED
from lockd.server.operators import Operators
from lockd.server.resp import replies
from lockd.server.session import Handler, LeaseCommand, LockRequest, Session

if TYPE_CHECKING:
    from lockd.server.agent import Agent

_NUMBER = re.compile(rb"[0-9]{1,18}\Z")
_TOKEN = re.compile(rb"[0-9a-f]{32}\Z")
_WAYS_TO_FORM = (b"UNUSED", b"RECOVER", b"UPGRADE")
_OK = b"+OK\r\n"
_PONG = b"+PONG\r\n"
_IN_ORDER = frozenset((b"HELLO", b"AUTH", b"QUIT"))
_SPARE = "connections: all are in use, and this one is for what operators ask"
_IN_MULTI = frozenset((b"EXEC", b"DISCARD", b"QUIT"))
_NO_MULTI = b"-ERR there is no MULTI: a LOCK can't be undone. Send these commands as a plain pipeline\r\n"
_REFUSED_IN_MULTI = b"-ERR not run: it came in a MULTI, and there is none here\r\n"
_NOTHING_EXECUTED = b"-EXECABORT there is no MULTI, and nothing of it was run\r\n"
_DENIED = Refusal("DENIED", "")
_DENIED_OPERATOR = (
    "DENIED this is for operators on this host: root, the agent's own user, or a member of admin_group"
)


class BadRequest(Exception):
    """What a client sent can't be done; the text says why and what would be right."""


def _ms(word: bytes, name: str, most_ms: int, whose: str, least_ms: int = 0) -> int:
    """A number of milliseconds as a client writes it; everything else is refused by saying what would be
    right."""
    if not _NUMBER.match(word) or not least_ms <= int(word) <= most_ms:
        shown = word[:32].decode(errors="backslashreplace")
        raise BadRequest(
            f"ERR {name} must be a whole number of milliseconds from {least_ms} to {most_ms} ({whose}), "
            f"not '{shown}'"
        )
    return int(word)


class Commands:
    """The table of commands, bound to an agent."""

    def __init__(self, agent: "Agent") -> None:
        self._agent = agent
        self._config = agent.config
        self._resource_most = agent.config.limits.resource_bytes
        operators = Operators(agent)
        self._handlers: dict[bytes, Handler] = {
            b"LOCK": self._lock,
            b"UNLOCK": self._unlock,
            b"EXTEND": self._extend,
            b"HOLDER": lambda s, w: s.later(partial(operators.holder, s, self._resource(s, w[1]))),
            b"LOCKS": lambda s, w: self._locks(operators, s, w),
            b"MASTERS": lambda s, w: s.later(partial(operators.masters, s)),
            b"FORCERELEASE": lambda s, w: self._force_release(operators, s, w),
            b"FORM": lambda s, w: self._form(operators, s, w),
            b"ADMIT": lambda s, w: self._admit(operators, s, w),
            b"INFO": lambda s, w: self._info(operators, s, w),
            b"PING": self._ping,
            b"ECHO": lambda s, w: replies.bulk(w[1], s.protocol),
            b"QUIT": self._quit,
            b"SELECT": self._select,
            b"HELLO": self._hello,
            b"CLIENT": self._client,
            b"COMMAND": lambda s, w: s.later(
                partial(operators.one_answer, s, catalog.answer, w[1:], s.protocol)
            ),
            b"AUTH": self._auth,
            b"MULTI": self._multi,
            b"EXEC": self._end_of_multi,
            b"DISCARD": self._end_of_multi,
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

    # Leases

    def _resource(self, session: Session, word: bytes) -> bytes:
        if not word:
            raise BadRequest("ERR the resource is empty: give it a name")
        if len(word) > self._resource_most:
            refusal = f"resource_bytes: the resource has {len(word)} bytes, it may have {self._resource_most}"
            self._agent.limit_hit(refusal, session.peer)
            raise BadRequest(f"LIMIT {refusal}")
        return word

    def _token(self, word: bytes) -> bytes:
        if not _TOKEN.match(word):
            raise BadRequest("ERR the token is not one that LOCK gave: 32 lower-case hex digits")
        return word

    def _class_for(self, session: Session, resource: bytes, *, extending: bool = False) -> LockClass:
        lock_class = self._config.class_of(resource)
        if not self._agent.permissions.may_lock(session.peer, lock_class):
            self._agent.denied(session.peer, resource, lock_class.name)
            if extending:
                self._agent.lease_refused("extend", resource, _DENIED)
            else:
                self._agent.metrics.refused(lock_class.name, _DENIED, 0)
            raise BadRequest(
                f"DENIED uid {session.peer.uid} may not lock resources of the class '{lock_class.name}'"
            )
        return lock_class

    def _ttl_ms(self, word: bytes, lock_class: LockClass) -> int:
        return _ms(
            word,
            "the ttl",
            lock_class.max_ttl_ms or self._config.max_ttl_ms,
            f"class '{lock_class.name}'",
            self._config.min_ttl_ms,
        )

    def _lock(self, session: Session, words: list[bytes]) -> None:
        resource = self._resource(session, words[1])
        if resource.startswith(RESERVED):
            raise BadRequest("DENIED resources that begin with 'lockd:canary:' are the agents' own")
        lock_class = self._class_for(session, resource)
        ttl_ms = self._ttl_ms(words[2], lock_class)
        wait_ms, max_hold_ms, detached, notify = 0, lock_class.max_hold_ms, False, False
        whose = f"class '{lock_class.name}'"
        options = iter(words[3:])
        for word in options:
            option = word.upper()
            if option == b"WAIT":
                wait_ms = _ms(next(options, b""), "WAIT", lock_class.max_wait_ms, whose)
            elif option == b"MAXHOLD":
                max_hold_ms = _ms(next(options, b""), "MAXHOLD", lock_class.max_hold_ms, whose, least_ms=1)
            elif option == b"DETACHED":
                detached = True
            elif option == b"NOTIFY":
                notify = True
            else:
                shown = word[:32].decode(errors="backslashreplace")
                raise BadRequest(f"ERR syntax error at '{shown}': {catalog.usage('lock')}")
        if max_hold_ms < ttl_ms:
            raise BadRequest(
                f"ERR the ttl of {ttl_ms} ms is longer than the lease may be held: "
                f"{max_hold_ms} ms ({whose} or MAXHOLD)"
            )

        if notify:
            session.notify()

        def begin(place: Place) -> None:
            now_ns = boottime_ns()
            request = LockRequest(
                session, place, resource, lock_class, ttl_ms, wait_ms, max_hold_ms, detached, notify, now_ns
            )
            self._start_lock(session, request)

        session.in_turn(begin)

    def _start_lock(self, session: Session, request: LockRequest) -> None:
        no_room = session.is_spare and not session.finds_room()
        refusal = _SPARE if no_room else self._agent.quotas.refuse_lock(session.usage)
        if refusal is not None:
            self._agent.limit_hit(refusal, session.peer)
            self._agent.metrics.refused(request.label, Refusal("LIMIT", refusal), 0)
            session.answer(request.place, replies.error(f"LIMIT {refusal}"))
            if no_room:
                # An app of root's: its pool would have this connection for the next LOCK, too.
                session.end()
            return
        session.lock_starts(request)
        self._agent.locks.lock(request, request.asked_ns)

    def _unlock(self, session: Session, words: list[bytes]) -> None:
        resource, token = self._resource(session, words[1]), self._token(words[2])
        self._report_loss(session, "unlock", resource, token)
        self._check_unknown(session, "unlock", resource, token)
        session.at_once(
            LeaseCommand(session, "unlock", resource, token),
            lambda reply: self._agent.locks.unlock(resource, token, reply, boottime_ns()),
        )

    def _extend(self, session: Session, words: list[bytes]) -> None:
        resource, token = self._resource(session, words[1]), self._token(words[2])
        ttl_ms = self._ttl_ms(words[3], self._class_for(session, resource, extending=True))
        self._report_loss(session, "extend", resource, token)
        self._check_unknown(session, "extend", resource, token)
        session.at_once(
            LeaseCommand(session, "extend", resource, token),
            lambda reply: self._agent.locks.extend(resource, token, ttl_ms, reply, boottime_ns()),
        )

    def _report_loss(self, session: Session, command: str, resource: bytes, token: bytes) -> None:
        """Who names a lease that was lost is told why, on whatever connection, also when core has forgotten
        it already; and it is given back."""
        lost = self._agent.losses.of(token)
        if lost is not None and lost.resource == resource:
            if session.flow.places:
                # Others of its process are told all the same: this reply may wait for long, or never come.
                session.knows_of(token)
            else:
                self._agent.losses.told(session, token)
            self._agent.locks.forget(resource, token, boottime_ns())
            self._agent.lease_refused(command, resource, lost.refusal)
            raise BadRequest(str(lost.refusal))

    def _check_unknown(self, session: Session, command: str, resource: bytes, token: bytes) -> None:
        """Whoever makes up tokens has all masters asked, at no cost of his own: so many a second, and no
        more."""
        if self._agent.locks.knows(resource, token):
            return
        refusal = self._agent.quotas.refuse_unknown_token(session.peer.uid, boottime_ns())
        if refusal is not None:
            self._agent.limit_hit(refusal, session.peer)
            self._agent.lease_refused(command, resource, Refusal("LIMIT", refusal))
            raise BadRequest(f"LIMIT {refusal}")

    # Operators

    def _locks(self, operators: Operators, session: Session, words: list[bytes]) -> None:
        rest = words[1:]
        local = bool(rest) and rest[-1].upper() == b"LOCAL"
        patterns = rest[:-1] if local else rest
        if len(patterns) > 1:
            raise BadRequest(f"ERR syntax error: {catalog.usage('locks')}")
        pattern = patterns[0] if patterns else b"*"
        if len(pattern) > PATTERN_BYTES_MOST:
            raise BadRequest(f"ERR the pattern has {len(pattern)} bytes, it may have {PATTERN_BYTES_MOST}")
        listing = operators.local_locks if local else operators.locks
        session.later(partial(listing, session, pattern))

    def _for_operators(self, session: Session, command: str) -> None:
        why_not = "not one of them"
        if self._agent.permissions.is_admin(session.peer):
            why_not = session.why_not_on_this_host() or ""
        if why_not:
            self._agent.operator_denied(session.peer, command, why_not)
            raise BadRequest(f"{_DENIED_OPERATOR} ({why_not})")

    def _force_release(self, operators: Operators, session: Session, words: list[bytes]) -> None:
        self._for_operators(session, "forcerelease")
        resource = self._resource(session, words[1])
        if len(words) not in (2, 4) or (len(words) == 4 and words[2].upper() != b"HOLDER"):
            raise BadRequest(f"ERR syntax error: {catalog.usage('forcerelease')}")
        wanted = words[3] if len(words) == 4 else None
        if wanted is not None and not re.fullmatch(rb"[0-9a-f]{8,32}", wanted):
            raise BadRequest(
                "ERR HOLDER takes what HOLDER shows: the first 8 hex digits of the token, or more of it"
            )
        session.later(partial(operators.force_release, session, resource, wanted), finish=True)

    def _form(self, operators: Operators, session: Session, words: list[bytes]) -> None:
        self._for_operators(session, "form")
        said = words[1].upper() if len(words) > 1 else b""
        how = said if said in _WAYS_TO_FORM else b""
        writer = self._writer("form", words[2:] if how else words[1:])
        session.later(partial(operators.form, session, how, writer), finish=True)

    def _admit(self, operators: Operators, session: Session, words: list[bytes]) -> None:
        self._for_operators(session, "admit")
        writer = self._writer("admit", words[2:])
        name = words[1].decode(errors="replace")
        session.later(partial(operators.admit, session, name, writer), finish=True)

    def _writer(self, command: str, rest: list[bytes]) -> Credentials | None:
        """AUTH user password: who writes identities, when the agent's own user may not."""
        match rest:
            case []:
                return None
            case [word, name, password] if word.upper() == b"AUTH":
                return Credentials(name.decode(errors="replace"), password)
        raise BadRequest(f"ERR syntax error: {catalog.usage(command)}")

    def _info(self, operators: Operators, session: Session, words: list[bytes]) -> None:
        wanted = {word.decode(errors="replace").lower() for word in words[1:]}
        # Not one of `all`: it takes a walk over all leases.
        if wanted == {"classes"}:
            session.later(partial(operators.classes, session))
        else:
            session.later(partial(operators.info, session, wanted))

    # The connection

    def _ping(self, session: Session, words: list[bytes]) -> bytes:
        if len(words) > 2:
            raise BadRequest(f"ERR {catalog.arity_error('ping')}: {catalog.usage('ping')}")
        return replies.bulk(words[1], session.protocol) if len(words) > 1 else _PONG

    def _quit(self, session: Session, words: list[bytes]) -> bytes:
        return session.quit()

    def _auth(self, session: Session, words: list[bytes]) -> bytes:
        """Some clients always send one. The kernel says who they are, so there is nothing to check."""
        return _OK if len(words) <= 3 else replies.error(f"ERR syntax error: {catalog.usage('auth')}")

    def _multi(self, session: Session, words: list[bytes]) -> bytes:
        """It is refused, and so is all up to its end: most clients send all of it at once, and a LOCK in it
        would be held by somebody who is told that nothing was done."""
        session.in_multi = True
        return _NO_MULTI

    def _end_of_multi(self, session: Session, words: list[bytes]) -> bytes:
        name = words[0].upper()
        if not session.in_multi:
            return replies.error(f"ERR {name.decode()} without MULTI")
        session.in_multi = False
        return _NOTHING_EXECUTED if name == b"EXEC" else _OK

    def _select(self, session: Session, words: list[bytes]) -> bytes:
        return _OK if words[1] == b"0" else replies.error("ERR DB index is out of range: there is only 0")

    def _hello(self, session: Session, words: list[bytes]) -> bytes:
        options = iter(words[1:])
        version = next(options, None)
        if version is not None and version not in (b"2", b"3"):
            return replies.error("NOPROTO unsupported protocol version: 2 and 3 are there")
        name = session.name
        for option in options:
            if option.upper() == b"SETNAME":
                name = self._client_name(next(options, None))
            elif option.upper() == b"AUTH":
                if next(options, None) is None or next(options, None) is None:
                    raise BadRequest(f"ERR syntax error in HELLO: {catalog.usage('hello')}")
            else:
                raise BadRequest(f"ERR syntax error in HELLO: {catalog.usage('hello')}")
        session.name = name
        if version is not None:
            session.protocol = int(version)
        return replies.value(
            {
                "server": "lockd",
                "version": __version__,
                "proto": session.protocol,
                "id": session.id,
                "mode": "standalone",
                "role": "master",
                "modules": [],
            },
            session.protocol,
        )

    def _client_name(self, word: bytes | None) -> bytes:
        if word is None or len(word) > 128 or not re.fullmatch(rb"[!-~]*", word):
            raise BadRequest(
                "ERR a client's name has no spaces, line ends or special characters, and 128 bytes at most"
            )
        return word

    def _client(self, session: Session, words: list[bytes]) -> bytes:
        subcommand = words[1].upper()
        shape = catalog.find(f"client|{words[1].decode(errors='replace').lower()}")
        if shape is None:
            shown = words[1][:64].decode(errors="backslashreplace")
            return replies.error(f"ERR unknown subcommand '{shown}'. Try {catalog.usage('client')}")
        if not shape.accepts(len(words)):
            return replies.error(f"ERR {catalog.arity_error(shape.name)}")
        if subcommand == b"ID":
            return replies.integer(session.id)
        if subcommand == b"SETNAME":
            session.name = self._client_name(words[2])
            return _OK
        if subcommand == b"GETNAME":
            return replies.bulk(session.name or None, session.protocol)
        if subcommand == b"INFO":
            peer = session.peer
            text = (
                f"id={session.id} name={session.name.decode()} pid={peer.pid} uid={peer.uid} "
                f"resp={session.protocol} leases={len(session.leases)}"
            )
            return replies.bulk(text.encode() + b"\n", session.protocol)
        return _OK
