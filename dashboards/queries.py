"""The pieces of PromQL that all dashboards share: which series a reader has chosen, and what they mean."""

from __future__ import annotations

from alerts.build import Site
from lockd.core.errors import ErrorWord, Kind, Of
from lockd.metrics.leases import UNMEANT_LOSSES

AGENT = 'cluster=~"$cluster", site=~"$site", job=~"$job", instance=~"$instance"'
"""An agent's own metrics."""
ONLY_AGENTS = Site().selector
"""For names that every job has: `All` jobs would bring the exporters', too."""
ONLY_EXPORTERS = Site().masters_selector
"""The same of the exporters on the masters' hosts."""
MASTER = 'cluster=~"$cluster", master=~"$master"'
"""Metrics of the exporters on a master's host. They are of other jobs than the agents."""
CLUSTER = 'cluster=~"$cluster"'
"""What is recorded by rules, over all agents of a cluster."""
CLUSTER_OR_NONE = 'cluster=~"$cluster|"'
"""Of alerts: those that watch Prometheus itself belong to no cluster, and must be seen in each."""
NOT_CANARY = 'class!="canary"'


def refused_as(*kinds: Kind) -> str:
    """LOCKs whose error is of these kinds."""
    words = (word.lower() for kind in kinds for word in ErrorWord.answering(Of.LOCK, kind))
    return f'reason=~"{"|".join(words)}"'


CONTENDED = refused_as(Kind.CONTENDED)
UNAVAILABLE = refused_as(Kind.UNAVAILABLE)
ANSWERED = refused_as(Kind.CONTENDED, Kind.UNAVAILABLE)
REJECTED = refused_as(*(kind for kind in Kind if kind not in (Kind.CONTENDED, Kind.UNAVAILABLE)))
WORDS_CONTENDED = " or ".join(ErrorWord.answering(Of.LOCK, Kind.CONTENDED))
WORDS_UNAVAILABLE = " or ".join(ErrorWord.answering(Of.LOCK, Kind.UNAVAILABLE))
"""As readers are told of them."""
LOST = f'reason=~"{"|".join(UNMEANT_LOSSES)}"'
"""Losses that are somebody's trouble; the others were meant."""


def agent(metric: str, *more: str) -> str:
    """A metric of the chosen agents, with more matchers."""
    shared = metric == "up" or metric.startswith("process_")
    return f"{metric}{{{', '.join((AGENT, *((ONLY_AGENTS,) if shared else ()), *more))}}}"


def per_second(metric: str, *more: str) -> str:
    return f"rate({agent(metric, *more)}[$__rate_interval])"


def events(metric: str, *more: str) -> str:
    """How many events a counter of agents counted from one point of a graph to the next: whole numbers, and
    each event in one bar. `increase` would estimate between scrapes, and over `$__rate_interval` its windows
    overlap: three events were five bars of 3.7.

    An agent that was started in between has counted from 0: its present value. One that was only not
    scraped for a while shows nothing, not all that it ever counted.
    """
    counter = agent(metric, *more)
    started = (
        f"{counter} and on (cluster, job, instance)"
        f" time() - {agent('process_start_time_seconds')} < $__interval_ms / 1000 + {FIRST_SCRAPE_S}"
    )
    return f"({_counted(counter)} or {started})"


def events_at_master(metric: str) -> str:
    """The same of a guard's counter. Those outlive their process."""
    return f"({_counted(at_master(metric))})"


FIRST_SCRAPE_S = 60
"""How long after its start an agent is scraped, at the latest."""


def _counted(counter: str) -> str:
    before = f"{counter} offset $__interval"
    return f"{counter} - {before} >= 0 or {counter} and {before}"


def started() -> str:
    """By agent: above 0 at a point of a graph when it was started since the one before."""
    start = agent("process_start_time_seconds")
    return f"max by (instance) ({start} != bool {start} offset $__interval) > 0"


