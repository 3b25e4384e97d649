"""Agents: which host has the trouble, and is it the agent's own?"""

from __future__ import annotations

from dashboards import panels as p
from dashboards.board import dashboard, link_to
from dashboards.graph import BARS, Axis, lines
from dashboards.panels import GREEN, ORANGE, RED, YELLOW, ask
from dashboards.queries import AGENTS_SILENT, CANARY_P99, LOCKS, agent, grown, grown_in_range, per_second
from dashboards.shared import LOCKS_WORDS
from dashboards.table import Column, table

LOCKS_BY_HOST = f"min by (instance) ({LOCKS})"
LAG = f"max by (instance) ({agent('lockd_event_loop_lag_max_seconds')})"
CANARY_AGE = f"time() - max by (instance) ({agent('lockd_canary_last_success_timestamp_seconds')})"
CONNECTIONS_ALLOWED = agent("lockd_limit", 'limit="connections"')
FAILED_CANARIES = grown("lockd_canary_seconds_count", 'outcome!="granted"')

STATES = p.timeline(
    "Can apps of each host have locks?",
    "How many more masters than a quorum vote for its agent, or why it grants nothing. All hosts red: the"
    " masters. One host red: its own path. Refused by the masters: enough have a vote, but the agent's own"
    " lock fails.",
    [ask(LOCKS_BY_HOST, "{{instance}}")],
    mappings=LOCKS_WORDS,
)
SUMMARY = table(
    "Agents",
    "One row for each host. Differing configurations mean that hosts disagree about the masters or the"
    " classes.",
    Column(
        "instance", link=("Only this host", link_to("lockd-agents", "instance", "${__data.fields.instance}"))
    ),
    [
        Column(
            "answers",
            f"max by (instance) ({agent('up')})",
            mappings=p.words((1, "yes", GREEN), (0, "NO", RED)),
        ),
        Column("locks", LOCKS_BY_HOST, mappings=LOCKS_WORDS),
        Column("held", f"sum by (instance) ({agent('lockd_leases')})"),
        Column("waiting", f"sum by (instance) ({agent('lockd_waiters')})"),
        Column("connections", f"sum by (instance) ({agent('lockd_connections')})"),
        Column(
            "loop lag",
            LAG,
            unit="s",
            thresholds=p.steps((None, "transparent"), (0.05, YELLOW), (0.25, ORANGE)),
        ),
        Column(
            "canary worked",
            CANARY_AGE,
            unit="s",
            decimals=0,
            thresholds=p.steps((None, "transparent"), (60, YELLOW), (180, RED)),
        ),
        Column(
            "processor", f"sum by (instance) ({per_second('process_cpu_seconds_total')})", unit="percentunit"
        ),
        Column("memory", f"max by (instance) ({agent('process_resident_memory_bytes')})", unit="bytes"),
        Column("up for", f"time() - max by (instance) ({agent('process_start_time_seconds')})", unit="s"),
        Column("version", brings=f"max by (instance, version) ({agent('lockd_build_info')})"),
        Column("fingerprint", brings=f"max by (instance, fingerprint) ({agent('lockd_config_info')})"),
    ],
    sort="answers",
    falling=False,
)
CONFIGURATIONS = p.stat(
    "Different configurations",
    "More than one for longer than a rollout takes: hosts disagree about the masters, the quorum or the"
    " classes.",
    [ask(f"count(count by (fingerprint) ({agent('lockd_config_info')}))", now=True)],
    unit="none",
    thresholds=p.steps((None, GREEN), (2, ORANGE)),
)
DOWN = p.stat(
    "Agents that don't answer",
    "Prometheus can't read them: apps there get no locks.",
    [ask(AGENTS_SILENT, now=True)],
    unit="none",
    thresholds=p.steps((None, GREEN), (1, RED)),
)
DRAINING = p.stat(
    "Agents that are stopping",
    "They grant nothing more; holders have a moment to give back.",
    [ask(f"sum({agent('lockd_draining')})", now=True)],
    unit="none",
    thresholds=p.steps((None, GREEN), (1, YELLOW)),
)
ERRORS = p.stat(
    "Failures of agents themselves",
    "In the time that is shown. Each is a mistake in lockd: the agent's log says which.",
    [ask(f"round(sum({grown_in_range('lockd_internal_errors_total')}))", now=True)],
    unit="none",
    decimals=0,
    thresholds=p.steps((None, GREEN), (1, RED)),
)
CANARY = lines(
    "Canary, p99",
    "How long each agent's own lock takes, with its release, when it works.",
    [ask(CANARY_P99, "{{instance}}")],
    axis=Axis("s"),
)
CANARY_FAILED = lines(
    "Canary, failed",
    "unavailable: no quorum. unreleased: it could not give its lock back.",
    [
        ask(
            f"sum by (instance, outcome) ({FAILED_CANARIES}) > 0",
            "{{instance}} {{outcome}}",
        )
    ],
    axis=Axis("none", seen=1),
    drawn=BARS,
    silence="it has not failed",
)
LOOP = lines(
    "Event-loop lag, most in 30 s",
    "How late the agent did what was due. Everything waits for this one loop: above 250 ms votes come too"
    " late.",
    [ask(LAG, "{{instance}}")],
    axis=Axis("s", seen=0.3),
    thresholds=p.steps((None, "transparent"), (0.25, ORANGE)),
)
PROCESSOR = lines(
    "Processor",
    "100 % is one core, and the most that an agent can use.",
    [ask(f"sum by (instance) ({per_second('process_cpu_seconds_total')})", "{{instance}}")],
    axis=Axis("percentunit", seen=1),
    thresholds=p.steps((None, "transparent"), (0.9, ORANGE)),
)
MEMORY = lines(
    "Memory",
    "Resident. It follows leases, waiters and connections, and comes down after them.",
    [ask(f"max by (instance) ({agent('process_resident_memory_bytes')})", "{{instance}}")],
    axis=Axis("bytes"),
)
GRANTS = lines(
    "Grants",
    "Leases granted per second, by host.",
    [ask(f"sum by (instance) ({per_second('lockd_grants_total')})", "{{instance}}")],
    axis=Axis("reqps"),
)
CONNECTIONS = lines(
    "Connections of apps",
    "The dashed line is the limit. New connections are refused above it.",
    [
        ask(f"sum by (instance) ({agent('lockd_connections')})", "{{instance}}"),
        ask(f"min({CONNECTIONS_ALLOWED})", "limit"),
    ],
    axis=Axis("none", log=True),
    dashed=("limit",),
)
LIMITS = lines(
    "Refused by a limit",
    "Which limit of the configuration apps ran into. Raise it, or find who asks for so much: the agent's log"
    " has the pid.",
    [
        ask(
            f"sum by (instance, limit) ({per_second('lockd_limit_refusals_total')}) > 0",
            "{{instance}} {{limit}}",
        )
    ],
    silence="no limit was reached",
    axis=Axis("ops"),
)
HELD = lines(
    "Held and waiting",
    "By host. Waiters without leases wait for what other hosts hold.",
    [
        ask(f"sum by (instance) ({agent('lockd_leases')})", "{{instance}} held"),
        ask(f"sum by (instance) ({agent('lockd_waiters')})", "{{instance}} waiting"),
    ],
    axis=Axis("none", decimals=0),
)
FENCES = lines(
    "Second rounds for a fence",
    "Masters proposed different fences, so one more round trip was needed. Many of them: clocks of hosts"
    " differ.",
    [ask(f"sum by (instance) ({per_second('lockd_fence_rounds_total')})", "{{instance}}")],
    axis=Axis("ops"),
)
BAD_INPUT = lines(
    "Bad input and force",
    "Requests that were not RESP, and releases forced by an operator.",
    [
        ask(f"sum by (instance) ({grown('lockd_protocol_errors_total')})", "{{instance}} not RESP"),
        ask(f"sum by (instance) ({grown('lockd_forced_releases_total')})", "{{instance}} forced"),
    ],
    axis=Axis("none", seen=1),
    drawn=BARS,
)

BOARD = dashboard(
    "lockd-agents",
    "lockd / Agents",
    "Which host has the trouble, and is it the agent's own?",
    [
        (4, [(6, DOWN), (6, CONFIGURATIONS), (6, DRAINING), (6, ERRORS)]),
        (6, [(24, STATES)]),
        (7, [(24, SUMMARY)]),
        (7, [(8, CANARY), (8, CANARY_FAILED), (8, LOOP)]),
        (7, [(8, PROCESSOR), (8, MEMORY), (8, GRANTS)]),
        (7, [(8, HELD), (8, CONNECTIONS), (8, LIMITS)]),
        (7, [(12, FENCES), (12, BAD_INPUT)]),
    ],
)
