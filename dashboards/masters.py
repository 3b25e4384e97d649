"""Masters: which one is ill, since when, and with what?"""

from __future__ import annotations

from dashboards import panels as p
from dashboards.board import MASTER_VARIABLE, dashboard, link_to
from dashboards.graph import BARS, Axis, lines
from dashboards.panels import GREEN, ORANGE, RED, ask
from dashboards.queries import agent, at_master, grown, grown_at_master, master_state, per_second, quantile
from dashboards.shared import MASTER_WORDS
from dashboards.table import Column, table

OF_MASTER = 'master=~"$master"'
VOTE_P99 = quantile(0.99, "lockd_master_round_trip_seconds", "master", OF_MASTER, 'question="vote"')
OFFSET = f"avg by (master) ({agent('lockd_master_clock_offset_seconds', OF_MASTER)})"
TIMEOUT = f"max({agent('lockd_master_timeout_seconds')})"
ALLOWED_SKEW = f"max({agent('lockd_clock_skew_allowance_seconds')})"
QUARANTINE_LEFT = (
    f"max by (master) (({at_master('redis_lock_guard_quarantine_until_timestamp_seconds')} - time())"
    f" * {at_master('redis_lock_guard_quarantined')})"
)
MEMORY_SHARE = (
    f"max by (master) ({agent('lockd_master_memory_used_bytes', OF_MASTER)}"
    f" / ({agent('lockd_master_memory_max_bytes', OF_MASTER)} > 0))"
)

