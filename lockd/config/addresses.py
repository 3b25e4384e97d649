"""Addresses as they are written in the configuration: host:port."""

from __future__ import annotations

import ipaddress
import re

HIGHEST_PORT = 65_535
ALL_ADDRESSES = ("0.0.0.0", "::")
"""A server may listen there. To a client they are its own host."""


def split_address(address: str) -> tuple[str, int]:
    """Host (an IPv6 address without its brackets) and port of `host:port`; ValueError when it isn't one.

    The port is the number that is written: it may be above HIGHEST_PORT.
    """
    found = re.fullmatch(r"(?:\[(?P<v6>[^]]+)]|(?P<name>[^:\[\]]{1,253})):(?P<port>[0-9]{1,9})", address)
    if found is None:
        raise ValueError("not host:port")
    host: str = found["v6"] or found["name"]
    if found["v6"]:
        ipaddress.IPv6Address(host)
    elif re.search(r"(^|\.)[0-9]+\.?$", host):  # it ends in a number: an IPv4 address, or a mistyped one
        ipaddress.IPv4Address(host)
    elif not re.fullmatch(r"([A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}\.?", host):
        raise ValueError("not a host name")
    return host, int(found["port"])


def endpoint(address: str) -> tuple[str, int] | None:
    """An address in a normal form, so that two spellings of it are equal; None when it isn't one."""
    try:
        host, port = split_address(address)
    except ValueError:
        return None
    return _normal(host.lower().rstrip(".")), port


def _normal(host: str) -> str:
    if ":" in host:
        v6 = ipaddress.IPv6Address(host)
        return str(v6.ipv4_mapped or v6)
    return "127.0.0.1" if host == "localhost" else host
