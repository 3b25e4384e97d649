"""How `lockctl` prints things: for people on a terminal, as lines with tabs, or as JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from lockd.lockctl.agent import Row
from lockd.text import format_ms, printable

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def format_us(us: int) -> str:
    """As format_ms, for durations that are shorter, and may be negative."""
    return f"{us / 1000:z.2f}ms" if abs(us) < 1_000_000 else f"{us / 1_000_000:.1f}s"


def print_holder(held: Row, err: bool = False) -> None:
    """One lease, as HOLDER has it. err: on stderr."""
    lines = {
        "resource": held["resource"],
        "holder": held["holder"],
        "process": _process(held),
        "held for": format_ms(held["held_ms"]),
        "left": format_ms(held["ttl_ms"]),
        "masters": copies(held),
    }
    for name, value in lines.items():
        click.echo(f"{name:10}{printable(value)}", err=err)


def _process(held: Row) -> str:
    if held["kept"]:
        return f"none: kept by {held['host']}"
    process = f"{held['pid']} on {held['host']}, uid {held['uid']}"
    return f"{process}, or one after it there" if held["kept"] is None else process


def pid(lease: Row) -> str:
    """Its holder, if it has one."""
    return "kept" if lease["kept"] else str(lease["pid"])


def via(lease: Row) -> str:
    """How it was asked for: with LOCK, or with Redis's own commands or a script, and the library that sent
    it."""
    way, library = str(lease.get("via", "lock")), lease.get("library")
    return f"{way}, {library}" if library else way


def copies(lease: Row) -> str:
    """On how many masters a lease is."""
    text = f"{lease['masters']} of {lease['of']}"
    return text if lease.get("quorum", 1) else f"{text}: no quorum, so it is not held"


Column = tuple[str, Callable[[Row], object]]


def print_table(columns: Sequence[Column], rows: Iterable[Row]) -> None:
    """A table on a terminal; otherwise lines with tabs, the first of them the headings."""
    cells = [[printable(value(row)) for _, value in columns] for row in rows]
    headings = [heading for heading, _ in columns]
    if sys.stdout.isatty():
        _print_rich_table(headings, cells)
        return
    for line in (headings, *cells):
        click.echo("\t".join(line))


def _print_rich_table(headings: Sequence[str], cells: Iterable[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        # Names and reasons may be long; all else must be seen whole.
        table.add_column(heading, overflow="fold", no_wrap=heading not in ("RESOURCE", "WHY NO VOTE"))
    for row in cells:
        table.add_row(*map(Text, row))
    Console().print(table)


def print_json(document: Any) -> None:
    import json

    click.echo(json.dumps(document, indent=2))
