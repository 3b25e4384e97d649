"""The command `lockctl`: locks for shell scripts, and what operators see and do.

Each command asks the agent of this host and prints what it says. Starting up quickly matters to scripts, so
what only some commands need (redis-py, rich, the checks of `doctor`) is imported by them alone.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol, TypeVar

import click

from lockd import __version__
from lockd.lockctl_run import CannotExecute, Job, Lost, Refused, Unreachable, run

if TYPE_CHECKING:
    from lockd.doctor import Finding

DEFAULT_SOCKET = "/run/lockd/lockd.sock"
ANSWER_WITHIN_S = 10.0
# Reading through all that the masters hold takes longer than a lock.
LISTING_WITHIN_S = 120.0
# Without a terminal, how often to say that a wait goes on.
REPORT_EVERY_S = 10.0

F = TypeVar("F", bound=Callable[..., Any])
Row = Mapping[str, Any]


class Status(IntEnum):
    """The exit statuses: close to sysexits.h, and away from those that commands use themselves."""

    DONE = 0
    NO = 1
    USAGE = 64
    WRONG = 65
    UNREACHABLE = 69
    NO_QUORUM = 74
    TAKEN = 75
    LOST = 76
    DENIED = 77
    NOT_EXECUTABLE = 126
    NOT_FOUND = 127
    INTERRUPTED = 130


_STATUSES = """\b
Exit status:
   0  done
   1  no: the resource is free (holder, force-release), nothing is held with
      this token (unlock, extend), not confirmed; doctor: there are warnings
   2  doctor: there are failures
  64  the command line is wrong
  65  the agent finds the request wrong, or impossible now
  69  the agent can't be reached, or is stopping
  74  no quorum: too few masters have a vote
  75  taken: held by another, also after --wait
  76  lost: the lease had ended before
  77  denied by a policy or a limit, or for operators only
`lockctl run` has more of them: see `lockctl run --help`.

Durations are written 10 or 10s, 500ms, 2m, 1h.
"""

_STATUSES_OF_RUN = """\b
Exit status: that of COMMAND, or
     64  the command line is wrong
     65  the agent finds the request wrong: a ttl that is too long, say
     69  the agent can't be reached, or is stopping
     74  no quorum: too few masters have a vote
     75  taken: held by another, also after --wait
     76  lost: the lease ended before COMMAND did, which was killed
     77  denied by the policy of the resource's class, or by a limit
    126  COMMAND can't be executed
    127  COMMAND was not found
  128+n  COMMAND was ended by signal n
