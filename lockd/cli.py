"""The command `lockd`: run the agent, check its configuration, or run a whole cluster on this machine.

Exit statuses: 0 good, 1 it did not work, 2 the command line was wrong, 3 another `lockd dev` has the folder,
73 the output can't be written.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from lockd import __version__
from lockd.config.model import Config, load
from lockd.config.problems import ConfigError
from lockd.config.warnings import warnings_of
from lockd.output import could_not_write, open_standard_files

CONFIG_FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)


class Lockd(click.Group):
    def main(self, *args: Any, **extra: Any) -> NoReturn:
        open_standard_files()
        try:
            sys.exit(super().main(*args, **extra))
        except OSError as error:
            sys.exit(could_not_write(error))


@click.group(cls=Lockd, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="lockd")
def main() -> None:
    """lockd: distributed locks over independent Redis masters."""


@main.command()
@click.option(
    "--config", "config_path", type=CONFIG_FILE, required=True, help="The configuration file (YAML)."
)
def serve(config_path: Path) -> None:
    """Run the agent of this host until it is stopped.

    Exit status 0: stopped as asked; 1: the configuration has problems, or the agent can't serve; 2: invalid
    command line, or no such configuration.
    """
    try:
        config = load(config_path)
    except ConfigError as error:
        for line in _problem_lines(error):
            click.echo(f"{config_path}: {line}", err=True)
        sys.exit(1)
    # Imported here: `check-config` and `dev` need neither the event loop nor the links.
    from lockd.server.agent import serve as serve_agent

    sys.exit(serve_agent(config))


@main.command("check-config")
@click.argument("file", type=CONFIG_FILE)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check_config(file: Path, as_json: bool) -> None:
    """Check a configuration FILE: print OK and warnings, or every problem, one per line.

    Exit status 0: it is valid, with or without warnings; 1: it has problems; 2: invalid command line, or no
    such file.
    """
    try:
        config = load(file)
    except ConfigError as error:
        _print_problems(error, as_json)
        sys.exit(1)
    _print_good(config, as_json)


@main.command("check-journal")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def check_journal(file: Path) -> None:
    """Check whether an agent of this version can take over from another agent's journal FILE (its
    socket's path with .journal). Run it before an upgrade.

    Exit status 0: it can, or there is no such file; 1: the file can't be read, and leases would end at
    their deadlines; 2: invalid command line.
    """
    from lockd.server.journal import why_unreadable

    if why := why_unreadable(file):
        click.echo(f"{file}: {why}")
        sys.exit(1)
    click.echo(
        "OK: the journal can be read"
        if file.exists()
        else f"OK: there is no {file}, so there is nothing to take over"
    )


@main.command()
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".dev"),
    show_default=True,
    help="The folder for configuration, data, logs and socket. Created if missing.",
)
@click.option("--masters", type=int, default=None, help="Number of masters: 1, 3, 5, 7 or 9.  [default: 5]")
@click.option(
    "--metrics",
    default=None,
    metavar="HOST:PORT",
    help="Address of /metrics, on 127.0.0.1 only, or 'off'.  [default: port 9480, or a free one]",
)
def dev(folder: Path, masters: int | None, metrics: str | None) -> None:
    """Run a whole cluster on this machine: plain Redis masters, one agent, and a live view of them.

    For development and experiments. It listens on 127.0.0.1 only, and everything stops with this command.

    Exit status 0: stopped as asked; 1: failed; 2: invalid command line; 3: another `lockd dev` uses the
    folder.
    """
    from lockd.dev.cluster import run

    sys.exit(run(folder, masters, metrics))


def _problem_lines(error: ConfigError) -> list[str]:
    return [str(problem) for problem in error.problems]


def _print_problems(error: ConfigError, as_json: bool) -> None:
    if as_json:
        problems = [{"path": one.path, "wrong": one.wrong, "right": one.right} for one in error.problems]
        _print_json({"ok": False, "problems": problems, "warnings": []})
        return
    for line in _problem_lines(error):
        click.echo(line)


def _print_good(config: Config, as_json: bool) -> None:
    warnings = warnings_of(config)
    if as_json:
        _print_json({"ok": True, "problems": [], "warnings": warnings, "fingerprint": config.fingerprint()})
        return
    noun = "master" if len(config.masters) == 1 else "masters"
    click.echo(
        f"OK: cluster {config.cluster}, {len(config.masters)} {noun}, quorum {config.quorum},"
        f" fingerprint {config.fingerprint()}"
    )
    for warning in warnings:
        click.echo(f"warning: {warning}")


def _print_json(document: dict[str, Any]) -> None:
    click.echo(json.dumps(document, indent=2))
