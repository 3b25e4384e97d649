"""The commands of `lockctl` that shell scripts type: run, lock, unlock, extend."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import click

from lockd.lockctl.agent import ANSWER_WITHIN_S, AgentClient, Row
from lockd.lockctl.printing import json_option, print_json
from lockd.lockctl.run.job import run
from lockd.lockctl.run.leading import lead
from lockd.lockctl.run.lease import Job

F = TypeVar("F", bound=Callable[..., Any])

_STATUSES_OF_RUN = """\b
Exit status: that of COMMAND, or
     64  the command line is wrong
     65  the agent finds the request wrong: a ttl that is too long, say
     69  the agent can't be reached, or is stopping
     74  no quorum: too few masters have a vote, or clocks can't be trusted now
     75  taken: held by another, also after --wait
     76  lost: the lease ended before COMMAND did, which was killed
     77  denied by the policy of the resource's class, or by a limit
    126  COMMAND can't be executed
    127  COMMAND was not found
  128+n  COMMAND was ended by signal n
But for 76 and 128+n, COMMAND was not started.
"""


_STATUSES_OF_LEAD = """\b
Exit status: that of COMMAND, or
     64  the command line is wrong
     65  the agent finds the request wrong: a ttl or a wait that is too long, say
     76  lost: the lease was lost and a signal said to end, both at a time
     77  denied by the policy of the resource's class, or by a limit
    126  COMMAND can't be executed
    127  COMMAND was not found
  128+n  COMMAND was ended by signal n
While another leads, and where the agent is away or has no quorum, it goes on trying.
"""


class Duration(click.ParamType):  # type: ignore[type-arg]  # click before 8.2 has no arguments there
    """A time as one writes it, 10 or 10s, 500ms, 2m, 1h, as milliseconds."""

    name = "duration"
    _FORM = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(ms|s|m|h)?")
    _LONGEST_MS = 366 * 24 * 3_600_000
    _MS: ClassVar = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, None: 1000}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = self._FORM.fullmatch(value)
        if found is None:
            self.fail(f"{value!r} is no duration: write 10 or 10s, 500ms, 2m, 1h", param, ctx)
        duration_ms = round(float(found[1]) * self._MS[found[2]])
        if duration_ms > self._LONGEST_MS:
            self.fail(f"{value!r} is longer than a year", param, ctx)
        return duration_ms


class RunCommand(click.Command):
    """A command that runs another. What belongs to whom must be plain: a -- stands between them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        rest = super().parse_args(ctx, args[:at])
        command = args[at + 1 :]
        if not command:
            raise click.UsageError(
                f"put -- before the command: lockctl {self.name} RESOURCE -- COMMAND...", ctx
            )
        ctx.params["command"] = tuple(command)
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "-- COMMAND..."]


def duration_option(flag: str, default: str | None, text: str) -> Callable[[F], F]:
    """`--max-hold` comes to a command as `max_hold_ms`."""
    name = flag.lstrip("-").replace("-", "_") + "_ms"
    return click.option(
        flag, name, type=Duration(), default=default, show_default=default is not None, help=text
    )


ttl_option = duration_option("--ttl", "30s", "How long the lease lasts unrenewed.")
wait_option = duration_option("--wait", "0", "How long to wait while it is taken.")
max_hold_option = duration_option(
    "--max-hold",
    None,
    "The longest it may be held, with all renewals.  [default: what its class allows, usually 1h]",
)


@click.command(
    "run", cls=RunCommand, epilog=_STATUSES_OF_RUN, short_help="Run a command while a resource is locked."
)
@ttl_option
@wait_option
@max_hold_option
@click.option(
    "--slots",
    type=click.IntRange(min=1),
    help="Lock one of so many equal slots of RESOURCE, whichever is free first.",
)
@click.argument("resources", nargs=-1, required=True, metavar="RESOURCE...")
@click.pass_obj
def run_command(
    agent: AgentClient,
    ttl_ms: int,
    wait_ms: int,
    max_hold_ms: int | None,
    slots: int | None,
    resources: tuple[str, ...],
    command: tuple[str, ...],
) -> int:
    """Run COMMAND while RESOURCE is locked, as flock(1) does with a file.

    Of several resources all are locked or none; --wait is for the whole, and COMMAND ends with the first of
    them that is lost. With --slots COMMAND runs as often at a time as there are slots: LOCKD_SLOT says which
    it has, from 0 on, and LOCKD_RESOURCE is the slot's own name, RESOURCE:slot:0.

    The agent renews the lease as long as COMMAND runs, up to --max-hold. COMMAND finds LOCKD_RESOURCE,
    LOCKD_TOKEN, LOCKD_FENCE and LOCKD_DEADLINE_NS (at its start, on CLOCK_BOOTTIME) in its environment; of
    a second resource LOCKD_RESOURCE_2 and LOCKD_FENCE_2, and so on.

    An agent that is restarted, or killed, costs COMMAND nothing: the next one goes on with the lease. So does
    a --wait.

    If the lease is lost, COMMAND and all that it has started, daemons too, get SIGTERM at once, and SIGKILL
    before the deadline of the lease: half a second before it, or a tenth of the TTL if that is less. SIGINT,
    SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 sent to lockctl are passed on to COMMAND's process group;
    Ctrl-C and Ctrl-Z work as usual.

    If lockctl is killed with -9, all of them are killed at once, and then the lock is free. What runs as
    another user (sudo) is beyond its reach, and named: `sudo lockctl run ...` reaches it. So is what others
    start for COMMAND (systemd-run, at, docker). What COMMAND leaves in the background when it ends goes on
    without the lock.
    """
    if slots is not None and len(resources) > 1:
        raise click.UsageError("--slots goes with one RESOURCE")
    names = tuple(map(os.fsencode, resources))
    return run(Job(agent.socket_path, names, ttl_ms, wait_ms, max_hold_ms, command, slots))