But for 76 and 128+n, COMMAND was not started.
"""


# What went wrong, and what that means to whoever typed the command


@dataclass(frozen=True, slots=True)
class Outcome:
    """The meaning of an error: its exit status, what can be relied upon, what to do next."""

    status: Status
    safe: str
    then: str


_NOTHING_DONE = "nothing was locked or changed"
_WHO_HAS_IT = "`lockctl holder RESOURCE` says who has it"
_CHECK_THE_WORK = "check what was done under it: another may have had the resource meanwhile"

_OUTCOMES = {
    "TAKEN": Outcome(Status.TAKEN, _NOTHING_DONE, f"wait for it with --wait 30s; {_WHO_HAS_IT}"),
    "TIMEOUT": Outcome(Status.TAKEN, _NOTHING_DONE, f"wait longer; {_WHO_HAS_IT}"),
    "NOQUORUM": Outcome(
        Status.NO_QUORUM,
        "nobody on this host is granted a lock now; what is held ends at its deadline at the latest",
        "`lockctl masters` says why each master has no vote, `lockctl doctor` what to do about it",
    ),
    "CLOCK": Outcome(
        Status.NO_QUORUM,
        _NOTHING_DONE,
        "look at the clocks of the masters' hosts: `lockctl masters`, `chronyc tracking`",
    ),
    "NOTHELD": Outcome(Status.NO, "nothing was changed", _WHO_HAS_IT),
    "EXPIRED": Outcome(Status.LOST, "whatever was left of the lease was given back", _CHECK_THE_WORK),
    "DENIED": Outcome(
        Status.DENIED, _NOTHING_DONE, "do it as a user who may, or have the configuration changed"
    ),
    "LIMIT": Outcome(
        Status.DENIED, _NOTHING_DONE, "hold or wait for less at a time, or have that limit raised"
    ),
    "DRAINING": Outcome(Status.UNREACHABLE, _NOTHING_DONE, "try again when the agent is back, in a moment"),
    "ERR": Outcome(Status.WRONG, "nothing was done", "put that right and try again"),
}

_SAFE_IN = {
    ("UNLOCK", "NOQUORUM"): "the lease ends by itself, at its deadline at the latest",
    ("EXTEND", "NOQUORUM"): "the lease is as good as it was, until its deadline",
}


def _report(error: Exception) -> Status:
    """Say on stderr what happened, what is safe and what to do next. Returns the exit status."""
    if isinstance(error, Refused):
        outcome = _OUTCOMES.get(error.code, _OUTCOMES["ERR"])
        return _complain(str(error), outcome, _SAFE_IN.get((error.command, error.code)))
    if isinstance(error, Lost):
        safe = "no process of the command's group is left"
        return _complain(f"the lease was lost: {error}", Outcome(Status.LOST, safe, _CHECK_THE_WORK))
    if isinstance(error, CannotExecute):
        status = Status.NOT_FOUND if error.missing else Status.NOT_EXECUTABLE
        return _complain(str(error), Outcome(status, "the lock was given back", "correct the command"))
    safe = "what this host holds is not renewed while its agent is away, and ends at its deadline"
    then = "is the agent running, is that its socket (--socket), may you use it? `lockctl doctor` looks"
    return _complain(str(error), Outcome(Status.UNREACHABLE, safe, then))


def _complain(what: str, outcome: Outcome, safe: str | None = None) -> Status:
    click.echo(f"lockctl: {shown(what)}", err=True)
    click.echo(f"  safe: {safe or outcome.safe}", err=True)
    click.echo(f"  next: {outcome.then}", err=True)
    return outcome.status


class Agent:
    """The agent of this host, asked one thing at a time."""

    def __init__(self, socket_path: str) -> None:
        self.socket_path = socket_path

    def ask(self, *words: str | int, within_s: float = ANSWER_WITHIN_S) -> Any:
        """The reply to a command. Raises Refused or Unreachable."""
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        try:
            with redis.Redis(
                unix_socket_path=self.socket_path,
                protocol=3,
                socket_timeout=within_s,
                retry=Retry(NoBackoff(), 0),
                decode_responses=True,
                encoding_errors="surrogateescape",
            ) as client:
                return client.execute_command(*words)
        except redis.ResponseError as error:
            raise Refused.by(str(error), command=str(words[0])) from error
        except redis.TimeoutError as error:
            raise Unreachable("the agent doesn't answer") from error
        except (redis.RedisError, OSError) as error:
            raise Unreachable(
                f"can't reach the agent at {self.socket_path}: {_system_error(error)}"
            ) from error


def _system_error(error: BaseException) -> str:
    """What the system said. redis-py wraps it in words about hosts and ports."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return str(error)


# The command line


class Duration(click.ParamType):  # type: ignore[type-arg]  # click before 8.2 has no arguments there
    """A time as one writes it, 10 or 10s, 500ms, 2m, 1h, as milliseconds."""

    name = "duration"
    _FORM = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(ms|s|m|h)?")
    _MS: ClassVar = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, None: 1000}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = self._FORM.fullmatch(value)
        if found is None:
            self.fail(f"{value!r} is no duration: write 10 or 10s, 500ms, 2m, 1h", param, ctx)
        return round(float(found[1]) * self._MS[found[2]])


class Lockctl(click.Group):
    """Turns whatever goes wrong into a few lines on stderr and an exit status."""

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        extra["standalone_mode"] = False
        try:
            status = super().main(*args, **extra)
            sys.stdout.flush()
        except (Refused, Unreachable, Lost, CannotExecute) as error:
            status = _report(error)
        except click.ClickException as error:
            error.show()
            status = Status.USAGE if isinstance(error, click.UsageError) else error.exit_code
        except click.Abort:
            status = Status.INTERRUPTED
        except BrokenPipeError:
            # Nobody reads any more, as in `lockctl locks | head`. Python's last flush must not fail either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            status = 128 + signal.SIGPIPE
        sys.exit(status if isinstance(status, int) else Status.DONE)


