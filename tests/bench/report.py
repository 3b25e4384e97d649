"""From measurements to a table, ratios and goals. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from tests.bench.charts import Line, chart
from tests.bench.contenders import (
    BY_REDIS_PY,
    CLIENT,
    DROP_IN,
    PLAIN_SET,
    POTTERY,
    RAW,
    RAW_RELAY,
    REDIS_PY,
    REDLOCK_PY,
    RELAY,
)
from tests.bench.driver import Load, Tally
from tests.bench.scenarios import CHART_CLIENTS, FIVE_HOSTS, LONE
from tests.bench.special import FAULTS, WHOLE, Held, Memory, Recalls

GRANTS_BEFORE_TENURES = 848.0
"""A second, of one resource that 16 clients of one host want: each a round over five masters, on 2 CPUs."""
CPU_BEFORE_TENURES = {"16-new": 0.37, "64-new": 0.24}
"""CPU of client, agent and masters per pair, then, as a part of redlock-py's in the same run."""

_WITH_AGENT = (CLIENT, RAW, DROP_IN, BY_REDIS_PY, RELAY, RAW_RELAY)


@dataclass(frozen=True, slots=True)
class Figures:
    """How one contender did in one scenario. Times of `acquire` in ms, CPU in µs per pair. shares: the most
    grants that one client got, divided by the fewest; host_shares: the same of hosts. At p99 of all waits,
    grants_p99: how many others got it meanwhile; turns_p99: how many turns other hosts had. lone_grants: the
    same as grants_p99 of the lone client; lone_share: its grants, by the mean of the others'. tries: rounds
    over the masters for each tenure."""

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
    shares: float
    host_shares: float
    grants_p99: float
    turns_p99: float
    lone_grants: float
    lone_share: float
    tries: float

    @property
    def cpu_us(self) -> float:
        """Of all that work for it."""
        agents_us = self.agent_us if self.contender in _WITH_AGENT else 0.0
        return self.client_us + agents_us + self.masters_us


@dataclass(frozen=True, slots=True)
class Measurement(Figures):
    """One round."""

    @classmethod
    def of(
        cls,
        scenario: str,
        contender: str,
        load: Load,
        tally: Tally,
        agent_s: float,
        masters_s: float,
        tries: float = 0.0,
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
            *_fairness(load, tally),
            tries,
        )


def _fairness(load: Load, tally: Tally) -> tuple[float, float, float, float, float, float]:
    if not (load.contended and tally.pairs):
        return 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    of_client = tally.grants_of()
    clients = [of_client[client] for client in range(load.clients)]
    of_host = [0] * load.agents
    for client, grants in enumerate(clients):
        of_host[load.host_of(client)] += grants
    grants = sorted(count for client in range(load.clients) for count in tally.grants_waited(client))
    lone = (0.0, 0.0)
    if load.clients == LONE + 1 and load.hosts:
        mean = sum(clients[:LONE]) / LONE or 1.0
        lone = _p99(tally.grants_waited(LONE)), clients[LONE] / mean
    shares = _unevenness(clients), _unevenness(of_host)
    return *shares, _p99(grants), _p99(tally.turns_waited(load)), *lone


def _unevenness(grants: Sequence[int]) -> float:
    return max(grants) / min(grants) if min(grants) else float("inf")


