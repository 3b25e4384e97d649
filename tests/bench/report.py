"""From measurements to a table, ratios and goals. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from tests.bench.contenders import CLIENT, PLAIN_SET, POTTERY, RAW, RAW_SET, REDIS_PY, REDLOCK_PY
from tests.bench.driver import Load, Tally

WHOLE, AT_THE_STOP, STOPPED = "all five run", "one is stopped meanwhile", "one was stopped before"


@dataclass(frozen=True, slots=True)
class Figures:
    """How one contender did in one scenario. Times of `acquire` in ms, CPU in µs per pair."""

    scenario: str
    contender: str
    pairs_per_s: float
    p50_ms: float
    p99_ms: float
    slowest_ms: float
    client_us: float
    agent_us: float
    masters_us: float
    given_up: int
    failed: int
    failure: str
    overlaps: int


@dataclass(frozen=True, slots=True)
class Measurement(Figures):
    """One round."""

    @classmethod
    def of(
        cls, scenario: str, contender: str, load: Load, tally: Tally, agent_s: float, masters_s: float
    ) -> Measurement:
        pairs = tally.pairs or 1
        times_ms = sorted(second * 1000 for second in tally.acquires_s) or [0.0]
        return cls(
            scenario,
            contender,
            tally.pairs_in_time / load.seconds,
            times_ms[len(times_ms) // 2],
            times_ms[len(times_ms) * 99 // 100],
            times_ms[-1],
            tally.cpu_s / pairs * 1e6,
            agent_s / pairs * 1e6,
            masters_s / pairs * 1e6,
            tally.given_up,
            tally.failed,
            tally.failure,
            tally.overlaps() if load.contended else 0,
        )


@dataclass(frozen=True, slots=True)
class Row(Figures):
    """All rounds: medians, and sums of what should not happen."""

    rounds: int

    @classmethod
    def over(cls, rounds: Sequence[Measurement]) -> Row:
        def middle(name: str) -> float:
            return float(median(getattr(one, name) for one in rounds))

        return cls(
            rounds[0].scenario,
            rounds[0].contender,
            middle("pairs_per_s"),
            middle("p50_ms"),
            middle("p99_ms"),
            max(one.slowest_ms for one in rounds),
            middle("client_us"),
            middle("agent_us"),
            middle("masters_us"),
            sum(one.given_up for one in rounds),
            sum(one.failed for one in rounds),
            next((one.failure for one in rounds if one.failure), ""),
            sum(one.overlaps for one in rounds),
            len(rounds),
        )


@dataclass(frozen=True, slots=True)
class Goal:
    """Something promised. `got` is None when what it takes was not measured; `judged` False: shown only."""

    what: str
    got: float | None
    limit: float
    at_least: bool
    judged: bool = True

    @property
    def reached(self) -> bool | None:
        if self.got is None:
            return None
        return self.got >= self.limit if self.at_least else self.got <= self.limit

    @property
    def result(self) -> str:
        if self.reached is None:
            return "not measured"
        word = "reached" if self.reached else "not reached"
        return word if self.judged else f"({word})"


Rows = dict[tuple[str, str], Row]


def rows_of(measurements: Iterable[Measurement]) -> Rows:
    """One row for each scenario and contender, in the order in which they were first measured."""
    rounds: dict[tuple[str, str], list[Measurement]] = {}
    for one in measurements:
        rounds.setdefault((one.scenario, one.contender), []).append(one)
    return {key: Row.over(several) for key, several in rounds.items()}


def goals_of(rows: Rows) -> list[Goal]:
    goals = []
    for ours, judged in ((CLIENT, True), (RAW, False)):
        for other, factor in ((REDLOCK_PY, 8.0), (POTTERY, 8.0), (REDIS_PY, 1.5)):
            got = _ratio(rows, "pairs_per_s", ("16-free", ours), ("16-free", other))
            goals.append(Goal(f"16 clients, free: {ours} / {other}, pairs", got, factor, True, judged))
    for ours, other, judged in ((CLIENT, PLAIN_SET, True), (RAW, RAW_SET, False), (CLIENT, RAW_SET, False)):
        got = _ratio(rows, "p50_ms", ("1-free", ours), ("1-free", other))
        goals.append(Goal(f"1 client: {ours} / {other}, p50", got, 2.0, False, judged))
    for scenario, when in ((AT_THE_STOP, "the stop included"), (STOPPED, "steady")):
        got = _ratio(rows, "p99_ms", (scenario, CLIENT), (WHOLE, CLIENT))
        goals.append(Goal(f"one master stopped, {when}: {CLIENT} / with all five, p99", got, 1.5, False))
    return goals


def _ratio(rows: Rows, name: str, ours: tuple[str, str], other: tuple[str, str]) -> float | None:
    if ours not in rows or other not in rows:
        return None
    above, below = float(getattr(rows[ours], name)), float(getattr(rows[other], name))
    return above / below if below else None


_HEAD = (
    "", "pairs/s", "lockd.Client is", "p50 ms", "p99 ms", "slowest ms",
    "client µs", "agent µs", "masters µs", "remarks",
)  # fmt: skip


def markdown(header: Sequence[str], rows: Rows, goals: Sequence[Goal]) -> str:
    parts = ["# Benchmark", *header]
    for scenario in dict.fromkeys(scenario for scenario, _ in rows):
        those = [row for row in rows.values() if row.scenario == scenario]
        parts.append(f"## {scenario}\n\n" + table([_HEAD, *(_cells(row, rows) for row in those)]))
    parts.append("## Goals\n\n" + table([("", "ratio", "goal", ""), *(_goal_cells(goal) for goal in goals)]))
    return "\n\n".join(parts) + "\n"


def _cells(row: Row, rows: Rows) -> tuple[str, ...]:
    ratio = _ratio(rows, "pairs_per_s", (row.scenario, CLIENT), (row.scenario, row.contender))
    return (
        row.contender,
        f"{row.pairs_per_s:,.0f}",
        "" if ratio is None else f"{ratio:.2f} x",
        f"{row.p50_ms:.2f}",
        f"{row.p99_ms:.2f}",
        f"{row.slowest_ms:.0f}",
        f"{row.client_us:.0f}",
        f"{row.agent_us:.0f}" if row.contender in (CLIENT, RAW) else "",
        f"{row.masters_us:.0f}",
        _remarks(row),
    )


def _remarks(row: Row) -> str:
    remarks = []
    if row.given_up:
        remarks.append(f"{row.given_up} gave up waiting")
    if row.failed:
        remarks.append(f"{row.failed} failed ({row.failure[:60]})")
    if row.overlaps:
        remarks.append(f"HELD BY TWO AT ONCE {row.overlaps} times")
    return ", ".join(remarks)


def _goal_cells(goal: Goal) -> tuple[str, ...]:
    got = "" if goal.got is None else f"{goal.got:.2f} x"
    return goal.what, got, f"{'≥' if goal.at_least else '≤'} {goal.limit:g} x", goal.result


def table(lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table that can be read as it is; the first line is its head."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    last = len(widths) - 1

    def drawn(line: Sequence[str]) -> str:
        cells = [
            cell.ljust(width) if column in (0, last) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        return f"| {' | '.join(cells)} |"

    rule = ["-" * width if n in (0, last) else "-" * (width - 1) + ":" for n, width in enumerate(widths)]
    return "\n".join([drawn(lines[0]), f"| {' | '.join(rule)} |", *map(drawn, lines[1:])])


def as_json(
    header: Sequence[str], measurements: Sequence[Measurement], rows: Rows, goals: Sequence[Goal]
) -> dict[str, Any]:
    return {
        "header": list(header),
        "rows": [asdict(row) for row in rows.values()],
        "goals": [asdict(goal) | {"reached": goal.reached} for goal in goals],
        "rounds": [asdict(one) for one in measurements],
    }
