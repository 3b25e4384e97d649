"""Check the models: `make model`, or python -m tests.model.

    python -m tests.model                       every row
    python -m tests.model --only fences         those with this in their name or flags
    python -m tests.model --trail 'no second round'    how the promise of a row is broken, step by step

Exit status: 0 each row is as expected, 1 one is not, 2 wrong usage or no tools, 130 it was told to stop.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from tests.harness.options import some
from tests.model.rows import ROWS, Row
from tests.model.search import Outcome, missing_tools, search


def main(argv: Sequence[str] | None = None) -> int:
    args = _arguments(argv)
    missing = missing_tools()
    if missing:
        print(
            f"not installed: {', '.join(missing)} (Debian: apt-get install spin gcc libc6-dev)",
            file=sys.stderr,
        )
        return 2
    if args.trail is not None:
        return _tell(args.trail)
    outcomes = _search_all(args.rows, args.jobs, quiet=args.json)
    print(json.dumps([_as_json(o) for o in outcomes], indent=2) if args.json else table(outcomes))
    return 0 if all(outcome.as_expected for outcome in outcomes) else 1


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.model",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--deep", action="store_true", help="also the rows that take minutes and gigabytes")
    parser.add_argument("--only", default="", metavar="WORD", help="rows with this in their name or flags")
    parser.add_argument("--trail", metavar="ROW", help="print this row's counter-example")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--jobs", type=some, default=os.cpu_count() or 1, help="searches side by side")
    args = parser.parse_args(argv)
    args.rows = [
        row for row in ROWS if (args.deep or not row.deep) and args.only in f"{row.name} {row.flags}"
    ]
    if not args.rows:
        parser.error(f"no row has {args.only!r} in its name or flags")
    return args


def _search_all(rows: Sequence[Row], jobs: int, *, quiet: bool) -> list[Outcome]:
    outcomes = []
    with ThreadPoolExecutor(jobs) as pool:
        for outcome in pool.map(search, rows):
            outcomes.append(outcome)
            if not quiet:
                done = f"{len(outcomes)}/{len(rows)}"
                print(
                    f"{done:>6} {outcome.row.name}: {outcome.result} {outcome.unfinished}",
                    file=sys.stderr,
                    flush=True,
                )
    return outcomes


def _tell(name: str) -> int:
    row = next((row for row in ROWS if row.name == name), None)
    if row is None:
        print(f"there is no row '{name}', only: {', '.join(row.name for row in ROWS)}", file=sys.stderr)
        return 2
    outcome = search(row, with_trail=True)
    ticks = 0
    for step in outcome.trail:
        ticks += step == "tick"
        print(f"{ticks:>3}  {step}")
    print(f"{row.name}: {outcome.result} (expected: {row.expected})")
    return 0 if outcome.as_expected else 1


HEAD = ("row", "rule", "expected", "result", "", "states", "depth", "CPU s", "MB")


def table(outcomes: Iterable[Outcome]) -> str:
    lines = [HEAD, *(_cells(outcome) for outcome in outcomes)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    return "\n".join(_aligned(line, widths) for line in lines)


def _cells(outcome: Outcome) -> tuple[str, ...]:
    row = outcome.row
    mark = "ok" if outcome.as_expected else "WRONG"
    numbers = (f"{outcome.states:,}", f"{outcome.depth}", f"{outcome.cpu_s:.1f}", f"{outcome.memory_mb:.0f}")
    return (row.name, row.rule, row.expected, outcome.result, mark, *numbers)


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    words = [c.ljust(w) for c, w in zip(cells[:5], widths[:5], strict=True)]
    numbers = [c.rjust(w) for c, w in zip(cells[5:], widths[5:], strict=True)]
    return "  ".join(words + numbers).rstrip()


def _as_json(outcome: Outcome) -> dict[str, Any]:
    return {**asdict(outcome), "as_expected": outcome.as_expected, "result": outcome.result}


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
