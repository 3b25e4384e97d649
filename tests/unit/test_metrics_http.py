"""The HTTP port, over real sockets."""

from __future__ import annotations

import gzip
import http.client
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from lockd import metrics_http
from lockd.config import Config
from lockd.metrics import Metrics
from lockd.metrics_http import AT_ONCE, HEAD_BYTES, Server, start
from tests.redis.masters import eventually

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


class Agent:
    """What the pages ask about."""

    def __init__(self) -> None:
        self.alive = True
        self.ready = (True, "")
        self.failures: list[tuple[str, Exception]] = []
        masters = [{"name": f"m{i}", "address": f"10.0.0.{i}:6379"} for i in (1, 2, 3)]
        self.metrics = Metrics(Config.model_validate({"cluster": "shop", "masters": masters}))

    def serve(self, address: str = "127.0.0.1:0") -> Server:
        return start(
            address,
            self.metrics,
            lambda: self.alive,
            lambda: self.ready,
            lambda path, error: self.failures.append((path, error)),
        )


@pytest.fixture
def agent() -> Agent:
    return Agent()


@pytest.fixture
def server(agent: Agent) -> Iterator[Server]:
    server = agent.serve()
    yield server
    server.stop()


def ask(
    server: Server, path: str, method: str = "GET", **headers: str
) -> tuple[int, http.client.HTTPMessage, bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)) as connection:
        connection.request(
            method, path, headers={name.replace("_", "-"): text for name, text in headers.items()}
        )
        response = connection.getresponse()
        return response.status, response.headers, response.read()


def connect(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=10)


def said(connection: socket.socket) -> bytes:
    """All that comes until the other side closes; nothing when it closes hard."""
    heard = b""
    try:
        while some := connection.recv(65_536):
            heard += some
    except ConnectionResetError:
        pass
    return heard


def test_metrics_are_in_the_text_format_by_default(server: Server) -> None:
    status, headers, body = ask(server, "/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain")
    assert int(headers["Content-Length"]) == len(body)
    assert "lockd_quorum" in {family.name for family in parse_text(body.decode())}


def test_metrics_are_openmetrics_for_whoever_asks_for_it(server: Server) -> None:
    status, headers, body = ask(server, "/metrics", Accept=OPENMETRICS)
    assert status == 200
    assert headers["Content-Type"].startswith("application/openmetrics-text")
    assert {"lockd_quorum", "lockd_grants", "lockd_build"} <= {
        f.name for f in parse_openmetrics(body.decode())
    }


def test_metrics_are_compressed_for_whoever_asks_for_it(server: Server) -> None:
    _, headers, body = ask(server, "/metrics", Accept_Encoding="gzip")
    assert headers["Content-Encoding"] == "gzip"
    assert b"lockd_quorum 2.0" in gzip.decompress(body)


def test_a_single_metric_can_be_asked_for_by_name(server: Server) -> None:
    _, _, body = ask(server, "/metrics?name[]=lockd_quorum")
    assert [family.name for family in parse_text(body.decode())] == ["lockd_quorum"]


def test_an_agent_whose_event_loop_hangs_is_not_healthy(agent: Agent, server: Server) -> None:
    assert ask(server, "/healthz")[0] == 200
    agent.alive = False
    status, _, body = ask(server, "/healthz")
    assert (status, body) == (503, b"the event loop does not run\n")


def test_an_agent_without_a_quorum_is_not_ready_and_says_why_for_each_master(
    agent: Agent, server: Server
) -> None:
    assert ask(server, "/readyz")[::2] == (200, b"ok\n")
    agent.ready = (False, "m1: down: connection refused\nm2: blank")
    assert ask(server, "/readyz")[::2] == (503, b"m1: down: connection refused\nm2: blank\n")


def test_the_index_names_the_pages_and_others_are_not_found(server: Server) -> None:
    status, headers, body = ask(server, "/")
    assert status == 200
    assert all(page in body for page in (b"/metrics", b"/healthz", b"/readyz"))
    assert headers["Server"].strip() == "lockd"
    assert ask(server, "/metrics/")[0] == 404
    assert ask(server, "/../etc/passwd")[0] == 404


@pytest.mark.parametrize("path", ["/", "/metrics", "/healthz", "/readyz"])
def test_head_has_the_headers_of_get_and_no_body(server: Server, path: str) -> None:
    status, headers, body = ask(server, path, "HEAD")
    assert status == 200
    assert int(headers["Content-Length"]) > 0
    assert body == b""


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "EVIL"])
def test_nothing_but_get_and_head_is_allowed(server: Server, method: str) -> None:
    status, headers, _ = ask(server, "/metrics", method)
    assert status == 405
    assert headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    "request_line", [b"GET /" + b"a" * HEAD_BYTES, b"GET / HTTP/1.1\r\nX-Long: " + b"a" * HEAD_BYTES]
)
def test_a_head_that_is_too_long_is_refused(server: Server, request_line: bytes) -> None:
    with connect(server) as connection:
        connection.sendall(request_line[: HEAD_BYTES + 1])
        assert said(connection).startswith(b"HTTP/1.0 431 ")


def test_what_is_no_http_is_refused(server: Server) -> None:
    with connect(server) as connection:
        connection.sendall(b"*1\r\n$4\r\nPING\r\n\r\n")
        assert b"400" in said(connection)
    assert ask(server, "/healthz")[0] == 200


def test_a_head_that_comes_byte_by_byte_is_understood(server: Server) -> None:
    with connect(server) as connection:
        for byte in b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n":
            connection.sendall(bytes([byte]))
        assert said(connection).endswith(b"\r\n\r\nok\n")


