"""`lockctl top`: masters, classes and leases of this host, live in a terminal.

It uses only the agent's socket. If the agent is away, for example because it is being restarted, `top` goes
on: the last picture stays, with a line that says how old it is, until the agent is back.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from lockd.health import AgentHealth, Assessment, Level, availability, safety
from lockd.lockctl.agent import AgentClient, Row
from lockd.lockctl.errors import Refused, Unreachable
from lockd.lockctl.locks import duration_option
from lockd.lockctl.order import ORDERS, ClassLine, is_chosen, shares, sorted_classes
from lockd.lockctl.printing import json_option, print_json
from lockd.text import format_ms, printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from lockd.lockctl.tables import Snapshot

ANSWER_WITHIN_S = 3.0
LISTED_MOST = 5_000
_LEAST_INTERVAL_MS = 100
# However long it takes to list what is held, the agent gets ten times as long for its work.
_REST_PER_LOOK = 10
_STYLES = {Level.GOOD: "bold green", Level.WARNING: "bold yellow", Level.BAD: "bold white on red"}

Ask = Callable[..., Any]


@dataclass(frozen=True)
class AgentReport:
    """What the agent said at one instant, `at_s` on the monotonic clock. leases None: too many to list."""

    at_s: float
    masters: Sequence[Row]
    info: Mapping[str, Any]
    classes: Mapping[str, Mapping[str, int]]
    leases: Sequence[Row] | None

    @classmethod
    def by(cls, ask: Ask, within_s: float = ANSWER_WITHIN_S) -> AgentReport:
        """Raises Refused or Unreachable."""
        masters = ask("MASTERS", within_s=within_s)
        info = ask("INFO", within_s=within_s)
        classes = ask("INFO", "classes", within_s=within_s)
        few = int(info["leases"]) <= LISTED_MOST
        return cls(
            time.monotonic(),
            [_safe(row) for row in masters],
            info,
            {name.removeprefix("class_"): numbers for name, numbers in classes.items()},
            [_safe(row) for row in ask("LOCKS", "*", "LOCAL", within_s=within_s)] if few else None,
        )

    def assessments(self) -> tuple[Assessment, Assessment]:
        health = AgentHealth(
            masters=len(self.masters),
            quorum=int(self.info["quorum"]),
            voting=sum(row["vote"] for row in self.masters),
            draining=bool(int(self.info["draining"])),
            lost=sum(numbers["lost"] for numbers in self.classes.values()),
            on_fewer=sum(numbers["on_fewer_masters"] for numbers in self.classes.values()),
            canary_failures=int(self.info.get("canary_failures", 0)),
            canary_trouble=printable(str(self.info.get("canary_trouble", ""))),
        )
        return availability(health), safety(health)

    def document(self, patterns: Sequence[str] = ()) -> dict[str, Any]:
        available, safe = self.assessments()
        shown = self.of_classes(patterns)
        return {
            "available": available._asdict(),
            "safe": safe._asdict(),
            "leases_held": int(self.info["leases"]),
            "waiters": int(self.info["waiters"]),
            "masters": self.masters,
            "classes": shown.classes,
            "leases": shown.leases,
        }

    def of_classes(self, patterns: Sequence[str]) -> AgentReport:
        """The same with only those classes, and only their leases."""
        if not patterns:
            return self
        return replace(
            self,
            classes={name: numbers for name, numbers in self.classes.items() if is_chosen(name, patterns)},
            leases=self.leases and [row for row in self.leases if is_chosen(str(row["class"]), patterns)],
        )

    def snapshot(self) -> Snapshot:
        """The part of it that `lockd dev` shows as well."""
        from lockd.lockctl.tables import Snapshot

        info = {key: str(value) for key, value in self.info.items()}
        return Snapshot(self.at_s, self.masters, self.leases or (), info, pids={})


@click.command(short_help="Masters, classes and leases of this host, live.")
@duration_option("--interval", "1s", "How often to refresh.")
@click.option(
    "--sort",
    "order",
    type=click.Choice(list(ORDERS)),
    default="worst",
    show_default=True,
    help="What comes first. worst: lost leases, leases that are not on all masters, then most waiters. "
    "held: most leases, and those held longest. busy: most grants and refusals per second, newest leases.",
)
@click.option(
    "--class",
    "patterns",
    metavar="PATTERN",
    multiple=True,
    help="Show only classes that match this glob, and their leases. May be given more than once.",
)
@click.option("--once", is_flag=True, help="Print everything once and exit: the default without a terminal.")
@json_option
@click.pass_obj
def top(
    agent: AgentClient, interval_ms: int, order: str, patterns: tuple[str, ...], once: bool, as_json: bool
) -> None:
    """Show masters, classes, leases and waiters of this host, live. The first two lines say whether
    locks are available and whether they are safe.

    Tables are cut at the height of the terminal. Press q or Ctrl-C to quit. While the agent restarts,
    the last picture stays. --json prints once, unsorted.
    """
    if as_json:
        print_json(AgentReport.by(agent.ask).document(patterns))
    elif once or not sys.stdout.isatty():
        _print_once(AgentReport.by(agent.ask), order, patterns)
    else:
        _watch(agent, max(interval_ms, _LEAST_INTERVAL_MS) / 1000, order, patterns)


def _print_once(report: AgentReport, order: str, patterns: Sequence[str]) -> None:
    from rich.console import Console

    # A pipe has no width: lines may be as long as they need to be.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 200)
    console.print(Screen(console, order, patterns).picture(report, None, rows=None))


def _watch(agent: AgentClient, interval_s: float, order: str, patterns: Sequence[str]) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    screen, report, trouble = Screen(console, order, patterns), None, None
    try:
        with (
            _ending_in_order(),
            _Keys() as keys,
            Live(console=console, screen=True, auto_refresh=False) as live,
        ):
            while True:
                began_s = time.monotonic()
                try:
                    report, trouble = AgentReport.by(agent.ask), None
                except (Refused, Unreachable) as error:
                    trouble = str(error)
                rest_s = max(interval_s, _REST_PER_LOOK * (time.monotonic() - began_s) if not trouble else 0)
                live.update(screen.picture(report, trouble, rows=console.height), refresh=True)
                if keys.quit_within(rest_s):
                    return
    except KeyboardInterrupt:
        """This is how users leave it."""
    except OSError:
        # The terminal is gone: there is nobody to show anything to, and Python's last flush must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """SIGTERM and SIGHUP end it as Ctrl-C does: with the terminal as it was. Ignored signals (nohup) stay
    ignored."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {
        number: signal.signal(number, stop)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Keys:
    """The keyboard, one key at a time and without echo; does nothing when standard input is not a
    terminal."""

    def __enter__(self) -> _Keys:
        self._before: list[Any] | None = None
        if sys.stdin.isatty():
            import termios
            import tty

            self._before = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            import termios

            with suppress(termios.error):  # it is gone
                termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    def quit_within(self, seconds: float) -> bool:
        """Wait that long; True at once when q is typed, or the terminal has gone."""
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            readable, _, _ = select.select([sys.stdin] if self._before is not None else [], [], [], left_s)
            if readable and self._read() in (b"q", b"Q", b""):
                return True
        return False

    def _read(self) -> bytes:
        try:
            return os.read(sys.stdin.fileno(), 1)
        except OSError:
            return b""


