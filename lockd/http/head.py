"""The head of an HTTP request, from bytes. Pure."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from email.message import Message

HEAD_BYTES = 8_192


class BadHead(Exception):
    """This is not a request that can be answered; the text says why."""


@dataclass(frozen=True)
class Head:
    """`host`: the Host header, None if an HTTP/1.0 client sent none."""

    method: str
    path: str
    query: str
    host: str | None
    headers: Message

    def header(self, name: str) -> str:
        """All values under that name; '' when there is none."""
        return ",".join(self.headers.get_all(name, ()))


def is_whole(data: bytes) -> bool:
    return b"\r\n\r\n" in data or b"\n\n" in data


def head_in(data: bytes) -> Head:
    """Parses the bytes up to the empty line; those after it are left alone."""
    line, _, rest = data.partition(b"\n")
    found = re.fullmatch(r"([A-Z]+) ([^ ?#]+)\??([^ #]*) HTTP/1\.([01])", line.decode("latin-1").rstrip("\r"))
    if found is None:
        raise BadHead("this is no HTTP/1 request")
    # By the first request: an agent's start would wait for Python's web client, and for what reads mails.
    from http.client import HTTPException, parse_headers

    try:
        headers = parse_headers(io.BytesIO(rest))
    except HTTPException as error:
        raise BadHead(f"these are no headers: {error}") from None
    hosts = headers.get_all("Host", [])
    if len(hosts) > 1 or (found[4] == "1" and not hosts):
        raise BadHead("there must be one Host header")
    return Head(found[1], found[2], found[3], hosts[0] if hosts else None, headers)
