"""Overview: can apps get locks, are held locks safe, and where to look next?"""

from __future__ import annotations

from dashboards import panels as p
from dashboards.board import dashboard, link_to
from dashboards.graph import BARS, STACKED, Axis, lines
from dashboards.panels import BLUE, GREEN, ORANGE, PURPLE, RED, YELLOW, ask
from dashboards.queries import (
    ANSWERS,
    BUDGET,
    BUDGET_LEFT,
    CLUSTER_OR_NONE,
    CONTENDED,
    LOCKS_OF_THE_WORST,
    LOST,
    NOT_CANARY,
    REJECTED,
    TOO_FEW_VOTES,
    UNANSWERED,
    UNAVAILABLE,
    WITHOUT_VOTE,
    WORDS_CONTENDED,
    WORDS_UNAVAILABLE,
    agent,
    buckets,
    events,
    grown_lately,
    master_state,
    per_second,
    quantile,
    recorded,
)
from dashboards.shared import AGENTS_DOWN, LOCKS_ANYWHERE_WORDS, MASTER_WORDS
from dashboards.table import Column, table

# LockdWatchdog fires always, to show that alerts get through: that is no news.
LOCK_ALERTS = 'alertname=~"Lockd.+", alertname!="LockdWatchdog"'
FIRING_NOW = f'ALERTS{{{CLUSTER_OR_NONE}, {LOCK_ALERTS}, alertstate="firing"'


def _firing(*alerts: str) -> str:
    return f'count(ALERTS{{{CLUSTER_OR_NONE}, alertname=~"{"|".join(alerts)}", alertstate="firing"}}) > 0'


# What was lost lately is a number; what may be held twice is below 0, the worse the lower.
_LOST = f"round(sum({grown_lately('lockd_losses_total', LOST)}))"
SAFETY = (
    f"{_LOST} > 0"
    f" or -2 + 0 * ({_firing('LockdGuardTooShort', 'LockdMasterEvicting')})"
    f" or -1 + 0 * ({_firing('LockdGuardOverridden')})"
    f" or {_LOST}"
)

