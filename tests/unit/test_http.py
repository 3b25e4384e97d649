"""The HTTP port, over real sockets."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import io
import re
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress

import pytest
from prometheus_client import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from lockd.config.current import Current
from lockd.http import host_names
from lockd.http import server as http_server
from lockd.http.head import HEAD_BYTES
from lockd.http.pages import SAFETY
from lockd.http.server import AT_ONCE, PER_ADDRESS, Server, start
from lockd.metrics.collector import Metrics
from lockd.server.agent import Agent as LockdAgent
from lockd.server.log import EventLog
from tests.harness.configs import a_config
from tests.harness.waiting import PATIENCE_S, eventually

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


class Agent:
    """What the pages ask about."""

    def __init__(self) -> None:
        self.alive = True
        self.ready = (True, "")
        self.failures: list[tuple[str, Exception]] = []
        self.metrics = Metrics(Current(a_config()))
        self._serving = ExitStack()

    def serve(
        self,
        address: str = "127.0.0.1:0",
        status: Callable[[], bytes] | None = None,
        names: tuple[str, ...] = (),
    ) -> Server:
        def failed(path: str, error: Exception) -> None:
            self.failures.append((path, error))

        pages = {} if status is None else {"/": status}
        server = start(address, self.metrics, lambda: self.alive, lambda: self.ready, failed, pages, names)
        self._serving.callback(server.stop)
        return server

    def close(self) -> None:
        self._serving.close()


@pytest.fixture
def agent() -> Iterator[Agent]:
    with closing(Agent()) as agent:
        yield agent


@pytest.fixture
def server(agent: Agent) -> Server:
    return agent.serve()


def ask(
    server: Server, path: str, method: str = "GET", reader: str = "127.0.0.1", **headers: str
) -> tuple[int, http.client.HTTPMessage, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, 30, (reader, 0))
    with closing(connection):
        connection.request(
            method, path, headers={name.replace("_", "-"): text for name, text in headers.items()}
        )
        response = connection.getresponse()
        return response.status, response.headers, response.read()


def connect(server: Server, reader: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(
        ("127.0.0.1", server.port), timeout=PATIENCE_S, source_address=(reader, 0)
    )


def sent(server: Server, request: bytes, reader: str = "127.0.0.1") -> bytes:
    """All that is answered to this."""
    with connect(server, reader) as connection:
        connection.sendall(request)
        return said(connection)


def said(connection: socket.socket) -> bytes:
    """All that comes until the other side closes; nothing when it closes hard."""
    heard = b""
    try:
        while some := connection.recv(65_536):
            heard += some
    except ConnectionResetError:
        pass
    return heard


def asking(stack: ExitStack, server: Server, path: str, readers: int) -> list[socket.socket]:
    """So many, one after the other; each has asked before the next one comes."""
    links = []
    for _ in range(readers):
        links.append(stack.enter_context(connect(server)))
        links[-1].sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    return links


def waiting(server: Server) -> int:
    """How many wait for a page that is being made."""
    return sum(one.phase is http_server._Phase.PAGE for one in list(server._connections))


def test_metrics_come_as_text_as_openmetrics_or_compressed_as_they_are_asked_for(server: Server) -> None:
    status, headers, body = ask(server, "/metrics")
    assert (status, int(headers["Content-Length"])) == (200, len(body))
    assert headers["Content-Type"].startswith("text/plain")
    assert "lockd_quorum" in {family.name for family in parse_text(body.decode())}
    status, headers, body = ask(server, "/metrics", Accept=OPENMETRICS)
    assert headers["Content-Type"].startswith("application/openmetrics-text")
    families = {family.name for family in parse_openmetrics(body.decode())}
    assert {"lockd_quorum", "lockd_grants", "lockd_build"} <= families
    _, headers, body = ask(server, "/metrics", Accept_Encoding="gzip")
    assert headers["Content-Encoding"] == "gzip"
    assert b"lockd_quorum 2.0" in gzip.decompress(body)


def test_an_agent_that_hangs_is_not_healthy_and_one_without_a_quorum_not_ready_and_says_why(
    agent: Agent, server: Server
) -> None:
    assert ask(server, "/healthz")[::2] == ask(server, "/readyz")[::2] == (200, b"ok\n")
    agent.alive = False
    assert ask(server, "/healthz")[::2] == (503, b"the event loop does not run\n")
    agent.ready = (False, "m1: down: connection refused\nm2: blank")
    assert ask(server, "/readyz")[::2] == (503, b"m1: down: connection refused\nm2: blank\n")
    agent.ready = (False, "m1=" + "x" * 1_000_000)
    assert len(ask(server, "/readyz")[2]) < 5_000, "masters make no long answer"


def test_the_index_names_the_pages_and_others_are_not_found(server: Server) -> None:
    status, headers, body = ask(server, "/")
    assert status == 200
    assert all(page in body for page in (b"/metrics", b"/healthz", b"/readyz"))
    assert headers["Server"].strip() == "lockd"
    assert ask(server, "/metrics/")[0] == 404
    assert ask(server, "/../etc/passwd")[0] == 404


def test_head_has_the_headers_of_get_and_no_body_and_nothing_else_is_allowed(server: Server) -> None:
    for path in ("/", "/metrics", "/healthz", "/readyz"):
        status, headers, body = ask(server, path, "HEAD")
        assert (status, int(headers["Content-Length"]) > 0, body) == (200, True, b"")
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "EVIL"):
        status, headers, _ = ask(server, "/metrics", method)
        assert (status, headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ((b"GET /" + b"a" * HEAD_BYTES)[: HEAD_BYTES + 1], 431),
        ((b"GET / HTTP/1.1\r\nX-Long: " + b"a" * HEAD_BYTES)[: HEAD_BYTES + 1], 431),
        (b"*1\r\n$4\r\nPING\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost : localhost\r\n\r\n", 400),
    ],
    ids=["long path", "long header", "no HTTP", "no host", "two hosts", "a space in a name"],
)
def test_a_head_that_is_too_long_no_http_or_names_not_one_host_is_refused(
    server: Server, head: bytes, status: int
) -> None:
    assert sent(server, head).startswith(b"HTTP/1.0 %d " % status)
    assert ask(server, "/healthz")[0] == 200


def test_a_head_that_comes_byte_by_byte_is_understood(server: Server) -> None:
    with connect(server) as connection:
        for byte in b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n":
            connection.sendall(bytes([byte]))
        assert said(connection).endswith(b"\r\n\r\nok\n")


def test_one_that_trickles_in_is_cut_off_after_a_time_in_total(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "READ_S", 0.3)
    with connect(server) as connection:

        def cut_off() -> bool:
            try:
                connection.sendall(b"G")
            except OSError:
                return True
            return False

        eventually(cut_off, "it is cut off while it still sends", every_s=0.1)


def test_the_newest_takes_the_place_of_the_slowest_of_its_address(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever fills the port with slow requests keeps nobody out, and costs no thread."""
    monkeypatch.setattr(http_server, "READ_S", 60.0)
    monkeypatch.setattr(http_server, "SEND_S", 60.0)
    threads = threading.active_count()
    with ExitStack() as stack:
        slow = [stack.enter_context(connect(server)) for _ in range(3 * PER_ADDRESS)]
        for connection in slow:
            connection.sendall(b"GET / HT")
        assert ask(server, "/healthz")[0] == 200
        assert [said(connection) for connection in slow[: 2 * PER_ADDRESS]] == [b""] * (2 * PER_ADDRESS)
        assert threading.active_count() <= threads  # those of earlier tests may still be ending


