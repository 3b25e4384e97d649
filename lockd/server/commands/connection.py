"""The connection itself: its protocol and name, its end, and what clients send out of habit."""

import re

from lockd import __version__
from lockd.server.commands import catalog
from lockd.server.commands.arguments import BadRequest
from lockd.server.resp import replies
from lockd.server.session import Handler, Session

_OK = b"+OK\r\n"
_PONG = b"+PONG\r\n"
_NO_MULTI = b"-ERR there is no MULTI: a LOCK can't be undone. Send these commands as a plain pipeline\r\n"
_NOTHING_EXECUTED = b"-EXECABORT there is no MULTI, and nothing of it was run\r\n"


def ping(session: Session, words: list[bytes]) -> bytes:
    if len(words) > 2:
        raise BadRequest(f"ERR {catalog.arity_error('ping')}: {catalog.usage('ping')}")
    return replies.bulk(words[1], session.protocol) if len(words) > 1 else _PONG


def quit_(session: Session, words: list[bytes]) -> bytes:
    return session.quit()


def auth(session: Session, words: list[bytes]) -> bytes:
    """Some clients always send one. The kernel says who they are, so there is nothing to check."""
    return _OK if len(words) <= 3 else replies.error(f"ERR syntax error: {catalog.usage('auth')}")


def multi(session: Session, words: list[bytes]) -> bytes:
    """It is refused, and so is all up to its end: most clients send all of it at once, and a LOCK in it
    would be held by somebody who is told that nothing was done."""
    session.in_multi = True
    return _NO_MULTI


def end_of_multi(session: Session, words: list[bytes]) -> bytes:
    name = words[0].upper()
    if not session.in_multi:
        return replies.error(f"ERR {name.decode()} without MULTI")
    session.in_multi = False
    return _NOTHING_EXECUTED if name == b"EXEC" else _OK


def select(session: Session, words: list[bytes]) -> bytes:
    return _OK if words[1] == b"0" else replies.error("ERR DB index is out of range: there is only 0")


def hello(session: Session, words: list[bytes]) -> bytes:
    options = iter(words[1:])
    version = next(options, None)
    if version is not None and version not in (b"2", b"3"):
        return replies.error("NOPROTO unsupported protocol version: 2 and 3 are there")
    name = session.name
    for option in options:
        if option.upper() == b"SETNAME":
            name = _client_name(next(options, None))
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


def _client_name(word: bytes | None) -> bytes:
    if word is None or len(word) > 128 or not re.fullmatch(rb"[!-~]*", word):
        raise BadRequest(
            "ERR a client's name has no spaces, line ends or special characters, and 128 bytes at most"
        )
    return word


def client(session: Session, words: list[bytes]) -> bytes:
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
        session.name = _client_name(words[2])
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


def echo(session: Session, words: list[bytes]) -> bytes:
    return replies.bulk(words[1], session.protocol)


HANDLERS: dict[bytes, Handler] = {
    b"PING": ping,
    b"ECHO": echo,
    b"QUIT": quit_,
    b"SELECT": select,
    b"HELLO": hello,
    b"CLIENT": client,
    b"AUTH": auth,
    b"MULTI": multi,
    b"EXEC": end_of_multi,
    b"DISCARD": end_of_multi,
}
