"""The HTTP port with TLS: its certificate is read anew, and who is slow or speaks no TLS keeps nobody."""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from lockd.config.current import Current
from lockd.config.model import MetricsTls
from lockd.http.server import AT_ONCE, Server, start
from lockd.metrics.collector import Metrics
from tests.harness.configs import a_config
from tests.harness.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on this machine")
NAME = "metrics.example"


def made(folder: Path, name: str) -> None:
    """A certificate that signs itself, as NAME.pem and NAME.key."""
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    words += ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{NAME}", "-days", "9"]
    words += ["-keyout", f"{name}.key", "-out", f"{name}.pem"]
    subprocess.run(words, cwd=folder, check=True, capture_output=True, timeout=PATIENCE_S)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("served", "next", "reader"):
        made(tmp_path, name)
    return tmp_path


Serve = Callable[..., Server]


@pytest.fixture
def failures() -> list[tuple[str, Exception]]:
    return []


@pytest.fixture
def serve(folder: Path, failures: list[tuple[str, Exception]]) -> Iterator[Serve]:
    with ExitStack() as serving:

        def served(client_ca_file: Path | None = None) -> Server:
            tls = MetricsTls(
                cert_file=folder / "served.pem", key_file=folder / "served.key", client_ca_file=client_ca_file
            )
            server = start(
                "127.0.0.1:0", Metrics(Current(a_config())), lambda: True, lambda: (True, ""),
                lambda path, error: failures.append((path, error)), names=(NAME,), tls=tls,
            )  # fmt: skip
            serving.callback(server.stop)
            return server

        yield served


def ask(server: Server, believes: Path, shows: Path | None = None) -> int:
    context = ssl.create_default_context(cafile=str(believes))
    if shows is not None:
        context.load_cert_chain(shows, shows.with_suffix(".key"))
    link = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S)
    connection = http.client.HTTPSConnection(NAME, timeout=PATIENCE_S, context=context)
    connection.sock = context.wrap_socket(link, server_hostname=NAME)
    with closing(connection):
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        answer.read()
        return answer.status


def test_metrics_are_read_over_tls(serve: Serve, folder: Path) -> None:
    assert ask(serve(), folder / "served.pem") == 200


def test_who_speaks_no_tls_reads_nothing(serve: Serve) -> None:
    with socket.create_connection(("127.0.0.1", serve().port), timeout=PATIENCE_S) as link:
        link.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        heard = b""
        try:
            while some := link.recv(65_536):
                heard += some
        except ConnectionResetError:
            pass
    assert b"lockd_" not in heard
    assert b"HTTP" not in heard


def test_a_request_in_pieces_is_answered(serve: Serve, folder: Path) -> None:
    context = ssl.create_default_context(cafile=str(folder / "served.pem"))
    link = socket.create_connection(("127.0.0.1", serve().port), timeout=PATIENCE_S)
    with context.wrap_socket(link, server_hostname=NAME) as spoken:
        for piece in (b"GET /heal", b"thz HTTP/1.1\r\n", b"Host: 127.0.0.1\r\n", b"\r\n"):
            spoken.sendall(piece)
        assert b" 200 " in spoken.recv(65_536)


def test_those_who_never_shake_hands_keep_nobody_from_it(serve: Serve, folder: Path) -> None:
    server = serve()
    with ExitStack() as stack:
        for number in range(2 * AT_ONCE):
            source = (f"127.0.0.{number % 100 + 1}", 0)
            stack.enter_context(
                socket.create_connection(
                    ("127.0.0.1", server.port), timeout=PATIENCE_S, source_address=source
                )
            )
        assert ask(server, folder / "served.pem") == 200


def test_a_renewed_certificate_is_served_without_a_restart(serve: Serve, folder: Path) -> None:
    server = serve()
    assert ask(server, folder / "served.pem") == 200
    for end in ("key", "pem"):
        (folder / f"next.{end}").replace(folder / f"served.{end}")
    assert ask(server, folder / "served.pem") == 200


def test_one_that_is_no_good_is_told_and_the_old_one_served(
    serve: Serve, folder: Path, failures: list[tuple[str, Exception]]
) -> None:
    server, before = serve(), folder / "before.pem"
    before.write_bytes((folder / "served.pem").read_bytes())
    (folder / "served.pem").write_text("no certificate\n")
    assert ask(server, before) == 200
    eventually(lambda: failures, "it is told")
    assert failures[0][0] == "of a new certificate"


def test_who_reads_has_to_show_a_certificate_where_that_is_asked_for(serve: Serve, folder: Path) -> None:
    server = serve(client_ca_file=folder / "reader.pem")
    assert ask(server, folder / "served.pem", folder / "reader.pem") == 200
    for shows in (None, folder / "next.pem"):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            ask(server, folder / "served.pem", shows)


def test_a_certificate_that_can_not_be_used_keeps_it_from_beginning(folder: Path, serve: Serve) -> None:
    (folder / "served.key").write_bytes((folder / "next.key").read_bytes())
    with pytest.raises(OSError, match=r"with TLS: "):
        serve()


def test_a_certificate_on_a_dead_disk_keeps_nobody_from_ending(serve: Serve, folder: Path) -> None:
    """A FIFO to which nobody writes stands for its file."""
    server = serve()
    (folder / "served.pem").unlink()
    os.mkfifo(folder / "served.pem")
    with socket.create_connection(("127.0.0.1", server.port)):
        reads = eventually(lambda: os.open(folder / "served.pem", os.O_WRONLY | os.O_NONBLOCK))
        server.stop()
        assert server._thread.is_alive()
        os.close(reads)
    eventually(lambda: not server._thread.is_alive(), "it ends when it can")
