"""The status page: what this host's agent knows, for whoever was just woken up. Read only.

One piece of HTML without scripts and without anything from elsewhere, so that it also opens in a text
browser over ssh. Whoever can reach the port reads it, any user of this host to begin with: so there are
numbers by class, and no names of resources, none of who holds or waits for one. Those are had over the
agent's socket, by who may use it: lockctl top. What it shows of masters may come from a master: it is escaped
and cut.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lockd import __version__
from lockd.core.validity import NS_PER_MS
from lockd.health import LOSS_IS_NEWS_MS, AgentHealth, Assessment, Level, availability, safety
from lockd.metrics.occupancy import Occupancy
from lockd.text import format_ms, printable

REASON_CHARS = 300
REFRESH_S = 5

_STYLE = """
body { font: 15px/1.4 system-ui, sans-serif; margin: 1.5em auto; max-width: 75em; padding: 0 1em;
  color: #1b1b1b; background: #fff }
h1 { font-size: 1.3em } h2 { font-size: 1.05em; margin: 1.6em 0 .3em }
.assessment { font-size: 1.25em; margin: .4em 0; padding: .5em .8em; border-left: .5em solid }
.good { color: #14532d; background: #e7f6ec; border-color: #15803d }
.warning { color: #6b3d00; background: #fff3d6; border-color: #d97706 }
.bad { color: #7f1d1d; background: #fde4e4; border-color: #dc2626; font-weight: bold }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .2em .8em .2em 0; border-bottom: 1px solid #ddd; vertical-align: top }
th { font-weight: 600; color: #555; white-space: nowrap }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
p, footer { color: #555 }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #16181c } th, p, footer { color: #aaa } th, td { border-color: #333 }
  a { color: #8ab4f8 } .good { color: #b7f0c8; background: #11351f }
  .warning { color: #ffdf9e; background: #40300a } .bad { color: #ffc9c9; background: #4a1212 } }
"""

STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()


@dataclass(frozen=True)
class HostStatus:
    """One agent at one instant; masters as MASTERS has them, totals by class."""

    host: str
    cluster: str
    uptime_ms: int
    fingerprint: str
    connections: int
    quorum: int
    responsive: bool
    draining: bool
    masters: Sequence[Mapping[str, Any]]
    occupancy: Occupancy
    totals: Mapping[str, Mapping[str, int]]
    canary_failures: int = 0
    canary_trouble: str = ""

    def health(self) -> AgentHealth:
        total = self.occupancy.total
        return AgentHealth(
            masters=len(self.masters),
            quorum=self.quorum,
            voting=sum(master["vote"] for master in self.masters),
            responsive=self.responsive,
            draining=self.draining,
            lost=total.lost,
            on_fewer=total.on_fewer,
            canary_failures=self.canary_failures,
            canary_trouble=self.canary_trouble,
        )


def render(status: HostStatus) -> str:
    host = _text(status.host)
    assessments = (availability(status.health()), safety(status.health()))
    worst = max((assessment.level for assessment in assessments), key=list(Level).index)
    parts = (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="refresh" content="{REFRESH_S}">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{worst.upper()}: lockd on {host}</title><style>{_STYLE}</style></head><body>",
        f"<h1>lockd on {host}</h1>",
        *map(_assessment, assessments),
        "<h2>Masters, as this host sees them</h2>",
        _masters(status.masters),
        "<h2>Held and waited for on this host</h2>",
        _held(status.occupancy),
        _classes(status),
        f"<footer><p>Cluster {_text(status.cluster)}, {status.connections} connections of apps, agent "
        f"{_text(__version__)} up for {_ms(status.uptime_ms)}, "
        f"configuration {_text(status.fingerprint)}. "
        f"This page looks again every {REFRESH_S} s. "
        '<a href="/metrics">/metrics</a> <a href="/healthz">/healthz</a> <a href="/readyz">/readyz</a>. '
        "In a terminal: lockctl top, lockctl doctor.</p></footer></body></html>\n",
    )
    return "\n".join(parts)


def _assessment(assessment: Assessment) -> str:
    return f'<div class="assessment {assessment.level}">{_text(assessment.text)}</div>'


def _masters(masters: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for master in masters:
        level = Level.GOOD if master["vote"] else Level.BAD
        answers = master["state"] not in ("down", "connecting")
        rows.append(
            (
                _cell(master["name"]),
                _cell(master["address"]),
                _cell("votes" if master["vote"] else "no vote", str(level)),
                _cell(master["state"]),
                _cell(_us(master["rtt_us"]) if answers else "", "n"),
                _cell(_us(master["clock_offset_us"]) if answers else "", "n"),
                _cell(master["version"]),
                _cell("" if master["vote"] else str(master["reason"])[:REASON_CHARS]),
            )
        )
    return _table(_MASTER_HEADINGS, rows)


def _held(occupancy: Occupancy) -> str:
    total = occupancy.total
    return (
        f"<p>{total.leases} held, {total.waiters} waiting. Which resources, and by whom: "
        "<code>lockctl top</code> on this host.</p>"
    )


def _classes(status: HostStatus) -> str:
    rows = []
    for label, now in status.occupancy.by_class.items():
        totals = status.totals[label]
        rows.append(
            (
                _cell(label),
                _cell(now.leases, "n"),
                _cell(now.waiters, "n"),
                _cell(_ms(now.oldest_wait_ns // NS_PER_MS) if now.waiters else "", "n"),
                _cell(now.on_fewer or "", f"n {Level.WARNING}" if now.on_fewer else "n"),
                _cell(totals["grants"], "n"),
                _cell(totals["refusals"], "n"),
                _lost_cell(totals),
                _cell(totals["losses_meant"], "n"),
            )
        )
    return _table(_CLASS_HEADINGS, rows)


def _lost_cell(totals: Mapping[str, int]) -> str:
    """What nobody meant to be lost, and when that was last. It is red for LOSS_IS_NEWS_MS."""
    lost, ago_ms = totals["losses"] - totals["losses_meant"], totals.get("last_loss_ms")
    if ago_ms is None:
        return _cell(lost, "n")
    return _cell(f"{lost}, {_ms(ago_ms)} ago", "n bad" if ago_ms < LOSS_IS_NEWS_MS else "n")


# HTML. `#` before a heading: a column of numbers.

_MASTER_HEADINGS = (
    *("master", "address", "vote", "state"),
    *("#round trip", "#clock offset", "version", "why no vote"),
)
_CLASS_HEADINGS = (
    *("class", "#held", "#waiting", "#longest wait", "#not on all masters"),
    *("#granted since start", "#refused", "#lost", "#forced, max_hold"),
)


def _table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(
        f'<th class="n">{_text(heading[1:])}</th>'
        if heading.startswith("#")
        else f"<th>{_text(heading)}</th>"
        for heading in headings
    )
    body = "".join(f"<tr>{''.join(row)}</tr>\n" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>"


def _cell(value: object, kind: str = "") -> str:
    return f'<td class="{kind}">{_text(value)}</td>' if kind else f"<td>{_text(value)}</td>"


def _text(value: object) -> str:
    """Any text as HTML: names and reasons come from anybody, control characters and all."""
    return html.escape(printable(value))


def _us(us: int | None) -> str:
    return "" if us is None else f"{us / 1000:.2f} ms"


def _ms(ms: int) -> str:
    return format_ms(ms, spelled_out=True)