class Screen:
    """Draws the latest report, and how the counters changed since the one before it."""

    def __init__(self, console: Console, order: str = "worst", patterns: Sequence[str] = ()) -> None:
        from lockd.lockctl.tables import Rates

        self._console = console
        self._order = order
        self._patterns = patterns
        self._rates = Rates()
        self._before: AgentReport | None = None
        self._per_class: dict[str, dict[str, float]] = {}

    def picture(self, report: AgentReport | None, trouble: str | None, rows: int | None) -> RenderableType:
        """`trouble`: why the agent did not answer now. rows: how many lines there are; None for all."""
        from rich.console import Group
        from rich.text import Text

        from lockd.lockctl.tables import NARROW_COLUMNS, masters_table

        if report is None:
            return Text(f"{printable(trouble)}; looking again", style="bold white on red")
        snapshot = report.snapshot()
        if trouble is None:
            self._move_on(report)
            self._rates.add(snapshot)
        narrow = self._console.width < NARROW_COLUMNS
        head = Group(
            *self._head(report, trouble),
            *self._totals(report, snapshot, narrow),
            Text(""),
            masters_table(snapshot, narrow),
        )
        left = None if rows is None else rows - len(self._console.render_lines(head, pad=False))
        return Group(head, *self._tables(report.of_classes(self._patterns), narrow, left))

    def _head(self, report: AgentReport, trouble: str | None) -> list[RenderableType]:
        from rich.text import Text

        if trouble is not None:
            age = format_ms(round((time.monotonic() - report.at_s) * 1000))
            line = f"{printable(trouble)}; looking again. What follows is {age} old"
            return [Text(line, style="bold white on red")]
        return [Text(assessment.text, style=_STYLES[assessment.level]) for assessment in report.assessments()]

    def _totals(self, report: AgentReport, snapshot: Snapshot, narrow: bool) -> list[RenderableType]:
        """Sums of the host and, if only some classes are shown, of those."""
        from rich.text import Text

        from lockd.lockctl.tables import totals_line

        of_classes = "" if narrow else f", {len(report.classes)} classes"
        held = f"{report.info['leases']} held{of_classes}"
        totals: list[RenderableType] = [totals_line(snapshot, self._rates, held, narrow)]
        if self._patterns:
            chosen = report.of_classes(self._patterns).classes
            leases, waiters = (sum(now[key] for now in chosen.values()) for key in ("leases", "waiters"))
            words = printable(", ".join(self._patterns))
            totals.append(Text(f"{words}: {len(chosen)} classes · {leases} held · {waiters} waiting"))
        return totals

    def _tables(self, report: AgentReport, narrow: bool, left: int | None) -> list[RenderableType]:
        """Classes and leases, each cut to its share of the lines that are left."""
        from rich.text import Text

        from lockd.lockctl.tables import leases_table

        many = (len(report.classes), len(report.leases or ()))
        classes_most, leases_most = (None, None) if left is None else _fitting(left, many)
        if report.leases is None:
            leases: RenderableType = Text(f"{report.info['leases']} leases are too many to list", style="dim")
        elif self._patterns and not report.leases:
            leases = Text("no lease of these classes is held", style="dim")
        else:
            leases = leases_table(report.snapshot(), narrow, leases_most, self._order)
        return [Text(""), self._classes_table(report, classes_most), Text(""), leases]

    def _classes_table(self, report: AgentReport, most: int | None) -> RenderableType:
        from rich.table import Table
        from rich.text import Text

        from lockd.lockctl.tables import with_the_rest

        if not report.classes:
            return Text("no class matches", style="dim")
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        table.add_column("class", overflow="ellipsis", no_wrap=True)
        for heading in ("held", "waiting", "longest wait", "grants/s", "refused/s", "lost"):
            table.add_column(heading, justify="right", no_wrap=True)
        lines = sorted_classes([self._line(name, now) for name, now in report.classes.items()], self._order)
        for line in lines if most is None else lines[: max(1, most)]:
            waiters = line.now["waiters"]
            table.add_row(
                line.name,
                str(line.now["leases"]),
                Text(str(waiters), style="bold" if waiters else "dim"),
                format_ms(line.now["oldest_wait_ms"]) if waiters else "",
                f"{line.grants:.1f}",
                f"{line.refusals:.1f}",
                Text(_lost(line), style="bold red" if line.lost_lately else "dim"),
            )
        return with_the_rest(table, len(lines))

    def _line(self, name: str, now: Mapping[str, int]) -> ClassLine:
        moved = self._per_class.get(name, {})
        return ClassLine(name, now, moved.get("grants", 0.0), moved.get("refusals", 0.0))

    def _move_on(self, report: AgentReport) -> None:
        """Counters per second since the last report; a restarted agent counts from 0."""
        before, self._before = self._before, report
        if before is None or report.at_s <= before.at_s:
            return
        took_s = report.at_s - before.at_s
        self._per_class = {
            name: {
                key: max(0, now[key] - before.classes[name][key]) / took_s for key in ("grants", "refusals")
            }
            for name, now in report.classes.items()
            if name in before.classes
        }


def _fitting(lines: int, many: Sequence[int]) -> list[int]:
    """How many rows each table shows in so many lines.

    Each has an empty line and headings above it and, if it is cut, a line below that says so.
    """
    given = shares(lines - 2 * len(many), many)
    return [got if got == rows else got - 1 for got, rows in zip(given, many, strict=True)]


def _lost(line: ClassLine) -> str:
    """How many leases were lost unintended, and when that was last."""
    ago_ms = line.now.get("last_loss_ms")
    return str(line.lost) if ago_ms is None else f"{line.lost}, {format_ms(ago_ms)} ago"


def _safe(row: Row) -> Row:
    """A row whose texts can't steer the terminal."""
    return {key: printable(value) if isinstance(value, str) else value for key, value in row.items()}
