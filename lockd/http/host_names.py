"""The names under which the HTTP port answers. A web page must not be able to make a browser read what is
here.

Such a page may have its own name resolve to 127.0.0.1, or to an agent's address (DNS rebinding), and the
browser then lets the page's scripts read the answers. The request carries that name in its Host header, so a
name that is not ours is not answered. An address can't be another's name, so addresses always are.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from contextlib import suppress
from threading import Thread

from lockd.config.addresses import split_address


class HostNames:
    """localhost, this host's names, that of the address it listens on, and those that are configured."""

    def __init__(self, address: str, more: Iterable[str] = ()) -> None:
        own = (socket.gethostname(), split_address(address)[0])
        self._names = frozenset(map(_plain, ("localhost", *own, *more)))

    def learn_full_name(self) -> None:
        """Look up what `hostname --fqdn` says. A broken DNS may be slow, so nobody waits for it."""
        Thread(target=self._look_up, name="full host name", daemon=True).start()

    def _look_up(self) -> None:
        with suppress(OSError, UnicodeError):
            found = socket.getaddrinfo(socket.gethostname(), None, flags=socket.AI_CANONNAME)
            self._names |= {_plain(canonical) for _, _, _, canonical, _ in found if canonical}

    def __contains__(self, host: object) -> bool:
        """Whether a Host header names this host; the port may be a proxy's, and is ignored."""
        found = re.fullmatch(r"(\[[^]]*\]|[^:]*)(:[0-9]*)?", str(host).strip())
        if found is None:
            return False
        name = _plain(found[1])
        return name in self._names or _is_address(name)


def _plain(name: str) -> str:
    return name.strip("[]").rstrip(".").lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True
