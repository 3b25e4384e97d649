"""What `lockd dev` shows: lines for pipes and logs, and below them a live table on a terminal.

A view is given snapshots of the agent and draws them; it asks nothing itself, so it can't hold anything up.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from lockd.lockctl.tables import (
    NARROW_COLUMNS,
    Rates,
    Snapshot,
    leases_table,
    masters_table,
    totals_line,
    votes,
)


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
    """Lines only: a change of a master's state is worth one, nothing else is."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lost = False
        self._changes = StateChanges()
        self._reader = select.poll()
        self._reader.register(out, 0)

    @property
    def gone(self) -> bool:
        """The pipe itself shows it: there may be nothing to print for hours."""
        hung_up = select.POLLERR | select.POLLHUP
        return self._lost or any(event & hung_up for _, event in self._reader.poll(0))

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
        self._lost = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._out.fileno())


class LiveView:
    """The lines, and below them tables of the masters and of the leases that are held, drawn in place."""

    def __init__(self, console: Console) -> None:
        self.gone = False
        self._console = console
        self._changes = StateChanges()
        self._rates = Rates()
        # Drawn when there is something new, and not by a separate thread: nothing is drawn after `close`.
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
        narrow = self._console.width < NARROW_COLUMNS
        tables = (masters_table(snapshot, narrow), "", leases_table(snapshot, narrow))
        return Group("", *tables, "", totals_line(snapshot, self._rates))


@dataclass
class StateChanges:
    """Finds which masters changed between one snapshot and the next."""

    _known: dict[str, tuple[str, bool]] = field(default_factory=dict)

    def lines(self, snapshot: Snapshot) -> list[str]:
        """One line for each master whose state or vote differs from the last snapshot; none for the first."""
        changed = []
        for master in snapshot.masters:
            now = (str(master["state"]), master["vote"] == 1)
            before = self._known.get(str(master["name"]), now)
            if now != before:
                changed.append(f"{_change(master, before, now)}; {votes(snapshot)}")
            self._known[str(master["name"])] = now
        return changed


def view_for(out: TextIO) -> View:
    """The live view on a terminal that can move its cursor, lines everywhere else."""
    console = Console(file=out, highlight=False)
    if out.isatty() and console.is_terminal and not console.is_dumb_terminal:
        return LiveView(console)
    return LineView(out)


def standard_view() -> View:
    return view_for(sys.stdout)


def _change(master: Mapping[str, Any], before: tuple[str, bool], now: tuple[str, bool]) -> str:
    reason = f" ({master['reason']})" if master["reason"] else ""
    if now[0] == before[0]:
        return f"{master['name']}: {now[0]}, {'votes again' if now[1] else 'no longer votes'}{reason}"
    return f"{master['name']}: {before[0]} -> {now[0]}, {'votes' if now[1] else 'no vote'}{reason}"
