"""Which tests miss a rule that is taken out: the mutations of tests/sim/mutation_list.py, by suite.

    python -m tests.kills                                    unit tests and scripts; minutes
    python -m tests.kills --suites unit,simulator --only fence --count
    python -m tests.kills --suites wire --survivors-of unit  what no unit test missed

Each mutation is applied to a copy of the tree. Of the unit tests those are run that run a mutated function:
which these are is found out first, by running all of them once (reach.py); the answer is kept in --reach
until the sources change. What the scripts' suites get is the mutation of the Lua, not of its model, so that
the two differ.

The control takes nothing out: a suite that misses that misses whatever is taken out.

Exit status: 0 each was missed by some suite that was asked and the control by none, 1 otherwise, 2 wrong
usage, 130 it was told to stop.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from queue import Queue

from tests.harness.options import above_zero, some
from tests.sim.mutation_list import CONTROL, MUTATIONS, Edit, Mutation
from tests.sim.mutations import hunt

ROOT = Path(__file__).resolve().parents[2]
TEST_TIMEOUT_S = 120
_SUMMARY = re.compile(r"(\d+) (?:failed|errors?)\b")
_FIRST = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Kill:
    """What a suite said to a mutation. tests: how many failed; None: the suite has nothing to say of it."""

    tests: int | None
    first: str = ""

    def __str__(self) -> str:
        if self.tests is None:
            return "·"
        return f"{self.tests}: {self.first}" if self.tests else "**no**"


NOTHING_TO_SAY = Kill(None)


# Which tests run a function


class Reach:
    """functions: the tests that run each, by 'file:line'."""

    def __init__(self, functions: dict[str, list[str]]) -> None:
        self._functions = functions

    def tests_of(self, mutation: Mutation) -> list[str]:
        return sorted({test for edit in mutation.edits for test in self._tests_of_edit(edit)})

    def _tests_of_edit(self, edit: Edit) -> set[str]:
        """Where it is in no function, those that run any of its file."""
        if not edit.file.endswith(".py"):
            return set()
        line = _function_around(edit)
        return {
            test
            for function, tests in self._functions.items()
            if (function.startswith(f"{edit.file}:") if line is None else function == f"{edit.file}:{line}")
            for test in tests
        }


def _function_around(edit: Edit) -> int | None:
    """The first line of the innermost function that has the whole of it, decorators included."""
    text = (ROOT / edit.file).read_text()
    at = text.index(edit.old)
    first = text.count("\n", 0, at + len(edit.old) - len(edit.old.lstrip())) + 1
    last = first + edit.old.strip().count("\n")
    around = None
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            begins = min([node.lineno, *(of.lineno for of in node.decorator_list)])
            if begins <= first and last <= (node.end_lineno or begins):
                around = begins  # walk goes outside in
    return around


def reach_of_unit_tests(kept: Path) -> Reach:
    """kept: where the answer of these sources is, or will be."""
    digest = _digest()
    if kept.exists() and (known := json.loads(kept.read_text()))["sources"] == digest:
        return Reach(known["functions"])
    print("which tests run which functions? (once, some minutes)", file=sys.stderr, flush=True)
    with tempfile.NamedTemporaryFile(suffix=".json") as answer:
        env = {**os.environ, "CI": "1", "LOCKD_REACH": answer.name}
        command = [*_PYTEST, "-p", "tests.kills.reach", *UNIT]
        subprocess.run(command, cwd=ROOT, env=env, stdout=sys.stderr, check=False)
        functions = json.loads(Path(answer.name).read_text())
    kept.write_text(json.dumps({"sources": digest, "functions": functions}))
    return Reach(functions)


def _digest() -> str:
    digest = sha256()
    for file in _files():
        if file.startswith(("lockd/", "tests/unit/", "tests/sim/", "tests/harness/")):
            digest.update(file.encode() + (ROOT / file).read_bytes())
    return digest.hexdigest()


# Suites

Suite = Callable[[Mutation], Kill]
_PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header"]


@contextmanager
def mutated(mutation: Mutation, edits: Sequence[Edit], trees: Queue[Path]) -> Iterator[Path]:
    """One of the copies of the tree, with the mutation for as long."""
    tree = trees.get()
    before = {edit.file: (ROOT / edit.file).read_bytes() for edit in edits}
    try:
        for edit in edits:
            edit.apply(tree)
        yield tree
    finally:
        for file, data in before.items():
            (tree / file).write_bytes(data)
        trees.put(tree)


class Tests:
    """Tests that pytest runs on a copy of the tree."""

    def __init__(
        self,
        chosen: Callable[[Mutation], Sequence[str]],
        edits: Callable[[Mutation], Sequence[Edit]],
        trees: Queue[Path],
        count: bool,
    ) -> None:
        """chosen: which, for a mutation. edits: what of it is applied; nothing: there is nothing to say."""
        self._chosen = chosen
        self._edits = edits
        self._trees = trees
        self._stop = [] if count else ["-x"]

    def __call__(self, mutation: Mutation) -> Kill:
        tests, edits = self._chosen(mutation), self._edits(mutation)
        if not edits:
            return NOTHING_TO_SAY
        if not tests:
            return Kill(0)
        with mutated(mutation, edits, self._trees) as tree, tempfile.NamedTemporaryFile("w") as names:
            names.write("\n".join(tests))
            names.flush()
            command = [
                *_PYTEST, *self._stop, "--tb=no", "-rfE", f"--timeout={TEST_TIMEOUT_S}", f"@{names.name}",
            ]  # fmt: skip
            env = {
                **os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "CI": "1",
            }  # fmt: skip
            done = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, check=False)
        return _kill(mutation, done)


def _kill(mutation: Mutation, done: subprocess.CompletedProcess[str]) -> Kill:
    if done.returncode not in (0, 1):
        # Nothing could be collected, or pytest itself failed: that is no way to miss a rule.
        raise RuntimeError(f"{mutation.name}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    failed = sum(map(int, _SUMMARY.findall(done.stdout.splitlines()[-1])))
    first = _FIRST.search(done.stdout)
    return Kill(failed, "" if first is None else first[1].removeprefix("tests/").split("[")[0])


def simulator(minutes: float) -> Suite:
    def missed(mutation: Mutation) -> Kill:
        if not mutation.simulated:
            return NOTHING_TO_SAY
        found = hunt(mutation, minutes)
        return Kill(1, f"{found.promise}, seed {found.seed}") if found.promise else Kill(0)

    return missed


def _all(mutation: Mutation) -> Sequence[Edit]:
    """Also those of the scripts' model, which unit tests use. Of a fault of the simulator's world they know
    nothing."""
    return mutation.edits if _of_product(mutation) else ()


def _of_product(mutation: Mutation) -> Sequence[Edit]:
    return [edit for edit in mutation.edits if edit.file.startswith("lockd/")]


def _of_scripts(mutation: Mutation) -> Sequence[Edit]:
    """Of the masters' own, not of their model."""
    return [edit for edit in mutation.edits if edit.file.endswith(".lua")]


