"""Agents: which hosts have problems, and is it the agent or the masters?"""

from __future__ import annotations

from typing import Any

from dashboards import panels as p
from dashboards.board import dashboard, link_to
from dashboards.graph import BARS, STACKED, Axis, lines
from dashboards.panels import GREEN, ORANGE, RED, YELLOW, ask
from dashboards.queries import (
    CANARY_LATE,
    CANARY_P99,
    CANARY_TOO_LATE_S,
    FEW,
    LOCKS_BY_HOST,
    LOOP_LAG,
    NO_ANSWER,
    NO_QUORUM,
    NO_SOCKET,
    REFUSED,
    STOPPING,
    agent,
    buckets,
    events,
    grown_in_range,
    of_the_worst_now,
    per_second,
    started,
    starts_in_range,
    worst,
)
from dashboards.shared import AGENTS_DOWN, LOCKS_WORDS
from dashboards.table import Column, table
from lockd.core.slewing import MOST_PPM

LIMIT_USED = f"max by (instance, limit) ({agent('lockd_limit_used')} / ({agent('lockd_limit_max')} > 0))"
PROCESSOR_USED = f"sum by (instance) ({per_second('process_cpu_seconds_total')})"
MEMORY_USED = f"max by (instance) ({agent('process_resident_memory_bytes')})"
# What an agent says of itself that alerts are about, each with its word, the worst first.
SOCKET = f"min by (instance) ({agent('lockd_app_socket_ok')})"
SLEW = f"max by (instance) ({agent('lockd_clock_slew_ppm')})"
JOURNAL = f"min by (instance) ({agent('lockd_journal_ok')})"
RELOAD = f"min by (instance) ({agent('lockd_config_last_reload_successful')})"
FAILED_CHECKS = {
    "no socket": f"({SOCKET} == bool 0)",
    "clock slewed": f"(abs({SLEW}) > bool {MOST_PPM})",
    "journal not kept": f"({JOURNAL} == bool 0)",
    "reload failed": f"({RELOAD} == bool 0)",
}
FAILED_CANARIES = events("lockd_canary_seconds_count", 'outcome!="granted"')


THIS_HOST = Column(
    "instance", link=("Only this host", link_to("lockd-agents", "instance", "${__data.fields.instance}"))
)


def _hosts(compared: str) -> str:
    """On how many hosts locks stand so."""
    return f"count({LOCKS_BY_HOST} {compared}) or vector(0)"


CAN_LOCK = lines(
    "Hosts by availability of locks",
    "Hosts by how many masters may still fail before their apps get no locks, or by why they get none."
    " If most hosts are red, look at the masters; if a few are, at the network path of these hosts."
    " refused by the masters: enough masters have a vote, but the agent's own lock fails. no socket: new"
    " apps can't connect; those that are connected go on.",
    [
        ask(_hosts(">= 2"), "ok"),
        ask(_hosts("== 1"), "1 more may fail"),
        ask(_hosts("== 0"), "no margin"),
        ask(_hosts(f"== {STOPPING}"), "stopping"),
        ask(_hosts(f"== {NO_SOCKET}"), "no socket"),
        ask(_hosts(f"== {NO_ANSWER}"), "no answer"),
        ask(_hosts(f"== {REFUSED}"), "refused by the masters"),
        ask(_hosts(f"== {NO_QUORUM}"), "no quorum"),
    ],
    axis=Axis("none", decimals=0),
    drawn=STACKED,
    colors={
        "ok": GREEN, "1 more may fail": YELLOW, "no margin": ORANGE, "stopping": p.BLUE,
        "no socket": "light-red", "no answer": "dark-red", "refused by the masters": "super-light-red",
        "no quorum": RED,
    },
)  # fmt: skip
STATES = p.timeline(
    f"Availability of locks, {FEW} worst hosts",
    "How many masters may still fail before apps on the host get no locks, or why they get none. Shows"
    " the hosts that were worst in the selected time range.",
    [ask(f"-({worst(f'-{LOCKS_BY_HOST}')})", "{{instance}}")],
    mappings=LOCKS_WORDS,
)


def of_worst(name: str, expr: str, **shown: Any) -> Column:
    return Column(name, of_the_worst_now(expr), **shown)


