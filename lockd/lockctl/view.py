"""The commands of `lockctl` that look at things: holder, locks, masters, ping, doctor."""

from __future__ import annotations

import shutil
import sys
import textwrap
import time
from typing import TYPE_CHECKING

import click

from lockd.core.values import quorum_of
from lockd.lockctl.agent import LISTING_WITHIN_S, AgentClient, Row
from lockd.lockctl.failures import ExitStatus
from lockd.lockctl.printing import (
    Column,
    copies,
    format_us,
    json_option,
    pid,
    print_holder,
    print_json,
    print_table,
    via,
)
from lockd.lockctl.words import Name
from lockd.text import format_ms, printable

if TYPE_CHECKING:
    from lockd.lockctl.doctor import Finding

# The column at which the texts of findings begin, and the least width for which their lines are broken.
_INDENT = 24
_LEAST_WIDTH = 30

_LEASE_COLUMNS: tuple[Column, ...] = (
    ("RESOURCE", lambda row: row["resource"]),
    ("HOLDER", lambda row: row["holder"]),
)
_TIME_COLUMNS: tuple[Column, ...] = (
    ("HELD", lambda row: format_ms(row["held_ms"])),
    ("LEFT", lambda row: format_ms(row["ttl_ms"])),
    ("MASTERS", copies),
)
_LOCK_COLUMNS: tuple[Column, ...] = (
    *_LEASE_COLUMNS,
    ("HOST", lambda row: row["host"]),
    ("PID", pid),
    ("UID", lambda row: row["uid"]),
    *_TIME_COLUMNS,
)
_LOCAL_COLUMNS: tuple[Column, ...] = (
    *_LEASE_COLUMNS,
    ("CLASS", lambda row: row["class"]),
    ("PID", pid),
    ("UID", lambda row: row["uid"]),
    ("FENCE", lambda row: row["fence"]),
    *_TIME_COLUMNS,
    ("BOUND TO", lambda row: row["bound"] or "-"),
    ("VIA", via),
    ("WAITING", lambda row: row["waiters"]),
)
_MASTER_COLUMNS: tuple[Column, ...] = (
    ("NAME", lambda row: row["name"]),
    ("ADDRESS", lambda row: row["address"]),
    ("STATE", lambda row: row["state"]),
    ("VOTE", lambda row: "yes" if row["vote"] else "no"),
    ("ROUND TRIP", lambda row: "-" if row["state"] == "down" else format_us(row["rtt_us"] or 0)),
    ("CLOCK", lambda row: "?" if row["clock_offset_us"] is None else format_us(row["clock_offset_us"])),
    ("VERSION", lambda row: row["version"]),
    ("WHY NO VOTE", lambda row: "" if row["vote"] else row["reason"]),
)


@click.command(short_help="Show who holds a resource.")
@json_option
@click.argument("resource", type=Name())
@click.pass_obj
def holder(agent: AgentClient, as_json: bool, resource: bytes) -> int:
    """Show who holds RESOURCE, and on how many masters. Exit status 1 if it is free."""
    held = agent.ask("HOLDER", resource)
    if as_json:
        print_json(held)
    elif held is None:
        click.echo(f"{printable(resource)} is free")
    else:
        print_holder(held)
    return ExitStatus.NO if held is None else ExitStatus.DONE


@click.command(short_help="List locked resources.")
@json_option
@click.option("--local", is_flag=True, help="Only leases of this host's agent, with more details.")
@click.argument("pattern", default="*", type=Name())
@click.pass_obj
def locks(agent: AgentClient, as_json: bool, local: bool, pattern: bytes) -> None:
    """List the locked resources of all hosts, or those that match the glob PATTERN.

    You see your own leases and those of classes that you may lock. Operators see all.
    """
    found: list[Row] = agent.ask("LOCKS", pattern, *(["LOCAL"] if local else []), within_s=LISTING_WITHIN_S)
    rows = sorted(found, key=lambda row: str(row["resource"]))
    if as_json:
        print_json(rows)
    elif local:
        print_table(_LOCAL_COLUMNS, rows)
    else:
        print_table(_LOCK_COLUMNS, rows)


@click.command(short_help="List the masters and their votes.")
@json_option
@click.pass_obj
def masters(agent: AgentClient, as_json: bool) -> None:
    """List the masters: which have a vote, and why the others don't."""
    rows: list[Row] = agent.ask("MASTERS")
    if as_json:
        print_json(rows)
        return
    print_table(_MASTER_COLUMNS, rows)
    votes, quorum = sum(row["vote"] for row in rows), quorum_of(len(rows))
    click.echo(f"{votes} of {len(rows)} have a vote, {quorum} are needed", err=True)


@click.command(short_help="Check that the agent answers.")
@json_option
@click.pass_obj
def ping(agent: AgentClient, as_json: bool) -> None:
    """Check that the agent answers, and show how long it took."""
    agent.ask("PING")  # the first one loads what asking needs
    started_ns = time.monotonic_ns()
    agent.ask("PING")
    took_us = (time.monotonic_ns() - started_ns) // 1000
    if as_json:
        print_json({"reply": "PONG", "took_us": took_us})
    else:
        click.echo(f"PONG in {format_us(took_us)}")


@click.command(short_help="Check everything, and say how to fix problems.")
@json_option
@click.option(
    "--config",
    "config_path",
    type=click.Path(exists=True, dir_okay=False),
    help="The agent's configuration file. It is compared with what the agent and the masters use.",
)
@click.pass_obj
def doctor(agent: AgentClient, as_json: bool, config_path: str | None) -> int:
    """Check everything that can be checked from this host, and say how to fix each problem.

    To test locking, it locks and releases the resource lockctl-doctor:HOST:PID. Exit status 0: all is well;
    1: there are warnings; 2: there are failures.
    """
    from lockd.lockctl.doctor import examine, worst_of

    findings = examine(agent.ask, agent.socket_path, config_path)
    severity = worst_of(findings)
    if as_json:
        print_json({"verdict": severity.name.lower(), "checks": [finding.as_row() for finding in findings]})
    else:
        for finding in findings:
            _print_finding(finding)
    return int(severity)


def _print_finding(finding: Finding) -> None:
    color = ("green", "yellow", "red")[finding.severity]
    mark = click.style(f"{finding.severity.name.lower():8}", fg=color)
    click.echo(f"{mark} {finding.check:14} {_below(finding.what, _INDENT)}")
    if finding.then:
        click.echo(f"{'':{_INDENT}}-> {_below(finding.then, _INDENT + 3)}")


def _below(text: str, indent: int) -> str:
    """A text that begins at this column. On a terminal its further lines begin there, too."""
    text = printable(text)
    width = shutil.get_terminal_size().columns - indent
    if not sys.stdout.isatty() or width < _LEAST_WIDTH:
        return text
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return f"\n{'':{indent}}".join(lines)
