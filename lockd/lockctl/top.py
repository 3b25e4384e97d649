"""`lockctl top`: masters, classes and leases of this host, live in a terminal.

It asks over the agent's socket and nothing else. An agent that is away, being restarted say, is no end: the
last picture stays, with a line that says how old it is, until the agent is back.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from lockd.health import LOSS_IS_NEWS_MS, AgentHealth, Assessment, Level, availability, safety
from lockd.lockctl.agent import AgentClient, Row
from lockd.lockctl.errors import Refused, Unreachable
from lockd.lockctl.locks import duration_option
from lockd.lockctl.printing import json_option, print_json
from lockd.text import format_ms, printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from lockd.lockctl.tables import Snapshot

ANSWER_WITHIN_S = 3.0
LISTED_MOST = 5_000
CLASSES_SHOWN = 12
_LEAST_INTERVAL_MS = 100
# However long it takes to list what is held: the agent has ten times as long to do its work.
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

    def document(self) -> dict[str, Any]:
        available, safe = self.assessments()
        return {
            "available": available._asdict(),
            "safe": safe._asdict(),
            "leases_held": int(self.info["leases"]),
            "waiters": int(self.info["waiters"]),
            "masters": self.masters,
            "classes": self.classes,
            "leases": self.leases,
        }

    def snapshot(self) -> Snapshot:
        """The part of it that `lockd dev` shows as well."""
        from lockd.lockctl.tables import Snapshot

        info = {key: str(value) for key, value in self.info.items()}
        return Snapshot(self.at_s, self.masters, self.leases or (), info, pids={})


@click.command(short_help="Masters, classes and leases of this host, live.")
@duration_option("--interval", "1s", "How often to look.")
@click.option("--once", is_flag=True, help="Print it once. So it is without a terminal.")
@json_option
@click.pass_obj
def top(agent: AgentClient, interval_ms: int, once: bool, as_json: bool) -> None:
    """Masters, classes, held leases and waiters of this host, live, with the answer on top to: are
    locks available, are they safe?

    q or Ctrl-C ends it. It goes on while the agent restarts. --json prints once.
    """
    if as_json:
        print_json(AgentReport.by(agent.ask).document())
    elif once or not sys.stdout.isatty():
        _print_once(AgentReport.by(agent.ask))
    else:
        _watch(agent, max(interval_ms, _LEAST_INTERVAL_MS) / 1000)


def _print_once(report: AgentReport) -> None:
    from rich.console import Console

    # In a pipe nothing is narrow: a line may be as long as it must.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 200)
    console.print(Screen(console).picture(report, None, rows=None))


def _watch(agent: AgentClient, interval_s: float) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    screen, report, trouble = Screen(console), None, None
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
        """That is how one leaves it."""
    except OSError:
        # The terminal is gone: nobody is left to show anything to, and Python's last flush must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """SIGTERM and SIGHUP end it as Ctrl-C does: with the terminal as it was. Ignored ones (nohup) stay so."""

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
    """The keyboard, one key at a time and unseen; nothing when standard input is no terminal."""

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
    """Draws what was seen last, and how the counters moved since."""

    def __init__(self, console: Console) -> None:
        from lockd.lockctl.tables import Rates

        self._console = console
        self._rates = Rates()
        self._before: AgentReport | None = None
        self._per_class: dict[str, dict[str, float]] = {}

    def picture(self, report: AgentReport | None, trouble: str | None, rows: int | None) -> RenderableType:
        """`trouble`: why the agent did not answer now. rows: how many lines there are; None for all."""
        from rich.console import Group
        from rich.text import Text

        from lockd.lockctl.tables import NARROW_COLUMNS

        if report is None:
            return Text(f"{printable(trouble)}; looking again", style="bold white on red")
        snapshot = report.snapshot()
        if trouble is None:
            self._move_on(report)
            self._rates.add(snapshot)
        narrow = self._console.width < NARROW_COLUMNS
        parts = [*self._head(report, trouble), Text(""), *self._tables(report, snapshot, narrow, rows)]
        return Group(*parts)

    def _head(self, report: AgentReport, trouble: str | None) -> list[RenderableType]:
        from rich.text import Text

        if trouble is not None:
            age = format_ms(round((time.monotonic() - report.at_s) * 1000))
            line = f"{printable(trouble)}; looking again. What follows is {age} old"
            return [Text(line, style="bold white on red")]
        return [Text(assessment.text, style=_STYLES[assessment.level]) for assessment in report.assessments()]

    def _tables(
        self, report: AgentReport, snapshot: Snapshot, narrow: bool, rows: int | None
    ) -> list[RenderableType]:
        from rich.text import Text

        from lockd.lockctl.tables import leases_table, masters_table, totals_line

        classes = self._classes_table(report)
        used = 2 + len(report.masters) + 1 + classes.row_count + 1 + 10
        most = max(3, rows - used) if rows else LISTED_MOST
        if report.leases is None:
            leases: RenderableType = Text(f"{report.info['leases']} leases are too many to list", style="dim")
        else:
            leases = leases_table(snapshot, narrow, most)
        blank = Text("")
        totals = totals_line(snapshot, self._rates, held=int(report.info["leases"]))
        return [totals, blank, masters_table(snapshot, narrow), blank, classes, blank, leases]

    def _classes_table(self, report: AgentReport) -> Any:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        table.add_column("class", no_wrap=True)
        for heading in ("held", "waiting", "longest wait", "grants/s", "refused/s", "lost"):
            table.add_column(heading, justify="right", no_wrap=True)
        busiest = sorted(
            report.classes.items(), key=lambda one: (-one[1]["waiters"], -one[1]["leases"], one[0])
        )
        for name, now in busiest[:CLASSES_SHOWN]:
            moved = self._per_class.get(name, {})
            table.add_row(
                name,
                str(now["leases"]),
                Text(str(now["waiters"]), style="bold" if now["waiters"] else "dim"),
                format_ms(now["oldest_wait_ms"]) if now["waiters"] else "",
                f"{moved.get('grants', 0.0):.1f}",
                f"{moved.get('refusals', 0.0):.1f}",
                Text(_lost(now), style="bold red" if _lost_lately(now) else "dim"),
            )
        if len(busiest) > CLASSES_SHOWN:
            table.add_row(Text(f"and {len(busiest) - CLASSES_SHOWN} more", style="dim"))
        return table

    def _move_on(self, report: AgentReport) -> None:
        """Counters per second since the last report; an agent that began anew counts from 0."""
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


def _lost(now: Mapping[str, int]) -> str:
    """What nobody meant to be lost, and when that was last."""
    lost = str(now["losses"] - now.get("losses_meant", 0))
    return f"{lost}, {format_ms(now['last_loss_ms'])} ago" if "last_loss_ms" in now else lost


def _lost_lately(now: Mapping[str, int]) -> bool:
    return now.get("last_loss_ms", LOSS_IS_NEWS_MS) < LOSS_IS_NEWS_MS


def _safe(row: Row) -> Row:
    """A row whose texts can't steer the terminal."""
    return {key: printable(value) if isinstance(value, str) else value for key, value in row.items()}
