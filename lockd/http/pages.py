"""The pages of the agent's HTTP port, and how often each is made.

Readers are not trusted, and the interpreter has one lock: a thread that makes a page holds up the event loop.
So pages that have to look at everything are made by one thread, one page at a time, and kept for a moment
(server.FRESH_S) after they were made, however many ask. Few pages are kept: those for people, and /metrics in
two formats, plain and compressed. No query can add to them, since none is accepted.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from lockd.http.head import Head
from lockd.http.status_page import STYLE_HASH

if TYPE_CHECKING:
    from lockd.http.host_names import HostNames
    from lockd.metrics.collector import Metrics

Alive = Callable[[], bool]
Readiness = Callable[[], tuple[bool, str]]
Failed = Callable[[str, Exception], None]
Status = Mapping[str, Callable[[], bytes]]
"""The pages for people, by path."""

P = TypeVar("P")

TEXT = "text/plain; charset=utf-8"
HTML = "text/html; charset=utf-8"
SAFETY: tuple[tuple[str, str], ...] = (
    (
        "Content-Security-Policy",
        f"default-src 'none'; style-src 'sha256-{STYLE_HASH}'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)
"""Sent with every answer: a page of another origin can neither show nor use it, and nothing in it runs."""
INDEX = """lockd

/metrics  for Prometheus
/healthz  200 while the agent is alive
/readyz   200 while a quorum of the masters has a vote and apps find the socket, otherwise the reason
"""
_READY_CHARS = 4_000
_OPENMETRICS = "application/openmetrics-text"
_FORMATS = {"": "", _OPENMETRICS: f"{_OPENMETRICS}; version=1.0.0"}
"""What is asked of prometheus_client for each. It is loaded by the first scrape (metrics/collector.py)."""


class Page(NamedTuple):
    """An answer; `compressed` for readers that accept gzip. For HEAD the body is left out, but counted."""

    status: int
    body: bytes
    content_type: str = TEXT
    compressed: bytes | None = None
    more: tuple[tuple[str, str], ...] = ()


def text_page(status: int, text: str, *more: tuple[str, str]) -> Page:
    return Page(status, (text.rstrip("\n") + "\n").encode(errors="backslashreplace"), more=more)


class KeptPage:
    """A page that is expensive: made by the Maker's thread, and read until it is too old."""

    def __init__(self, path: str, make: Callable[[], Page]) -> None:
        self.path = path
        self.make = make
        self.wanted = False
        self._made_s = float("-inf")
        self._page: Page | None = None

    def since(self, when_s: float) -> Page | None:
        """The page, if it was made at that time or later, on the monotonic clock."""
        return self._page if self._made_s >= when_s else None

    def keep(self, page: Page, now_s: float) -> None:
        self._page = page
        self._made_s = now_s  # last: it is read from another thread


