"""TLS for the HTTP port, with a certificate that may be renewed while it is served."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path


class ServedCertificate:
    """A certificate and its key, read again when either file has changed.

    failed: called when new ones can't be used; the old ones are served then.
    """

    def __init__(
        self,
        cert_file: Path,
        key_file: Path,
        client_ca_file: Path | None,
        failed: Callable[[Exception], None],
    ) -> None:
        """Raises OSError or ssl.SSLError when they can't be used."""
        self._cert_file = cert_file
        self._key_file = key_file
        self._client_ca_file = client_ca_file
        self._failed = failed
        self._seen = self._changed_at()
        self._context = self._loaded()

    def wrap(self, link: socket.socket) -> ssl.SSLSocket:
        """A connection that was accepted. It does the handshake when it is first read, and does not wait for
        it."""
        return self._current().wrap_socket(link, server_side=True, do_handshake_on_connect=False)

    def _current(self) -> ssl.SSLContext:
        try:
            seen = self._changed_at()
            if seen != self._seen:
                self._seen = seen
                self._context = self._loaded()
        except OSError as error:  # ssl.SSLError is one
            self._failed(error)
        return self._context

    def _loaded(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self._cert_file, self._key_file)
        if self._client_ca_file is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self._client_ca_file)
        return context

    def _changed_at(self) -> tuple[tuple[int, int, int], ...]:
        files = (self._cert_file, self._key_file, self._client_ca_file)
        found = (os.stat(path) for path in files if path is not None)
        return tuple((one.st_ino, one.st_mtime_ns, one.st_size) for one in found)