class RunCommand(click.Command):
    """A command that runs another. What belongs to whom must be plain: a -- stands between them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        dashes = "--" in args
        rest = super().parse_args(ctx, args)
        if not dashes:
            raise click.UsageError("put -- before the command: lockctl run RESOURCE -- COMMAND...", ctx)
        return rest


ttl_option = click.option(
    "--ttl",
    "ttl_ms",
    type=Duration(),
    default="30s",
    show_default=True,
    help="How long the lease lasts unrenewed.",
)
wait_option = click.option(
    "--wait",
    "wait_ms",
    type=Duration(),
    default="0",
    show_default=True,
    help="How long to wait while it is taken.",
)
max_hold_option = click.option(
    "--max-hold",
    "max_hold_ms",
    type=Duration(),
    help="The longest it may be held, with all renewals.  [default: what its class allows, usually 1h]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


@click.group(cls=Lockctl, epilog=_STATUSES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="lockctl")
@click.option(
    "--socket",
    "socket_path",
    envvar="LOCKD_SOCKET",
    default=DEFAULT_SOCKET,
    show_default=True,
    show_envvar=True,
    help="The agent's socket.",
)
@click.pass_context
def main(ctx: click.Context, socket_path: str) -> None:
    """Locks for shell scripts, and a look at lockd for operators: `lockctl doctor` is where to begin.

    A RESOURCE is the name of what is locked, as backup or invoice:42.
    """
    ctx.obj = Agent(socket_path)


# Locks


@main.command(
    "run", cls=RunCommand, epilog=_STATUSES_OF_RUN, short_help="Run a command while a resource is locked."
)
@ttl_option
@wait_option
@max_hold_option
@click.argument("resource")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.pass_obj
def run_command(
    agent: Agent, ttl_ms: int, wait_ms: int, max_hold_ms: int | None, resource: str, command: tuple[str, ...]
) -> int:
    """Run COMMAND while RESOURCE is locked, as flock(1) does with a file.

    The agent renews the lease as long as COMMAND runs, up to --max-hold. COMMAND finds LOCKD_RESOURCE,
    LOCKD_TOKEN, LOCKD_FENCE and LOCKD_DEADLINE_NS (at its start, on CLOCK_BOOTTIME) in its environment.

    If the lease is lost, all of COMMAND's process group gets SIGTERM at once, and SIGKILL before the deadline
    of the lease: half a second before it, or a tenth of the TTL if that is less. SIGINT, SIGTERM, SIGHUP,
    SIGQUIT, SIGUSR1 and SIGUSR2 sent to lockctl are passed on to the group; Ctrl-C and Ctrl-Z work as usual.

    If lockctl is killed with -9, the lock is free at once and the kernel kills the group too; processes that
    have left it (setsid, daemons), or that run as another user (sudo), are beyond its reach: `sudo lockctl
    run ...` reaches them. What COMMAND leaves in the background when it ends goes on without the lock.
    """
    return run(Job(agent.socket_path, os.fsencode(resource), ttl_ms, wait_ms, max_hold_ms, command))


@main.command(short_help="Lock a resource for a fixed time and print the token.")
@ttl_option
@wait_option
@max_hold_option
@json_option
@click.argument("resource")
@click.pass_obj
def lock(
    agent: Agent, ttl_ms: int, wait_ms: int, max_hold_ms: int | None, as_json: bool, resource: str
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


@main.command(short_help="Release what was locked with a token.")
@json_option
@click.argument("resource")
@token_argument
@click.pass_obj
def unlock(agent: Agent, as_json: bool, resource: str, token: str) -> None:
    """Release RESOURCE, which was locked with TOKEN. From any host.

    Others on this host can see what stands on a command line: TOKEN may also be in LOCKD_TOKEN of the
    environment, or - to be read from standard input.
    """
    agent.ask("UNLOCK", resource, token)
    if as_json:
        _print_json({"resource": resource, "released": True})


@main.command(short_help="Have what was locked with a token last longer.")
@ttl_option
@json_option
@click.argument("resource")
@token_argument
@click.pass_obj
def extend(agent: Agent, ttl_ms: int, as_json: bool, resource: str, token: str) -> None:
    """Have RESOURCE, locked with TOKEN, last for a TTL from now; never less than it would have.

    TOKEN may be in LOCKD_TOKEN, or - for standard input. Prints TOKEN FENCE DEADLINE_NS as lock does; FENCE
    is - when the agent of another host granted it.
    """
    _print_lease(resource, agent.ask("EXTEND", resource, token, ttl_ms), as_json)


def _print_lease(resource: str, lease: Row, as_json: bool) -> None:
    if as_json:
        _print_json({"resource": resource, **lease})
    else:
        fence = "-" if lease["fence"] is None else lease["fence"]
        click.echo(f"{lease['token']} {fence} {lease['deadline_ns']}")


# A look at things


@main.command(short_help="Say who holds a resource.")
@json_option
@click.argument("resource")
@click.pass_obj
def holder(agent: Agent, as_json: bool, resource: str) -> int:
    """Say who holds RESOURCE, and on how many masters. Exit status 1 when it is free."""
    held = agent.ask("HOLDER", resource)
    if as_json:
        _print_json(held)
    elif held is None:
        click.echo(f"{shown(resource)} is free")
    else:
        _print_holder(held)
    return Status.NO if held is None else Status.DONE


def _print_holder(held: Row, err: bool = False) -> None:
    lines = {
        "resource": held["resource"],
        "holder": held["holder"],
        "process": f"{held['pid']} on {held['host']}, uid {held['uid']}",
        "held for": shown_ms(held["held_ms"]),
        "left": shown_ms(held["ttl_ms"]),
        "masters": _copies(held),
    }
    for name, value in lines.items():
        click.echo(f"{name:10}{shown(value)}", err=err)


def _copies(lease: Row) -> str:
    """On how many masters a lease is."""
    text = f"{lease['masters']} of {lease['of']}"
    return text if lease.get("quorum", 1) else f"{text}: no quorum, so it is not held"


@main.command(short_help="List what is locked.")
@json_option
@click.option("--local", is_flag=True, help="Only what this host's agent has granted, with more about it.")
@click.argument("pattern", default="*")
@click.pass_obj
def locks(agent: Agent, as_json: bool, local: bool, pattern: str) -> None:
    """List what is locked, on all hosts: resources that match the glob PATTERN, or all of them."""
    words = ["LOCKS", pattern, "LOCAL"] if local else ["LOCKS", pattern]
    found: list[Row] = agent.ask(*words, within_s=LISTING_WITHIN_S)
    rows = sorted(found, key=lambda row: str(row["resource"]))
    if as_json:
        _print_json(rows)
    elif local:
        _print_table(_LOCAL_COLUMNS, rows)
    else:
        _print_table(_LOCK_COLUMNS, rows)


@main.command(short_help="List the masters and their votes.")
@json_option
@click.pass_obj
def masters(agent: Agent, as_json: bool) -> None:
    """List the masters: which of them have a vote, and why the others have none."""
    rows: list[Row] = agent.ask("MASTERS")
    if as_json:
        _print_json(rows)
        return
    _print_table(_MASTER_COLUMNS, rows)
    votes, quorum = sum(row["vote"] for row in rows), len(rows) // 2 + 1
    click.echo(f"{votes} of {len(rows)} have a vote, {quorum} are needed", err=True)


@main.command(short_help="Ask the agent for a sign of life.")
@json_option
@click.pass_obj
def ping(agent: Agent, as_json: bool) -> None:
    """Ask the agent for a sign of life, and say how long it took."""
    agent.ask("PING")  # the first one loads what asking needs
    started_ns = time.monotonic_ns()
    agent.ask("PING")
    took_us = (time.monotonic_ns() - started_ns) // 1000
    if as_json:
        _print_json({"reply": "PONG", "took_us": took_us})
    else:
        click.echo(f"PONG in {shown_us(took_us)}")


@main.command(short_help="Check everything, and say what to do.")
@json_option
@click.option(
    "--config",
    "config_path",
    type=click.Path(exists=True, dir_okay=False),
    help="The agent's configuration, to compare with what the agent and the masters have.",
)
@click.pass_obj
def doctor(agent: Agent, as_json: bool, config_path: str | None) -> int:
    """Check everything that can be checked from here, and say what to do about what isn't well.

    Locks and releases a resource of its own, lockctl-doctor:HOST:PID, to see that it works. Exit status 0:
    all is well; 1: there are warnings; 2: there are failures.
    """
    from lockd.doctor import examine, verdict_of

    findings = examine(agent.ask, agent.socket_path, config_path)
    verdict = verdict_of(findings)
    if as_json:
        _print_json({"verdict": verdict.name.lower(), "checks": [finding.as_row() for finding in findings]})
    else:
        for finding in findings:
            _print_finding(finding)
    return int(verdict)


def _print_finding(finding: Finding) -> None:
    color = ("green", "yellow", "red")[finding.verdict]
    mark = click.style(f"{finding.verdict.name.lower():8}", fg=color)
    click.echo(f"{mark} {finding.check:14} {shown(finding.what)}")
    if finding.then:
        click.echo(f"{'':24}-> {shown(finding.then)}")


# Changes


@main.command("force-release", short_help="Take a resource from whoever holds it.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
@click.argument("resource")
@click.pass_obj
def force_release(agent: Agent, yes: bool, as_json: bool, resource: str) -> int:
    """Take RESOURCE from whoever holds it; shows who that is, and asks first. For operators.

    Its holder isn't stopped: on this host it is told, on another only when its lease can't be renewed. Make
    sure that it is dead, or that what it writes to checks fences. Only the lease that was shown is removed:
    when another has the resource by then, nothing happens.
    """
    held = agent.ask("HOLDER", resource)
    if held is None:
        click.echo(f"lockctl: {shown(resource)} is free: there is nothing to release", err=True)
        return Status.NO
    if not yes:
        _print_holder(held, err=True)
        if not sys.stdin.isatty():
            raise click.UsageError(
                "nobody is there to ask: look at the holder above, and repeat this with --yes"
            )
        if not click.confirm("Release it by force?", err=True):
            return Status.NO
    deleted = agent.ask("FORCERELEASE", resource, "HOLDER", held["holder"])
    if as_json:
        _print_json({"resource": resource, "holder": held["holder"], "deleted_on": deleted, "of": held["of"]})
    else:
        click.echo(
            f"released {shown(resource)}: {held['holder']} deleted on {deleted} of {held['of']} masters"
        )
    return Status.DONE


@main.group()
def cluster() -> None:
    """Form a cluster of new masters."""


@cluster.command("init")
@click.option("--unused", is_flag=True, help="No agent has ever used these masters: don't wait.")
@json_option
@click.pass_obj
def cluster_init(agent: Agent, unused: bool, as_json: bool) -> None:
    """Make the masters of the configuration, all of them blank, a cluster. For operators.

    Masters that were wiped look like new ones, so a max TTL and a little more is waited out first: until then
    somebody may rely on a lease that they have forgotten. It may be interrupted and done again.
    """
    words = ["FORM", "UNUSED"] if unused else ["FORM"]
    _change_masters(agent, words, "forming the cluster", as_json)


@main.group()
def master() -> None:
    """Let a master back in."""


@master.command("admit")
@json_option
@click.argument("name")
@click.pass_obj
def master_admit(agent: Agent, as_json: bool, name: str) -> None:
    """Give the blank master NAME (new, wiped or replaced in place) its vote. For operators.

    First a max TTL and a little more has to pass since it was first seen blank, as it may have voted for
    leases that it has forgotten. It may be interrupted and done again.
    """
    _change_masters(agent, ["ADMIT", name], f"admitting {shown(name)}", as_json)


_DONE_TEXTS = {
    "formed": "the cluster is formed: its masters have their votes",
    "admitted": "admitted: the master has its vote",
    "already": "nothing to do: that was done before",
}


def _change_masters(agent: Agent, words: Sequence[str], what: str, as_json: bool) -> None:
    """Ask again and again until the wait is over, and show how it goes on."""
    with wait_view(what) as view:
        while (progress := agent.ask(*words))["status"] == "waiting":
            view.show(progress["remaining_ms"], progress["total_ms"])
            time.sleep(min(progress["remaining_ms"], 1000) / 1000)
    if as_json:
        _print_json(progress)
    else:
        click.echo(_DONE_TEXTS.get(progress["status"], progress["status"]))


class WaitView(Protocol):
    """Somewhere to show how a wait goes on."""

    def show(self, remaining_ms: int, total_ms: int) -> None: ...


class WaitLines:
    """A line now and then."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._said_s: float | None = None

    def show(self, remaining_ms: int, total_ms: int) -> None:
        now_s = time.monotonic()
        if self._said_s is None or now_s - self._said_s >= REPORT_EVERY_S:
            self._said_s = now_s
            click.echo(
                f"{self._what}: {shown_ms(remaining_ms)} of {shown_ms(total_ms)} left to wait", err=True
            )