UNIT = ("tests/unit",)
SCRIPTS = ("tests/redis/test_scripts.py", "tests/redis/test_script_model.py")
WIRE = ("tests/redis/test_rules.py", "tests/redis/test_faults.py", "tests/redis/test_wire.py")
SUITES = ("unit", "scripts", "wire", "simulator")


# The table


def _files() -> list[str]:
    """What is kept, and what is new."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted(file for file in listed.splitlines() if (ROOT / file).is_file())


@contextmanager
def copies(count: int) -> Iterator[Queue[Path]]:
    """Of the tree, for as many at once."""
    trees: Queue[Path] = Queue()
    with tempfile.TemporaryDirectory(prefix="lockd-kills-") as folder:
        for number in range(count):
            tree = Path(folder, str(number))
            for file in _files():
                (tree / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / file, tree / file)
            trees.put(tree)
        yield trees


def table(
    mutations: Sequence[Mutation], suites: dict[str, Suite], jobs: int, sieve: str | None
) -> list[Mutation]:
    """Prints a row for each. Returns those that nobody missed. sieve: the suites behind this one only get
    what none before them missed."""

    def kills(mutation: Mutation) -> list[Kill]:
        found: list[Kill] = []
        before: set[str] = set()
        for name, suite in suites.items():
            done = sieve in before and any(kill.tests for kill in found)
            found.append(NOTHING_TO_SAY if done else suite(mutation))
            before.add(name)
        return found

    print(f"| rule | mutation | {' | '.join(suites)} |", flush=True)
    print(f"|--:|---|{'---|' * len(suites)}", flush=True)
    survivors: dict[str, list[str]] = {name: [] for name in suites}
    nobody = []
    with ThreadPoolExecutor(jobs) as workers:
        for mutation, row in zip(mutations, workers.map(kills, mutations), strict=True):
            print(f"| {mutation.rule} | {mutation.name} | {' | '.join(map(str, row))} |", flush=True)
            for name, kill in zip(suites, row, strict=True):
                if kill.tests == 0 and mutation is not CONTROL:
                    survivors[name].append(mutation.name)
            if not any(kill.tests for kill in row):
                nobody.append(mutation)
    for name, alive in survivors.items():
        print(f"\n**{name}** doesn't miss {len(alive)}: {'; '.join(alive) or '-'}")
    return nobody


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.kills",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--suites", default="unit,scripts", help=f"of {', '.join(SUITES)} (unit,scripts)")
    parser.add_argument("--only", default="", help="mutations with this in their name")
    parser.add_argument("--count", action="store_true", help="how many tests miss each, instead of the first")
    parser.add_argument(
        "--survivors-of", choices=SUITES, help="only what this one doesn't miss goes on to the next"
    )
    parser.add_argument(
        "--minutes", type=above_zero, default=2_000.0, help="of a simulated cluster, for each (2000)"
    )
    parser.add_argument("--jobs", type=some, default=os.cpu_count() or 1, help="how many side by side")
    parser.add_argument(
        "--reach", type=Path, default=ROOT / ".reach.json", help="where what tests run is kept"
    )
    options = parser.parse_args()
    names = options.suites.split(",")
    chosen = [mutation for mutation in MUTATIONS if options.only in mutation.name]
    if not chosen:
        parser.error(f"no mutation has {options.only!r} in its name")
    if unknown := set(names) - set(SUITES):
        parser.error(f"there is no suite {', '.join(sorted(unknown))}, only {', '.join(SUITES)}")
    with copies(options.jobs) as trees:
        made: dict[str, Callable[[], Suite]] = {
            "unit": lambda: Tests(reach_of_unit_tests(options.reach).tests_of, _all, trees, options.count),
            "scripts": lambda: Tests(lambda _: SCRIPTS, _of_scripts, trees, options.count),
            "wire": lambda: Tests(lambda _: WIRE, _of_product, trees, options.count),
            "simulator": lambda: simulator(options.minutes),
        }
        suites = {name: made[name]() for name in SUITES if name in names}
        try:
            nobody = table([CONTROL, *chosen], suites, options.jobs, options.survivors_of)
        except KeyboardInterrupt:
            return 130
    return 0 if nobody == [CONTROL] else 1


if __name__ == "__main__":
    sys.exit(main())
