"""The agent itself: its apps, its limits, its failures, and how late its event loop is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from lockd.config.model import Limits
from lockd.core.stakes import STOCKS
from lockd.core.takeover import Taken
from lockd.core.validity import NS_PER_S
from lockd.metrics.counts import Tally
from lockd.metrics.families import Measured, counted, gauge

_OF_STOCKS = ("share_percent", "memory_mib", "files", "renewals_per_second")
"""Keys of `limits` that say how much there is to share: nothing is refused by their names."""


class AgentMetrics(Measured):
    """count_connections, limits_in_use, socket_trouble, journal_trouble: called from the thread of the
    scrape. limits_in_use: by limit, how much is used and the maximum. socket_trouble and journal_trouble: why
    no app gets in, and why nothing is noted; '' if all is well."""

    def __init__(self) -> None:
        super().__init__()
        self.count_connections: Callable[[], int] = lambda: 0
        self.limits_in_use: Callable[[], Mapping[str, tuple[int, int]]] = dict
        self.socket_trouble: Callable[[], str] = lambda: "not made yet"
        self.journal_trouble: Callable[[], str] = lambda: "not begun yet"
        self._lag = LoopLag()

    @gauge("Connections of apps.")
    def connections(self) -> int:
        return self.count_connections()

    @gauge(
        "How much is used of what all apps share: bytes of memory, as counted; files, which are connections "
        "and processes; renewals that are promised, a second.",
        by="limit",
    )
    def limit_used(self) -> dict[str, int]:
        return {limit: used for limit, (used, _) in self.limits_in_use().items()}

    @gauge(
        "How much there is of what all apps share: by the configuration, or by the agent's unit.",
        by="limit",
    )
    def limit_max(self) -> dict[str, int]:
        return {limit: most for limit, (_, most) in self.limits_in_use().items()}

    @gauge("Whether new apps find the agent at its socket: 1 or 0.")
    def app_socket_ok(self) -> int:
        return int(not self.socket_trouble())

    @gauge("Whether leases are noted for the next agent on this host: 1 or 0.")
    def journal_ok(self) -> int:
        return int(not self.journal_trouble())

    journal_failures = counted("How often the journal could not be written.", int)
    inherited = counted(
        "Leases found in the journal of the previous agent: taken over (goes_on); kept until they end, or "
        "longer if their app names them, because it is not known whether their app has read of them "
        "(untold); freed, because their process was dead (freed); left to their deadline (left); or over "
        "already (over).",
        partial(Tally, Taken),
        by="outcome",
    )
    limit_refusals = counted(
        "Requests and connections that were refused because of a limit: of bytes, files or renewals their "
        "account has its share; others by their names in the configuration; scripts: new scripts of apps.",
        partial(Tally, (*STOCKS, *(key for key in Limits.keys if key not in _OF_STOCKS), "scripts")),
        by="limit",
    )
    fence_rounds = counted("Second rounds over the masters to agree on a fence.", int)
    forced_releases = counted("Releases forced by an operator.", int)
    protocol_errors = counted("Requests that were not RESP.", int)
    internal_errors = counted("Failures of the agent itself; its log says which.", int)

    def loop_lag(self, lag_ns: int, now_ns: int) -> None:
        """How late the event loop ran something that was due."""
        self._lag.observe(lag_ns, now_ns)

    @gauge("How late the event loop was when it was last measured.")
    def event_loop_lag_seconds(self) -> float:
        return self._lag.last_ns / 1e9

    @gauge("The largest lag of the event loop in the last 30 to 60 seconds.")
    def event_loop_lag_max_seconds(self) -> float:
        return self._lag.most_ns / 1e9


class LoopLag:
    """How late the event loop was. The maximum is kept for a time, not from scrape to scrape: two scrapers
    would hide it from each other."""

    _WINDOW_NS = 30 * NS_PER_S

    def __init__(self) -> None:
        self.last_ns = 0
        self._most_ns = 0
        self._most_before_ns = 0
        self._turn_ns = 0

    def observe(self, lag_ns: int, now_ns: int) -> None:
        self.last_ns = lag_ns
        if now_ns >= self._turn_ns:
            self._turn_ns = now_ns + self._WINDOW_NS
            self._most_before_ns, self._most_ns = self._most_ns, 0
        if lag_ns > self._most_ns:
            self._most_ns = lag_ns

    @property
    def most_ns(self) -> int:
        """The maximum of the last 30 to 60 seconds."""
        return max(self._most_ns, self._most_before_ns)