def test_one_that_trickles_in_is_cut_off_after_a_time_in_total(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_http, "READ_S", 0.3)
    with connect(server) as connection:
        begun = time.monotonic()
        connection.settimeout(0.05)
        while time.monotonic() - begun < 10:
            try:
                connection.sendall(b"G")
                if connection.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        assert time.monotonic() - begun < 5


def test_slow_clients_fill_the_room_and_no_more_and_it_is_free_again_after_them(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_http, "READ_S", 60.0)
    before = threading.active_count()
    with ExitStack() as slow:
        for _ in range(AT_ONCE):
            slow.enter_context(connect(server)).sendall(b"GET / HT")
        eventually(lambda: threading.active_count() == before + AT_ONCE, 10, "all of them are served")
        for _ in range(2 * AT_ONCE):
            with connect(server) as one_too_many:
                assert said(one_too_many).startswith(b"HTTP/1.0 503 ")
        assert threading.active_count() <= before + AT_ONCE
    eventually(lambda: threading.active_count() == before, 10, "their threads have ended")
    assert ask(server, "/healthz")[0] == 200


def test_a_page_that_fails_is_reported_and_the_next_one_works(
    agent: Agent, server: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    agent.ready = None  # type: ignore[assignment]
    status, _, body = ask(server, "/readyz")
    assert (status, body) == (500, b"this page failed: TypeError\n")
    assert [(path, type(error)) for path, error in agent.failures] == [("/readyz", TypeError)]
    assert ask(server, "/healthz")[0] == 200
    assert capfd.readouterr().err == ""


def test_an_address_that_is_taken_is_named_in_the_error(agent: Agent, server: Server) -> None:
    address = f"127.0.0.1:{server.port}"
    with pytest.raises(OSError, match=f"can't serve /metrics on {address}: Address already in use"):
        agent.serve(address)


def test_a_name_that_leads_nowhere_is_named_in_the_error(agent: Agent) -> None:
    with pytest.raises(OSError, match=r"can't serve /metrics on nowhere\.invalid:9480: "):
        agent.serve("nowhere.invalid:9480")


def test_ipv6_addresses_work(agent: Agent) -> None:
    try:
        server = agent.serve("[::1]:0")
    except OSError as error:
        pytest.skip(str(error))
    with closing(http.client.HTTPConnection("::1", server.port, timeout=10)) as connection:
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
    server.stop()


def test_after_stop_the_port_is_free_at_once(agent: Agent) -> None:
    first = agent.serve()
    assert ask(first, "/healthz")[0] == 200
    first.stop()
    second = agent.serve(f"127.0.0.1:{first.port}")
    assert ask(second, "/healthz")[0] == 200
    second.stop()


def test_the_index_is_the_page_for_people_where_there_is_one(agent: Agent) -> None:
    asked: list[bool] = []

    def status(with_names: bool) -> bytes:
        asked.append(with_names)
        return b"<!DOCTYPE html>"

    server = start("127.0.0.1:0", agent.metrics, lambda: True, lambda: (True, ""), status=status)
    code, headers, body = ask(server, "/")
    assert (code, body) == (200, b"<!DOCTYPE html>")
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert ask(server, "/", "HEAD")[2] == b""
    assert ask(server, "/", "POST")[0] == 405
    assert asked == [True, True]
    server.stop()


@pytest.mark.parametrize(
    ("reader", "own", "is_here"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.9.9.9", "127.0.0.1", True),
        ("::1", "::1", True),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1", True),
        ("10.0.0.7", "10.0.0.5", False),
        ("::ffff:10.0.0.7", "::ffff:10.0.0.5", False),
        ("fe80::1%eth0", "fe80::2%eth0", False),
        # An agent that listens on the host's own address, as site.yml has it.
        ("10.0.0.5", "10.0.0.5", True),
        ("::ffff:10.0.0.5", "::ffff:10.0.0.5", True),
        ("fe80::1%eth0", "fe80::1%eth0", True),
    ],
)
def test_readers_over_loopback_or_from_the_address_they_read_are_on_this_host(
    reader: str, own: str, is_here: bool
) -> None:
    assert metrics_http.is_on_this_host(reader, own) == is_here


_READ_FROM = """
from http.client import HTTPConnection
from tests.unit.test_metrics_http import Agent
from lockd.metrics_http import start
shown = lambda names: b"names" if names else b"no names"
server = start("10.9.9.1:0", Agent().metrics, lambda: True, lambda: (True, ""), status=shown)
for reader in ("10.9.9.1", "10.9.9.2"):
    connection = HTTPConnection("10.9.9.1", server.port, timeout=10, source_address=(reader, 0))
    connection.request("GET", "/")
    print(reader, connection.getresponse().read().decode())
"""


def test_names_are_shown_on_a_hosts_own_address_to_that_host_alone() -> None:
    """In a network of its own, whose two addresses are this host and another one."""
    if not (shutil.which("unshare") and shutil.which("ip")):
        pytest.skip("no unshare or no ip on this machine")
    alone = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    if subprocess.run([*alone, "true"], capture_output=True, timeout=60, check=False).returncode:
        pytest.skip("this user may make no network namespaces")
    network = "ip link set lo up && ip addr add 10.9.9.1/32 dev lo && ip addr add 10.9.9.2/32 dev lo"
    done = subprocess.run(
        [*alone, "sh", "-c", f'{network} && exec "$0" -c "$1"', sys.executable, _READ_FROM],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["10.9.9.1 names", "10.9.9.2 no names"], done.stderr