STATES = p.timeline(
    "What each master is",
    "The worst that any agent says of it. Purple: its guard keeps it out after an unclean restart, until"
    " every lease that it may have voted for is over; that ends by itself. Orange: up, but its clock is not"
    " trusted yet. Red: look.",
    [ask(master_state(OF_MASTER), "{{master}}")],
    mappings=MASTER_WORDS,
)
SUMMARY = table(
    "Masters",
    "One row for each. `votes` is the share of agents for which it has a vote: between 0 and 100 % some"
    " hosts can't reach it. Round trips and offsets of a master that is down are those of before.",
    Column(
        "master", link=("Only this master", link_to("lockd-masters", "master", "${__data.fields.master}"))
    ),
    [
        Column("is", f"max by (master) ({master_state(OF_MASTER)})", mappings=MASTER_WORDS),
        Column(
            "votes",
            f"avg by (master) ({agent('lockd_master_vote', OF_MASTER)})",
            unit="percentunit",
            decimals=0,
            thresholds=p.steps((None, ORANGE), (1, "transparent")),
        ),
        Column(
            "quarantine ends in",
            QUARANTINE_LEFT,
            unit="s",
            decimals=0,
            mappings=p.words((0, "-", "transparent")),
        ),
        Column("vote p99", VOTE_P99, unit="s"),
        Column("clock offset", OFFSET, unit="s"),
        Column(
            "address", brings=f"max by (master, address, version) ({agent('lockd_master_info', OF_MASTER)})"
        ),
        Column("version"),
        Column(
            "memory",
            MEMORY_SHARE,
            unit="percentunit",
            thresholds=p.steps((None, "transparent"), (0.8, ORANGE)),
        ),
    ],
    sort="is",
)
VOTES = lines(
    "Agents that give it a vote",
    "100 %: all agents do. In between: some hosts can't reach it, or don't trust its clock yet.",
    [ask(f"avg by (master) ({agent('lockd_master_vote', OF_MASTER)})", "{{master}}")],
    axis=Axis("percentunit", most=1),
)
ROUND_TRIPS = lines(
    "Round trip of a vote, p99",
    "From asking a master to its answer, its fsync included. Red line: a quarter of the time after which it"
    " is given up. One slow master costs nothing while the quorum is quick; three do.",
    [ask(VOTE_P99, "{{master}}"), ask(f"0.25 * {TIMEOUT}", "limit")],
    axis=Axis("s", log=True),
    dashed=("limit",),
)
MEDIANS = lines(
    "Round trip of a vote, median",
    "Half of the votes took no longer. One master above the others has the slower disk or path.",
    [
        ask(
            quantile(0.5, "lockd_master_round_trip_seconds", "master", OF_MASTER, 'question="vote"'),
            "{{master}}",
        )
    ],
    axis=Axis("s", log=True),
)
PROBES = lines(
    "Round trip of a probe, p99",
    "A probe writes nothing. Slow votes with quick probes are a slow disk; both slow are the network or the"
    " processor.",
    [
        ask(
            quantile(0.99, "lockd_master_round_trip_seconds", "master", OF_MASTER, 'question="probe"'),
            "{{master}}",
        )
    ],
    axis=Axis("s", log=True),
)
NOT_COUNTED = lines(
    "Votes that did not count",
    "late: after its time limit. connection_lost: unknown outcome. clock: not trusted. state, no_identity,"
    " ttl_above_ceiling: the master itself refused. miscounting, nonsense: what it said can't be.",
    [
        ask(
            f"sum by (master, reason) ({per_second('lockd_master_votes_not_counted_total', OF_MASTER)}) > 0",
            "{{master}} {{reason}}",
        )
    ],
    axis=Axis("ops"),
    silence="all votes counted",
)
OFFSETS = lines(
    "Clock offset from the median",
    "A steady offset is harmless; a jump takes the vote away for a max TTL. Red lines: what a fresh agent"
    " allows.",
    [ask(OFFSET, "{{master}}"), ask(ALLOWED_SKEW, "limit"), ask(f"-{ALLOWED_SKEW}", "limit below")],
    axis=Axis("s", least=None),
    dashed=("limit",),
)
JUMPS = lines(
    "Clock jumps and steps",
    "Jumps forward that agents saw, and steps that the master's own guard saw. There should be none: chrony"
    " slews.",
    [
        ask(
            f"max by (master) ({grown('lockd_master_clock_jumps_total', OF_MASTER)})",
            "{{master}} jumped",
        ),
        ask(
            f"sum by (master) ({grown_at_master('redis_lock_guard_clock_steps_total')})",
            "{{master}} stepped",
        ),
    ],
    axis=Axis("none", seen=1),
    drawn=BARS,
)
QUARANTINE = lines(
    "Quarantine ends in",
    "How long the guard still keeps a master out. It has to come down to 0 in a straight line; a saw means"
    " that the master crashes again and again.",
    [ask(f"clamp_min({QUARANTINE_LEFT}, 0)", "{{master}}")],
    axis=Axis("s"),
)
QUARANTINES = lines(
    "Quarantines begun",
    "Starts of a master that had to wait, by why. clock_step and unclean_stop are worth a look in its host's"
    " log.",
    [
        ask(
            f"sum by (master, reason) ({grown_at_master('redis_lock_guard_quarantines_total')}) > 0",
            "{{master}} {{reason}}",
        )
    ],
    axis=Axis("none", seen=1),
    drawn=BARS,
    silence="none begun",
)
CONNECTS = lines(
    "Connections made",
    "By agents to each master. None is good; many mean a path or a master that breaks off. Nonsense: given"
    " up for what the master said.",
    [
        ask(f"sum by (master) ({per_second('lockd_master_connects_total', OF_MASTER)})", "{{master}}"),
        ask(
            f"sum by (master) ({per_second('lockd_master_nonsense_total', OF_MASTER)})",
            "{{master}} nonsense",
        ),
    ],
    axis=Axis("ops"),
)
MEMORY = lines(
    "Memory used, of maxmemory",
    "Leases end by themselves, so this should be flat. At 100 % a master refuses writes, and its votes are"
    " lost.",
    [
        ask(
            MEMORY_SHARE,
            "{{master}}",
        )
    ],
    axis=Axis("percentunit", most=1),
    thresholds=p.steps((None, "transparent"), (0.8, ORANGE)),
)
HOST_UP = p.timeline(
    "Its host, as Prometheus sees it",
    "Silent here and down above: the host, or its network. Up here and down above: Redis itself, or the path"
    " from the agents.",
    [ask(f"max by (master) ({at_master('redis_lock_guard_delay_seconds')} > bool 0)", "{{master}}")],
    mappings=[*p.words((1, "up", GREEN)), p.missing("silent", RED)],
)

BOARD = dashboard(
    "lockd-masters",
    "lockd / Masters",
    "Which master is ill, since when, and with what?",
    [
        (8, [(24, STATES)]),
        (8, [(24, SUMMARY)]),
        (7, [(8, VOTES), (8, ROUND_TRIPS), (8, NOT_COUNTED)]),
        (7, [(8, QUARANTINE), (8, QUARANTINES), (8, HOST_UP)]),
        (7, [(8, OFFSETS), (8, JUMPS), (8, CONNECTS)]),
        (7, [(8, MEDIANS), (8, PROBES), (8, MEMORY)]),
    ],
    also=[MASTER_VARIABLE],
)
