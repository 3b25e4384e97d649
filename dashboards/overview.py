"""Overview: is it well? Are locks safe, can they be had, and if not, where to look next."""

from __future__ import annotations

from dashboards import panels as p
from dashboards.board import dashboard, link_to
from dashboards.graph import BARS, STACKED, Axis, lines
from dashboards.panels import BLUE, GREEN, ORANGE, PURPLE, RED, YELLOW, ask
from dashboards.queries import (
    AGENTS_SILENT,
    ANSWERS,
    CANARY_P99,
    CLUSTER_OR_NONE,
    CONTENDED,
    LOCKS_OF_THE_WORST,
    LOST,
    NOT_CANARY,
    REJECTED,
    UNAVAILABLE,
    WORDS_CONTENDED,
    WORDS_UNAVAILABLE,
    agent,
    grown,
    grown_in_range,
    master_state,
    per_second,
    quantile,
    recorded,
)
from dashboards.shared import LOCKS_ANYWHERE_WORDS, MASTER_WORDS
from dashboards.table import Column, table

# LockWatchdog fires always, to show that alerts get through: that is no news.
LOCK_ALERTS = 'alertname=~"Lock.+", alertname!="LockWatchdog"'
FIRING_NOW = f'ALERTS{{{CLUSTER_OR_NONE}, {LOCK_ALERTS}, alertstate="firing"'


def _firing(*alerts: str) -> str:
    return f'count(ALERTS{{{CLUSTER_OR_NONE}, alertname=~"{"|".join(alerts)}", alertstate="firing"}}) > 0'


# What is lost is a number; what may be held twice is below 0, the worse the lower.
_LOST = f"round(sum({grown_in_range('lockd_losses_total', LOST)}))"
SAFETY = (
    f"{_LOST} > 0"
    f" or -2 + 0 * ({_firing('LockGuardTooShort', 'LockMasterEvicting')})"
    f" or -1 + 0 * ({_firing('LockGuardOverridden')})"
    f" or {_LOST}"
)

AVAILABLE = p.stat(
    "Can locks be had?",
    "NO: on no host. NO QUORUM: too few masters have a vote, look at the masters. REFUSED: enough have one,"
    " but the agents' own lock fails all the same, look at the canary and at votes that did not count. NOT"
    " ON ALL HOSTS: Agents says where and why; orange while an agent only stops. NO MARGIN: the next master"
    " that fails ends locking.",
    [ask(LOCKS_OF_THE_WORST, now=True)],
    thresholds=p.steps((None, RED), (1, GREEN)),
    mappings=LOCKS_ANYWHERE_WORDS,
)
SAFE = p.stat(
    "Is what is held safe?",
    "LOST: leases lost under their holders in the time that is shown, not renewed in time or gone from the"
    " masters. Holders were told, but may have acted meanwhile; fences tell whose writes are too late. AT"
    " RISK: an alert fires that says that two apps may come to hold one resource: a guard too short or"
    " overridden, a master that evicts.",
    [ask(SAFETY, now=True)],
    unit="suffix: LOST",
    decimals=0,
    thresholds=p.steps((None, GREEN), (1, RED)),
    mappings=[
        *p.words((-2, "AT RISK", RED), (-1, "AT RISK", ORANGE), (0, "YES", GREEN)),
        p.missing("NO AGENT ANSWERS"),
    ],
)
NO_VOTE = p.stat(
    "Masters out",
    "Masters without a vote, as the worst agent sees it. One or two of five may be out: locks go on. Which"
    " one and why: the bars below.",
    [ask(f"max({agent('lockd_masters')} - {agent('lockd_masters_voting')})", now=True)],
    unit="none",
    thresholds=p.steps((None, GREEN), (1, ORANGE)),
    mappings=[p.missing("?")],
)
AGENTS_DOWN = p.stat(
    "Agents silent",
    "Hosts whose agent Prometheus can't read: apps there get no locks, and what they hold ends at its"
    " deadline.",
    [ask(AGENTS_SILENT, now=True)],
    unit="none",
    thresholds=p.steps((None, GREEN), (1, RED)),
)
FIRING = p.stat(
    "Alerts firing",
    "Red pages, yellow is a ticket for the day. The table below names them; a click leads to the runbook.",
    [
        ask(f'count({FIRING_NOW}, severity="{severity}"}}) or vector(0)', severity, now=True)
        for severity in ("critical", "warning")
    ],
    unit="none",
    thresholds=p.steps((None, GREEN), (1, RED)),
    overrides=[
        {
            "matcher": {"id": "byName", "options": "warning"},
            "properties": [{"id": "thresholds", "value": p.steps((None, GREEN), (1, YELLOW))}],
        }
    ],
)  # fmt: skip
LONGEST_WAIT = p.stat(
    "Longest wait now",
    "The LOCK that has waited longest, measured in the objective of its class: above 10 it is likely stuck"
    " behind a holder that never ends. Contention is no outage: see Classes for who waits.",
    [
        ask(
            f"max({agent('lockd_oldest_waiter_seconds', NOT_CANARY)}"
            f" / {agent('lockd_class_wait_objective_seconds', NOT_CANARY)})",
            now=True,
        )
    ],
    unit="suffix: × objective",
    decimals=1,
    thresholds=p.steps((None, GREEN), (2, YELLOW), (10, ORANGE)),
    mappings=[*p.words((0, "nobody waits", GREEN)), p.missing("?")],
)

