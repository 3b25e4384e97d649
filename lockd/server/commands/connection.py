"""The connection itself: its protocol and name, its end, and commands that clients send out of habit."""

import re

from lockd.server.commands.arguments import BadRequest, Misused, quoted
from lockd.server.commands.command import Argument, Command, Group, Handler, arity_error
from lockd.server.commands.instead import unknown_of_client
from lockd.server.resp import replies
from lockd.server.session import Session

COMMANDS = Group()
CLIENT = Group()

_CONNECTION = ("noscript", "loading", "stale")
_HANDSHAKE = ("noscript", "loading", "stale", "fast", "no_auth", "allow_busy")

REDIS_VERSION = "8.4.0"
"""Of the Redis whose lock commands there are here. Clients choose by it: since 8.4 SET IFEQ and DELEX, before
that a transaction that watches."""

_OK = b"+OK\r\n"
_PONG = b"+PONG\r\n"


@COMMANDS(
    Command(
        "ping",
        -1,
        "connection",
        ("fast",),
        "Shows that the agent answers.",
        "PONG, or the message",
        (Argument("message", optional=True),),
    )
)
def ping(session: Session, words: list[bytes]) -> bytes:
    if len(words) > 2:
        raise Misused(f"ERR {arity_error('ping')}:")
    return replies.bulk(words[1], session.protocol) if len(words) > 1 else _PONG


@COMMANDS(
    Command(
        "echo",
        2,
        "connection",
        ("loading", "stale", "fast"),
        "Returns the message.",
        "bulk string",
        (Argument("message"),),
    )
)
def echo(session: Session, words: list[bytes]) -> bytes:
    return replies.bulk(words[1], session.protocol)


@COMMANDS(
    Command(
        "quit",
        -1,
        "connection",
        _HANDSHAKE,
        "Closes the connection, and releases locks that are bound to it.",
        "OK",
        in_order=True,
        ends_multi=True,
        brings_no_loss=True,
    )
)
def quit_(session: Session, words: list[bytes]) -> bytes:
    return session.quit()


@COMMANDS(
    Command(
        "select",
        2,
        "connection",
        ("loading", "stale", "fast"),
        "Does nothing: there is only database 0.",
        "OK",
        (Argument("index", "integer"),),
    )
)
def select(session: Session, words: list[bytes]) -> bytes:
    return _OK if words[1] == b"0" else replies.error("ERR DB index is out of range: there is only 0")


@COMMANDS(
    Command(
        "hello",
        -1,
        "connection",
        _HANDSHAKE,
        "Switches to RESP2 or RESP3. Losses (LOCK … NOTIFY) are pushed only to RESP3 connections.",
        "map: server, version, proto, id, mode, role, modules",
        (
            Argument(
                "arguments",
                "block",
                optional=True,
                arguments=(
                    Argument("protover", "integer"),
                    Argument(
                        "auth",
                        "block",
                        token="AUTH",
                        optional=True,
                        arguments=(Argument("username"), Argument("password")),
                    ),
                    Argument("clientname", token="SETNAME", optional=True),
                ),
            ),
        ),
        in_order=True,
        brings_no_loss=True,
    )
)
def hello(session: Session, words: list[bytes]) -> bytes:
    options = iter(words[1:])
    version = next(options, None)
    if version is not None and version not in (b"2", b"3"):
        return replies.error("NOPROTO unsupported protocol version: use 2 or 3")
    name = session.name
    for option in options:
        if option.upper() == b"SETNAME":
            name = _client_name(next(options, None))
        elif option.upper() != b"AUTH" or next(options, None) is None or next(options, None) is None:
            raise Misused("ERR syntax error in HELLO:")
    session.name = name
    if version is not None:
        session.protocol = int(version)
    return replies.value(
        {
            "server": "lockd",
            "version": REDIS_VERSION,
            "proto": session.protocol,
            "id": session.id,
            "mode": "standalone",
            "role": "master",
            "modules": [],
        },
        session.protocol,
    )


@COMMANDS(
    Command(
        "auth",
        -2,
        "connection",
        _HANDSHAKE,
        "Does nothing: the kernel tells the agent who has connected.",
        "OK",
        (Argument("username", optional=True), Argument("password")),
        in_order=True,
        brings_no_loss=True,
    )
)
def auth(session: Session, words: list[bytes]) -> bytes:
    """Some clients always send one. The kernel says who they are, so there is nothing to check."""
    if len(words) > 3:
        raise Misused
    return _OK


def _client_name(word: bytes | None) -> bytes:
    if word is None or len(word) > 128 or not re.fullmatch(rb"[!-~]*", word):
        raise BadRequest(
            "ERR a client's name has no spaces, line ends or special characters, and 128 bytes at most"
        )
    return word


@CLIENT(
    Command(
        "client|getname",
        2,
        "connection",
        _CONNECTION,
        "Returns the name of this connection.",
        "bulk string, or nil when it has none",
    )
)
def client_getname(session: Session, words: list[bytes]) -> bytes:
    return replies.bulk(session.name or None, session.protocol)


@CLIENT(
    Command(
        "client|id",
        2,
        "connection",
        _CONNECTION,
        "Returns the number of this connection, unique since the agent started.",
        "integer",
    )
)
def client_id(session: Session, words: list[bytes]) -> bytes:
    return replies.integer(session.id)


@CLIENT(
    Command(
        "client|info",
        2,
        "connection",
        _CONNECTION,
        "Describes this connection.",
        "text: field=value, separated by spaces",
    )
)
def client_info(session: Session, words: list[bytes]) -> bytes:
    peer = session.peer
    text = (
        f"id={session.id} name={session.name.decode()} pid={peer.pid} uid={peer.uid} "
        f"resp={session.protocol} leases={session.ties.held}"
    )
    return replies.bulk(text.encode() + b"\n", session.protocol)


@CLIENT(
    Command(
        "client|setinfo",
        4,
        "connection",
        _CONNECTION,
        "Says which library the client uses.",
        "OK",
        (
            Argument(
                "attr",
                "oneof",
                arguments=(Argument("libname", token="LIB-NAME"), Argument("libver", token="LIB-VER")),
            ),
        ),
    )
)
def client_setinfo(session: Session, words: list[bytes]) -> bytes:
    if words[2].upper() == b"LIB-NAME":
        session.library = _client_name(words[3])
    return _OK


@CLIENT(
    Command(
        "client|setname",
        3,
        "connection",
        _CONNECTION,
        "Names this connection.",
        "OK",
        (Argument("connection-name"),),
    )
)
def client_setname(session: Session, words: list[bytes]) -> bytes:
    session.name = _client_name(words[2])
    return _OK


_OF_CLIENT: dict[str, tuple[Command, Handler]] = {
    command.name: (command, handler) for command, handler in CLIENT.handlers()
}


@COMMANDS(
    Command(
        "client",
        -2,
        "connection",
        (),
        "Container for commands about this connection.",
        "depends on the subcommand",
        subcommands=CLIENT.commands,
    )
)
def client(session: Session, words: list[bytes]) -> bytes | None:
    found = _OF_CLIENT.get(f"client|{words[1].decode(errors='replace').lower()}")
    if found is None:
        if words[1].upper() == b"REPLY":  # it does not read what comes: it would take it for a later reply
            session.end()
        raise Misused(unknown_of_client(quoted(words[1])))
    command, handler = found
    if not command.accepts(len(words)):
        return replies.error(f"ERR {arity_error(command.name)}")
    return handler(session, words)
