"""The agent's HTTP port: /metrics for Prometheus, /healthz and /readyz for supervisors, and a page for people
at /.

It runs in separate threads, so that it still answers when the event loop does not. They share the interpreter
with the loop, though, and a client is not trusted to be quick, modest or alone:

- one thread accepts connections, PER_PAUSE and then a pause of PAUSE_S, so that a flood waits in the kernel;
- it reads the head and sends the answer without ever waiting for one reader, each in limited time;
- an address has few connections, and all addresses together too: the newest takes the place of the slowest;
- an expensive page is made by another thread, once for all that ask (http/pages.py).

A connection is for one request. What comes after its head is not read.
"""

from __future__ import annotations

import os
import selectors
import socket
import ssl
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from enum import Enum
from functools import partial
from http import HTTPStatus
from threading import Thread
from types import MappingProxyType
from typing import TYPE_CHECKING

from lockd.config.addresses import split_address
from lockd.http.head import HEAD_BYTES, BadHead, Head, head_in, is_whole
from lockd.http.host_names import HostNames
from lockd.http.pages import (
    Alive,
    Failed,
    KeptPage,
    Maker,
    Page,
    Pages,
    Readiness,
    Status,
    as_bytes,
    text_page,
)
from lockd.http.tls import ServedCertificate

if TYPE_CHECKING:
    from lockd.config.model import MetricsTls
    from lockd.metrics.collector import Metrics

FRESH_S = 1.0
AT_ONCE = 16
PER_ADDRESS = 4
PER_PAUSE = 5
PAUSE_S = 0.05
BACKLOG = 128
READ_S = 5.0
MAKE_S = 10.0
SEND_S = 5.0
_END_S = 1.0