@click.command(
    "lead", cls=RunCommand, epilog=_STATUSES_OF_LEAD, short_help="Run a command where its leader is."
)
@ttl_option
@duration_option("--wait", "60s", "How long to stand in line at a time; its class says how long at most.")
@max_hold_option
@click.argument("resource")
@click.pass_obj
def lead_command(
    agent: AgentClient,
    ttl_ms: int,
    wait_ms: int,
    max_hold_ms: int | None,
    resource: str,
    command: tuple[str, ...],
) -> int:
    """Run COMMAND while this host is the leader of RESOURCE; stand for leader while it is not.

    Start it on every host that may lead: COMMAND runs on one of them at a time. It runs as under `lockctl
    run`; LOCKD_FENCE is the term, which grows from each to the next. When the lease is lost, COMMAND and all
    that it has started is ended before the deadline, and lockctl stands for leader again, and starts COMMAND
    anew in its next term. When COMMAND ends by itself, so does lockctl, and another may lead.

    A lease is lost at its class's max_hold at the latest, usually 1h: give leaders a class of their own with
    a long one, see lockd.example.yml.
    """
    return lead(Job(agent.socket_path, (os.fsencode(resource),), ttl_ms, wait_ms, max_hold_ms, command))


@click.command(short_help="Lock a resource for a fixed time and print the token.")
@ttl_option
@wait_option
@max_hold_option
@json_option
@click.argument("resource")
@click.pass_obj
def lock(
    agent: AgentClient, ttl_ms: int, wait_ms: int, max_hold_ms: int | None, as_json: bool, resource: str
) -> None:
    """Lock RESOURCE for a fixed time, the TTL. Nobody renews it unless you do: see extend.

    Prints one line, TOKEN FENCE DEADLINE_NS (on CLOCK_BOOTTIME), or nothing when it wasn't locked:

    \b
      lease=$(lockctl lock backup --ttl 60s) || exit
      read -r token fence deadline_ns <<END
      $lease
      END
      ...
      lockctl unlock backup "$token"

    It outlives this command and the script. Prefer `lockctl run` where you can: it renews, releases and
    watches.
    """
    words: list[str | int] = ["LOCK", resource, ttl_ms, "WAIT", wait_ms, "DETACHED"]
    if max_hold_ms is not None:
        words += ["MAXHOLD", max_hold_ms]
    _print_lease(resource, agent.ask(*words, within_s=wait_ms / 1000 + ANSWER_WITHIN_S), as_json)


def _read_token(_context: click.Context, _parameter: click.Parameter, token: str) -> str:
    return sys.stdin.readline().strip() if token == "-" else token


token_argument = click.argument("token", envvar="LOCKD_TOKEN", callback=_read_token)


@click.command(short_help="Release what was locked with a token.")
@json_option
@click.argument("resource")
@token_argument
@click.pass_obj
def unlock(agent: AgentClient, as_json: bool, resource: str, token: str) -> None:
    """Release RESOURCE, which was locked with TOKEN. From any host.

    Others on this host can see what stands on a command line: TOKEN may also be in LOCKD_TOKEN of the
    environment, or - to be read from standard input.
    """
    agent.ask("UNLOCK", resource, token)
    if as_json:
        print_json({"resource": resource, "released": True})


@click.command(short_help="Have what was locked with a token last longer.")
@ttl_option
@json_option
@click.argument("resource")
@token_argument
@click.pass_obj
def extend(agent: AgentClient, ttl_ms: int, as_json: bool, resource: str, token: str) -> None:
    """Have RESOURCE, locked with TOKEN, last for a TTL from now; never less than it would have.

    TOKEN may be in LOCKD_TOKEN, or - for standard input. Prints TOKEN FENCE DEADLINE_NS as lock does; FENCE
    is - when the agent of another host granted it.
    """
    _print_lease(resource, agent.ask("EXTEND", resource, token, ttl_ms), as_json)


def _print_lease(resource: str, lease: Row, as_json: bool) -> None:
    if as_json:
        print_json({"resource": resource, **lease})
    else:
        fence = "-" if lease["fence"] is None else lease["fence"]
        click.echo(f"{lease['token']} {fence} {lease['deadline_ns']}")
