"""Simulated clusters with faults, one after the other, until the time is up or a promise is broken.

    python -m tests.sim --seconds 60             seeds that no day before has begun with
    python -m tests.sim --hours 8 --from 100000  a long search
    python -m tests.sim --seed 4711              one run again: its history, shrunk when it breaks a promise

Exit status: 0 all promises were kept, 1 one was broken (its seed and history are printed), 2 wrong usage,
130 it was told to stop.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from math import inf
from multiprocessing import Pool
from types import FrameType
from typing import NoReturn

from tests.harness.history import Fault, Granted
from tests.harness.options import above_zero, some
from tests.sim.cluster import run
from tests.sim.plan import draw, of_today
from tests.sim.shrink import shrink, story


@dataclass(slots=True)
class Tally:
    """What a search has seen so far."""

    first: int
    runs: int = 0
    simulated_s: float = 0.0
    grants: int = 0
    faults: int = 0
    violations: Counter[str] = field(default_factory=Counter)
    broken: list[int] = field(default_factory=list)
    failure: str = ""
    """Of the first run in which the program itself failed."""
    interrupted: bool = False

    def add(self, result: Result) -> None:
        self.runs += 1
        self.simulated_s += result.simulated_s
        self.grants += result.grants
        self.faults += result.faults
        self.violations.update(result.promises)
        if result.promises:
            self.broken.append(result.seed)
            self.failure = self.failure or result.failure

    def line(self, took_s: float) -> str:
        hours = self.simulated_s / 3600
        return (
            f"{took_s:6.0f} s: {self.runs} runs (seeds {self.first} to {self.first + self.runs - 1}), "
            f"{hours:.1f} cluster-hours, {self.simulated_s / max(took_s, 0.1):.0f} x real time, "
            f"{self.grants} grants, {self.faults} faults, {len(self.broken)} broken"
        )


_RUN_CPU_S = 120.0
"""A run takes a tenth of a second; one that takes this long goes round in circles."""


@dataclass(frozen=True, slots=True)
class Result:
    """A run, as it comes back from a worker process. failure: how the program itself failed. events: how many
    were handled, which is what a run costs."""

    seed: int
    simulated_s: float
    grants: int
    faults: int
    promises: tuple[str, ...]
    failure: str = ""
    events: int = 0


class GoesRound(Exception):
    """A run that does not end."""


def _goes_round(_number: int, _frame: FrameType | None) -> NoReturn:
    raise GoesRound(f"no end after {_RUN_CPU_S:.0f} s of processor time")


def try_seed(seed: int) -> Result:
    """A run. That the rules fail or never end is a finding too, and keeps its seed."""
    signal.signal(signal.SIGVTALRM, _goes_round)
    signal.setitimer(signal.ITIMER_VIRTUAL, _RUN_CPU_S)
    try:
        return _result(seed)
    except GoesRound:
        return Result(seed, 0.0, 0, 0, ("ends",), traceback.format_exc())
    except Exception:
        return Result(seed, 0.0, 0, 0, ("runs",), traceback.format_exc())
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _result(seed: int) -> Result:
    outcome = run(draw(seed))
    return Result(
        seed,
        outcome.simulated_s,
        sum(isinstance(event, Granted) for event in outcome.history),
        sum(isinstance(event, Fault) for event in outcome.history),
        tuple(violation.promise for violation in outcome.violations),
        events=outcome.handled,
    )


_AHEAD = 2_000


def results(first: int, jobs: int) -> Iterator[Result]:
    if jobs == 1:
        yield from map(try_seed, count(first))
        return
    with Pool(jobs, initializer=_be_a_good_child) as pool:
        for start in count(first, _AHEAD):  # imap draws all that it is given, ahead
            yield from pool.imap(try_seed, range(start, start + _AHEAD))


def _be_a_good_child() -> None:
    """Stopping is left to the parent, and the processor to whoever looks at a clock: tests beside it do."""
    os.nice(19)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def search(
    first: int,
    seconds: float,
    jobs: int,
    *,
    minutes: float = inf,
    to_the_end: bool = False,
    quiet: bool = False,
) -> Tally:
    """Try seed after seed, for so many seconds of real time or so many cluster-minutes; stops at the first
    broken one unless `to_the_end`."""
    tally = Tally(first)
    began_s = shown_s = time.monotonic()
    for result in _until_interrupted(results(first, jobs), tally):
        tally.add(result)
        now_s = time.monotonic()
        if not quiet and now_s - shown_s > 10:
            print(tally.line(now_s - began_s), flush=True)
            shown_s = now_s
        enough = now_s - began_s > seconds or tally.simulated_s > minutes * 60
        if enough or (tally.broken and not to_the_end):
            break
    if not quiet:
        print(tally.line(time.monotonic() - began_s), flush=True)
    return tally


def _until_interrupted(more: Iterator[Result], tally: Tally) -> Iterator[Result]:
    try:
        yield from more
    except KeyboardInterrupt:
        tally.interrupted = True


def explain(seed: int) -> bool:
    """Print a run; True when it kept all promises."""
    outcome = run(draw(seed))
    if not outcome.violations:
        for event in outcome.history:
            print(event)
        print(f"seed {seed}: all promises kept")
        return True
    broken = len(outcome.violations)
    print(f"seed {seed}: {broken} promises broken; leaving out the faults that aren't needed …", flush=True)
    print(story(shrink(outcome)))
    print(f"again: python -m tests.sim --seed {seed}")
    return False


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=above_zero, help="how long to search (60)")
    parser.add_argument("--hours", type=above_zero, help="the same, in hours")
    parser.add_argument(
        "--minutes", type=above_zero, default=inf, help="or until so many cluster-minutes are over"
    )
    first = of_today(0, 1).start
    parser.add_argument(
        "--from", dest="first", type=int, default=first, help=f"the first seed (the day's: {first})"
    )
    parser.add_argument("--seed", type=int, help="run this one alone, and show it")
    parser.add_argument("--jobs", type=some, default=os.cpu_count() or 1, help="processes side by side")
    parser.add_argument("--all", action="store_true", help="don't stop at the first broken promise")
    parser.add_argument("--json", action="store_true", help="print what came of it as JSON, and nothing else")
    options = parser.parse_args()
    if options.seed is not None:
        return 0 if explain(options.seed) else 1
    tally = search(
        options.first,
        _seconds(options),
        options.jobs,
        minutes=options.minutes,
        to_the_end=options.all,
        quiet=options.json,
    )
    if options.json:
        print(json.dumps({**_fields(tally), "violations": dict(tally.violations)}))
    elif tally.failure:
        print(tally.failure + f"again: python -m tests.sim --seed {tally.broken[0]}")
    elif tally.broken:
        explain(tally.broken[0])
    if tally.interrupted:
        return 130
    return 1 if tally.broken else 0


def _seconds(options: argparse.Namespace) -> float:
    if options.hours is not None:
        return float(options.hours * 3600)
    if options.seconds is not None:
        return float(options.seconds)
    return 60.0 if options.minutes == inf else inf


def _fields(tally: Tally) -> dict[str, object]:
    names = ("first", "runs", "simulated_s", "grants", "faults", "broken", "failure")
    return {name: getattr(tally, name) for name in names}


if __name__ == "__main__":
    sys.exit(main())
