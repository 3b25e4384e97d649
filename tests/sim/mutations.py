"""Rules taken out on purpose, one at a time: the simulator has to notice each.

    python -m tests.sim.mutations                       the whole table
    python -m tests.sim.mutations --only 'fence' --minutes 100
    python -m tests.sim.mutations --from 0              how soon each is found by schedules that nobody chose
    python -m tests.sim.mutations --record              look for the seeds that find each, and write them down

Each mutation is a small patch to the real rules (lockd/core) or, for rules that live elsewhere, to what
stands for them here (the scripts' model, the guard). The sources are patched while a program of its own
imports them (mutated.py). There the seeds are run that found_by.json has for it, and then others, from 0 on,
until a promise is broken that the unchanged code keeps with that seed. Which other tests notice it: python -m
tests.kills.

found_by.json has up to three seeds for each, the one with the shortest run first. A change of the product, or
of how plans are drawn, may make a seed find nothing. Then the next does, or the search, in which every other
run is of the same sort as those that are written down; and the test says so. It is no failure, but costs time
in each run, until --record has been run again.

The control changes nothing, and has to find nothing.

Exit status: 0 each was found and the control was not, 1 otherwise, 2 wrong usage, 130 it was told to stop.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.harness.options import above_zero, some
from tests.sim.mutated import Search, Seen, search_without, stop_all
from tests.sim.mutation_list import CONTROL, MUTATIONS, Mutation
from tests.sim.plan import SHARED, of_today

FOUND_BY = Path(__file__).with_name("found_by.json")
_SEEDS_KEPT = 3
_CONTROL_MINUTES = 40


@dataclass(frozen=True, slots=True)
class Found:
    """How a mutation fared. promise: the first one broken; None: not found in time. stale: not by the seed
    that is written down for it."""

    name: str
    rule: int
    promise: str | None
    seed: int
    stale: bool
    simulated_s: float
    took_s: float


def recorded() -> dict[str, tuple[int, ...]]:
    """The seeds that find each mutation, by its name."""
    return {name: tuple(seeds) for name, seeds in json.loads(FOUND_BY.read_text()).items()}


def hunt(mutation: Mutation, minutes: float, first_seed: int | None = None) -> Found:
    """Run the seeds that are recorded for it, and then others until a promise breaks or that many
    cluster-minutes are over. first_seed: only those from this one on."""
    known = recorded().get(mutation.name, ()) if first_seed is None else ()
    first = _first_for(mutation) if first_seed is None else first_seed
    began_s = time.monotonic()
    seen = _searched(mutation, Search(mutation.edits, known, first, minutes))
    took_s = time.monotonic() - began_s
    if not seen.breaches:
        return Found(mutation.name, mutation.rule, None, -1, True, seen.simulated_s, took_s)
    breach = seen.breaches[0]
    stale = breach.seed not in known[:1]
    return Found(
        mutation.name, mutation.rule, breach.promises[0], breach.seed, stale, seen.simulated_s, took_s
    )


def _first_for(mutation: Mutation) -> int:
    return SHARED if mutation.shared else 0


def _searched(mutation: Mutation, asked: Search) -> Seen:
    seen = search_without(asked)
    if seen.failure and not seen.breaches:
        # It broke the program: that is no way to be found.
        raise RuntimeError(f"{mutation.name}: the mutated program failed\n{seen.failure}")
    return seen


def seeds_for(mutation: Mutation, known: tuple[int, ...], look: float, minutes: float) -> tuple[int, ...]:
    """Those with the shortest runs, of the known ones and of all in so many cluster-minutes. When none finds
    it, the search goes on for `minutes`."""
    first = _first_for(mutation)
    seen = _searched(mutation, Search(mutation.edits, known, first, look, enough=sys.maxsize))
    if not seen.breaches:
        seen = _searched(mutation, Search(mutation.edits, (), first, minutes))
    shortest = sorted(seen.breaches, key=lambda breach: breach.events)
    return tuple(breach.seed for breach in shortest[:_SEEDS_KEPT])


def write_down(seeds: Mapping[str, Sequence[int]]) -> None:
    """One line for each mutation, in the order of the list."""
    lines = [
        f"  {json.dumps(mutation.name)}: {json.dumps(list(seeds[mutation.name]))}"
        for mutation in MUTATIONS
        if seeds.get(mutation.name)
    ]
    FOUND_BY.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def row(found: Found) -> str:
    how = f"{found.promise} (seed {found.seed})" if found.promise else "NOT FOUND"
    return (
        f"| {found.rule:>2} | {found.name:<52} | {how:<28} "
        f"| {found.simulated_s / 60:>7.1f} | {found.took_s:>6.1f} |"
    )


def _tell(chosen: Iterable[Mutation], workers: ThreadPoolExecutor, options: argparse.Namespace) -> int:
    """Prints the table. Returns how many were not found, and the control, if it was."""
    print(f"| rule | {'mutation':<50} | {'broken promise':<28} | cluster-minutes | seconds |", flush=True)
    print("|--:|---|---|--:|--:|", flush=True)
    missed = 0
    for found in workers.map(lambda one: hunt(one, options.minutes, options.first_seed), chosen):
        print(row(found), flush=True)
        missed += found.promise is None
    control = hunt(CONTROL, _CONTROL_MINUTES, options.first_seed or of_today(0, 1).start)
    print(row(control), flush=True)
    return missed + (control.promise is not None)


def _record(chosen: Sequence[Mutation], workers: ThreadPoolExecutor, options: argparse.Namespace) -> int:
    """Writes down after each, so that what was found is kept when it is told to stop."""
    seeds = recorded() if FOUND_BY.exists() else {}
    missed = 0
    known = dict(seeds)

    def look(one: Mutation) -> tuple[int, ...]:
        return seeds_for(one, known.get(one.name, ()), options.look, options.minutes)

    for mutation, of_it in zip(chosen, workers.map(look, chosen), strict=True):
        print(f"{mutation.name}: {', '.join(map(str, of_it)) or 'NOT FOUND'}", flush=True)
        seeds[mutation.name] = of_it
        write_down(seeds)
        missed += not of_it
    return missed


def _options() -> tuple[argparse.Namespace, list[Mutation]]:
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim.mutations",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--minutes",
        type=above_zero,
        default=2_000.0,
        help="how many cluster-minutes to search for each that no recorded seed finds (2000)",
    )
    parser.add_argument("--from", dest="first_seed", type=int, help="run those from this one on instead")
    parser.add_argument("--only", default="", help="those with this in their name")
    parser.add_argument("--jobs", type=some, default=os.cpu_count() or 1, help="how many side by side")
    parser.add_argument(
        "--record", action="store_true", help=f"write down in {FOUND_BY.name} what finds each"
    )
    parser.add_argument(
        "--look",
        type=above_zero,
        default=40.0,
        help="how many cluster-minutes --record looks for shorter runs and spare ones (40)",
    )
    options = parser.parse_args()
    chosen = [mutation for mutation in MUTATIONS if options.only in mutation.name and mutation.simulated]
    if not chosen:
        parser.error(f"no mutation for the simulator has {options.only!r} in its name")
    return options, chosen


def main() -> int:
    options, chosen = _options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    workers = ThreadPoolExecutor(options.jobs)
    try:
        missed = (_record if options.record else _tell)(chosen, workers, options)
    except KeyboardInterrupt:
        workers.shutdown(wait=False, cancel_futures=True)
        stop_all()
        return 130
    print(f"{missed} of {len(chosen)} not as they should be" if missed else f"all {len(chosen)} found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
