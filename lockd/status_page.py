"""The status page: what this host's agent knows, for whoever was just woken up. Read only.

One piece of HTML without scripts and without anything from elsewhere, so that it also opens in a text
browser over ssh. It is bounded: however many leases there are, it shows the PLACES_SHOWN that matter most,
and it is made at most once in FRESH_S, whoever asks how often. Names of resources come from apps: they are
escaped, cut, and shown to readers on this host only (metrics_http.is_on_this_host), since the port may be
open to a whole network.
"""

from __future__ import annotations

import base64
import hashlib
import html
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from lockd import __version__
from lockd.census import Census, Place
from lockd.config import LockClass
from lockd.core.leases import Standing, pid_and_uid
from lockd.core.validity import NS_PER_MS
from lockd.shown import shown, shown_ms
from lockd.verdict import LOSS_IS_NEWS_MS, Facts, Level, Verdict, availability, safety

PLACES_SHOWN = 100
NAME_CHARS = 120
REASON_CHARS = 300
FRESH_S = 1.0
REFRESH_S = 5

_STYLE = """
body { font: 15px/1.4 system-ui, sans-serif; margin: 1.5em auto; max-width: 75em; padding: 0 1em;
  color: #1b1b1b; background: #fff }
h1 { font-size: 1.3em } h2 { font-size: 1.05em; margin: 1.6em 0 .3em }
.verdict { font-size: 1.25em; margin: .4em 0; padding: .5em .8em; border-left: .5em solid }
.good { color: #14532d; background: #e7f6ec; border-color: #15803d }
.warning { color: #6b3d00; background: #fff3d6; border-color: #d97706 }
.bad { color: #7f1d1d; background: #fde4e4; border-color: #dc2626; font-weight: bold }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .2em .8em .2em 0; border-bottom: 1px solid #ddd; vertical-align: top }
th { font-weight: 600; color: #555; white-space: nowrap }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
td.name { overflow-wrap: anywhere } p, footer { color: #555 }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #16181c } th, p, footer { color: #aaa } th, td { border-color: #333 }
  a { color: #8ab4f8 } .good { color: #b7f0c8; background: #11351f }
  .warning { color: #ffdf9e; background: #40300a } .bad { color: #ffc9c9; background: #4a1212 } }
"""

_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