def _p99(counts: Sequence[int]) -> float:
    return float(counts[len(counts) * 99 // 100]) if counts else float("inf")


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
            middle("shares"),
            middle("host_shares"),
            middle("grants_p99"),
            middle("turns_p99"),
            middle("lone_grants"),
            middle("lone_share"),
            middle("tries"),
            len(rounds),
        )


@dataclass(frozen=True, slots=True)
class Goal:
    """Something promised. `got` is None when what it takes was not measured; `judged` False: shown only.
    bare: what the same client gets of a relay that keeps no rule (relay.py): no agent does better here."""

    what: str
    got: float | None
    limit: float
    at_least: bool
    judged: bool = True
    unit: str = "x"
    bare: float | None = None

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


def goals_of(
    rows: Rows,
    held: Sequence[Held] = (),
    memory: Memory | None = None,
    recalls: Recalls | None = None,
) -> list[Goal]:
    return [
        *_goals_new(rows), *_goals_drop_in(rows), *_goals_kept(rows), *_goals_of_recalls(recalls),
        *_goals_contended(rows), *_goals_of_hosts(rows), *_goals_at_faults(rows),
        *_goals_of_scale(held, memory),
    ]  # fmt: skip


def _goals_new(rows: Rows) -> Iterator[Goal]:
    for name in ("16-new", "64-new"):
        for other, factor in ((REDLOCK_PY, 4.0), (POTTERY, 10.0)):
            yield _goal_beside(rows, name, "pairs_per_s", other, factor, "pairs")
        cpu = _goal_beside(rows, name, "cpu_us", REDLOCK_PY, 0.3, "CPU of all per pair")
        yield cpu
        then = CPU_BEFORE_TENURES[name]
        got, bare = (None if ratio is None else ratio / then for ratio in (cpu.got, cpu.bare))
        yield Goal(f"{name}: the same, now / before tenures", got, 0.8, False, bare=bare)


def _goals_drop_in(rows: Rows) -> Iterator[Goal]:
    """Lock code that exists costs its app little more than on one Redis, and the agent no more than LOCK."""
    for name in ("1-free", "16-free", "16-new"):
        for other, figure, whose, most in (
            (REDIS_PY, "client_us", "client", 1.5),
            (BY_REDIS_PY, "agent_us", "agent", 1.0),
        ):
            got = _ratio(rows, figure, (name, DROP_IN), (name, other))
            yield Goal(f"{name}: {DROP_IN} / {other}, CPU of the {whose} per pair", got, most, False)


def _goals_kept(rows: Rows) -> Iterator[Goal]:
    yield _goal_beside(rows, "1-kept", "p50_ms", PLAIN_SET, 0.5, "p50")
    for other, factor in ((REDIS_PY, 3.0), (REDLOCK_PY, 20.0)):
        yield _goal_beside(rows, "16-kept", "pairs_per_s", other, factor, "pairs")


def _goal_beside(rows: Rows, scenario: str, figure: str, other: str, limit: float, what: str) -> Goal:
    got, bare = (_ratio(rows, figure, (scenario, ours), (scenario, other)) for ours in (CLIENT, RELAY))
    return Goal(
        f"{scenario}: {CLIENT} / {other}, {what}", got, limit, at_least=figure == "pairs_per_s", bare=bare
    )


def _goals_of_recalls(recalls: Recalls | None) -> Iterator[Goal]:
    """What another host keeps, and nobody uses, is had at once."""
    granted, rounds = (recalls.granted, recalls.p99_ms / recalls.round_ms) if recalls else (None, None)
    yield Goal("a LOCK without WAIT of what another host keeps: granted", granted, 1.0, True, unit="of 1")
    yield Goal("the same: p99, in rounds over the masters", rounds, 4.0, False, unit="rounds")


def _goals_contended(rows: Rows) -> Iterator[Goal]:
    name = "16-contended"
    for other, factor in ((REDLOCK_PY, 40.0), (REDIS_PY, 5.0)):
        got = _ratio(rows, "pairs_per_s", (name, CLIENT), (name, other))
        yield Goal(f"{name}: {CLIENT} / {other}, pairs", got, factor, True)
    for ours in (CLIENT, RAW):
        now = _figure(rows, name, ours, "pairs_per_s")
        got = None if now is None else now / GRANTS_BEFORE_TENURES
        what = f"{name}: {ours} / {GRANTS_BEFORE_TENURES:.0f} a second, before tenures"
        yield Goal(what, got, 10.0, True, ours == RAW)
    yield Goal(f"{name}: shares of clients, most / fewest", _figure(rows, name, CLIENT, "shares"), 1.1, False)


def _goals_of_hosts(rows: Rows) -> Iterator[Goal]:
    name = "five-hosts"
    got = _ratio(rows, "pairs_per_s", (name, CLIENT), (name, REDLOCK_PY))
    yield Goal(f"{name}: {CLIENT} / {REDLOCK_PY}, pairs", got, 3.0, True)
    yield Goal(
        f"{name}: grants of agents, most / fewest", _figure(rows, name, CLIENT, "host_shares"), 1.3, False
    )
    tries = _figure(rows, name, CLIENT, "tries")
    yield Goal(f"{name}: rounds over the masters for each tenure", tries, 1.5, False, unit="tries")
    turns, most = _figure(rows, name, CLIENT, "turns_p99"), 2.0 * len(set(FIVE_HOSTS))
    yield Goal(f"{name}: p99 of a wait, in turns of other hosts", turns, most, False, unit="turns")
    name = "three-and-one"
    grants = _figure(rows, name, CLIENT, "lone_grants")
    yield Goal(f"{name}: p99 of the lone one's wait, in grants of others", grants, 3.0, False, unit="grants")
    yield Goal(
        f"{name}: grants, the lone one / another", _figure(rows, name, CLIENT, "lone_share"), 0.5, True
    )


def _goals_at_faults(rows: Rows) -> Iterator[Goal]:
    for fault in FAULTS:
        got = _ratio(rows, "p99_ms", (fault, CLIENT), (WHOLE, CLIENT))
        yield Goal(f"{fault}: {CLIENT} / with all five, p99", got, 1.2, False)


def _goals_of_scale(held: Sequence[Held], memory: Memory | None) -> Iterator[Goal]:
    idle, waiter = (memory.idle_connection, memory.waiter) if memory else (None, None)
    yield Goal("an idle connection", idle, 8.0, False, unit="KiB")
    yield Goal("a held lease", held[-1].lease_kib if held else None, 2.0, False, unit="KiB")
    yield Goal("a LOCK that waits, besides its connection", waiter, 2.0, False, unit="KiB")
    costs = [one.pairs_us for one in held]
    got = max(costs) / min(costs) if costs else None
    what = (
        f"agent CPU per pair with {held[0].leases} to {held[-1].leases:,} held"
        if held
        else "agent CPU while much is held"
    )
    yield Goal(f"{what}, most / least", got, 1.15 / 0.85, False)


def _figure(rows: Rows, scenario: str, contender: str, name: str) -> float | None:
    row = rows.get((scenario, contender))
    return None if row is None else float(getattr(row, name))


def _ratio(rows: Rows, name: str, ours: tuple[str, str], other: tuple[str, str]) -> float | None:
    if ours not in rows or other not in rows:
        return None
    above, below = float(getattr(rows[ours], name)), float(getattr(rows[other], name))
    return above / below if below else None


_HEAD = (
    "", "pairs/s", "lockd.Client is", "p50 ms", "p99 ms", "slowest ms",
    "client µs", "agent µs", "masters µs", "remarks",
)  # fmt: skip


def markdown(
    header: Sequence[str],
    rows: Rows,
    goals: Sequence[Goal],
    left_out: Sequence[str] = (),
    held: Sequence[Held] = (),
) -> str:
    parts = ["# Benchmark", *header]
    if left_out:
        parts.append("Left out:\n\n" + "\n".join(f"* {why}" for why in left_out))
    for scenario in dict.fromkeys(scenario for scenario, _ in rows):
        those = [row for row in rows.values() if row.scenario == scenario]
        parts.append(f"## {scenario}\n\n" + table([_HEAD, *(_cells(row, rows) for row in those)]))
    if held:
        parts.append("## While so many leases are held\n\n" + table([_HELD_HEAD, *map(_held_cells, held)]))
    head = "", "got", "goal", "", "a bare relay gets"
    parts.append("## Goals\n\n" + table([head, *(_goal_cells(goal) for goal in goals)]))
    return "\n\n".join(parts) + "\n"


_HELD_HEAD = ("", "agent µs per pair of others", "KiB for each")


def _held_cells(one: Held) -> tuple[str, ...]:
    return f"{one.leases:,}", f"{one.pairs_us:.0f}", f"{one.lease_kib:.2f}"


def charts(rows: Rows, held: Sequence[Held]) -> dict[str, str]:
    """Pictures by file name, of what was measured."""
    drawn = {}
    for name, title, up, of in (
        ("throughput", "Pairs a second, each client its own resource", "pairs/s", "pairs_per_s"),
        ("latency", "Acquire, each client its own resource", "p50, ms", "p50_ms"),
    ):
        lines = _over_clients(rows, of)
        if lines:
            drawn[f"{name}.svg"] = chart(title, "clients", up, lines, log_up=True)
    if held:
        line = [(float(one.leases), one.pairs_us) for one in held]
        title = "CPU of the agent per pair of 16 other clients"
        drawn["held.svg"] = chart(title, "leases held", "µs per pair", {"agent": line})
    return drawn


def _over_clients(rows: Rows, of: str) -> dict[str, Line]:
    lines: dict[str, list[tuple[float, float]]] = {}
    for clients in CHART_CLIENTS:
        for (scenario, contender), row in rows.items():
            if scenario == f"{clients}-free":
                lines.setdefault(contender, []).append((float(clients), float(getattr(row, of))))
    return {name: line for name, line in lines.items() if len(line) > 1}


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
        f"{row.agent_us:.0f}" if row.contender in _WITH_AGENT else "",
        f"{row.masters_us:.0f}",
        _remarks(row),
    )


