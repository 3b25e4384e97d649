"""What more than one dashboard shows: words for what a master is and whether apps get locks, and panels."""

from __future__ import annotations

from dashboards import panels as p
from dashboards.panels import BLUE, GREEN, ORANGE, PURPLE, RED, YELLOW, ask
from dashboards.queries import (
    AGENTS_SILENT,
    MASTER_STATES,
    NO_ANSWER,
    NO_QUORUM,
    NO_SOCKET,
    NOWHERE,
    REFUSED,
    STOPPING,
)

_COLORS = {
    "up": GREEN, "connecting": YELLOW, "loading": YELLOW, "stalled": YELLOW, "clock": ORANGE,
    "quarantined": PURPLE,
}  # fmt: skip
_WORDS = {"clock": "clock not trusted"}

MASTER_WORDS = [
    *p.words(
        *(
            (code, _WORDS.get(state, state), _COLORS.get(state, RED))
            for code, state in enumerate(MASTER_STATES)
        )
    ),
    p.missing("unknown"),
]

LOCKS_WORDS = [
    *p.words(
        (NO_QUORUM, "no quorum", RED),
        (REFUSED, "refused by the masters", RED),
        (NO_ANSWER, "no answer", RED),
        (NO_SOCKET, "no socket", RED),
        (STOPPING, "stopping", BLUE),
        (0, "no margin", RED),
        (1, "1 more may fail", YELLOW),
    ),
    p.span(2, None, "ok", GREEN),
    p.missing("no answer"),
]
"""For queries.LOCKS, of one agent."""
LOCKS_ANYWHERE_WORDS = [
    *p.words(
        (NOWHERE + NO_QUORUM, "NO: NO QUORUM", RED),
        (NOWHERE + REFUSED, "NO: REFUSED", RED),
        (NOWHERE + NO_ANSWER, "NO: AGENTS DOWN", RED),
        (NOWHERE + NO_SOCKET, "NO: NO SOCKET", RED),
        (NOWHERE + STOPPING, "NO: STOPPING", RED),
        (NO_QUORUM, "NOT ON ALL HOSTS", RED),
        (REFUSED, "NOT ON ALL HOSTS", RED),
        (NO_ANSWER, "NOT ON ALL HOSTS", RED),
        (NO_SOCKET, "NOT ON ALL HOSTS", RED),
        (STOPPING, "NOT ON ALL HOSTS", ORANGE),
        (0, "YES, NO MARGIN", RED),
    ),
    p.span(1, None, "YES", GREEN),
    p.missing("NO AGENT KNOWN"),
]
"""For queries.LOCKS_OF_THE_WORST."""

AGENTS_DOWN = p.stat(
    "Agents down",
    "Agents that Prometheus can't scrape. Apps on these hosts get no locks, and the locks they hold end"
    " at their deadlines.",
    [ask(AGENTS_SILENT, now=True)],
    unit="none",
    thresholds=p.steps((None, GREEN), (1, RED)),
)
