"""Rules taken out on purpose, one at a time: the simulator has to notice each.

    python -m tests.sim.mutations                       the whole table
    python -m tests.sim.mutations --only 'fence' --minutes 100
    python -m tests.sim.mutations --from 0              how soon each is found by schedules that nobody chose

Each mutation is a small patch to the real rules (lockd/core) or, for rules that live elsewhere, to what
stands for them here (the scripts' model, the guard). It is applied to a copy of the sources, and seeds are
tried on that, from its first one on, until a promise is broken. Which other tests notice it:
python -m tests.kills.

Exit status: 0 each was found, 1 one was not, 2 wrong usage, 130 it was told to stop.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.harness.options import above_zero, some
from tests.sim.mutation_list import MUTATIONS, Mutation

_running: set[subprocess.Popen[str]] = set()
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Found:
    """How a mutation fared. promise: the first one broken; None: not found in time."""

    name: str
    rule: int
    promise: str | None
    seed: int
    simulated_s: float
    took_s: float


def hunt(mutation: Mutation, minutes: float, first_seed: int | None = None) -> Found:
    """Try seeds, from its own first one on if none is named, on a copy of the sources that has the mutation,
    until a promise breaks or that many cluster-minutes are over."""
    with tempfile.TemporaryDirectory(prefix="lockd-mutation-") as folder:
        copy_to(Path(folder))
        for edit in mutation.edits:
            edit.apply(Path(folder))
        began_s = time.monotonic()
        first = mutation.first_seed if first_seed is None else first_seed
        begin = ["--from", str(first), "--minutes", str(minutes)]
        status, said, errors = _in_a_child(
            [sys.executable, "-m", "tests.sim", "--json", "--jobs", "1", *begin], folder
        )
        took_s = time.monotonic() - began_s
    tally = json.loads(said) if status in (0, 1) and said else {"failure": errors}
    if tally["failure"]:
        # It broke the program: that is no way to be found.
        raise RuntimeError(f"{mutation.name}: the mutated program failed\n{tally['failure']}")
    promise = next(iter(tally["violations"]), None)
    seed = tally["broken"][0] if tally["broken"] else -1
    return Found(mutation.name, mutation.rule, promise, seed, tally["simulated_s"], took_s)


def _in_a_child(command: list[str], folder: str) -> tuple[int, str, str]:
    """Its status and what it said. It ends with this program, and is nice: tests beside it look at clocks."""
    env = {**os.environ, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
    nice = ["nice", "-n", "19", *command]
    with subprocess.Popen(
        nice, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        _running.add(child)
        try:
            said, errors = child.communicate()
        finally:
            _running.discard(child)
    return child.returncode, said, errors


def copy_to(folder: Path) -> None:
    """What a run needs of the sources."""
    for part in ("lockd", "tests/harness", "tests/sim"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "*.so"))


def row(found: Found) -> str:
    how = f"{found.promise} (seed {found.seed})" if found.promise else "NOT FOUND"
    return (
        f"| {found.rule:>2} | {found.name:<52} | {how:<28} "
        f"| {found.simulated_s / 60:>7.1f} | {found.took_s:>6.1f} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim.mutations",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--minutes",
        type=above_zero,
        default=2_000.0,
        help="how many cluster-minutes to search for each (2000)",
    )
    parser.add_argument("--from", dest="first_seed", type=int, help="where each search begins (its own seed)")
    parser.add_argument("--only", default="", help="those with this in their name")
    parser.add_argument("--jobs", type=some, default=os.cpu_count() or 1, help="how many side by side")
    options = parser.parse_args()
    chosen = [mutation for mutation in MUTATIONS if options.only in mutation.name and mutation.simulated]
    if not chosen:
        parser.error(f"no mutation for the simulator has {options.only!r} in its name")
    print(f"| rule | {'mutation':<50} | {'broken promise':<28} | cluster-minutes | seconds |", flush=True)
    print("|--:|---|---|--:|--:|", flush=True)
    missed = 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    workers = ThreadPoolExecutor(options.jobs)
    try:
        for found in workers.map(lambda one: hunt(one, options.minutes, options.first_seed), chosen):
            print(row(found), flush=True)
            missed += found.promise is None
    except KeyboardInterrupt:
        workers.shutdown(wait=False, cancel_futures=True)
        for child in list(_running):
            child.kill()
        return 130
    print(f"{len(chosen) - missed} of {len(chosen)} found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
