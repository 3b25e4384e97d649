"""lockctl.md: what `--help` says of every command of `lockctl` and `lockd`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from docs.made.markdown import NOTE, REFERENCE
from lockd import cli
from lockd.lockctl import main as lockctl

PAGE = REFERENCE / "lockctl.md"
HEAD = f"""# `lockctl` and `lockd`

{NOTE}
This is what `--help` says. Every command of `lockctl` that prints has `--json`. How to use them:
[cron jobs](../how-to/cron-jobs.md), [leaders](../how-to/leaders.md).
"""
WIDTH = 90


def page() -> str:
    roots = (("lockctl", lockctl.main), ("lockd", cli.main))
    return HEAD + "".join(
        section
        for name, command in roots
        for section in sections(command, click.Context(command, info_name=name, **command.context_settings))
    )


def sections(command: click.Command, context: click.Context) -> Iterator[str]:
    """Its own, then those of its commands."""
    context.terminal_width = context.max_content_width = WIDTH
    yield f"\n## {context.command_path}\n\n```text\n{command.get_help(context).rstrip()}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                yield from sections(found, click.Context(found, info_name=name, parent=context))
