"""Classes: who waits, for how long, and does anybody lose what he holds?"""

from __future__ import annotations

from dashboards import panels as p
from dashboards.board import CLASS_VARIABLE, dashboard, link_to
from dashboards.graph import BARS, STACKED, Axis, lines
from dashboards.panels import GREEN, ORANGE, RED, YELLOW, ask
from dashboards.queries import (
    CONTENDED,
    LOST,
    REJECTED,
    UNAVAILABLE,
    WORDS_CONTENDED,
    WORDS_UNAVAILABLE,
    agent,
    grown,
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
    "One row for each class, the one that waits longest on top. Red: an objective is missed by ten times, or"
    " leases were lost in the time that is shown.",
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
            unit="suffix:×",
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
    "Waiting",
    "LOCKs that wait for an answer. A plateau is a queue that is served as fast as it grows; a ramp is not.",
    [ask(by_class("lockd_waiters"), "{{class}}")],
    axis=Axis("none", decimals=0),
)
OLDEST = lines(
    "Longest wait, in objectives of the class",
    "The LOCK that has waited longest, divided by its class's objective. Above 10 it is likely stuck:"
    " `lockctl holder RESOURCE` says behind whom.",
    [
        ask(
            f"max by (class) ({agent('lockd_oldest_waiter_seconds', OF_CLASS)}) / {OBJECTIVE}",
            "{{class}}",
        )
    ],
    axis=Axis("suffix:×", seen=12),
    thresholds=p.steps((None, "transparent"), (10, ORANGE)),
)
WAIT_P99 = lines(
    "Wait until granted, p99",
    "99 of 100 granted LOCKs took no longer. With few grants it jumps from bucket to bucket.",
    [ask(P99, "{{class}}")],
    axis=Axis("s", log=True),
)
WAIT_P50 = lines(
    "Wait until granted, median",
    "Half of the granted LOCKs took no longer. Without contention: one round trip to the masters, fsync"
    " included.",
    [ask(quantile(0.5, "lockd_wait_seconds", "class", OF_CLASS, 'outcome="granted"'), "{{class}}")],
    axis=Axis("s", log=True),
)
SLOW = lines(
    "Slow waits",
    "The share of waits, ended by a grant or by TIMEOUT, that were longer than their class's objective. The"
    " objective is below 1 % over a month; at 14.4 % the budget burns fast enough for an alert.",
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
    f"Gave up ({WORDS_CONTENDED})",
    "The share of answers that came too early for the resource to be free. High is no fault of lockd: one"
    " resource is wanted by many. Waits that end with a grant are not in it, see Waiting.",
    [ask(GAVE_UP_SHARE, "{{class}}")],
    axis=Axis("percentunit", most=1),
)
HOLDS = lines(
    "Held for, p99",
    "From grant to end. When waits grow, holds have usually grown before.",
    [ask(quantile(0.99, "lockd_hold_seconds", "class", OF_CLASS), "{{class}}")],
    axis=Axis("s", log=True),
)
GRANTS = lines(
    "Grants",
    "Leases granted per second.",
    [ask(rate_by_class("lockd_grants_total"), "{{class}}")],
    axis=Axis("reqps"),
)
LEASE_REFUSALS = lines(
    "EXTENDs and UNLOCKs refused",
    "expired: apps go on with leases that are over, they may be acting on nothing. notheld: the lease ended"
    f" long ago, or the token is another's. {WORDS_UNAVAILABLE.lower()}: too few masters confirmed it.",
    [
        ask(
            f"sum by (class, command, reason) ({per_second('lockd_lease_refusals_total', OF_CLASS)}) > 0",
            "{{class}} {{command}} {{reason}}",
        )
    ],
    axis=Axis("reqps"),
    silence="none",
)
REFUSALS = lines(
    "LOCKs refused for other reasons",
    f"{WORDS_UNAVAILABLE.lower()}: an outage. The others are for what was asked.",
    [
        ask(
            f"sum by (class, reason) ({per_second('lockd_refusals_total', OF_CLASS, which)}) > 0",
            "{{class}} {{reason}}",
        )
        for which in (UNAVAILABLE, REJECTED)
    ],
    axis=Axis("reqps"),
    silence="none",
)
HELD = lines(
    "Held",
    "Leases granted and not over yet.",
    [ask(by_class("lockd_leases"), "{{class}}")],
    axis=Axis("none", decimals=0),
)
HAND_OFFS = lines(
    "Handed on",
    "The share of grants that came under the tenure of the lease before, mostly with no round trip: to the"
    " next in line on the same host, or what it had kept.",
    [
        ask(
            f"{rate_by_class('lockd_hand_offs_total')} / ({rate_by_class('lockd_grants_total')} > 0)",
            "{{class}}",
        )
    ],
    axis=Axis("percentunit", most=1),
)
TURNS = lines(
    "Turns",
    "How often another host waited for what was in use: its host hands on a moment more, and gives it back.",
    [ask(rate_by_class("lockd_turn_seconds_count"), "{{class}}")],
    axis=Axis("ops"),
    silence="no host waits for another",
)
RECALLS = lines(
    "From a recall until given back, p99",
    "For how long a host goes on with what another one waits for: turn_ms and the lease that is held then."
    " Where it is much longer, apps hold for long.",
    [ask(quantile(0.99, "lockd_turn_seconds", "class", OF_CLASS), "{{class}}")],
    axis=Axis("s"),
    silence="no host waits for another",
)
KEPT = lines(
    "Kept for nobody",
    "Tenures that stay with a host though nobody has them, of classes with keep_ms. When their agent dies or"
    " is cut off, nobody gets those before their TTL.",
    [ask(by_class("lockd_kept_tenures"), "{{class}}")],
    axis=Axis("none", decimals=0),
)
KEPT_ENDS = lines(
    "How keeping ended",
    "locked: here once more, that is what it is for. time: in vain, keep_ms is too long or not needed."
    " recalled: for another host. given_back: by force, for a DETACHED lease, as clocks moved, or as its"
    " agent stopped or has another configuration.",
    [ask(f"sum by (end) ({per_second('lockd_kept_seconds_count', OF_CLASS)})", "{{end}}")],
    axis=Axis("ops"),
    drawn=STACKED,
    silence="nothing is kept",
    colors={"locked": GREEN, "time": ORANGE, "recalled": p.BLUE, "given_back": YELLOW},
)
ASKED_BACK = lines(
    "Asked of other hosts",
    "LOCKs without WAIT that met a tenure of another host, of classes with keep_ms, by what came of that."
    " silent: its agent did not answer, dead or cut off perhaps, and nobody gets it before its TTL.",
    [ask(f"sum by (end) ({per_second('lockd_recall_seconds_count', OF_CLASS)})", "{{end}}")],
    axis=Axis("ops"),
    drawn=STACKED,
    silence="nothing is kept",
    colors={"given_back": GREEN, "in_use": p.BLUE, "silent": RED},
)
MARGIN = lines(
    "Validity left at release, lowest 1 %",
    "How near to the deadline apps give back. Near 0 some come too late: give them a longer TTL, or shorter"
    " work.",
    [ask(quantile(0.01, "lockd_release_margin_seconds", "class", OF_CLASS), "{{class}}")],
    axis=Axis("s"),
)
RENEWALS = lines(
    "Failed renewals",
    "The share of extensions that no quorum confirmed. Above 1 % leases are about to be lost.",
    [
        ask(
            f"{RENEWALS_FAILED} / ({rate_by_class('lockd_renewals_total')} > 0)",
            "{{class}}",
        )
    ],
    axis=Axis("percentunit", seen=0.02),
    silence="nothing had to be renewed",
    thresholds=p.steps((None, "transparent"), (0.01, RED)),
)
LOSSES = lines(
    "Lost leases, by reason",
    "not_renewed: no quorum confirmed it in time. gone: masters had lost it. clocks: its host stood still,"
    " or clocks were set. forced, max_hold and cut_off (its app ran into a limit) were meant.",
    [ask(f"sum by (reason) ({grown('lockd_losses_total', OF_CLASS)})", "{{reason}}")],
    axis=Axis("none", seen=1),
    drawn=BARS,
)
RELEASES = lines(
    "How leases ended",
    "released by their app; app_gone: it closed its connection or died; expired; forced by an operator.",
    [ask(f"sum by (why) ({per_second('lockd_releases_total', OF_CLASS)})", "{{why}}")],
    axis=Axis("ops"),
    drawn=STACKED,
    colors={"released": GREEN, "app_gone": p.BLUE, "expired": ORANGE, "forced": RED},
)

BOARD = dashboard(
    "lockd-classes",
    "lockd / Classes",
    "Who waits, for how long, and does anybody lose what he holds?",
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
