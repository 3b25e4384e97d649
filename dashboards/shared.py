"""What more than one dashboard shows: the words for what a master is, and for an agent's margin."""

from __future__ import annotations

from dashboards import panels as p
from dashboards.panels import GREEN, ORANGE, PURPLE, RED, YELLOW
from dashboards.queries import MASTER_STATES

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
    p.missing("nobody knows"),
]

NO_ANSWER = -99
MARGIN_WORDS = [
    *p.words((NO_ANSWER, "no answer", RED)),
    p.span(NO_ANSWER + 1, -1, "no quorum", RED),
    *p.words((0, "no margin", RED)),
    p.span(1, 1, "1 more may fail", p.YELLOW),
    p.span(2, None, "well", GREEN),
    p.missing("no answer"),
]
