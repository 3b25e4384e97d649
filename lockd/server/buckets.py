"""How often something may happen for each account: one bucket for each. Only root makes accounts, so there
are few."""

_MANY = 64


class Buckets:
    """One bucket for each account: `burst` at once, then one every `interval_ns`. Those that are full again
    are forgotten now and then, since a new one is the same."""

    def __init__(self, burst: int, interval_ns: int) -> None:
        self._room_ns = (burst - 1) * interval_ns
        self._interval_ns = interval_ns
        self._full_ns: dict[str, int] = {}
        """When each would be full again if nothing more happened."""
        self._many = _MANY

    def __len__(self) -> int:
        return len(self._full_ns)

    def admits(self, account: str, now_ns: int) -> bool:
        """Whether it may happen once more for this account; if so, it has."""
        full_ns = max(self._full_ns.get(account, 0), now_ns)
        if full_ns - now_ns > self._room_ns:
            return False
        self._full_ns[account] = full_ns + self._interval_ns
        if len(self._full_ns) > self._many:
            self._full_ns = {one: full_ns for one, full_ns in self._full_ns.items() if full_ns > now_ns}
            self._many = max(_MANY, 2 * len(self._full_ns))
        return True
