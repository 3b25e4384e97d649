"""The command `lockd`: run the agent, check its configuration, or run a whole cluster on this machine.

Exit statuses: 0 good, 1 it did not work, 2 the command line was wrong, 3 another `lockd dev` has the folder.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from lockd import __version__
from lockd.config.model import Config, load
from lockd.config.problems import ConfigError
from lockd.config.warnings import warnings_of

CONFIG_FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="lockd")
def main() -> None:
    """lockd: distributed locks over independent Redis masters."""


@main.command()
@click.option("--config", "config_path", type=CONFIG_FILE, required=True, help="The configuration, YAML.")
def serve(config_path: Path) -> None:
    """Run the agent of this host until it is told to stop.

    Exit status 0: it was told to stop, and did; 1: the configuration has problems, or it can't serve; 2: the
    command line is wrong, or there is no such configuration.
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
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for programs.")
def check_config(file: Path, as_json: bool) -> None:
    """Check a configuration FILE: print OK and warnings, or every problem, one a line.

    Exit status 0: it is good (warnings or not); 1: it has problems; 2: the command line is wrong, or there is
    no such file.
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
    """Say whether an agent of this version could take over what another has noted in FILE (its socket's path
    and .journal): before it is put in that one's place.

    Exit status 0: it could, or there is no such file; 1: it can't be read, and what is held would end at its
    deadline; 2: the command line is wrong.
    """
    from lockd.server.journal import why_unreadable

    if why := why_unreadable(file):
        click.echo(f"{file}: {why}")
        sys.exit(1)
    click.echo(
        "OK: it can be read" if file.exists() else f"OK: there is no {file}, so nothing is to be taken over"
    )


@main.command()
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".dev"),
    show_default=True,
    help="Where its configuration, data, logs and socket are; made when it is not there.",
)
@click.option("--masters", type=int, default=None, help="How many masters: 1, 3, 5, 7 or 9.  [default: 5]")
@click.option(
    "--metrics",
    default=None,
    metavar="HOST:PORT",
    help="Where /metrics is, on 127.0.0.1 only, or 'off'.  [default: port 9480, or else a free one]",
)
def dev(folder: Path, masters: int | None, metrics: str | None) -> None:
    """Run a whole cluster on this machine: plain Redis masters, one agent, and a live view of them.

    For development and to try things out: all of it listens on 127.0.0.1 only, and ends with this command.

    Exit status 0: it was told to stop, and did; 1: it did not work; 2: the command line is wrong; 3: another
    `lockd dev` has the folder.
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
