"""`make bench`: lockd beside the libraries it replaces, on the same five masters, in one run.

Rounds go A B C D, A B C D, … so that whatever else the machine does hits all of them alike; shown are the
medians over the rounds. Results are printed and kept in .bench/bench-results.md and .json.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests.bench import report
from tests.bench.contenders import BASELINES, CLIENT, CONTENDERS, NEEDS, Make
from tests.bench.driver import Load, Meanwhile, run
from tests.bench.ground import Ground, ground
from tests.bench.report import AT_THE_STOP, STOPPED, WHOLE, Measurement

_FOLDER = Path(".bench")
_LONGEST_WAIT_S = 1.0
_STOP = "stop"
_LIBRARIES = ("redis", "hiredis", "redlock-py", "pottery")
_SCENARIOS = ("1-free", "16-free", "64-free", "16-contended", "64-contended", _STOP)

# What the reader of the results has to know.
_SHOWN = "Shown are the medians over the rounds (slowest: of all)."
_CLIENTS = (
    "Clients are threads, spread over {processes} processes, the same for every library: a process for each"
    " client costs all of them more CPU."
)
_TERMS = (
    "A pair is an acquire and a release; TTL 10 s. CPU is per pair: of the clients, of the agent, of all"
    " masters together. Free: each client has a resource of its own. Contended: all want the same one and"
    " wait for {wait_s:g} s at most (redlock-py: asked again until then); waits count as times of acquire,"
    " also those given up. One client alone has nobody to contend with, so it is measured once."
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured: contenders by name in each scenario, rounds, and seconds for each measurement."""

    scenarios: dict[str, dict[str, Make]]
    seconds: float
    rounds: int
    processes: int

    @property
    def wait_s(self) -> float:
        return min(_LONGEST_WAIT_S, self.seconds)

    def load_of(self, scenario: str) -> Load:
        clients, _, kind = scenario.partition("-")
        contended = kind == "contended"
        return Load(int(clients), contended, self.seconds, self.wait_s if contended else 0.0, self.processes)


def main() -> int:
    options = _options()
    plan = _plan(options)
    begun_s = time.monotonic()
    with ground() as where:
        header = _header(plan, where)
        measurements = list(_measure_all(plan, where))
    rows = report.rows_of(measurements)
    goals = report.goals_of(rows)
    text = report.markdown(header, rows, goals)
    print("\n" + text)
    _keep(text, report.as_json(header, measurements, rows, goals))
    print(f"{time.monotonic() - begun_s:.0f} s; kept in {_FOLDER}/bench-results.md and .json")
    return 0


def _options() -> argparse.Namespace:
    first_line = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=first_line)
    parser.add_argument("--seconds", type=float, help="for each measurement (default 2, with --quick 0.4)")
    parser.add_argument("--rounds", type=int, help="default 3, with --quick 1")
    parser.add_argument("--quick", action="store_true", help="less than a minute; good for its order only")
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
        help=f"comma-separated: scenarios ({', '.join(_SCENARIOS)}) and parts of names "
        f"({', '.join((*CONTENDERS, *BASELINES))})",
    )
    return parser.parse_args()


def _plan(options: argparse.Namespace) -> Plan:
    words = [word.strip().lower() for word in options.only.split(",") if word.strip()]
    names = [word for word in words if word not in _SCENARIOS]
    scenarios = [word for word in _SCENARIOS if word in words] or list(_SCENARIOS)
    known = CONTENDERS | BASELINES
    for word in names:
        if not any(word in name.lower() for name in known):
            sys.exit(f"--only: nothing is called '{word}'")
    chosen = {
        name: make
        for name, make in known.items()
        if _installed(name) and (not names or any(word in name.lower() for word in names))
    }
    return Plan(
        {scenario: {n: m for n, m in chosen.items() if _takes_part(n, scenario)} for scenario in scenarios},
        seconds=options.seconds or (0.4 if options.quick else 2.0),
        rounds=options.rounds or (1 if options.quick else 3),
        processes=options.processes,
    )


def _takes_part(name: str, scenario: str) -> bool:
    if name in BASELINES:
        return scenario == "1-free"
    return scenario != _STOP or name == CLIENT


def _installed(name: str) -> bool:
    needed = NEEDS.get(name)
    if needed is None or importlib.util.find_spec(needed) is not None:
        return True
    print(f"{name} is not installed and left out (make bench installs it)", file=sys.stderr)
    return False


def _header(plan: Plan, where: Ground) -> list[str]:
    busy = os.getloadavg()[0]
    facts = [
        time.strftime("%Y-%m-%d %H:%M"),
        f"{os.cpu_count()} CPUs ({_cpu_model()})",
        f"Linux {platform.release()}",
        f"Python {platform.python_version()}",
        f"{where.server}: five masters, appendfsync always, all on this machine",
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


def _measure_all(plan: Plan, where: Ground) -> Iterator[Measurement]:
    for scenario, contenders in plan.scenarios.items():
        for number in range(1, plan.rounds + 1):
            for name, make in contenders.items():
                measured = (
                    _measure_stop(plan, where, name, make)
                    if scenario == _STOP
                    else [_measure(scenario, name, make, plan.load_of(scenario), where)]
                )
                for one in measured:
                    _show(one, number, plan.rounds)
                    yield one


def _measure(
    scenario: str, name: str, make: Make, load: Load, where: Ground, meanwhile: Meanwhile = ()
) -> Measurement:
    agent_s, masters_s = where.agent_cpu_s(), where.masters_cpu_s()
    tally = run(make, where.addresses, load, meanwhile)
    agent_s, masters_s = where.agent_cpu_s() - agent_s, where.masters_cpu_s() - masters_s
    if scenario in _SCENARIOS:
        where.tidy()
    return Measurement.of(scenario, name, load, tally, agent_s, masters_s)


def _measure_stop(plan: Plan, where: Ground, name: str, make: Make) -> Iterator[Measurement]:
    """16 clients, free: with five masters, while one of them is stopped (SIGSTOP), and without that one."""
    load = replace(plan.load_of("16-free"), seconds=2 * plan.seconds)
    yield _measure(WHOLE, name, make, load, where)
    try:
        yield _measure(AT_THE_STOP, name, make, load, where, ((load.seconds / 4, where.victim.pause),))
        where.without_victim()
        yield _measure(STOPPED, name, make, load, where)
    finally:
        where.victim.resume()
    where.whole()


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
