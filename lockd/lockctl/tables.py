"""Masters and leases as tables, for `lockctl top` and `lockd dev`. It loads rich, which takes a while."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lockd.lockctl.order import sorted_leases
from lockd.lockctl.printing import pid
from lockd.text import format_ms

LEASES_SHOWN = 10
RATE_WINDOW_S = 3.0
NARROW_COLUMNS = 110


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
        """A whole number of INFO, 0 when it is missing."""
        try:
            return int(self.info.get(name, "0"))
        except ValueError:
            return 0


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


def masters_table(snapshot: Snapshot, narrow: bool = False) -> Table:
    return _table(
        [_master_cells(master, snapshot.pids) for master in snapshot.masters],
        numbers=("pid", "round trip", "clock offset"),
        shrinks="why",
        without=(*(() if snapshot.pids else ("pid",)), *(("clock offset", "version") if narrow else ())),
    )


def leases_table(
    snapshot: Snapshot, narrow: bool = False, most: int | None = LEASES_SHOWN, order: str = "worst"
) -> RenderableType:
    """The first `most` leases in this order, and how many more there are. None: all."""
    if not snapshot.leases:
        return Text("no lease is held through this agent", style="dim")
    first = sorted_leases(snapshot.leases, order)
    table = _table(
        [_lease_cells(lease) for lease in (first if most is None else first[: max(1, most)])],
        numbers=("pid", "fence", "held for", "valid for", "waiting"),
        shrinks="held",
        without=("pid", "class", "valid for") if narrow else (),
    )
    return with_the_rest(table, len(first))


def with_the_rest(table: Table, count: int) -> RenderableType:
    """The table and, when it doesn't have all rows, how many more there are."""
    if table.row_count == count:
        return table
    return Group(table, Text(f"… and {count - table.row_count} more", style="dim"))


def totals_line(snapshot: Snapshot, rates: Rates, held: str | None = None, narrow: bool = False) -> Text:
    """`held`: what to say instead of the number of leases in the snapshot."""
    parts = [
        votes(snapshot),
        held or f"{len(snapshot.leases)} held",
        f"{snapshot.number('waiters')} waiting",
        f"{rates.per_second('grants_total'):.1f} grants/s",
        *([] if narrow else [f"{rates.per_second('releases_total'):.1f} releases/s"]),
        f"{rates.per_second('refusals_total'):.1f} refused/s",
    ]
    return Text(" · ".join(parts))


def _table(
    rows: Sequence[Mapping[str, str | Text]], numbers: Sequence[str], shrinks: str, without: Sequence[str]
) -> Table:
    """A plain table of rows by heading. If the terminal is too narrow, the column `shrinks` gets narrower."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    headings = [heading for heading in rows[0] if heading not in without]
    for heading in headings:
        table.add_column(
            heading, justify="right" if heading in numbers else "left", no_wrap=heading != shrinks
        )
    for row in rows:
        table.add_row(*(row[heading] for heading in headings))
    return table


def _master_cells(master: Mapping[str, Any], pids: Mapping[str, int]) -> dict[str, str | Text]:
    name, up = str(master["name"]), master["state"] == "up"
    votes = master["vote"] == 1
    return {
        "master": name,
        "address": str(master["address"]),
        "pid": str(pids.get(name, "")),
        "state": Text(str(master["state"]), style=_good(up)),
        "vote": Text("yes" if votes else "no", style=_good(votes)),
        "round trip": _duration_us(master["rtt_us"]) if up else "",
        "clock offset": _duration_us(master["clock_offset_us"]) if up else "",
        "version": str(master["version"] or ""),
        "why": Text(str(master["reason"] or ""), style="yellow", no_wrap=True, overflow="ellipsis"),
    }


def _lease_cells(lease: Mapping[str, Any]) -> dict[str, str | Text]:
    everywhere = lease["masters"] == lease["of"]
    on_masters = Text(f"{lease['masters']} of {lease['of']}", style="" if everywhere else "yellow")
    return {
        "held": Text(str(lease["resource"]), no_wrap=True, overflow="ellipsis"),
        "holder": str(lease["holder"]),
        "pid": pid(lease),
        "class": str(lease["class"]),
        "fence": str(lease["fence"]),
        "held for": format_ms(lease["held_ms"]),
        "valid for": format_ms(lease["ttl_ms"]),
        "masters": Text("LOST", style="bold red") if lease["lost"] else on_masters,
        "waiting": Text(str(lease["waiters"] or ""), style="bold"),
    }


def _good(is_so: bool) -> str:
    return "green" if is_so else "bold red"


def votes(snapshot: Snapshot) -> str:
    return f"{snapshot.voting} of {len(snapshot.masters)} masters vote"


def _duration_us(value: Any) -> str:
    return "" if value is None else f"{int(value) / 1000:z.2f} ms"
