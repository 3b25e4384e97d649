"""Classes: who waits, for how long, and are leases lost?"""

from __future__ import annotations

from dashboards import panels as p
from dashboards.board import CLASS_VARIABLE, dashboard, link_to
from dashboards.graph import BARS, STACKED, Axis, lines
from dashboards.panels import GREEN, ORANGE, PURPLE, RED, YELLOW, ask
from dashboards.queries import (
    CONTENDED,
    LOST,
    REJECTED,
    UNAVAILABLE,
    WORDS_CONTENDED,
    WORDS_UNAVAILABLE,
    agent,
    events,
    grown_in_range,
    per_second,
    quantile,
)
from dashboards.table import Column, table

OF_CLASS = 'class=~"$class"'


def by_class(metric: str, *more: str) -> str:
    return f"sum by (class) ({agent(metric, OF_CLASS, *more)})"


def rate_by_class(metric: str, *more: str) -> str:
    return f"sum by (class) ({per_second(metric, OF_CLASS, *more)})"


OBJECTIVE = f"max by (class) ({agent('lockd_class_wait_objective_seconds', OF_CLASS)})"
P99 = quantile(0.99, "lockd_wait_seconds", "class", OF_CLASS, 'outcome="granted"')
DECIDED = f"({rate_by_class('lockd_grants_total')} + {rate_by_class('lockd_refusals_total', CONTENDED)})"
TIMED_OUT = rate_by_class("lockd_refusals_total", 'reason="timeout"')
RENEWALS_FAILED = rate_by_class("lockd_renewals_total", 'outcome="failed"')
GAVE_UP_SHARE = f"{rate_by_class('lockd_refusals_total', CONTENDED)} / {DECIDED}"


