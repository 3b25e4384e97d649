"""Pages of the manual for `lockctl` and `lockd`, from what `--help` says: python manual.py FOLDER VERSION"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lockd import cli
from lockd.lockctl import main as lockctl


def main() -> int:
    folder, version = Path(sys.argv[1]), sys.argv[2]
    for name, command in (("lockd", cli.main), ("lockctl", lockctl.main)):
        write(folder, version, command, click.Context(command, info_name=name))
    return 0


def write(folder: Path, version: str, command: click.Command, context: click.Context) -> None:
    name = context.command_path.replace(" ", "-")
    (folder / f"{name}.1").write_text(page(name, version, command, context))
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            if found is not None and not found.hidden:
                write(folder, version, found, click.Context(found, info_name=child, parent=context))


def page(name: str, version: str, command: click.Command, context: click.Context) -> str:
    """The help as it is, in a page's frame: how it is laid out says something (tables of exit statuses)."""
    context.terminal_width = context.max_content_width = 78
    usage, _, rest = command.get_help(context).partition("\n")
    lines = [
        f'.TH "{name.upper()}" "1" "" "lockd {version}" "lockd"',
        ".SH NAME",
        rf"{roff(name)} \- {roff(command.get_short_help_str(200))}",
        ".SH SYNOPSIS",
        roff(usage.removeprefix("Usage: ")),
        ".SH DESCRIPTION",
        ".nf",
        *map(roff, rest.strip("\n").splitlines()),
        ".fi",
    ]
    if context.parent is None and isinstance(command, click.Group):
        children = ", ".join(f"{name}\\-{roff(child)}(1)" for child in command.list_commands(context))
        lines += [".SH SEE ALSO", children]
    return "\n".join(lines) + "\n"


def roff(text: str) -> str:
    """As troff takes it for text."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text


if __name__ == "__main__":
    sys.exit(main())
