"""Half an hour of a fleet of any number of hosts, made by a program: what dashboards ask for, and no more.

Most of it is well. m2 was in quarantine for a while; one host is silent, one has lost its path to three
masters, one is far from m3 and can't write its journal, one runs an older agent with another configuration
that it could not reload; three leases were lost at once; the class `reports` is a hot one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from lockd.metrics.counts import WAIT_S
from lockd.metrics.leases import HOLD_S, MARGIN_S, TURN_S
from lockd.metrics.masters import round_trip_bounds_s
from tests.harness.made_up import Samples, series

SCRAPE_S = 60
MINUTES = 30
MASTERS = ("m1", "m2", "m3", "m4", "m5")
CLASSES = {"billing": 2.0, "jobs": 0.5, "reports": 0.2, "other": 0.1}
"""Grants a second on each host."""
MIB = 1 << 20
KEEPS = "jobs"
"""The class with keep_ms."""
KEPT_ENDS = {"locked": 0.4, "time": 0.1, "recalled": 0.05, "given_back": 0.01}
RELEASES = {"released": 0.95, "app_gone": 0.03, "expired": 0.01, "released_elsewhere": 0.01, "forced": 0}
"""Of all grants: how they end."""
LIMITS = {"bytes": (1_280 * MIB, 210_000), "files": (65_440, 35), "renewals": (3_200, 4)}
"""How much may be used of each, and how much a usual host uses."""

Value = Callable[[float], float]
"""Of a series, by the seconds that are left until the end; less than 0 has been."""


@dataclass(frozen=True)
class Fleet:
    """`hosts`, at the end of the half hour that ends at `now_s`."""

    hosts: int
    now_s: int

    def __iter__(self) -> Iterator[tuple[str, Samples]]:
        for number in range(1, self.hosts + 1):
            yield from self._agent(number)
        for master in MASTERS:
            yield from self._master(master)
        yield from self._recorded()

    def _series(
        self,
        name: str,
        labels: dict[str, str],
        value: Value | float,
        *,
        from_s: float = -math.inf,
        to_s: float = 0,
    ) -> tuple[str, Samples]:
        """from_s, to_s: in seconds before the end, when there was a sample."""
        of = value if callable(value) else lambda _: value
        times = range(-60 * MINUTES, 1, SCRAPE_S)
        samples = [(self.now_s + t, of(t)) for t in times if from_s <= t <= to_s]
        return series(name, {"cluster": "shop", **labels}), samples

    def _agent(self, number: int) -> Iterator[tuple[str, Samples]]:
        chance = random.Random(number)
        labels = {
            "job": "lockd", "instance": f"web{number}:9480", "site": ("north", "south")[number % 2],
        }  # fmt: skip
        silent_from_s = -600 if number == 3 else 0
        cut_off = number == 4
        busy = math.exp(chance.gauss(0, 0.5))
        phase = chance.random()

        def one(name: str, value: Value | float, /, **more: str) -> tuple[str, Samples]:
            return self._series(name, labels | more, value, to_s=silent_from_s)

        def counter(name: str, per_second: float, /, **more: str) -> tuple[str, Samples]:
            return one(name, lambda t: int(per_second * (t + 60 * MINUTES + 3_600) + phase), **more)

        def histogram(
            name: str,
            per_second: float,
            typical: float,
            bounds: tuple[float, ...],
            wide: float = 0.5,
            **more: str,
        ) -> Iterator[tuple[str, Samples]]:
            for bound in (*bounds, math.inf):
                share = _below(bound, typical, wide)
                le = "+Inf" if bound == math.inf else f"{bound:g}"
                yield counter(f"{name}_bucket", per_second * share, le=le, **more)
            yield counter(f"{name}_count", per_second, **more)
            yield one(f"{name}_sum", lambda t: per_second * typical * (t + 60 * MINUTES + 3_600), **more)

        def voting(t: float) -> int:
            return (2 if cut_off and t > -360 else 5) - _quarantined("m2", t)

        yield self._series("up", labels, lambda t: float(t <= silent_from_s))
        for name, value in self._gauges(chance, busy).items():
            yield one(name, value)
        yield one("lockd_masters_voting", voting)
        yield one("lockd_app_socket_ok", 1)
        yield one("lockd_journal_ok", float(number != 5))
        yield one("lockd_config_last_reload_successful", float(number != 2))
        yield one("lockd_canary_failures", lambda t: float(cut_off and t > -360) * 9)
        yield one(
            "lockd_canary_last_success_timestamp_seconds",
            lambda t: self.now_s + (-360 if cut_off and t > -360 else t - 4),
        )
        yield one("lockd_build_info", 1, version="0.1.0" if number == 2 else "0.2.0", build="compiled")
        fingerprint = "5be1c70a" if number == 2 else "9f3c2a61"
        yield one("lockd_config_info", 1, fingerprint=fingerprint, name="shop")
        for limit, (most, used) in LIMITS.items():
            yield one("lockd_limit_max", most, limit=limit)
            yield one("lockd_limit_used", round(min(used * busy, 0.97 * most)), limit=limit)
        for masters, leases in (("5", 12 * busy), ("4", 1.0)):
            yield one("lockd_leases_on_masters", round(leases), masters=masters)
        yield from histogram("lockd_canary_seconds", 0.1, 0.004, WAIT_S, outcome="granted")
        failed = lambda t: max(0, (t + 360) // 10) if cut_off else 0  # noqa: E731
        yield one("lockd_canary_seconds_count", failed, outcome="unavailable")
        for name in (
            "lockd_internal_errors",
            "lockd_protocol_errors",
            "lockd_forced_releases",
            "lockd_fence_rounds",
        ):
            yield counter(f"{name}_total", 0.01 if name == "lockd_fence_rounds" else 0)
        yield counter("lockd_limit_refusals_total", 0, limit="bytes")
        yield counter("process_cpu_seconds_total", 0.03 * busy)
        for master in MASTERS:
            yield from self._seen_by(number, master, one, counter, histogram)
        yield from self._together(counter, histogram, busy)
        for cls, rate in CLASSES.items():
            yield from self._class(number, cls, rate * busy, one, counter, histogram)

    def _gauges(self, chance: random.Random, busy: float) -> dict[str, float]:
        lag = 0.002 * math.exp(chance.gauss(0, 0.8))
        return {
            "lockd_masters": 5, "lockd_quorum": 3, "lockd_draining": 0, "lockd_draining_seconds": 0,
            "lockd_canary_interval_seconds": 10,
            "lockd_master_timeout_seconds": 1, "lockd_clock_skew_allowance_seconds": 0.5,
            "lockd_connections": round(20 * busy), "lockd_event_loop_lag_max_seconds": lag,
            "process_resident_memory_bytes": 40 * MIB * (1 + busy / 4),
            "process_start_time_seconds": self.now_s - 86_400 * chance.randint(1, 40),
            "lockd_clock_slew_ppm": round(chance.gauss(0, 20)),
        }  # fmt: skip

    def _seen_by(
        self, number: int, master: str, one: Any, counter: Any, histogram: Any
    ) -> Iterator[tuple[str, Samples]]:
        """A master, as an agent sees it."""
        cut_off = number == 4 and master in ("m1", "m2", "m3")
        far = 0.08 if number == 5 and master == "m3" else 0.0012 if master != "m4" else 0.0025

        def state(name: str) -> Value:
            return lambda t: float(_state(master, cut_off, t) == name)

        for name in ("up", "down", "connecting"):
            yield one("lockd_master_state", state(name), master=master, state=name)
        yield one("lockd_master_vote", state("up"), master=master)
        for name, value in (
            ("clock_trusted", 1), ("clock_offset_seconds", 0.001 * (int(master[1]) - 3)),
            ("memory_used_bytes", 9 * MIB),
            ("memory_max_bytes", 512 * MIB), ("aof_rewrite_ok", float(master != "m5")),
            ("certificate_expiry_timestamp_seconds", self.now_s + 86_400 * (5 if master == "m1" else 60)),
        ):  # fmt: skip
            yield one(f"lockd_master_{name}", value, master=master)
        yield one("lockd_master_info", 1, master=master, address=f"10.0.0.{master[1]}:6379", version="7.0.15")
        yield counter("lockd_master_votes_not_counted_total", 0.002, master=master, reason="late")
        yield counter("lockd_master_connects_total", 0, master=master)
        yield counter("lockd_master_nonsense_total", 0, master=master)
        yield counter("lockd_master_counters_fallen_total", 0, master=master)
        yield counter("lockd_master_clock_jumps_total", 0, master=master)
        for question, typical in (("vote", far), ("probe", far / 3)):
            yield from histogram(
                "lockd_master_round_trip_seconds",
                1.5,
                typical,
                round_trip_bounds_s(1_000)[question],
                master=master,
                question=question,
            )

    def _together(self, counter: Any, histogram: Any, busy: float) -> Iterator[tuple[str, Samples]]:
        """What is told of all classes together."""
        rate, kept = busy * sum(CLASSES.values()), busy * CLASSES[KEEPS]
        for outcome, share in KEPT_ENDS.items():
            yield counter("lockd_kept_seconds_count", kept * share, outcome=outcome)
        for outcome, share in (("given_back", 0.1), ("in_use", 0.02), ("silent", 0)):
            yield counter("lockd_recall_seconds_count", kept * share, outcome=outcome)
        yield from histogram("lockd_turn_seconds", rate * 0.05, 0.03, TURN_S, 1)
        for reason, share in RELEASES.items():
            yield counter("lockd_releases_total", rate * share, reason=reason)

    def _class(
        self, number: int, cls: str, rate: float, one: Any, counter: Any, histogram: Any
    ) -> Iterator[tuple[str, Samples]]:
        hot = cls == "reports"
        of = {"class": cls}
        waiters = (lambda t: float(max(0, 4 + t / 300))) if hot and number % 3 == 2 else 0
        yield one("lockd_waiters", waiters, **of)
        yield one("lockd_oldest_waiter_seconds", 6 if hot and number % 3 == 2 else 0, **of)
        yield one("lockd_leases", round(3 * rate), **of)
        yield one("lockd_kept_tenures", 6 if cls == KEEPS else 0, **of)
        late = 0.01 if cls == "billing" and number == 4 else 0
        yield counter("lockd_lease_refusals_total", late, reason="expired", **of)
        yield one("lockd_class_wait_objective_seconds", 1, **of)
        yield one("lockd_class_info", 1, page_on_loss="true", **of)
        lost = 3 if cls == "billing" and number == 4 else 0
        yield one("lockd_losses_total", lambda t: float(t >= -240) * lost, reason="not_renewed", **of)
        yield counter("lockd_grants_total", rate, **of)
        yield counter("lockd_slow_waits_total", rate * (0.3 if hot else 0.0005), **of)
        yield counter("lockd_hand_offs_total", rate * 0.6, **of)
        for reason, share in (
            ("taken", 0.2),
            ("timeout", 0.1 if hot else 0),
            ("denied", 0.001),
        ):
            yield counter("lockd_refusals_total", rate * share, reason=reason, **of)
        refused = (lambda t: max(0.0, round(rate * (t + 360)))) if number == 4 else 0
        yield one("lockd_refusals_total", refused, reason="noquorum", **of)
        for outcome, share in (("worked", 0.3), ("failed", 0)):
            yield counter("lockd_renewals_total", rate * share, outcome=outcome, **of)
        yield from histogram(
            "lockd_wait_seconds", rate, 0.9 if hot else 0.004, WAIT_S, 1, outcome="granted", **of
        )
        yield from histogram("lockd_hold_seconds", rate, 0.8 if hot else 0.06, HOLD_S, 1, **of)
        yield from histogram("lockd_release_margin_seconds", rate, 4, MARGIN_S, **of)

    def _master(self, master: str) -> Iterator[tuple[str, Samples]]:
        labels = {"job": "lockd-masters", "instance": f"{master}:9100", "master": master}
        until = self.now_s - 660
        for name, value in (
            ("up", 1), ("lockd_guard_delay_seconds", 61), ("node_timex_sync_status", float(master != "m4")),
            ("node_timex_offset_seconds", 0.0004 * (int(master[1]) - 2)),
        ):  # fmt: skip
            yield self._series(name, labels, value)
        yield self._series("lockd_guard_quarantined", labels, lambda t: float(_quarantined(master, t)))
        waits = lambda t: until * float(_quarantined(master, t))  # noqa: E731
        yield self._series("lockd_guard_quarantine_until_timestamp_seconds", labels, waits)
        began = lambda t: float(master == "m2" and t >= -900)  # noqa: E731
        yield self._series("lockd_guard_quarantines_total", labels | {"reason": "unclean_stop"}, began)
        yield self._series("lockd_guard_clock_steps_total", labels | {"direction": "forward"}, 0)
        disk = labels | {"mountpoint": "/var"}
        yield self._series("node_filesystem_size_bytes", disk, 40e9)
        yield self._series("node_filesystem_avail_bytes", disk, 1.5e9 if master == "m5" else 31e9)

    def _recorded(self) -> Iterator[tuple[str, Samples]]:
        yield self._series("cluster:lockd_answers:rate5m", {}, 3.0 * self.hosts)
        yield self._series("cluster:lockd_unavailable:rate5m", {}, 0.0011 * self.hosts)
        for window, share in (("1h", 0.0005), ("6h", 0.0004), ("3d", 0.00036)):
            # The apps of the one host that is cut off ask more often than its canary.
            for of, more in (("", 1), ("_without_canary", 1.2)):
                yield self._series(f"cluster:lockd_unavailable{of}:ratio_rate{window}", {}, more * share)
        firing = {"alertstate": "firing"}
        for name, severity, more in (
            ("LockdDown", "warning", {"instance": "web3:9480"}),
            ("LockdQuorumLost", "critical", {"instance": "web4:9480"}),
            ("LockdReloadFailed", "warning", {"instance": "web2:9480"}),
            ("LockdJournalNotKept", "warning", {"instance": "web5:9480"}),
            ("LockdMasterDiskFull", "warning", {"master": "m5"}),
        ):
            alert = firing | {"alertname": name, "severity": severity} | more
            yield self._series("ALERTS", alert, 1, from_s=-300)
        if self.hosts > 50:
            for number in range(10, 40):
                slow = {
                    "alertname": "LockdLoopLag",
                    "severity": "warning",
                    "instance": f"web{number}:9480",
                }
                yield self._series("ALERTS", {"alertstate": "pending"} | slow, 1, from_s=-60)


def _state(master: str, cut_off: bool, t: float) -> str:
    return "down" if _quarantined(master, t) or (cut_off and t > -360) else "up"


def _quarantined(master: str, t: float) -> bool:
    return master == "m2" and -900 <= t < -660


def _below(bound: float, typical: float, wide: float) -> float:
    """Of a log-normal distribution: what share is no more than that."""
    if bound == math.inf:
        return 1
    return 0.5 * (1 + math.erf(math.log(max(bound, 1e-9) / typical) / (wide * math.sqrt(2))))