SUMMARY = table(
    "Classes",
    "One row per class, sorted by the longest wait relative to the objective. Orange: ten times the"
    " objective. Red: leases were lost in the selected time range.",
    Column("class", link=("Only this class", link_to("lockd-classes", "class", "${__data.fields.class}"))),
    [
        Column("waiting", by_class("lockd_waiters")),
        Column(
            "longest wait",
            f"max by (class) ({agent('lockd_oldest_waiter_seconds', OF_CLASS)})",
            unit="s",
        ),
        Column(
            "÷ objective",
            f"max by (class) ({agent('lockd_oldest_waiter_seconds', OF_CLASS)}) / {OBJECTIVE}",
            unit="none",
            decimals=1,
            thresholds=p.steps((None, "transparent"), (1, YELLOW), (10, ORANGE)),
        ),
        Column("objective", OBJECTIVE, unit="s"),
        Column("p99 wait", P99, unit="s"),
        Column("held", by_class("lockd_leases")),
        Column("grants", rate_by_class("lockd_grants_total"), unit="reqps"),
        Column(
            "gave up", GAVE_UP_SHARE, unit="percentunit", decimals=1,
            thresholds=p.steps((None, "transparent"), (0.5, YELLOW)),
        ),
        Column("p99 hold", quantile(0.99, "lockd_hold_seconds", "class", OF_CLASS), unit="s"),
        Column(
            "lost",
            f"round(sum by (class) ({grown_in_range('lockd_losses_total', OF_CLASS, LOST)}))",
            decimals=0,
            thresholds=p.steps((None, "transparent"), (1, RED)),
        ),
    ],
    sort="÷ objective",
)  # fmt: skip
WAITING = lines(
    "Waiting LOCKs",
    "LOCKs that wait for an answer. A steady number is a queue that is served as fast as it grows. A"
    " rising number is a queue that is not.",
    [ask(by_class("lockd_waiters"), "{{class}}")],
    axis=Axis("none", decimals=0),
)
OLDEST = lines(
    "Longest wait / objective",
    "The longest wait of any LOCK, divided by the wait objective of its class. Above 10 it is probably"
    " stuck; `lockctl holder RESOURCE` shows who holds the lock.",
    [
        ask(
            f"max by (class) ({agent('lockd_oldest_waiter_seconds', OF_CLASS)}) / {OBJECTIVE}",
            "{{class}}",
        )
    ],
    axis=Axis("none", seen=12),
    thresholds=p.steps((None, "transparent"), (10, ORANGE)),
)
WAIT_P99 = lines(
    "Wait time until grant, p99",
    "99 of 100 granted LOCKs waited no longer than this. With few grants it jumps between the"
    " histogram's buckets.",
    [ask(P99, "{{class}}")],
    axis=Axis("s", log=True),
)
WAIT_P50 = lines(
    "Wait time until grant, median",
    "Half of the granted LOCKs waited no longer than this. Without contention it is one round trip to"
    " the masters, including their fsync.",
    [ask(quantile(0.5, "lockd_wait_seconds", "class", OF_CLASS, 'outcome="granted"'), "{{class}}")],
    axis=Axis("s", log=True),
)
SLOW = lines(
    "Share of slow waits",
    "Waits that ended with a grant or TIMEOUT and took longer than the objective of their class. The"
    " objective is below 1 % over 30 days. At the orange line, 14.4 %, the budget burns fast enough for"
    " an alert.",
    [
        ask(
            f"clamp_max({rate_by_class('lockd_slow_waits_total')} / ({rate_by_class('lockd_grants_total')}"
            f" + {TIMED_OUT}), 1)",
            "{{class}}",
        )
    ],
    axis=Axis("percentunit", seen=0.2),
    thresholds=p.steps((None, "transparent"), (0.144, ORANGE)),
)
GAVE_UP = lines(
    f"Share of LOCKs refused as {WORDS_CONTENDED}",
    "LOCKs that gave up because another app held the lock. A high share means that many apps want the"
    " same resource, not that lockd has a problem. LOCKs that waited and were granted are not included.",
    [ask(GAVE_UP_SHARE, "{{class}}")],
    axis=Axis("percentunit", most=1),
)
HOLDS = lines(
    "Hold time, p99",
    "Time from the grant of a lease to its end. When waits grow, longer hold times are often the cause.",
    [ask(quantile(0.99, "lockd_hold_seconds", "class", OF_CLASS), "{{class}}")],
    axis=Axis("s", log=True),
)
GRANTS = lines(
    "Grants per second",
    "Leases granted per second.",
    [ask(rate_by_class("lockd_grants_total"), "{{class}}")],
    axis=Axis("reqps"),
)
LEASE_REFUSALS = lines(
    "Refused EXTENDs and UNLOCKs per second",
    "expired: apps still used a lease after its end and may have worked without the lock. notheld: the"
    f" lease ended long ago, or the token is wrong. {WORDS_UNAVAILABLE.lower()}: too few masters"
    " confirmed the request.",
    [
        ask(
            f"sum by (class, reason) ({per_second('lockd_lease_refusals_total', OF_CLASS)}) > 0",
            "{{class}} {{reason}}",
        )
    ],
    axis=Axis("reqps"),
    silence="none refused",
)
REFUSALS = lines(
    "Other LOCK refusals per second",
    f"{WORDS_UNAVAILABLE.lower()}: an outage. All others are caused by the request.",
    [
        ask(
            f"sum by (class, reason) ({per_second('lockd_refusals_total', OF_CLASS, which)}) > 0",
            "{{class}} {{reason}}",
        )
        for which in (UNAVAILABLE, REJECTED)
    ],
    axis=Axis("reqps"),
    silence="none refused",
)
HELD = lines(
    "Held leases",
    "Leases that were granted and have not ended.",
    [ask(by_class("lockd_leases"), "{{class}}")],
    axis=Axis("none", decimals=0),
)
HAND_OFFS = lines(
    "Share of grants passed on within a host",
    "Grants that reused the tenure of the lease before, mostly without a round trip: the next waiting"
    " app on the same host got it, or the host had kept it.",
    [
        ask(
            f"{rate_by_class('lockd_hand_offs_total')} / ({rate_by_class('lockd_grants_total')} > 0)",
            "{{class}}",
        )
    ],
    axis=Axis("percentunit", most=1),
)
TURNS = lines(
    "Recalls of locks in use per second",
    "How often a host was asked to give back a lock that is in use there, because another host waits for it."
    " Of all classes.",
    [ask(f"sum({per_second('lockd_turn_seconds_count')})", "recalls")],
    axis=Axis("ops"),
    silence="no recalls",
)
RECALLS = lines(
    "Time from recall to release, p99",
    "How long a host keeps using a lock after another host asked for it: turn_ms and the rest of the"
    " lease that is held then. If it is much longer, apps hold the lock for a long time. Of all classes.",
    [ask(quantile(0.99, "lockd_turn_seconds", "cluster"), "{{cluster}}")],
    axis=Axis("s"),
    silence="no recalls",
)
KEPT = lines(
    "Kept tenures without holder",
    "Tenures that a host keeps although no app holds the lock, in classes with keep_ms. If that agent"
    " dies or is cut off, no other host gets these locks before their TTL ends.",
    [ask(by_class("lockd_kept_tenures"), "{{class}}")],
    axis=Axis("none", decimals=0),
)
KEPT_ENDS = lines(
    "Kept tenures ended per second, by outcome",
    "locked: used again on the same host, which is the purpose of keep_ms. time: not used again;"
    " keep_ms is too long or not needed. recalled: another host asked for it. given_back: another"
    " reason, such as a DETACHED lease, a clock change, or a stopped or reconfigured agent. Of all classes.",
    [ask(f"sum by (outcome) ({per_second('lockd_kept_seconds_count')})", "{{outcome}}")],
    axis=Axis("ops"),
    drawn=STACKED,
    silence="no kept tenures",
    colors={"locked": GREEN, "time": ORANGE, "recalled": p.BLUE, "given_back": YELLOW},
)
ASKED_BACK = lines(
    "Recalls by LOCKs without WAIT per second",
    "LOCKs without WAIT that met a tenure of another host, in classes with keep_ms, by outcome. silent:"
    " the agent of that host did not answer; it may be dead or cut off, and the lock stays unavailable"
    " until its TTL ends. Of all classes.",
    [ask(f"sum by (outcome) ({per_second('lockd_recall_seconds_count')})", "{{outcome}}")],
    axis=Axis("ops"),
    drawn=STACKED,
    silence="no kept tenures",
    colors={"given_back": GREEN, "in_use": p.BLUE, "silent": RED},
)
MARGIN = lines(
    "Validity left at release, p1",
    "How close to the deadline apps release their leases: 99 of 100 left more time than this. Near 0"
    " some releases come too late; use a longer TTL or shorter work.",
    [ask(quantile(0.01, "lockd_release_margin_seconds", "class", OF_CLASS), "{{class}}")],
    axis=Axis("s"),
)
RENEWALS = lines(
    "Share of renewals failed",
    "Renewals that no quorum confirmed. Above 1 % leases may soon be lost.",
    [
        ask(
            f"{RENEWALS_FAILED} / ({rate_by_class('lockd_renewals_total')} > 0)",
            "{{class}}",
        )
    ],
    axis=Axis("percentunit", seen=0.02),
    silence="no renewals",
    thresholds=p.steps((None, "transparent"), (0.01, RED)),
)
MEANT = ("forced", "max_hold", "cut_off")
LOSSES = lines(
    "Lost leases by reason",
    "not_renewed: no quorum confirmed the renewal in time. gone: the masters no longer had it. clocks:"
    " the host stood still, or clocks were changed. forced, max_hold and cut_off (a limit closed the"
    " app's connection) are intended.",
    [ask(f"sum by (reason) ({events('lockd_losses_total', OF_CLASS)})", "{{reason}}")],
    axis=Axis("none", seen=1),
    drawn=BARS,
    colors={"not_renewed": RED, "gone": "dark-red", "clocks": ORANGE, **dict.fromkeys(MEANT, p.BLUE)},
)
RELEASES = lines(
    "Ended leases per second, by reason",
    "released: by the app. app_gone: the app closed its connection or died. expired: its TTL ended."
    " forced: by an operator. Of all classes.",
    [ask(f"sum by (reason) ({per_second('lockd_releases_total')})", "{{reason}}")],
    axis=Axis("ops"),
    drawn=STACKED,
    colors={
        "released": GREEN,
        "released_elsewhere": p.CALM[4],
        "app_gone": p.BLUE,
        "expired": ORANGE,
        "forced": PURPLE,
    },
)

BOARD = dashboard(
    "lockd-classes",
    "lockd / Classes",
    "Who waits, for how long, and are leases lost?",
    [
        (8, [(24, SUMMARY)]),
        (8, [(12, WAITING), (12, OLDEST)]),
        (7, [(8, WAIT_P50), (8, WAIT_P99), (8, SLOW)]),
        (7, [(8, GAVE_UP), (8, HOLDS), (8, GRANTS)]),
        (7, [(8, HELD), (8, MARGIN), (8, RENEWALS)]),
        (7, [(8, HAND_OFFS), (8, TURNS), (8, RECALLS)]),
        (7, [(8, KEPT), (8, KEPT_ENDS), (8, ASKED_BACK)]),
        (7, [(6, LOSSES), (6, REFUSALS), (6, LEASE_REFUSALS), (6, RELEASES)]),
    ],
    also=[CLASS_VARIABLE],
)
