"""`make bench`: lockd beside the libraries it replaces and other lock services, in one run.

Rounds go A B C D, A B C D, … so that whatever else the machine does hits all of them alike; shown are the
medians over the rounds. Results are printed and kept in .bench/: bench-results.md, .json, and charts as SVG.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from lockd.build import build
from tests.bench import report
from tests.bench.contenders import BASELINES, CLIENT, CONTENDERS, NEEDS, PEERS, RAW, RELAYS, Make
from tests.bench.driver import Load, Tally, run
from tests.bench.ground import Ground, Tries, ground
from tests.bench.peers import server_of, why_missing
from tests.bench.report import Measurement
from tests.bench.scenarios import CHART_CLIENTS, LONGEST_WAIT_S, SCENARIOS, Scenario, for_chart
from tests.bench.special import Held, Memory, Recalls, faults, held, memory, recalls

_FOLDER = Path(".bench")
_FAULTS, _HELD, _CHART, _RECALLS = "faults", "held", "chart", "recalls"
_LIBRARIES = ("redis", "hiredis", "redlock-py", "pottery", "etcd3", "kazoo")
_NAMES = (*SCENARIOS, _CHART, _RECALLS, _FAULTS, _HELD)

# What the reader of the results has to know.
_SHOWN = "Shown are the medians over the rounds (slowest: of all)."
_CLIENTS = (
    "Clients are threads, spread over {processes} processes, the same for every library: a process for each"
    " client costs all of them more CPU."
)
_TERMS = (
    "A pair is an acquire and a release; TTL 10 s. CPU is per pair: of the clients, of all agents, of all"
    " servers together. free: each client has a resource of its own; new: another one each time; kept: its"
    " own, of a class that keeps tenures. contended: all want the same one and wait for {wait_s:g} s at most"
    " (redlock-py: asked again until then); waits count as times of acquire, also those given up."
    " five-hosts: 20 of those, over five agents. three-and-one: three apps on one host and one on another,"
    " each holding it for 10 ms. bare relay: no lock at all, but what an agent would come to here that kept"
    " no rule: a SET and a DEL on each of five masters; kept: none. One client alone has nobody to contend"
    " with, so it is measured once."
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured: contenders by name in each scenario, rounds, and seconds for each measurement.
    special: what is no scenario of clients alone. left_out: what is not measured, and why."""

    scenarios: dict[str, dict[str, Make]]
    special: tuple[str, ...]
    left_out: list[str]
    seconds: float
    rounds: int
    processes: int
    leases: tuple[int, ...]

    @property
    def wait_s(self) -> float:
        return min(LONGEST_WAIT_S, self.seconds)

    @property
    def peers(self) -> list[str]:
        taking_part = {name for contenders in self.scenarios.values() for name in contenders}
        return [peer for name, peer in PEERS.items() if name in taking_part]


@dataclass(slots=True)
class Found:
    """What was measured."""

    measurements: list[Measurement] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    memory: Memory | None = None
    recalls: Recalls | None = None


def main() -> int:
    options = _options()
    plan = _plan(options)
    begun_s = time.monotonic()
    with ground(plan.peers) as where:
        header = _header(plan, where)
        found = _measure_all(plan, where)
    rows = report.rows_of(found.measurements)
    goals = report.goals_of(rows, found.held, found.memory, found.recalls)
    text = report.markdown(header, rows, goals, plan.left_out, found.held)
    print("\n" + text)
    _keep(text, report.as_json(header, found.measurements, rows, goals, found.held))
    for name, picture in report.charts(rows, found.held).items():
        (_FOLDER / name).write_text(picture)
    print(f"{time.monotonic() - begun_s:.0f} s; kept in {_FOLDER}/bench-results.md and .json, charts beside")
    return 0


def _options() -> argparse.Namespace:
    first_line = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=first_line)
    parser.add_argument("--seconds", type=float, help="for each measurement (default 2, with --quick 0.4)")
    parser.add_argument("--rounds", type=int, help="default 3, with --quick 1")
    parser.add_argument("--quick", action="store_true", help="a few minutes; good for its order only")
    parser.add_argument(
        "--processes",
        type=int,
        default=os.cpu_count() or 1,
        help="that clients are spread over (default: CPUs)",
    )
    parser.add_argument(
        "--only",
        default="",
        metavar="WORDS",
        help=f"comma-separated: scenarios ({', '.join(_NAMES)}) and parts of names "
        f"({', '.join((*CONTENDERS, *BASELINES, *RELAYS))})",
    )
    return parser.parse_args()


def _plan(options: argparse.Namespace) -> Plan:
    words = [word.strip().lower() for word in options.only.split(",") if word.strip()]
    names = [word for word in words if word not in _NAMES]
    wanted = [word for word in _NAMES if word in words] or list(_NAMES)
    known = CONTENDERS | BASELINES | RELAYS
    for word in names:
        if not any(word in name.lower() for name in known):
            sys.exit(f"--only: nothing is called '{word}'")
    left_out: list[str] = []
    chosen = {
        name: make
        for name, make in known.items()
        if (not names or any(word in name.lower() for word in names)) and _is_here(name, left_out)
    }
    scenarios = {
        one.name: {name: make for name, make in chosen.items() if name in one.takes_part}
        for one in _scenarios(wanted)
    }
    return Plan(
        scenarios,
        tuple(name for name in (_RECALLS, _FAULTS, _HELD) if name in wanted) if CLIENT in chosen else (),
        left_out,
        seconds=options.seconds or (0.4 if options.quick else 2.0),
        rounds=options.rounds or (1 if options.quick else 3),
        processes=options.processes,
        leases=(10, 100, 1_000, 10_000) if options.quick else (10, 100, 1_000, 10_000, 100_000),
    )