MASTERS = p.timeline(
    "What each master is",
    "The worst that any agent says of it. Purple: its guard keeps it out after an unclean restart; that ends"
    " by itself. Orange: up, but its clock can't be trusted yet. Red: somebody has to look, see Masters.",
    [ask(master_state(), "{{master}}")],
    mappings=MASTER_WORDS,
)
# Red is for those that page. Others fire, too, and the quarantine of a master is no news that anybody has to
# act upon.
ALERTS_BY_WEIGHT = " or ".join(
    [
        *(
            f'{n} * {FIRING_NOW}, severity="{severity}"}}'
            for n, severity in ((4, "critical"), (3, "warning"))
        ),
        f'2 * {FIRING_NOW}, severity!~"critical|warning"}}',
        f'ALERTS{{{CLUSTER_OR_NONE}, {LOCK_ALERTS}, alertstate="pending"}}',
    ]
)
ALERTS = table(
    "Alerts",
    "Pending ones may yet fire. The name leads to the runbook: what it means, what to type, what to do.",
    Column("alertname", link=("Runbook", "${runbooks}/${__data.fields.alertname}.md"), width=230),
    [
        Column(
            "state",
            f"max by (alertname, severity, master, class, instance) ({ALERTS_BY_WEIGHT})",
            mappings=p.words(
                (4, "firing", RED),
                (3, "firing", ORANGE),
                (2, "firing", BLUE),
                (1, "pending", "semi-dark-yellow"),
            ),
            width=80,
        ),
        Column("severity", width=80),
        Column(
            "master",
            link=("Masters", link_to("lockd-masters", "master", "${__data.fields.master}")),
            width=70,
        ),
        Column(
            "class", link=("Classes", link_to("lockd-classes", "class", "${__data.fields.class}")), width=90
        ),
        Column("instance", link=("Agents", link_to("lockd-agents", "instance", "${__data.fields.instance}"))),
    ],
    sort="state",
    silence="No alert fires, and none is pending.",
)

