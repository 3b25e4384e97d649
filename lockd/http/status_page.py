"""The status page: what this host's agent knows, for someone who was just woken up. Read only.

It is one HTML page without scripts and without anything from elsewhere, so that it also opens in a text
browser over ssh. Everybody who can reach the port can read it, including any user of this host. So it has
numbers by class, and no names of resources or holders: users of the agent's socket see those with lockctl
top. Texts about masters may come from a master, so they are escaped and cut.

There may be hundreds of classes. The page shows the worst of them and links to pages with all of them, sorted
by the column that a reader clicks on: each order is a page with a separate path, since no page takes
parameters.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from lockd import __version__
from lockd.core.validity import NS_PER_MS
from lockd.health import (
    AgentHealth,
    Assessment,
    Level,
    availability,
    loss_is_news,
    safety,
    unmeant_losses,
)
from lockd.metrics.occupancy import ClassOccupancy, Occupancy
from lockd.text import format_ms, printable

REASON_CHARS = 300
REFRESH_S = 5
CLASSES_SHOWN = 20
"""On the first page. All of them are on the pages of CLASS_PATHS."""

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
tr.sum td { font-weight: 600; border-bottom: 2px solid #999 }
th a { color: inherit } th.by { color: #1b1b1b } th.by::after { content: " \\25BE" }
p, footer { color: #555 }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #16181c } th, p, footer { color: #aaa } th, td { border-color: #333 }
  th.by { color: #ddd } a { color: #8ab4f8 } th a { color: inherit }
  .good { color: #b7f0c8; background: #11351f }
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


class ClassRow(NamedTuple):
    """A class at this instant, and its totals since the agent started."""

    label: str
    now: ClassOccupancy
    totals: Mapping[str, int]

    @property
    def lost(self) -> int:
        return unmeant_losses(self.totals)

    @property
    def lost_lately(self) -> bool:
        return loss_is_news(self.now.lost, self.totals)


Key = Callable[[ClassRow], tuple[float, ...]]


def _worst(row: ClassRow) -> tuple[float, ...]:
    """What is wrong, then what is waited for, then what is held."""
    now = row.now
    return (-int(row.lost_lately), -now.on_fewer, -now.waiters, -now.oldest_wait_ns, -now.leases)


WORST = ""
CLASS_ORDERS: Mapping[str, Key] = {
    WORST: _worst,
    "name": lambda row: (),
    "held": lambda row: (-row.now.leases,),
    "waiting": lambda row: (-row.now.waiters,),
    "longest-wait": lambda row: (-row.now.oldest_wait_ns if row.now.waiters else 0,),
    "not-on-all-masters": lambda row: (-row.now.on_fewer,),
    "granted": lambda row: (-row.totals["grants"],),
    "refused": lambda row: (-row.totals["refusals"],),
    "lost": lambda row: (-row.lost,),
    "ended-on-purpose": lambda row: (-row.totals["losses_meant"],),
}
"""The smallest key comes first; equals are sorted by name."""
CLASS_PATHS = {f"/classes/{order}".rstrip("/"): order for order in CLASS_ORDERS}


def render(status: HostStatus) -> str:
    host = _text(status.host)
    assessments = (availability(status.health()), safety(status.health()))
    worst = max((assessment.level for assessment in assessments), key=list(Level).index)
    rows = _sorted(status, WORST)
    more = len(rows) - CLASSES_SHOWN
    return _document(
        f"{worst.upper()}: lockd on {host}",
        REFRESH_S,
        f"<h1>lockd on {host}</h1>",
        *map(_assessment, assessments),
        "<h2>Masters, as this host sees them</h2>",
        _masters(status.masters),
        "<h2>Held and waited for on this host</h2>",
        _held(status.occupancy),
        _classes(rows[:CLASSES_SHOWN], rows, WORST),
        f'<p>… and {more} more: <a href="/classes">all {len(rows)} classes</a></p>' if more > 0 else "",
        f"<footer><p>Cluster {_text(status.cluster)}, {status.connections} connections of apps, agent "
        f"{_text(__version__)} up for {_ms(status.uptime_ms)}, "
        f"configuration {_text(status.fingerprint)}. "
        f"This page refreshes every {REFRESH_S} s. "
        '<a href="/metrics">/metrics</a> <a href="/healthz">/healthz</a> <a href="/readyz">/readyz</a>. '
        "In a terminal: lockctl top, lockctl doctor.</p></footer>",
    )


def render_classes(status: HostStatus, order: str) -> str:
    """All classes. It does not refresh itself, so that a reader can search it."""
    rows = _sorted(status, order)
    host = _text(status.host)
    by = order.replace("-", " ") if order else "worst first"
    return _document(
        f"{len(rows)} classes: lockd on {host}",
        None,
        f'<h1>{len(rows)} classes on <a href="/">{host}</a>, {by}</h1>',
        _held(status.occupancy),
        '<p>Click a heading to sort, or see the <a href="/classes">worst first</a>. This page does not '
        "refresh itself, so you can search it with your browser (Ctrl-F).</p>",
        _classes(rows, rows, order),
    )


def _document(title: str, refresh_s: int | None, *parts: str) -> str:
    refresh = "" if refresh_s is None else f'<meta http-equiv="refresh" content="{refresh_s}">'
    head = (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">{refresh}'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body>"
    )
    return "\n".join((head, *(part for part in parts if part), "</body></html>\n"))


def _sorted(status: HostStatus, order: str) -> list[ClassRow]:
    key = CLASS_ORDERS[order]
    rows = [ClassRow(label, now, status.totals[label]) for label, now in status.occupancy.by_class.items()]
    return sorted(rows, key=lambda row: (*key(row), row.label))


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
    in_use = sum(bool(of.leases or of.waiters) for of in occupancy.by_class.values())
    return (
        f"<p>{total.leases} held, {total.waiters} waiting. {in_use} of {len(occupancy.by_class)} classes are "
        "in use. For resources and holders, type <code>lockctl top</code> on this host.</p>"
    )


def _classes(shown: Sequence[ClassRow], rows: Sequence[ClassRow], order: str) -> str:
    """Sums of all rows, then those that are shown. A heading links to all rows, sorted by it."""
    head = "".join(
        f'<th class="{"n" if number else ""}{" by" if by == order else ""}">'
        f'<a href="/classes/{by}">{_text(heading)}</a></th>'
        for by, heading, number in _CLASS_HEADINGS
    )
    sums = f'<tr class="sum">{"".join(_sums(rows))}</tr>\n' if len(rows) > 1 else ""
    return _whole_table(head, sums, map(_class_cells, shown))


def _class_cells(row: ClassRow) -> tuple[str, ...]:
    now, totals = row.now, row.totals
    return (
        _cell(row.label),
        _cell(now.leases, "n"),
        _cell(now.waiters, "n"),
        _cell(_ms(now.oldest_wait_ns // NS_PER_MS) if now.waiters else "", "n"),
        _cell(now.on_fewer or "", f"n {Level.WARNING}" if now.on_fewer else "n"),
        _cell(totals["grants"], "n"),
        _cell(totals["refusals"], "n"),
        _lost_cell(row),
        _cell(totals["losses_meant"], "n"),
    )


def _sums(rows: Sequence[ClassRow]) -> tuple[str, ...]:
    waits_ns = [row.now.oldest_wait_ns for row in rows if row.now.waiters]
    return (
        _cell("all classes"),
        _cell(sum(row.now.leases for row in rows), "n"),
        _cell(sum(row.now.waiters for row in rows), "n"),
        _cell(_ms(max(waits_ns) // NS_PER_MS) if waits_ns else "", "n"),
        _cell(sum(row.now.on_fewer for row in rows) or "", "n"),
        _cell(sum(row.totals["grants"] for row in rows), "n"),
        _cell(sum(row.totals["refusals"] for row in rows), "n"),
        _cell(sum(row.lost for row in rows), "n"),
        _cell(sum(row.totals["losses_meant"] for row in rows), "n"),
    )


def _lost_cell(row: ClassRow) -> str:
    """Unintended losses, and when the last one was. It is red for LOSS_IS_NEWS_MS."""
    ago_ms = row.totals.get("last_loss_ms")
    text = str(row.lost) if ago_ms is None else f"{row.lost}, {_ms(ago_ms)} ago"
    return _cell(text, "n bad" if row.lost_lately else "n")


# HTML. `#` before a heading: a column of numbers.

_MASTER_HEADINGS = (
    *("master", "address", "vote", "state"),
    *("#round trip", "#clock offset", "version", "why no vote"),
)
_CLASS_HEADINGS = (
    ("name", "class", False),
    ("held", "held", True),
    ("waiting", "waiting", True),
    ("longest-wait", "longest wait", True),
    ("not-on-all-masters", "not on all masters", True),
    ("granted", "granted since start", True),
    ("refused", "refused", True),
    ("lost", "lost", True),
    ("ended-on-purpose", "forced, max_hold", True),
)
"""The order that it leads to, its text, and whether its column has numbers."""


def _table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(
        f'<th class="n">{_text(heading[1:])}</th>'
        if heading.startswith("#")
        else f"<th>{_text(heading)}</th>"
        for heading in headings
    )
    return _whole_table(head, "", rows)


def _whole_table(head: str, first: str, rows: Iterable[Iterable[str]]) -> str:
    body = "".join(f"<tr>{''.join(row)}</tr>\n" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{first}{body}</tbody></table>"


def _cell(value: object, kind: str = "") -> str:
    return f'<td class="{kind}">{_text(value)}</td>' if kind else f"<td>{_text(value)}</td>"


def _text(value: object) -> str:
    """Any text as HTML: names and reasons may have any characters, even control characters."""
    return html.escape(printable(value))


def _us(us: int | None) -> str:
    return "" if us is None else f"{us / 1000:z.2f} ms"


def _ms(ms: int) -> str:
    return format_ms(ms, spelled_out=True)
