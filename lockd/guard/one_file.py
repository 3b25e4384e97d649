"""Makes the one file that is shipped to masters' hosts from the modules beside it, and prints it: the same
bytes from the same sources, on every machine and at any time. The controller runs it (`python3 -I
one_file.py`); lockd need not be installed there.

Why one file of text, and not a zipapp, which would restrict a program like this one less:
-   It runs as root. `ansible-playbook --check --diff` shows what would change in it, line by line; for an
    archive it shows nothing. On the host it can be read with `less`, and its head is the operator's manual.
-   A traceback names a line that is there, and in an emergency it can be fixed with an editor.
-   It is read once, whole. An archive is opened again for each import and each traceback: a watch that has
    run for months would look for its lines in the version that has replaced it.
-   Its path and its units stay as they are, whatever fapolicyd, SELinux or an audit says about archives.
The price: all modules share one set of names. So no two may give one name to two things, and imports are at
their heads, without other names (`import x as y`). A module that breaks this is refused here, before it is
shipped.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from itertools import chain
from pathlib import Path

HERE = Path(__file__).parent
# Its docstring is the head of the file, and its code the end.
FIRST = "__main__"
NOT_SHIPPED = ("__init__", Path(__file__).stem)


class CannotJoin(Exception):
    """A module does something that can't be done in one file."""


class Room:
    """One source file: its docstring, its imports, and the rest."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self._lines = text.splitlines()
        self._tree = ast.parse(text, feature_version=(3, 9))
        self._doc, *statements = self._tree.body
        self._imports = [one for one in statements if isinstance(one, (ast.Import, ast.ImportFrom))]
        self._rest = statements[len(self._imports) :]
        self._check()

    def _check(self) -> None:
        if ast.get_docstring(self._tree) is None:
            raise CannotJoin(f"{self.name}: it does not say what it is for")
        anywhere = [one for one in ast.walk(self._tree) if isinstance(one, (ast.Import, ast.ImportFrom))]
        if len(anywhere) > len(self._imports) or set(self._imports) & set(self._rest):
            raise CannotJoin(f"{self.name}: an import does not stand at its head")
        for one in self._imports:
            self._check_import(one)

    def _check_import(self, one: ast.Import | ast.ImportFrom) -> None:
        if any(alias.asname or alias.name == "*" for alias in one.names):
            raise CannotJoin(f"{self.name}: an import has another name: {ast.unparse(one)}")
        if not _is_there(one):
            raise CannotJoin(f"{self.name}: masters' hosts do not have it: {ast.unparse(one)}")

    def needs(self) -> list[str]:
        """The modules whose names it uses."""
        froms = [one for one in self._imports if isinstance(one, ast.ImportFrom)]
        return sorted(str(one.module) for one in froms if one.level)

    def imported(self) -> Iterator[tuple[str, str]]:
        """From the standard library: a module, and a name in it or nothing."""
        for one in self._imports:
            for alias in one.names:
                if isinstance(one, ast.Import):
                    yield alias.name, ""
                elif not one.level and one.module != "__future__":
                    yield str(one.module), alias.name

    def names(self) -> set[str]:
        """The names that it defines."""
        return set(chain.from_iterable(map(_defined, self._rest)))

    def head(self) -> str:
        return "\n".join(self._lines[: self._doc.end_lineno])

    def text(self) -> str:
        """The rest of it, after its docstring as a comment."""
        said = (ast.get_docstring(self._tree) or "").splitlines() if self.name != FIRST else []
        begins = max([self._doc.end_lineno or 0, *(one.end_lineno or 0 for one in self._imports)])
        body = "\n".join(self._lines[begins:]).strip("\n")
        return "\n".join([f"# --- {self.name}.py", *(f"# {line}".rstrip() for line in said), "", body])


def _is_there(one: ast.Import | ast.ImportFrom) -> bool:
    """Defined in one of these modules, or in Python itself."""
    if isinstance(one, ast.ImportFrom) and one.level:
        return one.level == 1 and (HERE / f"{one.module}.py").exists()
    modules = [one.module or ""] if isinstance(one, ast.ImportFrom) else [alias.name for alias in one.names]
    return all(name.partition(".")[0] in sys.stdlib_module_names for name in modules)


def _defined(statement: ast.stmt) -> set[str]:
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return {statement.name}
    names = [one for one in ast.walk(statement) if isinstance(one, ast.Name)]
    return {one.id for one in names if isinstance(one.ctx, ast.Store)}


def one_file(sources: dict[str, str]) -> str:
    """The text of all modules, each after those that it needs. Raises CannotJoin, or CycleError."""
    rooms = {name: Room(name, text) for name, text in sorted(sources.items())}
    imported = set(chain.from_iterable(room.imported() for room in rooms.values()))
    _check_names(rooms, imported)
    order = TopologicalSorter({name: room.needs() for name, room in rooms.items()}).static_order()
    head = f"#!/usr/bin/python3 -I\n{rooms[FIRST].head()}\n\n{_imports(imported)}"
    return "\n\n\n".join([head, *(rooms[name].text() for name in order)]) + "\n"


def _check_names(rooms: dict[str, Room], imported: set[tuple[str, str]]) -> None:
    given = Counter(dir(builtins))
    given.update(name or module for module, name in imported)
    given.update(chain.from_iterable(room.names() for room in rooms.values()))
    twice = sorted(name for name, count in given.items() if count > 1)
    if twice:
        raise CannotJoin(f"one name for two things: {', '.join(twice)}")


def _imports(imported: set[tuple[str, str]]) -> str:
    whole = sorted(module for module, name in imported if not name)
    parts: dict[str, list[str]] = {}
    for module, name in sorted(imported):
        if name:
            parts.setdefault(module, []).append(name)
    return "\n".join(
        [
            "from __future__ import annotations\n",
            *(f"import {module}" for module in whole),
            *(f"from {module} import {', '.join(names)}" for module, names in parts.items()),
        ]
    )


def shipped() -> str:
    """The text of the one file, made from the modules in this folder."""
    paths = [path for path in HERE.glob("*.py") if path.stem not in NOT_SHIPPED]
    return one_file({path.stem: path.read_text("utf-8") for path in paths})


if __name__ == "__main__":
    sys.stdout.buffer.write(shipped().encode())
