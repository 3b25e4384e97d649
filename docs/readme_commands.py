"""Writes the README's table of commands from their descriptors.

python -m docs.readme_commands   (make readme-commands)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from lockd.server.commands import catalog
from lockd.server.commands.command import Command

README = Path(__file__).resolve().parents[1] / "README.md"
_HEAD = "| command | reply |\n|---|---|\n"
_TABLE = re.compile(re.escape(_HEAD) + r"(?:\|.*\n)+")


def table() -> str:
    """A row for each command of lockd, and one for those that are as in Redis."""
    own = [_row([command], command.promise) for command in catalog.COMMANDS if command.promise]
    of_redis = [command for command in catalog.COMMANDS if not command.promise]
    return _HEAD + "".join([*own, _row(of_redis, "as Redis")])


def _row(commands: Iterable[Command], reply: str) -> str:
    usages = " · ".join(f"`{command.usage()}`" for command in commands)
    return f"| {usages.replace('|', chr(92) + '|')} | {reply} |\n"


def with_table(readme: str) -> str:
    """The README with the table as it should be."""
    return _TABLE.sub(lambda _: table(), readme)


if __name__ == "__main__":
    README.write_text(with_table(README.read_text()))
