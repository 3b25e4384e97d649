"""See __init__.py."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import click

import tests.bench.attack as package
from tests.bench.attack.bounds import Figures, broken
from tests.bench.attack.host import attacked_host
from tests.bench.attack.people import bury_orphans, take_in_orphans
from tests.bench.attack.row import Row, Sizes, measure
from tests.bench.attack.rows import ROWS
from tests.bench.attack.rows.nothing import NOTHING
from tests.bench.attack.table import HEAD, Line


def chosen(only: Sequence[str]) -> list[Row]:
    """Those with one of these words in their names; `nothing`, which others are compared with, in any
    case. BadParameter when there is no such row."""
    for word in only:
        if not any(word in row.name for row in ROWS):
            raise click.BadParameter(
                f"no row has '{word}' in its name: {', '.join(row.name for row in ROWS)}"
            )
    return [row for row in ROWS if row is NOTHING or not only or any(word in row.name for word in only)]


def measured(rows: Sequence[Row], sizes: Sizes) -> Iterator[Line]:
    """One line after the other. A row that fails stops no other."""
    if os.geteuid():
        yield from (Line(row.name, None, why_not="only root can be several users") for row in rows)
        return
    nothing: Figures = {}
    take_in_orphans()
    with ExitStack() as stack:
        host = stack.enter_context(attacked_host())
        for row in rows:
            try:
                found = measure(row, host, sizes)
            except Exception as failure:
                yield Line(row.name, None, why_not=f"{type(failure).__name__}: {failure}")
                continue
            finally:
                bury_orphans(host.pids())
            nothing = nothing or found.figures
            yield Line(row.name, found, broken(row.all_bounds(sizes), found.figures, nothing))


def status_of(lines: Sequence[Line]) -> int:
    return 0 if all(line.is_well for line in lines) else 1


def _commit() -> str:
    words = ("git", "describe", "--always", "--dirty", "--abbrev=12")
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


@click.command(help=package.__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", multiple=True, help="Rows with this in their name (and `nothing`).")
@click.option("--full", is_flag=True, help="The sizes that were found, not a few minutes' worth of them.")
@click.option("--scale", default=1.0, show_default=True, help="So many times as much of everything.")
@click.option("--json", "to", type=click.Path(path_type=Path), help="Write all figures there as well.")
def main(only: Sequence[str], full: bool, scale: float, to: Path | None) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    click.echo(f"{_commit()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}\n{HEAD}")
    lines = []
    for line in measured(chosen(only), Sizes(full, scale)):
        lines.append(line)
        click.echo("\n".join(line.shown()))
    if to is not None:
        to.write_text(json.dumps([line.as_json() for line in lines], indent=1) + "\n")
    sys.exit(status_of(lines))


if __name__ == "__main__":
    main()
