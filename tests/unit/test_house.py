"""The house stands as it was drawn: which room may use which, no circles, no prefixes in place of packages.

Every import counts: those for type checkers and those inside functions too. It is so with the tests.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parents[1]
LOCKD = TESTS.parent / "lockd"

MAY_USE: dict[str, set[str]] = {
    "build": set(),
    "threads": set(),
    "transport": set(),
    "clock": set(),
    "text": set(),
    "output": set(),
    "spout": set(),
    "health": set(),
    "guard": set(),
    "core": {"build"},
    "config": {"core"},
    "masters": {"core", "config", "clock", "threads", "transport"},
    "metrics": {"core", "config", "clock", "masters", "lockd", "build"},
    "http": {"core", "config", "metrics", "health", "text", "lockd"},
    "server": {
        "core",
        "config",
        "clock",
        "masters",
        "metrics",
        "http",
        "lockd",
        "build",
        "spout",
        "threads",
        "transport",
    },
    "client": {"clock", "config", "core"},
    "lockctl": {"core", "config", "clock", "client", "health", "output", "spout", "text", "lockd"},
    "dev": {"config", "core", "lockctl"},
    "aio": {"client"},
    "lockd": {"client"},
    "cli": {"config", "dev", "output", "server", "lockd"},
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


class Module(NamedTuple):
    """What is asked of a module. Its tree is not kept: those of all modules are 200 MB."""

    imported: frozenset[str]
    documented: bool
    statements: int


Modules = dict[str, Module]


@cache
def modules(folder: Path) -> Modules:
    """Of a folder, each parsed once; but for what is installed there (tests/.dropin and the like)."""
    ours = (path for path in folder.rglob("*.py") if not is_installed(path.relative_to(folder)))
    return {name_of(path): module(ast.parse(path.read_text())) for path in ours}


def is_installed(path: Path) -> bool:
    return any(part.startswith(".") or part == "node_modules" for part in path.parts)


def module(tree: ast.Module) -> Module:
    return Module(frozenset(imported_by(tree)), ast.get_docstring(tree) is not None, len(tree.body))


def imported_by(tree: ast.Module) -> Iterator[str]:
    """Modules, and names in modules, which may be modules too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # Only the guard's, which is shipped without lockd.
            module = f"lockd.guard.{node.module}" if node.level else node.module
            yield from (f"{module}.{alias.name}" for alias in node.names)


@cache
def uses(folder: Path) -> dict[str, set[str]]:
    """For each module of a folder the others that it imports, or of which it imports a name."""
    ours = modules(folder)
    return {name: _uses(ours, name) for name in ours}


def _uses(ours: Modules, name: str) -> set[str]:
    ways = ((of, of.rpartition(".")[0]) for of in ours[name].imported)
    found = {next((one for one in way if one in ours), name) for way in ways}
    return found - {name}


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else module


def rooms_used() -> dict[str, set[str]]:
    used = {room_of(module): set[str]() for module in uses(LOCKD)}
    for module, others in uses(LOCKD).items():
        used[room_of(module)] |= {room_of(other) for other in others} - {room_of(module)}
    return used


def test_rooms_use_each_other_as_was_drawn() -> None:
    assert rooms_used() == MAY_USE


def test_there_is_no_circle_of_imports() -> None:
    for used in (uses(LOCKD), MAY_USE, uses(TESTS)):
        TopologicalSorter(used).prepare()  # raises CycleError, which names them


def test_no_module_begins_with_the_name_of_another() -> None:
    """A room, not a prefix."""
    for folder in {path.parent for path in LOCKD.rglob("*.py")}:
        rooms = {path.parent.name for path in folder.glob("*/__init__.py")}
        names = {path.stem for path in folder.glob("*.py")} | rooms
        first_words = Counter(name.partition("_")[0] for name in names if not name.startswith("_"))
        assert [word for word, count in first_words.items() if count > 1] == [], folder


def test_a_room_says_what_it_is_for_and_no_more() -> None:
    """Its first module documents it, and holds no code."""
    rooms = [name for name in MAY_USE if (LOCKD / name).is_dir()]
    first = [name_of(path) for room in rooms for path in (LOCKD / room).rglob("__init__.py")]
    assert len(first) > len(rooms)
    ours = modules(LOCKD)
    assert [name for name in first if not ours[name].documented or ours[name].statements != 1] == []


def test_core_asks_nobody_for_the_time_or_for_luck() -> None:
    asked = {
        name: {one.partition(".")[0] for one in module.imported} & NOT_IN_CORE
        for name, module in modules(LOCKD).items()
        if room_of(name) == "core"
    }
    assert asked
    assert {name: found for name, found in asked.items() if found} == {}


# The suites of tests


def others(name: str) -> set[tuple[str, ...]]:
    """What a module of the tests imports from others of them, as ("tests", suite, module, name)."""
    imported = (one.split(".") for one in modules(TESTS)[name].imported)
    return {tuple(parts) for parts in imported if parts[0] == "tests"}


def test_no_module_with_tests_is_imported() -> None:
    found = {name: [one for one in others(name) if _is_of_tests(one)] for name in modules(TESTS)}
    assert {name: imported for name, imported in found.items() if imported} == {}


def _is_of_tests(imported: tuple[str, ...]) -> bool:
    return any(part.startswith("test_") for part in imported)


def test_a_suite_of_tests_uses_itself_and_the_harness_and_that_uses_no_suite() -> None:
    suites = {path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")} | {"harness"}
    found = {
        name: {one[1] for one in others(name)} - {name.split(".")[1], "harness"}
        for name in modules(TESTS)
        if name.split(".")[1] in suites
    }
    assert {"tests.harness.waiting", "tests.unit.test_house"} <= found.keys()
    assert {name: strangers for name, strangers in found.items() if strangers} == {}
