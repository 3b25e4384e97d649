"""The commands of `lockctl` that shell scripts type: run, lock, unlock, extend."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import click

from lockd.core.errors import ErrorWord, Kind
from lockd.lockctl.agent import ANSWER_WITHIN_S, AgentClient, Row
from lockd.lockctl.errors import Refused
from lockd.lockctl.failures import ExitStatus
from lockd.lockctl.printing import json_option, print_json
from lockd.lockctl.run.job import run
from lockd.lockctl.run.leading import lead
from lockd.lockctl.run.lease import Job
from lockd.lockctl.words import Name
from lockd.text import shown

F = TypeVar("F", bound=Callable[..., Any])

_STATUSES_OF_RUN = """\b
Exit status: that of COMMAND, or
     64  invalid command line
     65  the agent refused the request as invalid: for example, a TTL that is too long
     69  the agent can't be reached, or is stopping
     74  no quorum: too few masters have a vote, or clocks can't be trusted now
     75  taken: still held by another holder, even after --wait
     76  lost: the lease ended before COMMAND did, or before it could be started (the message says which)
     77  denied by the policy of the resource's class, or by a limit
    126  COMMAND can't be executed
    127  COMMAND was not found
  128+n  COMMAND was killed by signal n, or lockctl was, before COMMAND was started
With 76 and 128+n COMMAND may have been started. With the others of these it was not.
"""


_STATUSES_OF_LEAD = """\b
Exit status: that of COMMAND, or
     64  invalid command line
     65  the agent refused the request as invalid: for example, a TTL or a wait that is too long
     76  lost: the lease was lost while lockctl was stopping on a signal
     77  denied by the policy of the resource's class, or by a limit
    126  COMMAND can't be executed
    127  COMMAND was not found
  128+n  COMMAND was killed by signal n
