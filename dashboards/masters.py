"""Masters: which one has a problem, since when, and what is it?"""

from __future__ import annotations

from dashboards import panels as p
from dashboards.board import MASTER_VARIABLE, dashboard, link_to
from dashboards.graph import BARS, Axis, lines
from dashboards.panels import GREEN, ORANGE, RED, YELLOW, ask
from dashboards.queries import (
    A_FEW,
    FEW,
    ONLY_EXPORTERS,
    agent,
    at_master,
    buckets,
    events,
    events_at_master,
    master_state,
    per_second,
    quantile,
)
from dashboards.shared import MASTER_WORDS
from dashboards.table import Column, matrix, table

OF_MASTER = 'master=~"$master"'
VOTE_P99 = quantile(0.99, "lockd_master_round_trip_seconds", "master", OF_MASTER, 'question="vote"')
OFFSET = f"avg by (master) ({agent('lockd_master_clock_offset_seconds', OF_MASTER)})"
TIMEOUT = f"max({agent('lockd_master_timeout_seconds')})"
ALLOWED_SKEW = f"max({agent('lockd_clock_skew_allowance_seconds')})"
QUARANTINE_LEFT = (
    f"max by (master) (({at_master('lockd_guard_quarantine_until_timestamp_seconds')} - time())"
    f" * {at_master('lockd_guard_quarantined')})"
)
MEMORY_SHARE = (
    f"max by (master) ({agent('lockd_master_memory_used_bytes', OF_MASTER)}"
    f" / ({agent('lockd_master_memory_max_bytes', OF_MASTER)} > 0))"
)