_BUSY = text_page(HTTPStatus.SERVICE_UNAVAILABLE, "too many readers at once", ("Retry-After", "1"))
_TOO_LONG = text_page(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {HEAD_BYTES} bytes")
_NOT_MADE = text_page(HTTPStatus.SERVICE_UNAVAILABLE, f"the page was not ready within {MAKE_S:.0f} s")


class _Phase(Enum):
    """The event that a connection is waited for; 0: it waits for us."""

    HEAD = selectors.EVENT_READ
    PAGE = 0
    SENT = selectors.EVENT_WRITE


class _Connection:
    """One reader: it sends its head, may wait for a page to be made, and takes the answer."""

    def __init__(self, link: socket.socket, address: str, now_s: float) -> None:
        self.link = link
        self.address = address
        self.phase = _Phase.HEAD
        self.until_s = now_s + READ_S
        self.events = 0
        self.head = b""
        self.asked: Head | None = None
        self.wanted: KeptPage | None = None
        self.since_s = 0.0
        self._unsent = memoryview(b"")

    def read(self) -> bool:
        """Take what is there; True when the head is whole, or too long to become so. EOFError at the end."""
        while True:
            some = self.link.recv(HEAD_BYTES)
            if not some:
                raise EOFError
            self.head += some
            if is_whole(self.head) or len(self.head) > HEAD_BYTES:
                return True
            # No selector reports what TLS has already taken out of the kernel.
            if not isinstance(self.link, ssl.SSLSocket) or not self.link.pending():
                return False

    def wait_for(self, page: KeptPage, now_s: float) -> None:
        self.phase, self.until_s = _Phase.PAGE, now_s + MAKE_S
        self.wanted, self.since_s = page, now_s - FRESH_S

    def reply(self, page: Page, now_s: float) -> None:
        self.phase, self.until_s = _Phase.SENT, now_s + SEND_S
        self._unsent = memoryview(as_bytes(page, self.asked))

    def send(self) -> bool:
        """Send what the kernel takes; True when that was everything."""
        self._unsent = self._unsent[self.link.send(self._unsent) :]
        return not self._unsent

    def close(self) -> None:
        """What the client sent after its request is read first: if it was unread, the kernel would drop the
        answer."""
        with suppress(OSError):
            self.link.shutdown(socket.SHUT_WR)
            self.link.recv(65_536)
        self.link.close()


class Server:
    """Listens until `stop`. `port` is the one that was really taken."""

    def __init__(
        self,
        listening: socket.socket,
        pages: Pages,
        failed: Failed,
        certificate: ServedCertificate | None = None,
    ) -> None:
        self.port = int(listening.getsockname()[1])
        self._listening = listening
        self._certificate = certificate
        self._pages = pages
        self._failed = failed
        self._maker = Maker(failed, self._wake)
        self._connections: dict[_Connection, None] = {}  # the oldest first
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        self._listens = False
        self._accepted = 0
        self._pause_ends_s = 0.0
        self._stopping = False
        self._thread = Thread(target=self._run, name="metrics", daemon=True)

    def start(self) -> None:
        self._maker.start()
        self._thread.start()

    def stop(self) -> None:
        """Stop listening, and close what is open. It may be reading a certificate from a dead disk."""
        self._stopping = True
        self._wake()
        self._thread.join(_END_S)
        self._maker.stop()

    def _wake(self) -> None:
        """From any thread."""
        with suppress(OSError):  # it is full of wake-ups, or over
            self._waker.send(b"!")

    def _run(self) -> None:
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, self._hand_out)
        while not self._stopping:
            now_s = time.monotonic()
            self._end_the_slow(now_s)
            self._listen_or_pause(now_s)
            for key, _ in self._selector.select(self._patience_s(now_s)):
                key.data()  # of a connection that ended meanwhile, too: it does nothing then
        for connection in list(self._connections):
            self._end(connection)
        for end in (self._listening, self._woken, self._waker):
            end.close()
        self._selector.close()

    def _patience_s(self, now_s: float) -> float | None:
        """Until when nothing has to be done unless an event comes."""
        times = [connection.until_s for connection in self._connections]
        if not self._listens:
            times.append(self._pause_ends_s)
        return max(0.0, min(times) - now_s) if times else None

    # Taking connections

    def _listen_or_pause(self, now_s: float) -> None:
        if now_s >= self._pause_ends_s:
            self._accepted = 0
        listen = self._accepted < PER_PAUSE
        if listen and not self._listens:
            self._selector.register(self._listening, selectors.EVENT_READ, self._accept)
        elif self._listens and not listen:
            self._selector.unregister(self._listening)
        self._listens = listen

    def _accept(self) -> None:
        now_s = time.monotonic()
        if self._accepted == 0:
            self._pause_ends_s = now_s + PAUSE_S
        self._accepted += 1
        try:
            link, address = self._listening.accept()
        except OSError:
            # Without a free file descriptor the connection stays there to be accepted: look again, but not
            # all the time.
            self._accepted = PER_PAUSE
            return
        link.setblocking(False)
        connection = _Connection(link, str(address[0]), now_s)
        if not self._has_room(connection.address):
            if self._certificate is not None:  # an answer could only be sent after a handshake
                connection.close()
                return
            connection.reply(_BUSY, now_s)
            with suppress(OSError):
                connection.send()
            connection.close()
            return
        if self._certificate is not None:
            connection.link = self._certificate.wrap(link)
        self._connections[connection] = None
        self._go_on(connection)

    def _has_room(self, address: str) -> bool:
        """Whether there is room, or a slow connection can make room: the oldest of that address, or of the
        one with most."""
        per_address = Counter(connection.address for connection in self._connections)
        if per_address[address] >= PER_ADDRESS:
            return self._end_the_oldest(address)
        if len(self._connections) >= AT_ONCE:
            return self._end_the_oldest(per_address.most_common(1)[0][0])
        return True

    def _end_the_oldest(self, address: str) -> bool:
        """Not one that waits for us: otherwise a flood would keep everybody from a page that takes a
        moment."""
        for connection in self._connections:
            if connection.address == address and connection.phase is not _Phase.PAGE:
                self._end(connection)
                return True
        return False

    # Serving

    def _go_on(self, connection: _Connection) -> None:
        """Read and write what is possible at once, then wait for the reader, or for its page."""
        try:
            if connection.phase is _Phase.HEAD and connection.read():
                self._answer(connection, time.monotonic())
            if connection.phase is _Phase.SENT and connection.send():
                self._end(connection)
                return
        except BlockingIOError:
            """As far as possible now."""
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as wants:
            # A handshake changes between reading and writing, whatever is waited for.
            is_read = isinstance(wants, ssl.SSLWantReadError)
            self._watch(connection, selectors.EVENT_READ if is_read else selectors.EVENT_WRITE)
            return
        except Exception as error:
            if not isinstance(error, OSError | EOFError):  # else it went away: there is nobody to tell
                self._failed("of a request", error)
            self._end(connection)
            return
        self._watch(connection, connection.phase.value)

    def _answer(self, connection: _Connection, now_s: float) -> None:
        answer = self._answer_to(connection)
        if isinstance(answer, Page):
            connection.reply(answer, now_s)
        else:
            connection.wait_for(answer, now_s)
            self._hand_over(connection, answer, now_s)

    def _answer_to(self, connection: _Connection) -> Page | KeptPage:
        if len(connection.head) > HEAD_BYTES:
            return _TOO_LONG
        try:
            connection.asked = head_in(connection.head)
        except BadHead as why:
            return text_page(HTTPStatus.BAD_REQUEST, str(why))
        return self._pages.answer(connection.asked)

    def _hand_over(self, connection: _Connection, wanted: KeptPage, now_s: float) -> None:
        page = wanted.since(connection.since_s)
        if page is None:
            self._maker.want(wanted)
        else:
            connection.reply(page, now_s)

    def _hand_out(self) -> None:
        """A page was made, or the end has come."""
        self._woken.recv(4_096)
        now_s = time.monotonic()
        for connection in list(self._connections):
            if connection.phase is _Phase.PAGE and connection.wanted is not None:
                self._hand_over(connection, connection.wanted, now_s)
                self._go_on(connection)

    def _end_the_slow(self, now_s: float) -> None:
        for connection in list(self._connections):
            if now_s < connection.until_s:
                continue
            if connection.phase is _Phase.PAGE:
                connection.reply(_NOT_MADE, now_s)
                self._go_on(connection)
            else:
                self._end(connection)

    def _watch(self, connection: _Connection, events: int) -> None:
        """Have the selector call when the reader has done its part; 0: not now."""
        if events == connection.events:
            return
        if connection.events:
            self._selector.unregister(connection.link)
        if events:
            self._selector.register(connection.link, events, partial(self._go_on, connection))
        connection.events = events

    def _end(self, connection: _Connection) -> None:
        """Connections for which a turn of the selector has events are still called: they may be closed by
        then."""
        if self._connections.pop(connection, connection) is None:
            self._watch(connection, 0)
            connection.close()


