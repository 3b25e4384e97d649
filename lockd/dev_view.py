"""What `lockd dev` shows: lines for pipes and logs, and below them a live table when somebody is looking.

A view is given snapshots of the agent and draws them; it asks nothing itself, so it can't hold anything up.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

LEASES_SHOWN = 10
RATE_WINDOW_S = 3.0


@dataclass(frozen=True)
class Snapshot:
    """The agent at one instant, `at_s` on the monotonic clock: replies of MASTERS, LOCKS * LOCAL and INFO.

    `pids`: the masters' processes that run, by name.
    """

    at_s: float
    masters: Sequence[Mapping[str, Any]]
    leases: Sequence[Mapping[str, Any]]
    info: Mapping[str, str]
    pids: Mapping[str, int]

    @property
    def voting(self) -> int:
        return sum(master["vote"] == 1 for master in self.masters)

    def number(self, name: str) -> int:
        """A whole number of INFO, 0 when it isn't there."""
        try:
            return int(self.info.get(name, "0"))
        except ValueError:
            return 0


class View(Protocol):
    """Somewhere to show what happens."""

    @property
    def gone(self) -> bool:
        """True when nobody can see it any more: the pipe or the terminal has been closed."""

    def say(self, line: str) -> None:
        """Show a line, now."""

    def show(self, snapshot: Snapshot) -> None:
        """Show how things are."""

    def close(self) -> None:
        """Leave the terminal as it was; lines may still follow."""


class LineView:
    """Lines only: a change of a master's state is worth one, everything else is not."""

    def __init__(self, out: TextIO) -> None:
        self.gone = False
        self._out = out
        self._changes = StateChanges()

    def say(self, line: str) -> None:
        try:
            print(line, file=self._out, flush=True)
        except OSError:
            self._lose_output()

    def show(self, snapshot: Snapshot) -> None:
        for line in self._changes.lines(snapshot):
            self.say(line)

    def close(self) -> None:
        pass

    def _lose_output(self) -> None:
        """Stopping in order goes on without a reader, and Python's last flush must not fail either."""
        self.gone = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._out.fileno())


class LiveView:
    """The lines, and below them tables of the masters and of the leases that are held, drawn in place."""

    def __init__(self, console: Console) -> None:
        self.gone = False
        self._console = console
        self._changes = StateChanges()
        self._rates = Rates()
        # Drawn when there is something new, and by no thread of its own: nothing is drawn after `close`.
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def say(self, line: str) -> None:
        try:
            self._console.print(Text(line), soft_wrap=True)
        except OSError:
            self.gone = True

    def show(self, snapshot: Snapshot) -> None:
        for line in self._changes.lines(snapshot):
            self.say(line)
        self._rates.add(snapshot)
        try:
            if not self._live.is_started:
                self._live.start()
            self._live.update(self._picture(snapshot), refresh=True)
        except OSError:
            self.gone = True

    def close(self) -> None:
        try:
            self._live.stop()
        except OSError:
            self.gone = True

    def _picture(self, snapshot: Snapshot) -> RenderableType:
        tables = (masters_table(snapshot), "", leases_table(snapshot))
        return Group("", *tables, "", totals_line(snapshot, self._rates))


@dataclass
class StateChanges:
    """Finds which masters changed between one snapshot and the next."""

    _known: dict[str, tuple[str, bool]] = field(default_factory=dict)

    def lines(self, snapshot: Snapshot) -> list[str]:
        """One line for each master whose state or vote is not the last snapshot's; none for the first."""
        changed = []
        for master in snapshot.masters:
            now = (str(master["state"]), master["vote"] == 1)
            before = self._known.get(str(master["name"]), now)
            if now != before:
                changed.append(f"{_change(master, before, now)}; {_votes(snapshot)}")
            self._known[str(master["name"])] = now
        return changed


@dataclass
class Rates:
    """Counters per second, over the last few seconds."""

    _seen: deque[Snapshot] = field(default_factory=deque)

    def add(self, snapshot: Snapshot) -> None:
        self._seen.append(snapshot)
        while len(self._seen) > 2 and snapshot.at_s - self._seen[0].at_s > RATE_WINDOW_S:
            self._seen.popleft()

    def per_second(self, counter: str) -> float:
        if len(self._seen) < 2:
            return 0.0
        first, last = self._seen[0], self._seen[-1]
        return max(0, last.number(counter) - first.number(counter)) / (last.at_s - first.at_s)