def _scenarios(wanted: list[str]) -> list[Scenario]:
    ones = [SCENARIOS[name] for name in wanted if name in SCENARIOS]
    if _CHART in wanted:
        ones += [one for one in map(for_chart, CHART_CLIENTS) if one not in ones]
    return ones


def _is_here(name: str, left_out: list[str]) -> bool:
    needed = NEEDS.get(name)
    why = why_missing(PEERS[name]) if name in PEERS else ""
    if needed is not None and importlib.util.find_spec(needed) is None:
        why = f"{needed} is not installed (make bench installs it)"
    if why:
        left_out.append(f"{name}: {why}")
    return not why


def _header(plan: Plan, where: Ground) -> list[str]:
    busy = os.getloadavg()[0]
    facts = [
        time.strftime("%Y-%m-%d %H:%M"),
        f"{os.cpu_count()} CPUs ({_cpu_model()})",
        f"Linux {platform.release()}",
        f"Python {platform.python_version()}",
        f"the agent is {build()}",
        f"{where.server}: five masters, appendfsync always, all on this machine",
        *(f"{server_of(peer)}: three members on the same disk" for peer in plan.peers),
        *(f"{name} {version(name)}" for name in _LIBRARIES if _is_there(name)),
        f"load before {busy:.1f}{' (BUSY: take the order, not the numbers)' if busy > 1 else ''}",
    ]
    clients = _CLIENTS.format(processes=plan.processes)
    terms = _TERMS.format(wait_s=plan.wait_s)
    method = f"{plan.rounds} rounds of {plan.seconds:g} s, interleaved. {_SHOWN} {clients} {terms}"
    return [" · ".join(facts), method]


def _is_there(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


# Measuring


def _measure_all(plan: Plan, where: Ground) -> Found:
    found = Found()
    for why in plan.left_out:
        print(f"left out: {why}", flush=True)
    for name, contenders in plan.scenarios.items():
        scenario = SCENARIOS.get(name) or for_chart(int(name.partition("-")[0]))
        where.have_agents(scenario.agents)
        load = scenario.load(plan.seconds, plan.processes)
        for number in range(1, plan.rounds + 1):
            for contender, make in contenders.items():
                one = _measure(name, contender, load, where, _clients(make, load, where))
                _note(found, one, number, plan)
        where.have_agents(1)
    if _RECALLS in plan.special:
        found.recalls = recalls(where)
    if _FAULTS in plan.special:
        _measure_faults(found, plan, where)
    if _HELD in plan.special:
        found.memory = memory(where)
        where.restart_agent()
        for at in held(plan.leases, plan.seconds, plan.processes, where):
            print(
                f"{at.leases:,} held: {at.pairs_us:.0f} µs per pair, {at.lease_kib:.2f} KiB each", flush=True
            )
            found.held.append(at)
    return found


def _clients(make: Make, load: Load, where: Ground) -> Callable[[], Tally]:
    return lambda: run(make, where.addresses, load)


def _measure_faults(found: Found, plan: Plan, where: Ground) -> None:
    load = SCENARIOS["16-free"].load(plan.seconds, plan.processes)
    for number in range(1, plan.rounds + 1):
        for name, long, work in faults(load, CONTENDERS[CLIENT], where):
            _note(found, _measure(name, CLIENT, long, where, work), number, plan)


def _measure(
    scenario: str, contender: str, load: Load, where: Ground, work: Callable[[], Tally]
) -> Measurement:
    peer = PEERS.get(contender)
    several = contender in (CLIENT, RAW) and load.agents > 1
    if contender in RELAYS:
        where.have_relay()
    tries = where.tries() if several else Tries()
    agents_s, before_s = where.agents_cpu_s(), where.servers_cpu_s(peer)
    tally = work()
    agents_s = where.agents_cpu_s() - agents_s
    servers_s = sum(now_s - before_s.get(pid, 0.0) for pid, now_s in where.servers_cpu_s(peer).items())
    tries = where.tries().since(tries) if several else tries
    if scenario in SCENARIOS:
        where.tidy()
    return Measurement.of(scenario, contender, load, tally, agents_s, servers_s, tries.per_turn)


def _note(found: Found, one: Measurement, number: int, plan: Plan) -> None:
    found.measurements.append(one)
    _show(one, number, plan.rounds)


def _show(one: Measurement, number: int, rounds: int) -> None:
    remarks = "".join(
        f"  {count} {what}"
        for count, what in ((one.given_up, "gave up"), (one.failed, f"failed: {one.failure}"))
        if count
    )
    print(
        f"{one.scenario:24} {number}/{rounds}  {one.contender:24} {one.pairs_per_s:8,.0f} pairs/s"
        f"  p50 {one.p50_ms:8.2f}  p99 {one.p99_ms:8.2f} ms{remarks}",
        flush=True,
    )


def _keep(text: str, everything: dict[str, object]) -> None:
    _FOLDER.mkdir(exist_ok=True)
    (_FOLDER / ".gitignore").write_text("*\n")
    (_FOLDER / "bench-results.md").write_text(text)
    (_FOLDER / "bench-results.json").write_text(json.dumps(everything, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