def start(
    address: str,
    metrics: Metrics,
    alive: Alive,
    ready: Readiness,
    failed: Failed = lambda _path, _error: None,
    status: Status = MappingProxyType({}),
    names: Iterable[str] = (),
    tls: MetricsTls | None = None,
) -> Server:
    """Serve on `host:port` (port 0: a free one) from now on.

    alive: whether the event loop runs; ready: whether locking works, and what to say about it. Both are
    called from other threads, as are failed(path, error) when a page can't be made, and the functions of
    `status`, which make the pages for people. names: the names under which it answers, in addition to this
    host's. tls: HTTPS only, with that certificate. Raises OSError, with the address in its text, when it
    can't listen there, or has no usable certificate.
    """
    certificate = None if tls is None else _certificate(address, tls, failed)
    try:
        host, port = split_address(address)
        family, _, _, _, found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # Without reuse_port: two agents must not share one port without notice.
        listening = socket.create_server(found[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        number = error.errno or 0  # create_server adds to the text; errors of a resolver are below 0
        reason = os.strerror(number) if number > 0 else error.strerror or error
        raise OSError(error.errno, f"can't serve /metrics on {address}: {reason}") from error
    listening.setblocking(False)
    known = HostNames(address, names)
    known.learn_full_name()
    server = Server(listening, Pages(metrics, alive, ready, failed, status, known), failed, certificate)
    server.start()
    return server


def _certificate(address: str, tls: MetricsTls, failed: Failed) -> ServedCertificate:
    def not_renewed(error: Exception) -> None:
        failed("of a new certificate", error)

    try:
        return ServedCertificate(tls.cert_file, tls.key_file, tls.client_ca_file, not_renewed)
    except OSError as error:  # ssl.SSLError is one
        raise OSError(error.errno, f"can't serve /metrics on {address} with TLS: {error}") from error