STATES = p.timeline(
    "Master state",
    "The worst state that more than 5 % of agents report for each master (with fewer than 20 agents,"
    " each one counts). Purple: its guard keeps it in quarantine after an unclean restart, until every"
    " lease that it may have voted for has ended; that ends without help. Orange: up, but its clock is"
    " not trusted yet. Red: look for the cause.",
    [ask(master_state(OF_MASTER), "{{master}}")],
    mappings=MASTER_WORDS,
)
SUMMARY = table(
    "Masters",
    "One row per master. votes: the share of agents for which it has a vote; between 0 and 100 % some"
    " hosts can't reach it. For a master that is down, round trips and offsets are old values.",
    Column(
        "master", link=("Only this master", link_to("lockd-masters", "master", "${__data.fields.master}"))
    ),
    [
        Column("state", f"max by (master) ({master_state(OF_MASTER)})", mappings=MASTER_WORDS),
        Column(
            "votes",
            f"avg by (master) ({agent('lockd_master_vote', OF_MASTER)})",
            unit="percentunit",
            decimals=1,
            # One host of 500 without a path to it is no trouble of the master.
            thresholds=p.steps((None, ORANGE), (1 - A_FEW, YELLOW), (1, "transparent")),
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
    sort="state",
)
VOTES = lines(
    "Share of agents that accept its votes",
    "100 % means all agents. If it is lower, some hosts can't reach the master or don't trust its clock yet.",
    [ask(f"avg by (master) ({agent('lockd_master_vote', OF_MASTER)})", "{{master}}")],
    axis=Axis("percentunit", most=1),
)
ROUND_TRIPS = lines(
    "Vote round trip, p99",
    "Time from asking a master for a vote to its answer, including its fsync. The red line is a quarter"
    " of the master timeout. One slow master does no harm while the quorum is fast; three do.",
    [ask(VOTE_P99, "{{master}}"), ask(f"0.25 * {TIMEOUT}", "limit")],
    axis=Axis("s", log=True),
    limits=("limit",),
)
MEDIANS = lines(
    "Vote round trip, median",
    "Half of the votes took no longer than this. A master above the others has a slower disk or a"
    " slower network path.",
    [
        ask(
            quantile(0.5, "lockd_master_round_trip_seconds", "master", OF_MASTER, 'question="vote"'),
            "{{master}}",
        )
    ],
    axis=Axis("s", log=True),
)
PROBES = lines(
    "Probe round trip, p99",
    "Probes read only the master's time and write nothing. If votes are slow and probes are fast, the"
    " disk is slow. If both are slow, it is the network or the CPU.",
    [
        ask(
            quantile(0.99, "lockd_master_round_trip_seconds", "master", OF_MASTER, 'question="probe"'),
            "{{master}}",
        )
    ],
    axis=Axis("s", log=True),
)
NOT_COUNTED = lines(
    "Votes not counted per second",
    "late: after the timeout. connection_lost: the outcome is unknown. clock: the clock is not trusted."
    " state, no_identity, ttl_above_ceiling: the master refused. miscounting, nonsense: the answer can't"
    " be right. no_lease: somebody else than lockd has written there.",
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
    "The masters' clocks compared with each other. A steady offset is harmless. After a jump the master"
    " has no vote for the longest TTL. The red lines are the offset that a fresh agent allows.",
    [ask(OFFSET, "{{master}}"), ask(ALLOWED_SKEW, "limit"), ask(f"-{ALLOWED_SKEW}", "limit below")],
    axis=Axis("s", least=None),
    limits=("limit",),
)
JUMPS = lines(
    "Clock jumps and steps",
    "Forward jumps seen by agents, and steps seen by the master's own guard. There should be none,"
    " because chrony slews the clock.",
    [
        ask(
            f"max by (master) ({events('lockd_master_clock_jumps_total', OF_MASTER)})",
            "{{master}} jumped",
        ),
        ask(
            f"sum by (master) ({events_at_master('lockd_guard_clock_steps_total')})",
            "{{master}} stepped",
        ),
    ],
    axis=Axis("none", seen=1),
    drawn=BARS,
)
QUARANTINE = lines(
    "Quarantine time left",
    "How long the guard will keep the master out. It should fall to 0 in a straight line. If it rises"
    " again and again, the master keeps crashing.",
    [ask(f"clamp_min({QUARANTINE_LEFT}, 0)", "{{master}}")],
    axis=Axis("s"),
)
QUARANTINES = lines(
    "Quarantines started",
    "Starts of a master that had to wait, by reason. For clock_step and unclean_stop, check the log of"
    " its host.",
    [
        ask(
            f"sum by (master, reason) ({events_at_master('lockd_guard_quarantines_total')}) > 0",
            "{{master}} {{reason}}",
        )
    ],
    axis=Axis("none", seen=1),
    drawn=BARS,
    silence="none started",
)
CONNECTS = lines(
    "Connections opened per second",
    "By agents, to each master. It is 0 when all is well. Many new connections mean that the network or"
    " the master drops them. nonsense: closed because the master's answer made no sense.",
    [
        ask(f"sum by (master) ({per_second('lockd_master_connects_total', OF_MASTER)})", "{{master}}"),
        ask(
            f"sum by (master) ({per_second('lockd_master_nonsense_total', OF_MASTER)})",
            "{{master}} nonsense",
        ),
    ],
    axis=Axis("ops", seen=1),
)
MEMORY = lines(
    "Memory used / maxmemory",
    "Leases expire, so this should be flat. At 100 % a master refuses writes, and its votes are lost.",
    [
        ask(
            MEMORY_SHARE,
            "{{master}}",
        )
    ],
    axis=Axis("percentunit", most=1),
    thresholds=p.steps((None, "transparent"), (0.8, ORANGE)),
)
# As the alerts on a full disk: the folders of Redis and of the guard, wherever they are.
DISKS = 'mountpoint=~"/|/var|/var/lib|/var/lib/lockd-(master|guard)"'
DISK = lines(
    "Free disk space",
    "The share that is free on the file systems of Redis and the guard. All masters get the same"
    " writes, so their disks fill at the same time. Below the red line LockdMasterDiskFull fires.",
    [
        ask(
            f"min by (master, mountpoint) ({at_master('node_filesystem_avail_bytes', ONLY_EXPORTERS, DISKS)}"
            f" / {at_master('node_filesystem_size_bytes', ONLY_EXPORTERS, DISKS)})",
            "{{master}} {{mountpoint}}",
        )
    ],
    axis=Axis("percentunit", most=1),
    thresholds=p.steps((None, RED), (0.05, "transparent")),
)
DAY_S = 86_400
# As LockdCertificateEnding, which is a warning and then critical.
ENDING_SOON_DAYS, ENDING_DAYS = 30, 3
CERTIFICATE = lines(
    "Days until the certificate expires",
    "For the certificate that each master shows to agents now. If agents see different certificates,"
    f" the one that expires first. Orange below {ENDING_SOON_DAYS} days, red below {ENDING_DAYS}.",
    [
        ask(
            f"(min by (master) ({agent('lockd_master_certificate_expiry_timestamp_seconds', OF_MASTER)})"
            f" - time()) / {DAY_S}",
            "{{master}}",
        )
    ],
    axis=Axis("none", decimals=0),
    silence="masters don't use TLS",
    thresholds=p.steps((None, RED), (ENDING_DAYS, ORANGE), (ENDING_SOON_DAYS, "transparent")),
)
CHRONY = p.timeline(
    "Clock synchronisation",
    "Whether chrony keeps the clock of the master's host in sync, as its kernel reports. If not, the"
    " clock drifts; votes count until the offset is too large.",
    [ask(f"min by (master) ({at_master('node_timex_sync_status', ONLY_EXPORTERS)})", "{{master}}")],
    mappings=[*p.words((1, "synchronised", GREEN), (0, "NOT synchronised", ORANGE)), p.missing("not known")],
)
CHRONY_OFFSET = lines(
    "Clock offset from the time source",
    "Of each master's host, as its kernel reports. Compare it with the offset from the masters' median.",
    [ask(f"avg by (master) ({at_master('node_timex_offset_seconds', ONLY_EXPORTERS)})", "{{master}}")],
    axis=Axis("s", least=None),
)
AOF = p.timeline(
    "Last AOF rewrite",
    "If rewrites fail, the append-only file keeps growing. Check for a full disk or too little memory"
    " to fork.",
    [ask(f"min by (master) ({agent('lockd_master_aof_rewrite_ok', OF_MASTER)})", "{{master}}")],
    mappings=[*p.words((1, "worked", GREEN), (0, "FAILED", RED)), p.missing("not known", p.GREY)],
)
HEAT = p.heatmap(
    "Vote round trips, all agents",
    "How many votes took how long. A second band higher up means that a master or some hosts are"
    " farther away.",
    buckets("lockd_master_round_trip_seconds", OF_MASTER, 'question="vote"'),
)
_ROUND_TRIP = "lockd_master_round_trip_seconds"
PAIR = "sum by (instance, master)"
MEAN = (
    f"{PAIR} ({per_second(f'{_ROUND_TRIP}_sum', OF_MASTER)})"
    f" / {PAIR} ({per_second(f'{_ROUND_TRIP}_count', OF_MASTER)})"
)
PAIRS = matrix(
    "Mean round trip by agent and master, 10 slowest agents",
    "Votes and probes. A coloured column is a slow master, a coloured row a slow host, and a single"
    " cell the path between the two.",
    f"{MEAN} and on (instance) topk({FEW}, max by (instance) ({MEAN}))",
    rows="instance",
    columns="master",
    unit="s",
    thresholds=p.steps((None, "transparent"), (0.01, YELLOW), (0.05, ORANGE), (0.2, RED)),
)
HOST_UP = p.timeline(
    "Master host up",
    "Whether Prometheus can scrape node_exporter on the master's host. If this is down as well, it is"
    " the host or its network. If this is up and the master is down, it is Redis or the path from the"
    " agents.",
    [ask(f"max by (master) ({at_master('up', ONLY_EXPORTERS)})", "{{master}}")],
    mappings=[*p.words((1, "up", GREEN), (0, "DOWN", RED)), p.missing("silent", RED)],
)

BOARD = dashboard(
    "lockd-masters",
    "lockd / Masters",
    "Which master has a problem, since when, and what is it?",
    [
        (8, [(24, STATES)]),
        (8, [(24, SUMMARY)]),
        (7, [(8, VOTES), (8, ROUND_TRIPS), (8, NOT_COUNTED)]),
        (7, [(8, QUARANTINE), (8, QUARANTINES), (8, HOST_UP)]),
        (7, [(8, OFFSETS), (8, JUMPS), (8, CONNECTS)]),
        (7, [(8, MEDIANS), (8, PROBES), (8, MEMORY)]),
        (12, [(12, HEAT), (12, PAIRS)]),
        (7, [(8, DISK), (8, CERTIFICATE), (8, AOF)]),
        (7, [(12, CHRONY), (12, CHRONY_OFFSET)]),
    ],
    also=[MASTER_VARIABLE],
)
