"""Which apps lock with Redis's own commands, for operators that move apps from one Redis to lockd: how often,
and with which library (by its CLIENT SETINFO)."""

from collections import Counter

_LIBRARIES_MOST = 100
UNNAMED = "unnamed"


class Usage:
    """The uses of one agent since it started. A library that keeps giving itself new names counts as
    unnamed."""

    def __init__(self) -> None:
        self._requests: Counter[bytes] = Counter()

    def asked(self, library: bytes) -> None:
        if library not in self._requests and len(self._requests) >= _LIBRARIES_MOST:
            library = b""
        self._requests[library] += 1

    @property
    def requests(self) -> dict[str, int]:
        """By the names of the libraries."""
        return {name.decode(errors="replace") or UNNAMED: count for name, count in self._requests.items()}