HEADERS: tuple[tuple[str, str], ...] = (
    ("Content-Type", "text/html; charset=utf-8"),
    (
        "Content-Security-Policy",
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)


@dataclass(frozen=True)
class HostStatus:
    """One agent at one instant, `now_ns` on CLOCK_BOOTTIME; masters as MASTERS has them, totals by class."""

    host: str
    cluster: str
    uptime_ms: int
    fingerprint: str
    connections: int
    quorum: int
    responsive: bool
    draining: bool
    masters: Sequence[Mapping[str, Any]]
    classes: Sequence[LockClass]
    census: Census
    totals: Mapping[str, Mapping[str, int]]
    now_ns: int
    canary_failures: int = 0
    canary_trouble: str = ""

    def facts(self) -> Facts:
        total = self.census.total
        return Facts(
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


class StatusPage:
    """Makes the page, and keeps it for a moment: many readers must cost no more than one."""

    def __init__(self, look: Callable[[], HostStatus], clock_s: Callable[[], float] = time.monotonic) -> None:
        self._look = look
        self._clock_s = clock_s
        self._lock = Lock()
        self._made_s = float("-inf")
        self._pages: dict[bool, bytes] = {}

    def html(self, with_names: bool) -> bytes:
        """The page, UTF-8; `with_names`: the reader may see which resources there are. From any thread."""
        with self._lock:
            if self._clock_s() - self._made_s >= FRESH_S:
                status = self._look()
                self._pages = {names: render(status, names).encode() for names in (False, True)}
                self._made_s = self._clock_s()
            return self._pages[with_names]


def render(status: HostStatus, with_names: bool) -> str:
    host = _text(status.host)
    verdicts = (availability(status.facts()), safety(status.facts()))
    worst = max((verdict.level for verdict in verdicts), key=list(Level).index)
    parts = (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="refresh" content="{REFRESH_S}">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{worst.upper()}: lockd on {host}</title><style>{_STYLE}</style></head><body>",
        f"<h1>lockd on {host}</h1>",
        *map(_verdict, verdicts),
        "<h2>Masters, as this host sees them</h2>",
        _masters(status.masters),
        "<h2>Classes</h2>",
        _classes(status),
        "<h2>Held and waited for on this host</h2>",
        _places(status, with_names),
        f"<footer><p>Cluster {_text(status.cluster)}, {status.connections} connections of apps, agent "
        f"{_text(__version__)} up for {_ms(status.uptime_ms)}, "
        f"configuration {_text(status.fingerprint)}. "
        f"This page looks again every {REFRESH_S} s. "
        '<a href="/metrics">/metrics</a> <a href="/healthz">/healthz</a> <a href="/readyz">/readyz</a>. '
        "In a terminal: lockctl top, lockctl doctor.</p></footer></body></html>\n",
    )
    return "\n".join(parts)


def _verdict(verdict: Verdict) -> str:
    return f'<div class="verdict {verdict.level}">{_text(verdict.text)}</div>'


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


def _classes(status: HostStatus) -> str:
    of_class = {one.name: one for one in status.classes}
    rows = []
    for label, now in status.census.by_class.items():
        policy, totals = of_class.get(label), status.totals[label]
        rows.append(
            (
                _cell(label),
                _cell(policy.match if policy else "everything else" if label == "other" else ""),
                _cell(now.leases, "n"),
                _cell(now.waiters, "n"),
                _cell(_ms(now.oldest_wait_ns // NS_PER_MS) if now.waiters else "", "n"),
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


def _places(status: HostStatus, with_names: bool) -> str:
    total, places = status.census.total, status.census.places
    summary = f"{total.leases} held, {total.waiters} waiting"
    if not places:
        return f"<p>{summary}.</p>"
    if len(places) == PLACES_SHOWN:
        summary += f"; the {PLACES_SHOWN} most waited for, then lost, then longest held"
    if not with_names:
        summary += "; names of resources are shown to readers on this host only"
    rows = [_place_row(place, status, with_names) for place in places]
    return f"<p>{summary}.</p>{_table(_PLACE_HEADINGS, rows)}"


def _place_row(place: Place, status: HostStatus, with_names: bool) -> tuple[str, ...]:
    lease = place.lease
    name = _cell(_name(place.resource) if with_names else "", "name")
    waits = (
        _cell(place.waiters or "", "n"),
        _cell(_ms(place.oldest_wait_ns // NS_PER_MS) if place.waiters else "", "n"),
    )
    if lease is None:
        blank = _cell("")
        return (
            name,
            _cell(place.label),
            _cell("held elsewhere, or tried for"),
            *[blank] * 3,
            *waits,
            blank,
            blank,
        )
    pid, uid = pid_and_uid(lease.holder.owner)
    lost = lease.standing is Standing.LOST
    level = Level.BAD if lost else Level.WARNING if place.on_fewer else ""
    kind = "LOST" if lost else "detached" if lease.holder.detached else "session"
    return (
        name,
        _cell(place.label),
        _cell(kind, str(Level.BAD) if lost else ""),
        _cell(_ms(place.held_ns // NS_PER_MS), "n"),
        _cell(_ms(max(0, lease.deadline_ns - status.now_ns) // NS_PER_MS), "n"),
        _cell(f"{lease.proven.bit_count()} of {len(status.masters)}", f"n {level}".strip()),
        *waits,
        _cell(pid),
        _cell(uid),
    )


# HTML. `#` before a heading: a column of numbers.

_MASTER_HEADINGS = (
    *("master", "address", "vote", "state"),
    *("#round trip", "#clock offset", "version", "why no vote"),
)
_CLASS_HEADINGS = (
    *("class", "resources", "#held", "#waiting", "#longest wait"),
    *("#granted since start", "#refused", "#lost", "#forced, max_hold"),
)
_PLACE_HEADINGS = (
    *("resource", "class", "what", "#held for", "#valid for"),
    *("#masters", "#waiting", "#longest wait", "pid", "uid"),
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
    return html.escape(shown(value))


def _name(resource: bytes) -> str:
    name = resource.decode("utf-8", "surrogateescape")
    return name if len(name) <= NAME_CHARS else f"{name[:NAME_CHARS]}… ({len(resource)} bytes)"


def _us(us: int | None) -> str:
    return "" if us is None else f"{us / 1000:.2f} ms"


def _ms(ms: int) -> str:
    return shown_ms(ms, spelled_out=True)