def starts_in_range() -> str:
    """By agent: how often it was started in the whole time that is shown."""
    return f"max by (instance) (changes({agent('process_start_time_seconds')}[$__range:$__interval] @ end()))"


def grown_in_range(metric: str, *more: str) -> str:
    """By how much a counter grew in the whole time that is shown."""
    return f"increase({agent(metric, *more)}[$__range])"


def grown_lately(metric: str, *more: str) -> str:
    """By how much a counter grew in the minutes that are now, whatever time is shown."""
    return f"increase({agent(metric, *more)}[{LATELY}])"


LATELY = "5m"


def quantile(q: float, histogram: str, by: str, *more: str) -> str:
    labels = f"{by}, le" if by else "le"
    return f"histogram_quantile({q:g}, sum by ({labels}) ({per_second(f'{histogram}_bucket', *more)}))"


def _is(label: str, value: str) -> str:
    return f'{label}="{value}"'


def at_master(metric: str, *more: str) -> str:
    """A metric of the exporters on the masters' hosts."""
    return f"{metric}{{{', '.join((MASTER, *more))}}}"


def recorded(rule: str, *more: str) -> str:
    return f"{rule}{{{', '.join((CLUSTER, *more))}}}"


# What a master is, as a number: the larger, the worse. `clock` and `quarantined` are no states of the agent:
# the one is `up` without a vote, the other is known to the guard only, and is `down` to agents.
MASTER_STATES = (
    "up", "connecting", "loading", "stalled", "clock", "blank", "unidentified", "foreign", "misplaced",
    "other_format", "other_members", "replaced", "outdated", "copied",
    "duplicate", "misconfigured", "miscounting", "down", "quarantined",
)  # fmt: skip


A_FEW = 0.05
"""The share of agents that may be wrong about a master: one of 500 that is cut off says that all are down.
Of fewer than twenty each counts."""


def _share(said: str) -> str:
    return f"avg by (cluster, master) ({said})"


def _more_than_a_few(state: str, *more: str) -> str:
    """An agent says only which state a master is in."""
    say_so = f"sum by (cluster, master) ({agent('lockd_master_state', _is('state', state), *more)})"
    return f"{say_so} > {A_FEW} * count by (cluster, master) ({agent('lockd_master_vote', *more)})"


def master_state(*more: str) -> str:
    """By master: the worst that more than a few of the chosen agents say, as an index of MASTER_STATES."""
    matchers = ", ".join((CLUSTER, *more))
    by_itself = {
        "clock": f"{_share(agent('lockd_master_clock_trusted', *more))} < 1 - {A_FEW}",
        "quarantined": f"max by (cluster, master) (lockd_guard_quarantined{{{matchers}}}) == 1",
    }
    worst_first = [
        f"{code} + 0 * ({by_itself.get(state) or _more_than_a_few(state, *more)})"
        for code, state in reversed(list(enumerate(MASTER_STATES)))
    ]
    return "\n  or ".join(worst_first)  # the first that is true of a master hides the others


WITHOUT_VOTE = (
    f"(count by (cluster) ({_share(agent('lockd_master_vote'))} < 1 - {A_FEW})"
    f" or 0 * max by (cluster) ({agent('lockd_masters')}))"
)
"""How many masters have no vote with more than a few agents."""
TOO_FEW_VOTES = (
    f"(max by (cluster) ({agent('lockd_masters')}) - {WITHOUT_VOTE}"
    f" < bool max by (cluster) ({agent('lockd_quorum')}))"
)
MARGIN = f"{agent('lockd_masters_voting')} - {agent('lockd_quorum')}"
"""How many masters an agent can do without: below 0 it has no quorum."""
NO_QUORUM_FOR = f"avg by (cluster) ({MARGIN} < bool 0) > {A_FEW}"
"""The share of agents that have no quorum, where those are more than a few."""