class Maker:
    """The one thread that makes pages. `made` is called from it after each."""

    def __init__(self, failed: Failed, made: Callable[[], None]) -> None:
        self._failed = failed
        self._made = made
        self._queue: SimpleQueue[KeptPage | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="metrics pages", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Does not wait for the thread: a page may take a while, and nobody reads it any more."""
        self._queue.put(None)

    def want(self, page: KeptPage) -> None:
        """Have it made, once for all that ask meanwhile."""
        if not page.wanted:
            page.wanted = True
            self._queue.put(page)

    def _run(self) -> None:
        while (kept := self._queue.get()) is not None:
            page = guarded(kept.path, kept.make, self._failed)
            kept.keep(page, time.monotonic())
            kept.wanted = False
            self._made()


def guarded(path: str, make: Callable[[], P], failed: Failed) -> P | Page:
    """A failure in one page must show, but neither end the thread nor tell a stranger more than its kind."""
    try:
        return make()
    except Exception as error:
        failed(path, error)
        return text_page(HTTPStatus.INTERNAL_SERVER_ERROR, f"this page failed: {type(error).__name__}")


class Pages:
    """Chooses the answer to a request: a page at once, or one that is kept and may have to be made first."""

    def __init__(
        self,
        metrics: Metrics,
        alive: Alive,
        ready: Readiness,
        failed: Failed,
        status: Status,
        names: HostNames,
    ) -> None:
        self._alive = alive
        self._ready = ready
        self._failed = failed
        self._names = names
        self._formats = {one: KeptPage("/metrics", partial(_exposition, metrics, one)) for one in _FORMATS}
        for_people = {path: KeptPage(path, partial(_for_people, make)) for path, make in status.items()}
        self._pages: dict[str, Callable[[Head], Page | KeptPage]] = {
            "/": lambda _: text_page(HTTPStatus.OK, INDEX),
            "/metrics": self._metrics,
            "/healthz": lambda _: self._health(),
            "/readyz": lambda _: self._readiness(),
            **{path: partial(_kept, page) for path, page in for_people.items()},
        }

    def answer(self, head: Head) -> Page | KeptPage:
        if head.host is not None and head.host not in self._names:
            return text_page(
                HTTPStatus.MISDIRECTED_REQUEST,
                "This agent does not answer under that name. Use its IP address or localhost. "
                "To allow another name, add it to metrics_hosts in the configuration.",
            )
        if head.method not in ("GET", "HEAD"):
            return text_page(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD", ("Allow", "GET, HEAD"))
        page_of = self._pages.get(head.path)
        if page_of is None:
            return text_page(HTTPStatus.NOT_FOUND, "no such page")
        if head.query:
            return text_page(HTTPStatus.BAD_REQUEST, "this page takes no parameters: it is always complete")
        return guarded(head.path, lambda: page_of(head), self._failed)

    def _metrics(self, head: Head) -> KeptPage:
        return self._formats[_OPENMETRICS if _OPENMETRICS in head.header("Accept") else ""]

    def _health(self) -> Page:
        if self._alive():
            return text_page(HTTPStatus.OK, "ok")
        return text_page(HTTPStatus.SERVICE_UNAVAILABLE, "the event loop does not run")

    def _readiness(self) -> Page:
        ready, text = self._ready()
        if ready:
            return text_page(HTTPStatus.OK, text[:_READY_CHARS] or "ok")
        return text_page(HTTPStatus.SERVICE_UNAVAILABLE, text[:_READY_CHARS] or "not ready")


def _exposition(metrics: Metrics, wanted: str) -> Page:
    """/metrics in a format, as prometheus_client writes it."""
    from prometheus_client.exposition import choose_encoder

    encode, content_type = choose_encoder(_FORMATS[wanted])
    body = encode(metrics.registry)
    return Page(HTTPStatus.OK, body, content_type, gzip.compress(body, compresslevel=6))


def _kept(page: KeptPage, _: Head) -> KeptPage:
    return page


def _for_people(make: Callable[[], bytes]) -> Page:
    return Page(HTTPStatus.OK, make(), HTML)


def _accepts_gzip(head: Head | None) -> bool:
    from prometheus_client.exposition import gzip_accepted

    return head is not None and gzip_accepted(head.header("Accept-Encoding"))


def as_bytes(page: Page, head: Head | None) -> bytes:
    """The whole answer to a request; None: the request could not be read."""
    compressed = page.compressed if page.compressed and _accepts_gzip(head) else None
    body = page.body if compressed is None else compressed
    lines = [
        f"HTTP/1.0 {page.status} {HTTPStatus(page.status).phrase}",
        "Server: lockd",
        f"Content-Type: {page.content_type}",
        f"Content-Length: {len(body)}",
        *(["Content-Encoding: gzip"] if compressed is not None else []),
        *(["Vary: Accept, Accept-Encoding"] if page.compressed is not None else []),
        *(f"{name}: {value}" for name, value in (*SAFETY, *page.more)),
        "Connection: close",
        "",
        "",
    ]
    text = "\r\n".join(lines).encode()
    return text if head and head.method == "HEAD" else text + body