SUMMARY = table(
    f"{FEW} worst hosts now",
    "Hosts whose apps get no locks come first, then those with the highest event-loop lag. canary late:"
    " for how long it has been more than three of its intervals since the agent's own lock last worked."
    " The name links to the host.",
    THIS_HOST,
    [
        of_worst(
            "up",
            f"max by (instance) ({agent('up')})",
            mappings=p.words((1, "yes", GREEN), (0, "NO", RED)),
        ),
        of_worst("locks", LOCKS_BY_HOST, mappings=LOCKS_WORDS),
        of_worst("held", f"sum by (instance) ({agent('lockd_leases')})"),
        of_worst("waiting", f"sum by (instance) ({agent('lockd_waiters')})"),
        of_worst("connections", f"sum by (instance) ({agent('lockd_connections')})"),
        of_worst(
            "loop lag",
            LOOP_LAG,
            unit="s",
            thresholds=p.steps((None, "transparent"), (0.05, YELLOW), (0.25, ORANGE)),
        ),
        of_worst(
            "canary late",
            f"clamp_min(max by (instance) ({CANARY_LATE}), 0)",
            unit="s",
            decimals=0,
            thresholds=p.steps(
                (None, "transparent"), (CANARY_TOO_LATE_S // 2, YELLOW), (CANARY_TOO_LATE_S, RED)
            ),
        ),
        of_worst("CPU", PROCESSOR_USED, unit="percentunit"),
        of_worst("memory", MEMORY_USED, unit="bytes"),
        of_worst("up for", f"time() - max by (instance) ({agent('process_start_time_seconds')})", unit="s"),
        Column(
            "version",
            brings=of_the_worst_now(f"max by (instance, version) ({agent('lockd_build_info')})"),
        ),
        Column(
            "fingerprint",
            brings=of_the_worst_now(f"max by (instance, fingerprint) ({agent('lockd_config_info')})"),
        ),
    ],
    sort="locks",
    falling=False,
)
CHECKS = lines(
    "Hosts by failed check",
    "no socket: new apps can't connect. clock slewed: the host's clock is slewed faster than leases allow"
    " for, so that its agent counts no votes. journal not kept: after its next restart the agent will not"
    " know what apps hold. reload failed: the agent still uses its old configuration.",
    [ask(f"sum({failed})", name) for name, failed in FAILED_CHECKS.items()],
    axis=Axis("none", decimals=0, seen=1),
    colors={
        "no socket": RED, "clock slewed": ORANGE, "journal not kept": p.PURPLE, "reload failed": YELLOW,
    },
)  # fmt: skip
_GRAVITY = " + ".join(f"{2**n} * {failed}" for n, failed in enumerate(reversed(FAILED_CHECKS.values())))


def of_failing(name: str, expr: str, **shown: Any) -> Column:
    return Column(name, f"{expr} and on (instance) topk({FEW}, {_GRAVITY})", **shown)


FAILING = table(
    f"Checks, {FEW} worst hosts now",
    "Hosts whose checks fail come first. clock slew: how fast the host's clock is slewed, in ppm;"
    f" leases allow for {MOST_PPM:,}. The name links to the host.",
    THIS_HOST,
    [
        of_failing("failed", " + ".join(FAILED_CHECKS.values())),
        of_failing("app socket", SOCKET, mappings=p.words((1, "ok", GREEN), (0, "GONE", RED))),
        of_failing(
            "clock slew",
            SLEW,
            unit="none",
            decimals=0,
            thresholds=p.steps((None, ORANGE), (-MOST_PPM, "transparent"), (MOST_PPM + 1, ORANGE)),
        ),
        of_failing("journal", JOURNAL, mappings=p.words((1, "ok", GREEN), (0, "NOT KEPT", ORANGE))),
        of_failing("reload", RELOAD, mappings=p.words((1, "ok", GREEN), (0, "FAILED", ORANGE))),
    ],
    sort="failed",
)
VERSIONS = table(
    "Hosts by agent version",
    "If there is more than one for longer than a rollout takes, some hosts were left out.",
    Column("version"),
    [
        Column("build"),
        Column("hosts", f"count by (version, build) ({agent('lockd_build_info')})"),
    ],
    sort="hosts",
)
FINGERPRINTS = table(
    "Hosts by configuration",
    "If there is more than one for longer than a rollout takes, hosts disagree about the masters, the"
    " quorum or the classes. `lockctl doctor` shows the fingerprint of its host.",
    Column("fingerprint"),
    [Column("hosts", f"count by (fingerprint) ({agent('lockd_config_info')})")],
    sort="hosts",
)
CONFIGURATIONS = p.stat(
    "Different configurations",
    "If there is more than one for longer than a rollout takes, hosts disagree about the masters, the"
    " quorum or the classes.",
    [ask(f"count(count by (fingerprint) ({agent('lockd_config_info')}))", now=True)],
    unit="none",
    thresholds=p.steps((None, GREEN), (2, ORANGE)),
)
DIFFERENT_VERSIONS = p.stat(
    "Different agent versions",
    "If there is more than one for longer than a rollout takes, some hosts were left out.",
    [ask(f"count(count by (version) ({agent('lockd_build_info')}))", now=True)],
    unit="none",
    thresholds=p.steps((None, GREEN), (2, YELLOW)),
)
WITHOUT_LOCKS = p.stat(
    "Hosts without locks",
    "Hosts whose agent is up, but whose apps can't get locks now, or can't connect to it.",
    [ask(f"count({LOCKS_BY_HOST} < 0 != {NO_ANSWER}) or vector(0)", now=True)],
    unit="none",
    thresholds=p.steps((None, GREEN), (1, RED)),
)
DRAINING = p.stat(
    "Agents stopping",
    "Agents that grant no new leases because they are stopping, and the longest time that one has been."
    " Holders get a short time to release.",
    [
        ask(f"sum({agent('lockd_draining')})", "agents", now=True),
        ask(f"max({agent('lockd_draining_seconds')})", "longest", now=True),
    ],
    unit="none",
    thresholds=p.steps((None, GREEN), (1, YELLOW)),
    overrides=[p.of_series("longest", [{"id": "unit", "value": "s"}])],
)
ERRORS = p.stat(
    "Internal agent errors",
    "Errors in lockd in the selected time range. The agent's log has the details.",
    [ask(f"round(sum({grown_in_range('lockd_internal_errors_total')}))", now=True)],
    unit="none",
    decimals=0,
    thresholds=p.steps((None, GREEN), (1, RED)),
)
HEAT = p.heatmap(
    "Canary duration, all hosts",
    "How long the agents' own locks took, including the release, when they worked.",
    buckets("lockd_canary_seconds", 'outcome="granted"'),
    silence="no working canary",
)
CANARY = lines(
    f"Canary duration p99, {FEW} slowest hosts",
    "How long the agent's own lock takes, including the release, when it works.",
    [ask(worst(CANARY_P99), "{{instance}}")],
    axis=Axis("s"),
)
CANARY_FAILED = lines(
    "Canary failures by outcome",
    "unavailable: no quorum. unreleased: the lock was granted but could not be released.",
    [ask(f"sum by (outcome) ({FAILED_CANARIES}) > 0", "{{outcome}}")],
    axis=Axis("none", seen=1),
    drawn=BARS,
    silence="no failures",
    colors={"unavailable": RED, "unreleased": ORANGE, "contended": p.BLUE, "rejected": "dark-red"},
)
LOOP = lines(
    f"Event-loop lag, {FEW} worst hosts",
    "The maximum over the last 30 to 60 seconds. The agent does all its work in one event loop; above"
    " 250 ms votes come too late.",
    [ask(worst(LOOP_LAG), "{{instance}}")],
    axis=Axis("s", seen=0.3),
    thresholds=p.steps((None, "transparent"), (0.25, ORANGE)),
)
PROCESSOR = lines(
    f"CPU used, {FEW} busiest hosts",
    "100 % is one core, the most that an agent can use.",
    [ask(worst(PROCESSOR_USED), "{{instance}}")],
    axis=Axis("percentunit", seen=1),
    thresholds=p.steps((None, "transparent"), (0.9, ORANGE)),
)
MEMORY = lines(
    f"Memory used, {FEW} largest agents",
    "Resident memory. It grows and shrinks with leases, waiting LOCKs and connections.",
    [ask(worst(MEMORY_USED), "{{instance}}")],
    axis=Axis("bytes"),
)
GRANTS = lines(
    f"Grants per second, {FEW} busiest hosts",
    "Leases granted to the apps of a host, over all classes.",
    [ask(worst(f"sum by (instance) ({per_second('lockd_grants_total')})"), "{{instance}}")],
    axis=Axis("reqps"),
)
CONNECTIONS = lines(
    f"App connections, {FEW} busiest hosts",
    "Connections of apps to the agent of a host. Each is one of its files.",
    [ask(worst(f"sum by (instance) ({agent('lockd_connections')})"), "{{instance}}")],
    axis=Axis("none", log=True),
)
LIMITS_USED = lines(
    f"Limits used, {FEW} highest",
    "How much is in use of what all apps of a host share: memory, files, and promised renewals. One account"
    " is refused when it has its share of what is free.",
    [ask(worst(LIMIT_USED, "instance, limit"), "{{instance}} {{limit}}")],
    axis=Axis("percentunit", seen=1),
    thresholds=p.steps((None, "transparent"), (0.8, ORANGE)),
)
LIMITS = lines(
    "Requests refused by limits per second",
    "By limit, on all hosts. Find the app that asks for so much, by its pid in the agent's log, or raise the"
    " limit in the configuration.",
    [ask(f"sum by (limit) ({per_second('lockd_limit_refusals_total')}) > 0", "{{limit}}")],
    silence="no requests refused",
    axis=Axis("ops"),
)
HELD = lines(
    "Held leases and waiting LOCKs",
    "On all hosts. If many wait and few are held, many apps want the same few resources; see Classes.",
    [
        ask(f"sum({agent('lockd_leases')})", "held"),
        ask(f"sum({agent('lockd_waiters')})", "waiting"),
    ],
    axis=Axis("none", decimals=0),
    colors={"held": p.BLUE, "waiting": YELLOW},
)
FENCES = lines(
    "Second rounds for a fence per second",
    "On all hosts. The masters proposed different fences, which took another round trip. Many of these"
    " mean that the hosts' clocks differ.",
    [ask(f"sum({per_second('lockd_fence_rounds_total')})", "second rounds")],
    axis=Axis("ops"),
    colors={"second rounds": p.BLUE},
)
STARTS = lines(
    f"Agent starts, {FEW} hosts with most",
    "When the agent of a host was started. More than two in 20 minutes are an alert: it ends and systemd"
    " starts it at once, so that it is up nearly every time Prometheus looks.",
    [ask(f"{started()} and on (instance) topk({FEW}, {starts_in_range()})", "{{instance}}")],
    axis=Axis("none", seen=1),
    drawn=BARS,
    silence="none started",
)
BAD_INPUT = lines(
    "Protocol errors and forced releases",
    "On all hosts. Protocol errors: a program sent something else than RESP to the agent's socket."
    " Forced releases: by an operator.",
    [
        ask(f"sum({events('lockd_protocol_errors_total')})", "protocol errors"),
        ask(f"sum({events('lockd_forced_releases_total')})", "forced"),
    ],
    axis=Axis("none", seen=1),
    drawn=BARS,
    colors={"protocol errors": YELLOW, "forced": p.PURPLE},
)

BOARD = dashboard(
    "lockd-agents",
    "lockd / Agents",
    "Which hosts have problems, and is it the agent or the masters?",
    [
        (
            4,
            [
                (4, WITHOUT_LOCKS),
                (4, AGENTS_DOWN),
                (4, DRAINING),
                (4, ERRORS),
                (4, DIFFERENT_VERSIONS),
                (4, CONFIGURATIONS),
            ],
        ),
        (9, [(12, CAN_LOCK), (12, STATES)]),
        (13, [(24, SUMMARY)]),
        (9, [(12, CHECKS), (12, FAILING)]),
        (6, [(12, VERSIONS), (12, FINGERPRINTS)]),
        (8, [(8, HEAT), (8, CANARY), (8, CANARY_FAILED)]),
        (8, [(8, LOOP), (8, PROCESSOR), (8, MEMORY)]),
        (8, [(8, GRANTS), (8, HELD), (8, CONNECTIONS)]),
        (8, [(12, LIMITS_USED), (12, LIMITS)]),
        (7, [(8, STARTS), (8, FENCES), (8, BAD_INPUT)]),
    ],
)