# What keeps the apps of a host from having locks, as numbers below its agent's margin: the lower, the worse.
NO_QUORUM, REFUSED, NO_ANSWER, NO_SOCKET, STOPPING = -5, -4, -3, -2, -1
NOWHERE = -10
"""Is added to the number of the worst agent when no other is better off."""
CANARY_FAILURES = 2
"""One may be a master that died in the midst of it."""
CANARY_LATE = (
    f"time() - {agent('lockd_canary_last_success_timestamp_seconds')}"
    f" - 3 * ({agent('lockd_canary_interval_seconds')} > 0)"
)
"""How many seconds ago the canary should have worked at the latest; below 0 if that is still to come. Nothing
once it is switched off: then the interval is 0 at once, while its last try may still go on."""
CANARY_TOO_LATE_S = 60
"""It was scraped a while ago."""
LOCKS = " or ".join(
    (
        # Before what it said last, which Prometheus may know for minutes.
        f"{NO_ANSWER} + 0 * ({agent('up')} == 0)",
        f"{NO_QUORUM} + 0 * ({MARGIN} < 0)",
        f"{STOPPING} + 0 * ({agent('lockd_draining')} == 1)",
        f"{REFUSED} + 0 * ({agent('lockd_canary_failures')} >= {CANARY_FAILURES})",
        f"{REFUSED} + 0 * ({CANARY_LATE} > {CANARY_TOO_LATE_S})",
        # The canary needs no socket.
        f"{NO_SOCKET} + 0 * ({agent('lockd_app_socket_ok')} == 0)",
        MARGIN,
    )
)
"""By agent, whether apps of its host can have locks: its margin, or which of the above keeps them from it."""
LOCKS_BY_HOST = f"min by (instance) ({LOCKS})"
LOCKS_OF_THE_WORST = f"min({LOCKS}) + {NOWHERE} * (max({LOCKS}) < bool 0)"

AGENTS_SILENT = f"count({agent('up')} == 0) or vector(0)"
CANARY_P99 = quantile(0.99, "lockd_canary_seconds", "instance", 'outcome="granted"')
"""By agent: how long its own lock takes, with its release, when it works."""

LOOP_LAG = f"max by (instance) ({agent('lockd_event_loop_lag_max_seconds')})"

FEW = 10
"""So many hosts are shown of however many there are: the worst ones."""


def worst(expr: str, by: str = "instance") -> str:
    """Of what is said by host, the hosts where it was highest at any time that is shown, in all that time."""
    highest = f"max_over_time(({expr})[$__range:$__interval] @ end())"
    return f"({expr}) and on ({by}) topk({FEW}, {highest})"


_TROUBLE = f"(0.9 * clamp_max({LOOP_LAG}, 1) or 0 * {LOCKS_BY_HOST}) - {LOCKS_BY_HOST}"
"""By host: higher where its apps are further from having locks, then where the agent lags."""


def of_the_worst_now(expr: str) -> str:
    """What is said by host, of the hosts with the most trouble."""
    return f"{expr} and on (instance) topk({FEW}, {_TROUBLE})"


def buckets(histogram: str, *more: str) -> str:
    """A histogram over time, for a heatmap."""
    return f"sum by (le) ({per_second(f'{histogram}_bucket', *more)})"


BUDGET = 0.001
"""The share of answers that may be UNAVAILABLE, over a month."""


def _over_a_month(rule: str) -> str:
    return f"avg_over_time({recorded(rule)}[30d])"


_SPENT = (
    f"{_over_a_month('cluster:lockd_unavailable:rate5m')} / {_over_a_month('cluster:lockd_answers:rate5m')}"
)
BUDGET_LEFT = f"min(1 - {_SPENT} / {BUDGET})"

# As in the rules: an agent that failed did not answer either.
FAILED = f"sum({per_second('lockd_internal_errors_total')})"
UNANSWERED = f"sum({per_second('lockd_refusals_total', UNAVAILABLE)}) + {FAILED}"
_GRANTED = per_second("lockd_grants_total")
_DECIDED = per_second("lockd_refusals_total", ANSWERED)
ANSWERS = f"sum({_GRANTED}) + sum({_DECIDED}) + {FAILED}"
