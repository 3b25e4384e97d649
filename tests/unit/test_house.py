"""The house stands as it was drawn: which room may use which, no circles, no prefixes in place of packages.

Every import counts: those for type checkers and those inside functions too. It is so with the tests.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
LOCKD = TESTS.parent / "lockd"

MAY_USE: dict[str, set[str]] = {
    "build": set(),
    "transport": set(),
    "clock": set(),
    "text": set(),
    "health": set(),
    "guard": set(),
    "core": {"build"},
    "config": {"core"},
    "masters": {"core", "config", "clock", "transport"},
    "metrics": {"core", "config", "clock", "masters", "lockd", "build"},
    "http": {"core", "config", "metrics", "health", "text", "lockd"},
    "server": {"core", "config", "clock", "masters", "metrics", "http", "lockd", "build", "transport"},
    "client": {"clock", "config", "core"},
    "lockctl": {"core", "config", "clock", "client", "health", "text", "lockd"},
    "dev": {"config", "core", "lockctl"},
    "aio": {"client"},
    "lockd": {"client"},
    "cli": {"config", "dev", "server", "lockd"},
    "__main__": {"cli"},
}
"""What each room, and each module at the top, imports. `lockd` is the package itself: its version, and the
names that apps import."""

NOT_IN_CORE = {
    "asyncio", "os", "random", "secrets", "select", "selectors", "socket", "ssl", "threading", "time",
}  # fmt: skip


def name_of(path: Path) -> str:
    parts = path.relative_to(LOCKD.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def trees(folder: Path) -> dict[str, ast.Module]:
    return {name_of(path): ast.parse(path.read_text()) for path in folder.rglob("*.py")}


TREES = trees(LOCKD)
TREES_OF_TESTS = trees(TESTS)


def imported_by(tree: ast.Module) -> Iterator[str]:
    """Modules, and names in modules, which may be modules too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # Only the guard's, which is shipped without lockd.
            module = f"lockd.guard.{node.module}" if node.level else node.module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def uses(trees: dict[str, ast.Module], name: str) -> set[str]:
    """The modules of these that an imported name is, or is in."""
    ways = ((of, of.rpartition(".")[0]) for of in imported_by(trees[name]))
    found = {next((one for one in way if one in trees), name) for way in ways}
    return found - {name}


USES = {name: uses(TREES, name) for name in TREES}
USES_OF_TESTS = {name: uses(TREES_OF_TESTS, name) for name in TREES_OF_TESTS}


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else module


def rooms_used() -> dict[str, set[str]]:
    used = {room_of(module): set[str]() for module in USES}
    for module, others in USES.items():
        used[room_of(module)] |= {room_of(other) for other in others} - {room_of(module)}
    return used


def test_rooms_use_each_other_as_was_drawn() -> None:
    assert rooms_used() == MAY_USE


@pytest.mark.parametrize("uses", [USES, MAY_USE, USES_OF_TESTS], ids=["modules", "rooms", "tests"])
def test_there_is_no_circle_of_imports(uses: dict[str, set[str]]) -> None:
    TopologicalSorter(uses).prepare()  # raises CycleError, which names them


def test_no_module_begins_with_the_name_of_another() -> None:
    """A room, not a prefix."""
    for folder in {path.parent for path in LOCKD.rglob("*.py")}:
        rooms = {path.parent.name for path in folder.glob("*/__init__.py")}
        names = {path.stem for path in folder.glob("*.py")} | rooms
        first_words = Counter(name.partition("_")[0] for name in names if not name.startswith("_"))
        assert [word for word, count in first_words.items() if count > 1] == [], folder


@pytest.mark.parametrize("room", sorted(name for name in MAY_USE if (LOCKD / name).is_dir()))
def test_a_room_says_what_it_is_for_and_no_more(room: str) -> None:
    for path in (LOCKD / room).rglob("__init__.py"):
        tree = TREES[name_of(path)]
        assert ast.get_docstring(tree), path
        assert len(tree.body) == 1, f"{path} holds code"


def test_core_asks_nobody_for_the_time_or_for_luck() -> None:
    of_core = {name: set(imported_by(tree)) for name, tree in TREES.items() if room_of(name) == "core"}
    for name, imported in of_core.items():
        assert {one.partition(".")[0] for one in imported} & NOT_IN_CORE == set(), name


# The suites of tests


def others_in(path: Path) -> set[tuple[str, ...]]:
    """What a module of the tests imports from others of them, as ("tests", suite, module, name)."""
    names = (name.split(".") for name in imported_by(TREES_OF_TESTS[name_of(path)]))
    return {tuple(parts) for parts in names if parts[0] == "tests"}


OF_TESTS = {path: others_in(path) for path in TESTS.rglob("*.py")}
SUITES = {path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")}


def test_no_module_with_tests_is_imported() -> None:
    for path, others in OF_TESTS.items():
        assert [one for one in others if any(part.startswith("test_") for part in one)] == [], path


@pytest.mark.parametrize("suite", [*sorted(SUITES), "harness"])
def test_a_suite_of_tests_uses_itself_and_the_harness_and_that_uses_no_suite(suite: str) -> None:
    for path in (TESTS / suite).rglob("*.py"):
        assert {one[1] for one in OF_TESTS[path]} <= {suite, "harness"}, path