AVAILABLE = p.stat(
    "Can apps get locks?",
    "NO means on no host. NO QUORUM: too few masters have a vote; see Masters. REFUSED: enough masters"
    " have a vote, but the agents' own lock fails; see the canary and the votes not counted. NO SOCKET:"
    " the sockets that apps connect to are gone; apps that are connected go on. NOT ON ALL HOSTS: Agents"
    " shows which hosts and why; orange if those agents are only stopping. NO MARGIN: if one more master"
    " fails, no lock can be granted.",
    [ask(LOCKS_OF_THE_WORST, now=True)],
    thresholds=p.steps((None, RED), (1, GREEN)),
    mappings=LOCKS_ANYWHERE_WORDS,
)
SAFE = p.stat(
    "Are held locks safe?",
    "The last five minutes, whatever time range is selected. LOST: leases that were lost while held,"
    " because they were not renewed in time or are gone from the masters. Their holders were told, but"
    " may have acted in between; fences show which writes came too late. AT RISK: an alert is firing"
    " that says two apps could hold the same lock (a guard that is too short or was overridden, a master"
    " that evicts keys). For earlier losses see the bars below.",
    [ask(SAFETY, now=True)],
    unit="suffix: LOST",
    decimals=0,
    thresholds=p.steps((None, GREEN), (1, RED)),
    mappings=[
        *p.words((-2, "AT RISK", RED), (-1, "AT RISK", ORANGE), (0, "YES", GREEN)),
        p.missing("NO AGENT KNOWN"),
    ],
)
TOO_MANY = 100
"""Is added to how many are out where too few are left for a quorum, so that those can be red."""
NO_VOTE = p.stat(
    "Masters out",
    "Masters that have no vote with more than 5 % of agents (with fewer than 20 agents, each one"
    " counts). Orange: locking goes on, as with one or two masters out of five. Red: too few are left"
    " for a quorum. The state of each master is shown below.",
    [
        ask(
            f"max({WITHOUT_VOTE} + {TOO_MANY} * {TOO_FEW_VOTES})",
            now=True,
        )
    ],
    unit="none",
    thresholds=p.steps((None, GREEN), (1, ORANGE)),
    mappings=[*p.words(*((TOO_MANY + out, str(out), RED) for out in range(2, 10))), p.missing("?")],
)
FIRING = p.stat(
    "Firing alerts",
    "Critical alerts page, warnings are tickets. The table below lists them with links to their"
    " runbooks.",
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
    "Longest wait / objective",
    "The longest wait of any LOCK now, divided by the wait objective of its class. Above 10 it is"
    " probably stuck behind a holder that does not release. Contention is not an outage: Classes shows"
    " who waits.",
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
    "Master state",
    "The worst state that more than 5 % of agents report for each master (with fewer than 20 agents,"
    " each one counts). Purple: its guard keeps it in quarantine after an unclean restart, which ends"
    " without help. Orange: up, but its clock is not trusted yet. Red: see Masters.",
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
# One row for what happens on many hosts.
ALERT = "alertname, severity, master, class"
ALERTS = table(
    "Alerts",
    "Alerts that are firing or pending. The name links to the runbook. Count is the number of hosts or"
    " other objects that each alert is about.",
    Column("alertname", link=("Runbook", "${runbooks}/${__data.fields.alertname}.md"), width=230),
    [
        Column(
            "state",
            f"max by ({ALERT}) ({ALERTS_BY_WEIGHT})",
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
        Column(
            "count",
            f"count by ({ALERT}) (ALERTS{{{CLUSTER_OR_NONE}, {LOCK_ALERTS}}})",
            link=("Agents", link_to("lockd-agents")),
        ),
    ],
    sort="state",
    silence="No alert is firing or pending.",
)

ANSWERED = lines(
    "LOCK answers per second",
    f"Granted. Contended ({WORDS_CONTENDED}): another app holds the lock, which is not an outage."
    f" Unavailable ({WORDS_UNAVAILABLE}): an outage. Rejected: a policy, a limit or an invalid request.",
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
    "Share of answers unavailable",
    f"{WORDS_UNAVAILABLE} and failures of agents, as a share of all granted, contended and unavailable"
    " LOCKs. The objective is 0.1 % over 30 days. At the red line the error budget burns 14.4 times too"
    " fast, which pages.",
    [ask(f"({UNANSWERED}) / ({ANSWERS})", "unavailable")],
    axis=Axis("percentunit", seen=0.02),
    thresholds=p.steps((None, "transparent"), (0.0144, RED)),
    colors={"unavailable": RED},
)
WAITS = lines(
    "LOCK wait time, p50 and p99",
    "Time from a LOCK to its grant, over all classes without the canary. The median is about one round"
    " trip to the masters. A high p99 with a low median is contention; if both are high, the masters are"
    " slow.",
    [
        ask(quantile(q, "lockd_wait_seconds", "", 'outcome="granted"', NOT_CANARY), f"p{q * 100:g}")
        for q in (0.5, 0.99)
    ],
    axis=Axis("s", log=True),
    colors={"p50": p.CALM[0], "p99": p.CALM[2]},
)
WAITING = lines(
    "Waiting LOCKs by class",
    "LOCKs that wait for an answer. If one class is far above the others, see Classes.",
    [ask(f"sum by (class) ({agent('lockd_waiters', NOT_CANARY)})", "{{class}}")],
    axis=Axis("none", decimals=0),
)
LOSSES = lines(
    "Lost leases by class",
    "Leases that were not renewed in time or are gone from the masters. Their holders were told."
    " Classes shows the reasons.",
    [ask(f"sum by (class) ({events('lockd_losses_total', LOST)})", "{{class}}")],
    axis=Axis("none", seen=1),
    drawn=BARS,
)
REPLICATION = lines(
    "Held leases by number of masters",
    "How many masters have confirmed each held lease. It should be all of them. A lease on fewer"
    " masters may be lost if another master fails.",
    [ask(f"sum by (masters) ({agent('lockd_leases_on_masters')})", "on {{masters}}")],
    axis=Axis("none", decimals=0),
    drawn=STACKED,
    # None is red that one master in quarantine brings about, of however many.
    colors={"on 0": RED, "on 1": ORANGE, "on 2": YELLOW, "on 3": PURPLE, "on 4": BLUE, "on 5": GREEN},
)
WINDOWS = ("1h", "6h", "3d")
BURN = lines(
    "Error budget burn rate, with and without the canary",
    "How many times faster than 99.9 % availability allows the error budget is spent. Above 14.4 over"
    " one hour or 6 over six hours pages; those count the agents' own lock, the canary, too. Dashed: what"
    " apps themselves had, without the canary; nothing while no app asks.",
    [
        ask(f"max({recorded(f'cluster:lockd_{share}:ratio_rate{over}')}) / {BUDGET:g}", f"over {over}{of}")
        for share, of in (("unavailable", ""), ("unavailable_without_canary", ", apps alone"))
        for over in WINDOWS
    ],
    axis=Axis("none", seen=16),
    colors={f"over {window}(, apps alone)?": color for window, color in zip(WINDOWS, p.CALM, strict=False)},
    dashed=[f"over {window}, apps alone" for window in WINDOWS],
    thresholds=p.steps((None, "transparent"), (6, ORANGE), (14.4, RED)),
)
CANARY = p.heatmap(
    "Canary duration, all hosts",
    "Each agent takes, extends and releases a lock regularly, its canary. The graph shows how long these took"
    " when they worked. A second band higher up means that some hosts are slow or far from the masters;"
    " Agents shows which.",
    buckets("lockd_canary_seconds", 'outcome="granted"'),
    silence="no working canary",
)
BUDGET_OF_A_MONTH = p.stat(
    "Error budget left",
    "The share of the error budget that is left: 99.9 % of answers must not be unavailable over 30"
    " days. Below 0 % the objective is missed. If Prometheus keeps less than 30 days, it covers what"
    " there is.",
    [ask(BUDGET_LEFT, now=True)],
    unit="percentunit",
    decimals=0,
    thresholds=p.steps((None, RED), (0, ORANGE), (0.25, YELLOW), (0.5, GREEN)),
    mappings=[p.missing("?")],
)

BOARD = dashboard(
    "lockd-overview",
    "lockd / Overview",
    "Can apps get locks, are held locks safe, and where to look next?",
    [
        (
            4,
            [
                (4, AVAILABLE),
                (4, SAFE),
                (3, NO_VOTE),
                (3, AGENTS_DOWN),
                (3, FIRING),
                (4, LONGEST_WAIT),
                (3, BUDGET_OF_A_MONTH),
            ],
        ),
        (8, [(12, MASTERS), (12, ALERTS)]),
        (7, [(8, ANSWERED), (8, UNAVAILABLE_SHARE), (8, WAITS)]),
        (7, [(8, WAITING), (8, LOSSES), (8, REPLICATION)]),
        (7, [(12, BURN), (12, CANARY)]),
    ],
)