def _remarks(row: Row) -> str:
    remarks = []
    if row.given_up:
        remarks.append(f"{row.given_up} gave up waiting")
    if row.failed:
        remarks.append(f"{row.failed} failed ({row.failure[:60]})")
    if row.shares:
        remarks.append(f"shares {row.shares:.2f}, waits {row.grants_p99:.0f} grants at p99")
    if row.tries:
        remarks.append(f"{row.turns_p99:.0f} turns of other hosts, {row.tries:.2f} tries for each tenure")
    if row.lone_grants:
        remarks.append(f"the lone one {row.lone_grants:.0f} grants, {row.lone_share:.2f} of another's")
    if row.overlaps:
        remarks.append(f"HELD BY TWO AT ONCE {row.overlaps} times")
    return ", ".join(remarks)


def _goal_cells(goal: Goal) -> tuple[str, ...]:
    got, bare = ("" if one is None else f"{one:.2f} {goal.unit}" for one in (goal.got, goal.bare))
    wanted = f"{'≥' if goal.at_least else '≤'} {goal.limit:.3g} {goal.unit}"
    return goal.what, got, wanted, goal.result, bare


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
    header: Sequence[str],
    measurements: Sequence[Measurement],
    rows: Rows,
    goals: Sequence[Goal],
    held: Sequence[Held] = (),
) -> dict[str, Any]:
    return {
        "header": list(header),
        "rows": [asdict(row) for row in rows.values()],
        "goals": [asdict(goal) | {"reached": goal.reached} for goal in goals],
        "rounds": [asdict(one) for one in measurements],
        "held": [asdict(one) for one in held],
    }