@pytest.mark.parametrize(("readers", "each"), [(1, 2 * PER_ADDRESS), (5, 2 * AT_ONCE // 5)])
def test_who_has_most_connections_gives_way_and_the_others_keep_theirs(
    server: Server, monkeypatch: pytest.MonkeyPatch, readers: int, each: int
) -> None:
    """An address has few, and so have all together."""
    monkeypatch.setattr(http_server, "READ_S", 60.0)
    with ExitStack() as stack:
        quiet = stack.enter_context(connect(server, "127.0.0.9"))
        for number in range(readers * each):
            stack.enter_context(connect(server, f"127.0.1.{number % readers}")).sendall(b"GET / HT")
        assert ask(server, "/healthz")[0] == 200
        quiet.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert said(quiet).endswith(b"\r\n\r\nok\n")
        assert len(server._connections) <= AT_ONCE


def test_a_flood_waits_in_the_kernel_and_takes_no_more_than_its_share(
    agent: Agent, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many come: PER_PAUSE, then a pause, in which the thread does nothing."""
    monkeypatch.setattr(http_server, "PAUSE_S", 60.0)
    with ExitStack() as stack:
        flood = asking(stack, server, "/healthz", 20)
        answered = [said(connection) for connection in flood[: http_server.PER_PAUSE]]
        assert all(answer.endswith(b"ok\n") for answer in answered)
        flood[http_server.PER_PAUSE].settimeout(0.2)
        with pytest.raises(TimeoutError):
            flood[http_server.PER_PAUSE].recv(1)


def test_many_readers_have_it_made_once_and_all_get_it(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """However they ask: only the format counts, and for each it is made once."""
    monkeypatch.setattr(http_server, "FRESH_S", 3600.0)
    made = 0
    collect = agent.metrics.collect

    def counting() -> Iterator[object]:
        nonlocal made
        made += 1
        return collect()

    server = agent.serve()
    monkeypatch.setattr(agent.metrics, "collect", counting)
    variants = [
        {}, {"Accept_Encoding": "gzip"}, {"Accept_Encoding": "br, gzip;q=0.1"}, {"Accept_Encoding": "zstd"},
        {"Accept": "*/*"}, {"Accept": "text/plain;version=1.0.0;escaping=dots"}, {"Accept": "x" * 4_000},
        {"Accept": OPENMETRICS}, {"Accept": "application/openmetrics-text;version=0.0.1;escaping=values"},
        {"Accept": OPENMETRICS, "Accept_Encoding": "gzip"}, {"Accept": "application/openmetrics-text"},
    ]  # fmt: skip
    answers = [ask(server, "/metrics", **headers) for headers in variants]
    assert [status for status, _, _ in answers] == [200] * len(variants)
    plain = {gzip.decompress(b) if h["Content-Encoding"] == "gzip" else b for _, h, b in answers}
    assert (made, len(plain)) == (2, 2)


def test_two_prometheus_servers_are_answered_in_the_midst_of_a_flood(server: Server) -> None:
    """From other addresses than the flood's, as by a pair for high availability."""
    over = threading.Event()

    def flood() -> None:
        while not over.is_set():
            with suppress(OSError), closing(connect(server)) as connection:
                connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
                said(connection)

    def scrape(reader: str) -> tuple[int, bytes]:
        status, _, body = ask(server, "/metrics", reader=reader, Accept=OPENMETRICS, Accept_Encoding="gzip")
        return status, gzip.decompress(body)

    floods = [threading.Thread(target=flood) for _ in range(16)]
    for one in floods:
        one.start()
    try:
        with ThreadPoolExecutor(2) as pair:
            scrapes = list(pair.map(scrape, ["127.0.0.8", "127.0.0.9"] * 5))
    finally:
        over.set()
        for one in floods:
            one.join()
    assert [status for status, _ in scrapes] == [200] * 10
    assert all(text.endswith(b"# EOF\n") for _, text in scrapes)


def test_readers_who_come_while_a_page_is_made_wait_for_it(agent: Agent) -> None:
    """Even when there are more of them than an address may have: those beyond are told to come again, and
    none of them loses its place."""
    made, go_on = 0, threading.Event()

    def status() -> bytes:
        nonlocal made
        made += 1
        assert go_on.wait(PATIENCE_S)
        return b"<!DOCTYPE html>"

    server = agent.serve(status=status)
    with ExitStack() as stack:
        readers = asking(stack, server, "/", PER_ADDRESS)
        eventually(lambda: waiting(server) == PER_ADDRESS, "they wait for the page")
        [one_too_many] = asking(stack, server, "/", 1)
        assert said(one_too_many).startswith(b"HTTP/1.0 503 ")
        # And what costs nothing is served meanwhile.
        assert sent(server, b"GET /healthz HTTP/1.0\r\n\r\n", "127.0.0.9").endswith(b"ok\n")
        go_on.set()
        for reader in readers:
            assert said(reader).endswith(b"<!DOCTYPE html>")
    assert made == 1


def test_a_page_that_is_not_made_in_time_is_said_to_be_late(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "MAKE_S", 0.1)
    go_on = threading.Event()
    server = agent.serve(status=lambda: b"late" if go_on.wait(PATIENCE_S) else b"")
    assert ask(server, "/")[0] == 503
    go_on.set()
    eventually(lambda: ask(server, "/")[2] == b"late", "it is there for the next one")


def test_who_does_not_take_its_answer_is_left_after_a_time(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "SEND_S", 0.2)
    asked, page = threading.Event(), b"x" * 10_000_000
    server = agent.serve(status=lambda: asked.set() or page)  # type: ignore[func-returns-value]
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        deaf.connect(("127.0.0.1", server.port))
        deaf.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert asked.wait(PATIENCE_S)
        eventually(lambda: not server._connections, "it is given up")
        deaf.settimeout(PATIENCE_S)
        assert len(said(deaf)) < len(page)


def test_one_connection_gets_one_answer_whatever_else_it_sends(server: Server) -> None:
    answer = sent(server, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n" * 50)
    assert answer.count(b"HTTP/1.0 200 OK") == 1
    assert answer.endswith(b"Connection: close\r\n\r\nok\n")


def test_what_comes_after_a_request_does_not_cut_its_answer_short(agent: Agent) -> None:
    """Closed with something unread, the kernel would drop what it still has to send."""
    begun = threading.Event()
    server = agent.serve(status=lambda: begun.set() or b"x" * 100_000)  # type: ignore[func-returns-value]
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n" + b"y" * 30_000)
        eventually(lambda: begun.is_set() and not server._connections, "the agent is done with it")
        assert said(connection).endswith(b"\r\n\r\n" + b"x" * 100_000)


@pytest.mark.parametrize("path", ["/metrics", "/", "/healthz", "/readyz"])
@pytest.mark.parametrize("query", ["name[]=lockd_quorum", "name%5B%5D=" + "a" * 4_000, "x"])
def test_no_query_makes_a_page_of_its_own(server: Server, path: str, query: str) -> None:
    status, _, body = ask(server, f"{path}?{query}")
    assert (status, body) == (400, b"this page takes no parameters: it is always complete\n")


EVIL = (
    "evil.example", "evil.example:9480", "localhost.evil.example", "127.0.0.1.evil.example", "2130706433",
    "[::1].evil.example", "evil.example@127.0.0.1", "127.0.0.1, evil.example", "", "web1.evil.example",
)  # fmt: skip


@pytest.mark.parametrize("host", EVIL)
@pytest.mark.parametrize("path", ["/", "/metrics", "/healthz", "/readyz", "/nothing"])
def test_a_page_in_a_browser_that_resolves_its_own_name_to_us_gets_nothing(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, path: str, host: str
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "web1")
    server = agent.serve()
    status, _, body = ask(server, path, Host=host)
    assert status == 421
    assert body.startswith(b"This agent does not answer under that name. Use its IP address")


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.0.0.1:9480", "[::1]:9480", "[::1]", "10.9.8.7:80", "localhost:1", "LOCALHOST",
        "web1:9480", "Web1.", "agent.example.com:9480", "agent.example.com.",
    ],
)  # fmt: skip
def test_addresses_and_names_of_this_host_and_those_configured_are_answered(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "web1")
    server = agent.serve(names=("agent.example.com",))
    assert ask(server, "/healthz", Host=host)[0] == 200
    assert "agent.internal:9480" in host_names.HostNames("agent.internal:9480"), "it listens on that"


def test_the_full_name_of_the_host_is_learned_without_waiting_for_a_slow_dns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = threading.Event()

    def slow(name: str, *_: object, **__: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        assert answer.wait(PATIENCE_S)
        return [(0, 0, 0, f"{name}.example.com", ("10.0.0.1", 0)), (0, 0, 0, "", ("10.0.0.1", 0))]

    monkeypatch.setattr(socket, "gethostname", lambda: "web1")
    monkeypatch.setattr(socket, "getaddrinfo", slow)
    names = host_names.HostNames("127.0.0.1:9480")
    names.learn_full_name()
    assert "web1.example.com:9480" not in names
    answer.set()
    eventually(lambda: "web1.example.com:9480" in names, "it is known")
    assert "" not in names


@pytest.mark.parametrize("path", ["/", "/metrics", "/healthz", "/readyz", "/nothing", "/metrics?x=1"])
def test_no_answer_can_be_used_by_another_origin(server: Server, path: str) -> None:
    _, headers, _ = ask(server, path, Origin="http://evil.example")
    for name, value in SAFETY:
        assert headers[name] == value
    assert {"Cross-Origin-Resource-Policy", "X-Content-Type-Options"} < set(headers)
    assert not [name for name in headers if name.startswith("Access-Control-")]


def test_a_page_that_fails_is_reported_and_the_next_one_works(
    agent: Agent, server: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    agent.ready = None  # type: ignore[assignment]
    status, _, body = ask(server, "/readyz")
    assert (status, body) == (500, b"this page failed: TypeError\n")
    assert [(path, type(error)) for path, error in agent.failures] == [("/readyz", TypeError)]
    assert ask(server, "/healthz")[0] == 200
    assert capfd.readouterr().err == ""


def test_an_address_that_cannot_be_had_is_named_in_the_error(agent: Agent, server: Server) -> None:
    for address, why in (
        (f"127.0.0.1:{server.port}", "Address already in use"),
        ("nowhere.invalid:9480", ""),
    ):
        with pytest.raises(OSError, match=re.escape(f"can't serve /metrics on {address}: ") + why):
            agent.serve(address)


def test_ipv6_addresses_work(agent: Agent) -> None:
    try:
        server = agent.serve("[::1]:0")
    except OSError as error:
        pytest.skip(str(error))
    with closing(http.client.HTTPConnection("::1", server.port, timeout=PATIENCE_S)) as connection:
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200


def test_after_stop_the_port_is_free_at_once(agent: Agent) -> None:
    first = agent.serve()
    assert ask(first, "/healthz")[0] == 200
    agent.close()
    assert ask(agent.serve(f"127.0.0.1:{first.port}"), "/healthz")[0] == 200


def test_the_index_is_the_page_for_people_where_there_is_one(agent: Agent) -> None:
    server = agent.serve(status=lambda: b"<!DOCTYPE html>")
    code, headers, body = ask(server, "/")
    assert (code, body) == (200, b"<!DOCTYPE html>")
    assert headers["Content-Type"] == "text/html; charset=utf-8"


def test_a_page_for_people_that_fails_is_reported_and_made_anew_later(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[bytes | Exception] = [b"<!DOCTYPE html>", RuntimeError("not now")]

    def status() -> bytes:
        found = looks.pop()
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(http_server, "FRESH_S", 3600.0)
    server = agent.serve(status=status)
    assert ask(server, "/")[::2] == (500, b"this page failed: RuntimeError\n")
    assert ask(server, "/")[0] == 500  # also that is kept: it may have cost as much
    assert [(path, type(error)) for path, error in agent.failures] == [("/", RuntimeError)]
    monkeypatch.setattr(http_server, "FRESH_S", 0.0)
    assert ask(server, "/")[2] == b"<!DOCTYPE html>"


async def test_a_page_that_fails_counts_as_a_failure_of_the_agent_and_is_logged() -> None:
    told = io.StringIO()
    serving = LockdAgent(a_config(), EventLog("lockd.test_http", stream=told))
    loop = asyncio.get_running_loop()
    await asyncio.to_thread(serving._page_failed, loop, "/", ValueError("no such class"))
    serving.log.flush()
    assert "lockd_internal_errors_total 1.0" in generate_latest(serving.metrics.registry).decode()
    assert "no such class" in told.getvalue()
