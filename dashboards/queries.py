"""The pieces of PromQL that all dashboards share: which series a reader has chosen, and what they mean."""

from __future__ import annotations

from lockd.core.errors import ErrorWord, Kind, Of
from lockd.metrics.leases import UNMEANT_LOSSES

AGENT = 'cluster=~"$cluster", job=~"$job", instance=~"$instance"'
"""An agent's own metrics."""
ONLY_AGENTS = 'job="lockd"'
"""For names that every job has: `All` jobs would bring the exporters', too."""
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


def grown(metric: str, *more: str) -> str:
    """By how much a counter grew between two points of a graph."""
    return f"increase({agent(metric, *more)}[$__rate_interval])"


def grown_at_master(metric: str) -> str:
    return f"increase({at_master(metric)}[$__rate_interval])"


def grown_in_range(metric: str, *more: str) -> str:
    """By how much a counter grew in the whole time that is shown."""
    return f"increase({agent(metric, *more)}[$__range])"


def quantile(q: float, histogram: str, by: str, *more: str) -> str:
    return f"histogram_quantile({q:g}, sum by ({by}, le) ({per_second(f'{histogram}_bucket', *more)}))"


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


def master_state(*more: str) -> str:
    """By master: the worst that any chosen agent says of it, as an index of MASTER_STATES."""
    seen = [
        f"{code} * ({agent('lockd_master_state', _is('state', state), *more)} == 1)"
        for code, state in enumerate(MASTER_STATES)
        if state not in ("clock", "quarantined")
    ]
    trusted, code = agent("lockd_master_clock_trusted", *more), MASTER_STATES.index("clock")
    clock = f"{code} + ({trusted} == 0)"
    matchers = ", ".join((CLUSTER, *more))
    guard = f"{MASTER_STATES.index('quarantined')} * (redis_lock_guard_quarantined{{{matchers}}} == 1)"
    return "max by (cluster, master) (\n  " + "\n  or ".join((*seen, clock, guard)) + "\n)"


MARGIN = f"{agent('lockd_masters_voting')} - {agent('lockd_quorum')}"
"""How many masters an agent can do without: below 0 it has no quorum."""

# What keeps the apps of a host from having locks, as numbers below its agent's margin: the lower, the worse.
NO_QUORUM, REFUSED, NO_ANSWER, STOPPING = -4, -3, -2, -1
NOWHERE = -10
"""Is added to the number of the worst agent when no other is better off."""
CANARY_FAILURES = 2
"""One may be a master that died in the midst of it."""
_CANARY_SILENT = (
    f"time() - {agent('lockd_canary_last_success_timestamp_seconds')}"
    f" > 3 * {agent('lockd_canary_interval_seconds')} + 60"
)
LOCKS = " or ".join(
    (
        f"{NO_QUORUM} + 0 * ({MARGIN} < 0)",
        f"{STOPPING} + 0 * ({agent('lockd_draining')} == 1)",
        f"{REFUSED} + 0 * ({agent('lockd_canary_failures')} >= {CANARY_FAILURES})",
        f"{REFUSED} + 0 * ({_CANARY_SILENT})",
        f"{NO_ANSWER} + 0 * ({agent('up')} == 0)",
        MARGIN,
    )
)
"""By agent, whether apps of its host can have locks: its margin, or which of the above keeps them from it."""
LOCKS_OF_THE_WORST = f"min({LOCKS}) + {NOWHERE} * (max({LOCKS}) < bool 0)"

AGENTS_SILENT = f"count({agent('up')} == 0) or vector(0)"
CANARY_P99 = quantile(0.99, "lockd_canary_seconds", "instance", 'outcome="granted"')
"""By agent: how long its own lock takes, with its release, when it works."""

ANSWERS = f"sum({per_second('lockd_grants_total')}) + sum({per_second('lockd_refusals_total', ANSWERED)})"