def masters_table(snapshot: Snapshot) -> Table:
    table = _table(
        "master", "address", ">pid", "state", "vote", ">round trip", ">clock offset", "version", "why"
    )
    for master in snapshot.masters:
        votes = master["vote"] == 1
        up = master["state"] == "up"
        table.add_row(
            str(master["name"]),
            str(master["address"]),
            str(snapshot.pids.get(str(master["name"]), "")),
            Text(str(master["state"]), style="green" if up else "bold red"),
            Text("yes" if votes else "no", style="green" if votes else "bold red"),
            _duration_us(master["rtt_us"]) if up else "",
            _duration_us(master["clock_offset_us"]) if up else "",
            str(master["version"] or ""),
            Text(str(master["reason"] or ""), style="yellow"),
        )
    return table


def leases_table(snapshot: Snapshot) -> RenderableType:
    if not snapshot.leases:
        return Text("no lease is held through this agent", style="dim")
    table = _table(
        "held", "holder", ">pid", "class", ">fence", ">held for", ">valid for", "masters", ">waiting"
    )
    longest_held = sorted(snapshot.leases, key=lambda lease: -int(lease["held_ms"]))
    for lease in longest_held[:LEASES_SHOWN]:
        table.add_row(*_lease_row(lease))
    if len(longest_held) > LEASES_SHOWN:
        table.add_row(Text(f"and {len(longest_held) - LEASES_SHOWN} more", style="dim"))
    return table


def totals_line(snapshot: Snapshot, rates: Rates) -> Text:
    parts = [
        _votes(snapshot),
        f"{len(snapshot.leases)} held",
        f"{snapshot.number('waiters')} waiting",
        f"{rates.per_second('grants_total'):.1f} grants/s",
        f"{rates.per_second('releases_total'):.1f} releases/s",
        f"{rates.per_second('refused_total'):.1f} refused/s",
    ]
    return Text("  ·  ".join(parts))


def view_for(out: TextIO) -> View:
    """The live view on a terminal that can move its cursor, lines everywhere else."""
    console = Console(file=out, highlight=False)
    if out.isatty() and console.is_terminal and not console.is_dumb_terminal:
        return LiveView(console)
    return LineView(out)


def standard_view() -> View:
    return view_for(sys.stdout)


def _table(*headings: str) -> Table:
    """A plain table; a heading that starts with > is that of a column of numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for heading in headings:
        table.add_column(
            heading.lstrip(">"), justify="right" if heading.startswith(">") else "left", no_wrap=True
        )
    return table


def _lease_row(lease: Mapping[str, Any]) -> list[RenderableType]:
    everywhere = lease["masters"] == lease["of"]
    return [
        Text(str(lease["resource"]), overflow="ellipsis"),
        str(lease["holder"]),
        str(lease["pid"]),
        str(lease["class"]),
        str(lease["fence"]),
        _duration_ms(lease["held_ms"]),
        _duration_ms(lease["ttl_ms"]),
        Text(f"{lease['masters']} of {lease['of']}", style="" if everywhere else "yellow"),
        str(lease["waiters"] or ""),
    ]


def _change(master: Mapping[str, Any], before: tuple[str, bool], now: tuple[str, bool]) -> str:
    reason = f" ({master['reason']})" if master["reason"] else ""
    if now[0] == before[0]:
        return f"{master['name']}: {now[0]}, {'votes again' if now[1] else 'no longer votes'}{reason}"
    return f"{master['name']}: {before[0]} -> {now[0]}, {'votes' if now[1] else 'no vote'}{reason}"


def _votes(snapshot: Snapshot) -> str:
    return f"{snapshot.voting} of {len(snapshot.masters)} masters vote"


def _duration_us(value: Any) -> str:
    return "" if value is None else f"{int(value) / 1000:.2f} ms"


def _duration_ms(value: Any) -> str:
    return "" if value is None else f"{int(value) / 1000:.1f} s"
