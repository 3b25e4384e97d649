"""The simulator without a rule, in a program of its own: sources are edited while it imports them.

`search_without` starts it, and it reads what is asked: edits, seeds, and for how long to go on. Nothing is
written and no tree is copied: a search costs its runs, and a quarter of a second for the imports.

Which promises a run breaks is found by the same code as ever (tests.sim.__main__). Those that it breaks with
no edit, too, are not counted: a seed that is red anyway finds nothing. Whatever is imported here
before the edits are in place must not be mutated: that is mutation_list.py alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from itertools import count, islice
from pathlib import Path
from types import CodeType
from typing import Any

from tests.sim.mutation_list import Edit

ROOT = Path(__file__).resolve().parents[2]
_running: set[subprocess.Popen[str]] = set()
_stopping = threading.Event()


@dataclass(frozen=True, slots=True)
class Search:
    """What is asked. The seeds that are named come first; then those from `first` on, and between them those
    whose runs are of the same sort as the named ones', until `enough` have broken a promise or the later ones
    have taken so many cluster-minutes."""

    edits: tuple[Edit, ...]
    seeds: tuple[int, ...] = ()
    first: int = 0
    minutes: float = 0.0
    enough: int = 1


@dataclass(frozen=True, slots=True)
class Breach:
    """A seed that breaks promises which it keeps when nothing is edited. events: how many were handled in its
    run, which is what it costs."""

    seed: int
    promises: tuple[str, ...]
    events: int


@dataclass(slots=True)
class Seen:
    """What came of a search. failure: of the first run in which the program itself failed: no breach."""

    breaches: list[Breach] = field(default_factory=list)
    runs: int = 0
    simulated_s: float = 0.0
    failure: str = ""


def search_without(asked: Search) -> Seen:
    """Ends with this program, at the latest."""
    command = [sys.executable, "-m", "tests.sim.mutated"]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        _running.add(child)
        if _stopping.is_set():
            child.kill()
        try:
            said, errors = child.communicate(json.dumps(asdict(asked)))
        finally:
            _running.discard(child)
            child.kill()
    if child.returncode:
        return Seen(failure=errors or f"ended with status {child.returncode}")
    fields = json.loads(said)
    breaches = [Breach(one["seed"], tuple(one["promises"]), one["events"]) for one in fields["breaches"]]
    return Seen(**{**fields, "breaches": breaches})


def stop_all() -> None:
    """The searches that go on, and each that another thread is about to begin."""
    _stopping.set()
    for child in list(_running):
        child.kill()


# In that program


class Edited(SourceFileLoader):
    """Of a source that is not as it is on disk: no bytecode of it is read or written."""

    def __init__(self, name: str, path: str, edits: Iterable[Edit]) -> None:
        super().__init__(name, path)
        self._edits = edits

    def get_code(self, fullname: str) -> CodeType:
        text = Path(self.path).read_text()
        for edit in self._edits:
            text = edit.made_in(text)
        return compile(text, self.path, "exec", dont_inherit=True)


class Sources(MetaPathFinder):
    """Finds what is of this tree, and the sources of it where there is something compiled beside them."""

    def __init__(self, edits: Sequence[Edit]) -> None:
        self._edits = edits

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in ("lockd", "tests"):
            return None
        place = ROOT.joinpath(*fullname.split("."))
        if (package := place / "__init__.py").is_file():
            return self._spec(fullname, package, [str(place)])
        module = place.with_name(f"{place.name}.py")
        return self._spec(fullname, module, None) if module.is_file() else None

    def _spec(self, name: str, file: Path, inside: list[str] | None) -> ModuleSpec | None:
        edits = [edit for edit in self._edits if ROOT / edit.file == file]
        loader = Edited(name, str(file), edits) if edits else SourceFileLoader(name, str(file))
        return spec_from_file_location(name, file, loader=loader, submodule_search_locations=inside)


_ALIKE_WITHIN = 20_000


def _seeds(asked: dict[str, Any], seen: Seen) -> Iterator[int]:
    yield from asked["seeds"]
    tried, named_s = set(asked["seeds"]), seen.simulated_s
    for seed in _more(asked["first"], asked["seeds"]):
        if seen.simulated_s - named_s >= asked["minutes"] * 60:
            return
        if seed not in tried:
            tried.add(seed)
            yield seed


def _more(first: int, named: list[int]) -> Iterator[int]:
    """To draw a plan costs a thousandth of a run: what few sorts of runs find is found sooner so."""
    from tests.sim.plan import sort_of

    sorts = {sort_of(seed) for seed in named}
    within = range(first, first + _ALIKE_WITHIN if sorts else first)
    alike = (seed for seed in within if sort_of(seed) in sorts)
    for seed in count(first):
        yield seed
        yield from islice(alike, 1)


def _broken_by_edits(edits: object, seed: int, broken: tuple[str, ...]) -> tuple[str, ...]:
    """Those that the same run keeps without the edits, in a program of its own."""
    if not (edits and broken):
        return broken
    control = search_without(Search((), (seed,)))
    if control.failure:
        raise RuntimeError(f"seed {seed} fails without any edit: {control.failure}")
    anyway = {promise for breach in control.breaches for promise in breach.promises}
    return tuple(promise for promise in broken if promise not in anyway)


def searched(asked: dict[str, Any]) -> Seen:
    from tests.sim.__main__ import try_seed

    seen = Seen()
    for seed in _seeds(asked, seen):
        result = try_seed(seed)
        seen.runs += 1
        seen.simulated_s += result.simulated_s
        if result.failure:
            seen.failure = seen.failure or result.failure
        elif promises := _broken_by_edits(asked["edits"], result.seed, result.promises):
            seen.breaches.append(Breach(seed, promises, result.events))
        if len(seen.breaches) >= asked["enough"] or (seen.failure and not seen.breaches):
            break
    return seen


def main() -> None:
    asked = json.load(sys.stdin)
    sys.meta_path.insert(0, Sources([Edit(**edit) for edit in asked["edits"]]))
    print(json.dumps(asdict(searched(asked))))


if __name__ == "__main__":
    main()