It keeps trying while another host leads, while the agent is down, and while there is no quorum.
"""


class Duration(click.ParamType):  # type: ignore[type-arg]  # click before 8.2 has no arguments there
    """A time as users write it, 10 or 10s, 500ms, 2m, 1h, in milliseconds."""

    name = "duration"
    _FORM = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(ms|s|m|h)?")
    _LONGEST_MS = 366 * 24 * 3_600_000
    _MS: ClassVar = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, None: 1000}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = self._FORM.fullmatch(value)
        if found is None:
            self.fail(f"{value!r} is not a duration: write 10 or 10s, 500ms, 2m, 1h", param, ctx)
        duration_ms = round(float(found[1]) * self._MS[found[2]])
        if duration_ms > self._LONGEST_MS:
            self.fail(f"{value!r} is longer than a year", param, ctx)
        return duration_ms


class RunCommand(click.Command):
    """A command that runs another one. A -- between them makes clear which options belong to which."""

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


ttl_option = duration_option("--ttl", "30s", "How long the lease lasts without renewal.")
wait_option = duration_option("--wait", "0", "How long to wait for it if it is taken.")
max_hold_option = duration_option(
    "--max-hold",
    None,
    "The longest time it may be held, renewals included. [default: the maximum of its class, usually 1h]",
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
    help="Lock one of this many slots of RESOURCE, the first that is free.",
)
@click.option("--quiet", "-q", is_flag=True, help="Print no message if it is taken (status 75). For cron.")
@click.argument("resources", nargs=-1, required=True, metavar="RESOURCE...", type=Name())
@click.pass_obj
def run_command(
    agent: AgentClient,
    ttl_ms: int,
    wait_ms: int,
    max_hold_ms: int | None,
    slots: int | None,
    quiet: bool,
    resources: tuple[bytes, ...],
    command: tuple[str, ...],
) -> int:
    """Run COMMAND while RESOURCE is locked, like flock(1) does with a file.

    Several resources are locked all together or not at all. --wait applies to all of them, and COMMAND ends
    when the first of them is lost. With --slots, up to that many COMMANDs run at the same time: LOCKD_SLOT
    is the number of the slot, starting at 0, and LOCKD_RESOURCE is its name, RESOURCE:slot:0.

    The agent renews the lease while COMMAND runs, up to --max-hold. COMMAND has LOCKD_RESOURCE, LOCKD_TOKEN,
    LOCKD_FENCE and LOCKD_DEADLINE_NS (at its start, on CLOCK_BOOTTIME) in its environment; for a second
    resource LOCKD_RESOURCE_2 and LOCKD_FENCE_2, and so on.

    If the agent is restarted or killed, COMMAND goes on: the next agent takes over the lease. A --wait also
    continues.

    If the lease is lost, COMMAND and everything it started, daemons included, get SIGTERM at once. SIGKILL
    follows half a second before the deadline of the lease, or a tenth of the TTL before it if that is less.
    SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 sent to lockctl are passed on to COMMAND's process
    group; Ctrl-C and Ctrl-Z work as usual.

    If lockctl is killed with -9, all of these processes are killed at once, and then the lock is free.
    lockctl can't kill processes of other users (sudo), and names them: use `sudo lockctl run ...`. Nor can
    it kill what other services start for COMMAND (systemd-run, at, docker). Background processes that
    COMMAND leaves behind when it ends go on without the lock.
    """
    if slots is not None and len(resources) > 1:
        raise click.UsageError("--slots goes with one RESOURCE")
    try:
        return run(Job(agent.socket_path, resources, ttl_ms, wait_ms, max_hold_ms, command, slots))
    except Refused as refused:
        if quiet and ErrorWord.named(refused.code).kind is Kind.CONTENDED:
            return ExitStatus.TAKEN
        raise


@click.command(
    "lead", cls=RunCommand, epilog=_STATUSES_OF_LEAD, short_help="Run a command on the host that leads."
)
@ttl_option
@duration_option("--wait", "60s", "How long to wait in line per attempt. The class sets the maximum.")
@max_hold_option
@click.argument("resource", type=Name())
@click.pass_obj
def lead_command(
    agent: AgentClient,
    ttl_ms: int,
    wait_ms: int,
    max_hold_ms: int | None,
    resource: bytes,
    command: tuple[str, ...],
) -> int:
    """Run COMMAND while this host is the leader of RESOURCE, and wait to become the leader while it is not.

    Start it on every host that may lead: COMMAND runs on one of them at a time, as it does under `lockctl
    run`. LOCKD_FENCE is the term, a number that grows with each leader. When the lease is lost, COMMAND and
    everything it started are killed before the deadline. lockctl then waits to become the leader again, and
    restarts COMMAND in its next term. When COMMAND exits, lockctl exits too, and another host may lead.

    A lease ends at the max_hold of its class, usually 1h. Give leaders a separate class with a long
    max_hold: see lockd.example.yml.
    """
    return lead(Job(agent.socket_path, (resource,), ttl_ms, wait_ms, max_hold_ms, command))


@click.command(short_help="Lock a resource for a fixed time and print the token.")
@ttl_option
@wait_option
@max_hold_option
@json_option
@click.argument("resource", type=Name())
@click.pass_obj
def lock(
    agent: AgentClient, ttl_ms: int, wait_ms: int, max_hold_ms: int | None, as_json: bool, resource: bytes
) -> None:
    """Lock RESOURCE for a fixed time, the TTL. It is not renewed automatically: see extend.

    Prints one line, TOKEN FENCE DEADLINE_NS (on CLOCK_BOOTTIME), or nothing if it could not be locked:

    \b
      lease=$(lockctl lock backup --ttl 60s) || exit
      read -r token fence deadline_ns <<END
      $lease
      END
      ...
      lockctl unlock backup "$token"

    The lock outlives this command and the script. Prefer `lockctl run` where you can: it renews the lease,
    watches it and releases it.
    """
    words: list[str | bytes | int] = ["LOCK", resource, ttl_ms, "WAIT", wait_ms, "DETACHED"]
    if max_hold_ms is not None:
        words += ["MAXHOLD", max_hold_ms]
    lease = agent.ask(*words, within_s=wait_ms / 1000 + ANSWER_WITHIN_S)
    try:
        _print_lease(resource, lease, as_json)
    except OSError:
        # Nobody knows its token.
        agent.ask("UNLOCK", resource, lease["token"])
        raise


def _read_token(_context: click.Context, _parameter: click.Parameter, token: bytes) -> bytes:
    return sys.stdin.buffer.readline().strip() if token == b"-" else token


token_argument = click.argument("token", type=Name(), envvar="LOCKD_TOKEN", callback=_read_token)


@click.command(short_help="Release what was locked with a token.")
@json_option
@click.argument("resource", type=Name())
@token_argument
@click.pass_obj
def unlock(agent: AgentClient, as_json: bool, resource: bytes, token: bytes) -> None:
    """Release RESOURCE, which was locked with TOKEN. Works from any host.

    Other users of this host can see your command line. To hide TOKEN, set it in the environment as
    LOCKD_TOKEN, or give - to read it from standard input.
    """
    agent.ask("UNLOCK", resource, token)
    if as_json:
        print_json({"resource": shown(resource), "released": True})


@click.command(short_help="Extend a lease.")
@ttl_option
@json_option
@click.argument("resource", type=Name())
@token_argument
@click.pass_obj
def extend(agent: AgentClient, ttl_ms: int, as_json: bool, resource: bytes, token: bytes) -> None:
    """Extend the lease of RESOURCE, locked with TOKEN, to a TTL from now. Never shortens it.

    TOKEN can be - to read standard input, or come from LOCKD_TOKEN. Prints TOKEN FENCE DEADLINE_NS, as lock
    does. FENCE is - if the agent of another host granted the lease.
    """
    _print_lease(resource, agent.ask("EXTEND", resource, token, ttl_ms), as_json)


def _print_lease(resource: bytes, lease: Row, as_json: bool) -> None:
    if as_json:
        print_json({"resource": shown(resource), **lease})
    else:
        fence = "-" if lease["fence"] is None else lease["fence"]
        click.echo(f"{lease['token']} {fence} {lease['deadline_ns']}")
