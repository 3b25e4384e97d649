"""Writes the tables of the README that the code knows: commands, from their descriptors, and the words of
errors, from their enum.

    python -m docs.readme   (make readme)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from lockd.core.errors import ErrorWord, Kind
from lockd.server.commands import catalog
from lockd.server.commands.command import Command

README = Path(__file__).resolve().parents[1] / "README.md"


def commands() -> str:
    """A row for each command of lockd, and one for those that are as in Redis."""
    own = [_command_row([command], command.promise) for command in catalog.COMMANDS if command.promise]
    of_redis = [command for command in catalog.COMMANDS if not command.promise]
    return _table(["command", "reply"], [*own, _command_row(of_redis, "as Redis")])


def _command_row(commands: Iterable[Command], reply: str) -> list[str]:
    return [" · ".join(f"`{command.usage()}`" for command in commands), reply]


def errors() -> str:
    """A row for each word, those of one kind together."""
    rows = [
        [f"`{word} {word.for_apps.then}`", word.for_apps.meaning, word.for_apps.to_do]
        for kind in Kind
        for word in ErrorWord
        if word.kind is kind
    ]
    return _table(["error", "meaning", "what to do"], rows)


def _table(head: list[str], rows: list[list[str]]) -> str:
    return _line(head) + "|---" * len(head) + "|\n" + "".join(map(_line, rows))


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def with_tables(readme: str) -> str:
    """The README with the tables as they should be."""
    return _with_table(_with_table(readme, commands()), errors())


def _with_table(readme: str, table: str) -> str:
    """In the place of that which begins with the same line."""
    return re.sub(re.escape(table.partition("\n")[0]) + r"\n(?:\|.*\n)+", lambda _: table, readme)


if __name__ == "__main__":
    README.write_text(with_tables(README.read_text()))
