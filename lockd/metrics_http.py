"""The agent's HTTP port: /metrics for Prometheus, /healthz and /readyz for whoever supervises it, and a page
for people at /.

It runs in threads of its own, so that it still answers when the event loop does not. Whoever connects is not
trusted to be quick or modest: the head of a request is bounded in bytes and in time, so is sending the
answer, and only a few are served at once.
"""

from __future__ import annotations

import io
import ipaddress
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import TCPServer, ThreadingMixIn
from threading import BoundedSemaphore, Thread
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from prometheus_client import make_wsgi_app

from lockd.addresses import split_address
from lockd.status_page import HEADERS as STATUS_HEADERS

if TYPE_CHECKING:
    from lockd.metrics import Metrics

Alive = Callable[[], bool]
Ready = Callable[[], tuple[bool, str]]
Failed = Callable[[str, Exception], None]
Status = Callable[[bool], bytes]
"""The page for people; whether with names of resources."""

AT_ONCE = 16
HEAD_BYTES = 8_192
READ_S = 5.0
SEND_S = 5.0
TEXT = "text/plain; charset=utf-8"
INDEX = """lockd

/metrics  for Prometheus
/healthz  200 while the agent is alive
/readyz   200 while a quorum of the masters has a vote, else why not
"""


class Page(NamedTuple):
    """An answer. `body` is left out, but counted, for HEAD."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = (("Content-Type", TEXT),)


def text_page(status: int, text: str) -> Page:
    return Page(status, (text.rstrip("\n") + "\n").encode(errors="backslashreplace"))


class Pages:
    """What there is to read. Everything is called from the threads of requests."""

    def __init__(self, metrics: Metrics, alive: Alive, ready: Ready, status: Status | None) -> None:
        self._exposition = make_wsgi_app(metrics.registry)
        self._alive = alive
        self._ready = ready
        self._status = status
        self._pages: dict[str, Callable[[BaseHTTPRequestHandler], Page]] = {
            "/": self._index,
            "/metrics": self._metrics,
            "/healthz": lambda _: self._health(),
            "/readyz": lambda _: self._readiness(),
        }

    def answer(self, request: BaseHTTPRequestHandler) -> Page:
        if request.command not in ("GET", "HEAD"):
            page = text_page(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD")
            return page._replace(headers=(*page.headers, ("Allow", "GET, HEAD")))
        page_of = self._pages.get(request.path.partition("?")[0])
        return page_of(request) if page_of else text_page(HTTPStatus.NOT_FOUND, "no such page")

    def _index(self, request: BaseHTTPRequestHandler) -> Page:
        if self._status is None:
            return text_page(HTTPStatus.OK, INDEX)
        own_address = request.connection.getsockname()[0]
        names = is_on_this_host(request.client_address[0], own_address)
        return Page(HTTPStatus.OK, self._status(names), STATUS_HEADERS)

    def _health(self) -> Page:
        if self._alive():
            return text_page(HTTPStatus.OK, "ok")
        return text_page(HTTPStatus.SERVICE_UNAVAILABLE, "the event loop does not run")

    def _readiness(self) -> Page:
        ready, text = self._ready()
        if ready:
            return text_page(HTTPStatus.OK, text or "ok")
        return text_page(HTTPStatus.SERVICE_UNAVAILABLE, text or "not ready")

    def _metrics(self, request: BaseHTTPRequestHandler) -> Page:
        """As prometheus_client gives it: it knows about formats and compression."""
        environ = {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": "/metrics",
            "QUERY_STRING": urlsplit(request.path).query,
            "HTTP_ACCEPT": request.headers.get("Accept", ""),
            "HTTP_ACCEPT_ENCODING": request.headers.get("Accept-Encoding", ""),
        }
        begun: list[tuple[str, list[tuple[str, str]]]] = []

        def start_response(status: str, headers: list[tuple[str, str]], *_: Any) -> Callable[[bytes], object]:
            begun.append((status, headers))
            return lambda _: None

        body = b"".join(self._exposition(environ, start_response))
        status, headers = begun[0]
        return Page(int(status.split(" ", 1)[0]), body, tuple(headers))


def is_on_this_host(reader: str, own: str) -> bool:
    """Whether a reader came over loopback, or from the very address that it connected to.

    The latter is how this host reads an agent that listens on the host's own address. Nobody else can: what
    is sent to a host's own address never leaves it, so a connection from elsewhere under this address would
    get no answer, and the kernel drops such packets as they come in. A proxy on this host is on this host,
    whoever its readers are.
    """
    address = _ip(reader)
    return address.is_loopback or address == _ip(own)


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """IPv6 may write an IPv4 address in its own way, and name an interface."""
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


class _Request(BaseHTTPRequestHandler):
    """One connection, one request."""

    server: Server
    server_version = "lockd"
    sys_version = ""

    def handle(self) -> None:
        try:
            head = self._read_head()
            self.connection.settimeout(SEND_S)
            if head is not None:
                self._serve(head)
        except OSError:
            """It went away, or was too slow: there is nobody to tell."""

    def _read_head(self) -> bytes | None:
        """All up to the empty line, in limited time however the bytes come; None when it never comes."""
        head = b""
        give_up_s = time.monotonic() + READ_S
        while b"\r\n\r\n" not in head and b"\n\n" not in head and len(head) <= HEAD_BYTES:
            self.connection.settimeout(max(0.001, give_up_s - time.monotonic()))
            some = self.connection.recv(HEAD_BYTES)
            if not some or time.monotonic() > give_up_s:
                return None
            head += some
        return head

    def _serve(self, head: bytes) -> None:
        self.rfile = io.BytesIO(head)
        self.raw_requestline = self.rfile.readline()
        if len(head) > HEAD_BYTES:
            # What parse_request would have found out, and sending an answer asks for.
            self.command, self.request_version, self.requestline = "", "HTTP/1.0", ""
            self._send(text_page(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {HEAD_BYTES} bytes"))
        elif self.parse_request():  # else it has answered with what is wrong
            self._send(self._page())

    def _page(self) -> Page:
        try:
            return self.server.pages.answer(self)
        except Exception as error:  # a mistake in one page must show, but not as a traceback in the log
            self.server.failed(self.path, error)
            return text_page(HTTPStatus.INTERNAL_SERVER_ERROR, f"this page failed: {type(error).__name__}")

    def _send(self, page: Page) -> None:
        self.send_response(page.status)
        for name, value in page.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(page.body)))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page.body)

    def log_message(self, format: str, *args: Any) -> None:
        """A scrape every few seconds is no event."""


class Server(ThreadingMixIn, HTTPServer):
    """Listens until `stop`. `port` is the one that was really taken."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    allow_reuse_port = False  # two agents on one port must not share it in silence
    request_queue_size = 2 * AT_ONCE

    def __init__(self, address: tuple[str, int], family: int, pages: Pages, failed: Failed) -> None:
        self.address_family = family
        self.pages = pages
        self.failed = failed
        self._room = BoundedSemaphore(AT_ONCE)
        self._stopping = False
        super().__init__(address, _Request)
        self.port = int(self.server_address[1])
        self._thread = Thread(target=self.serve_forever, name="metrics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop listening. Answers on their way may still be sent, while the process lives."""
        self._stopping = True
        # Wakes up the thread that accepts: it would look only twice a second whether it is to end.
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.shutdown()
        self.server_close()
        self._thread.join()

    def server_bind(self) -> None:
        # HTTPServer's own looks the host's name up, which takes as long as a broken DNS likes.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "lockd", int(self.server_address[1])

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError:
            # Without a free file descriptor it stays there to be accepted: look again, but not all the time.
            if not self._stopping:
                time.sleep(0.1)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self._turn_away(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def _turn_away(self, request: socket.socket) -> None:
        """In the thread that accepts, so without waiting for anything."""
        with suppress(OSError):
            request.setblocking(False)
            request.send(b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
        self.shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing on stderr: what matters was told by `failed`."""


def start(
    address: str,
    metrics: Metrics,
    alive: Alive,
    ready: Ready,
    failed: Failed = lambda _path, _error: None,
    status: Status | None = None,
) -> Server:
    """Serve on `host:port` (port 0: a free one) from now on.

    alive: whether the event loop runs; ready: whether locks can be had, and what to say about it. Both are
    called from other threads, as are failed(path, error) when a page can't be made, and `status`, which gives
    the page for people. Raises OSError, with the address in its text, when it can't listen there.
    """
    try:
        host, port = split_address(address)
        family, _, _, _, found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        server = Server((str(found[0]), int(found[1])), family, Pages(metrics, alive, ready, status), failed)
    except OSError as error:
        raise OSError(error.errno, f"can't serve /metrics on {address}: {error.strerror or error}") from error
    server.start()
    return server