ANSWERED = lines(
    "What LOCKs got",
    f"Granted; contended (held by another: {WORDS_CONTENDED}, no outage); unavailable ({WORDS_UNAVAILABLE}:"
    " an outage); rejected (a policy, a limit, or bad input).",
    [
        ask(f"sum({per_second('lockd_grants_total')})", "granted"),
        ask(f"sum({per_second('lockd_refusals_total', CONTENDED)})", "contended"),
        ask(f"sum({per_second('lockd_refusals_total', UNAVAILABLE)})", "unavailable"),
        ask(f"sum({per_second('lockd_refusals_total', REJECTED)})", "rejected"),
    ],
    axis=Axis("reqps"),
    drawn=STACKED,
    colors={"granted": GREEN, "contended": BLUE, "unavailable": RED, "rejected": ORANGE},
)
UNAVAILABLE_SHARE = lines(
    "Unavailable share of answers",
    f"Answers that were {WORDS_UNAVAILABLE}, of all that masters had to decide. The objective is 0.1 % over a"
    " month; the red line is where 14.4 times that burns, and a page goes out.",
    [ask(f"sum({per_second('lockd_refusals_total', UNAVAILABLE)}) / ({ANSWERS})", "unavailable")],
    axis=Axis("percentunit", seen=0.02),
    thresholds=p.steps((None, "transparent"), (0.0144, RED)),
    colors={"unavailable": RED},
)
WAITS = lines(
    "How long a granted LOCK took",
    "From a LOCK to its grant, over all classes but the canary. The median is the masters' round trip; a"
    " high 99th percentile with a low median is contention, both high are slow masters.",
    [
        ask(quantile(q, "lockd_wait_seconds", "cluster", 'outcome="granted"', NOT_CANARY), f"p{q * 100:g}")
        for q in (0.5, 0.99)
    ],
    axis=Axis("s", log=True),
)
WAITING = lines(
    "Waiting, by class",
    "LOCKs that wait for an answer now. One class far above the others is a hot one: see Classes.",
    [ask(f"sum by (class) ({agent('lockd_waiters', NOT_CANARY)})", "{{class}}")],
    axis=Axis("none", decimals=0),
)
LOSSES = lines(
    "Lost leases, by class",
    "Not renewed in time, or gone from the masters: their holders were told. See Classes for the reasons.",
    [ask(f"sum by (class) ({grown('lockd_losses_total', LOST)})", "{{class}}")],
    axis=Axis("none", seen=1),
    drawn=BARS,
)
REPLICATION = lines(
    "Held leases, by how many masters have them",
    "All should be on all masters. On fewer, one more lost key or master may cost the lease.",
    [ask(f"sum by (masters) ({agent('lockd_leases_on_masters')})", "on {{masters}}")],
    axis=Axis("none", decimals=0),
    drawn=STACKED,
    # None is red that one master in quarantine brings about, of however many.
    colors={"on 0": RED, "on 1": ORANGE, "on 2": YELLOW, "on 3": PURPLE, "on 4": BLUE, "on 5": GREEN},
)
BURN = lines(
    "Error budget burn",
    "How many times faster than 99.9 % availability allows the budget is spent. Above 14.4 over an hour, or"
    " 6 over six hours, somebody is paged.",
    [
        ask(f"max({recorded(f'cluster:lockd_unavailable:ratio_rate{window}')}) / 0.001", f"over {window}")
        for window in ("1h", "6h", "3d")
    ],
    axis=Axis("suffix: ×", seen=16),
    thresholds=p.steps((None, "transparent"), (6, ORANGE), (14.4, RED)),
)
CANARY = lines(
    "The canary",
    "Each agent takes and gives back a lock of its own all the time: p99 of how long that takes when it"
    " works, by agent. An agent whose line ends has a canary that fails.",
    [ask(CANARY_P99, "{{instance}}")],
    axis=Axis("s"),
)

BOARD = dashboard(
    "lockd-overview",
    "lockd / Overview",
    "Is it well? Can locks be had, is what is held safe, and where to look next.",
    [
        (4, [(5, AVAILABLE), (5, SAFE), (3, NO_VOTE), (3, AGENTS_DOWN), (4, FIRING), (4, LONGEST_WAIT)]),
        (8, [(12, MASTERS), (12, ALERTS)]),
        (7, [(8, ANSWERED), (8, UNAVAILABLE_SHARE), (8, WAITS)]),
        (7, [(8, WAITING), (8, LOSSES), (8, REPLICATION)]),
        (7, [(12, BURN), (12, CANARY)]),
    ],
)