class WaitBar:
    """A progress bar on a terminal, shown from the first time that there is something to wait for."""

    def __init__(self, what: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]} left"))
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(what, start=False, total=None, left="")

    def __enter__(self) -> WaitBar:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, remaining_ms: int, total_ms: int) -> None:
        self._bar.start()
        done_ms = total_ms - remaining_ms
        self._bar.update(self._task, total=total_ms, completed=done_ms, left=shown_ms(remaining_ms))


def wait_view(what: str) -> AbstractContextManager[WaitView]:
    return WaitBar(what) if sys.stderr.isatty() else nullcontext(WaitLines(what))


# Printing


def shown(value: object) -> str:
    """A text for a terminal or a line of a table: names come from anybody, control characters and all."""
    text = str(value)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))


def shown_ms(ms: int) -> str:
    """A duration for people: 850ms, 12.3s, 4m05s, 1h02m."""
    if ms < 1000:
        return f"{ms}ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f}s"
    minutes, seconds = divmod(ms // 1000, 60)
    if minutes < 60:
        return f"{minutes}m{seconds:02}s"
    return f"{minutes // 60}h{minutes % 60:02}m"


def shown_us(us: int) -> str:
    """The same for what is shorter, and may be negative."""
    return f"{us / 1000:.2f}ms" if abs(us) < 1_000_000 else f"{us / 1_000_000:.1f}s"


Column = tuple[str, Callable[[Row], object]]

_LEASE_COLUMNS: tuple[Column, ...] = (
    ("RESOURCE", lambda row: row["resource"]),
    ("HOLDER", lambda row: row["holder"]),
)
_TIME_COLUMNS: tuple[Column, ...] = (
    ("HELD", lambda row: shown_ms(row["held_ms"])),
    ("LEFT", lambda row: shown_ms(row["ttl_ms"])),
    ("MASTERS", _copies),
)
_LOCK_COLUMNS: tuple[Column, ...] = (
    *_LEASE_COLUMNS,
    ("HOST", lambda row: row["host"]),
    ("PID", lambda row: row["pid"]),
    ("UID", lambda row: row["uid"]),
    *_TIME_COLUMNS,
)
_LOCAL_COLUMNS: tuple[Column, ...] = (
    *_LEASE_COLUMNS,
    ("CLASS", lambda row: row["class"]),
    ("PID", lambda row: row["pid"]),
    ("UID", lambda row: row["uid"]),
    ("FENCE", lambda row: row["fence"]),
    *_TIME_COLUMNS,
    ("KIND", lambda row: "detached" if row["detached"] else "session"),
    ("WAITING", lambda row: row["waiters"]),
)
_MASTER_COLUMNS: tuple[Column, ...] = (
    ("NAME", lambda row: row["name"]),
    ("ADDRESS", lambda row: row["address"]),
    ("STATE", lambda row: row["state"]),
    ("VOTE", lambda row: "yes" if row["vote"] else "no"),
    ("ROUND TRIP", lambda row: "-" if row["state"] == "down" else shown_us(row["rtt_us"] or 0)),
    ("CLOCK", lambda row: "?" if row["clock_offset_us"] is None else shown_us(row["clock_offset_us"])),
    ("VERSION", lambda row: row["version"]),
    ("WHY NO VOTE", lambda row: "" if row["vote"] else row["reason"]),
)


def _print_table(columns: Sequence[Column], rows: Iterable[Row]) -> None:
    """A table on a terminal; otherwise lines with tabs, the first of them the headings."""
    cells = [[shown(value(row)) for _, value in columns] for row in rows]
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
        # Names and reasons may be long; what else there is must be seen whole.
        table.add_column(heading, overflow="fold", no_wrap=heading not in ("RESOURCE", "WHY NO VOTE"))
    for row in cells:
        table.add_row(*map(Text, row))
    Console().print(table)


def _print_json(document: Any) -> None:
    import json

    click.echo(json.dumps(document, indent=2))
