"""What went wrong, and what that means to whoever typed the command: its exit status, and what to say."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import click

from lockd.lockctl.errors import CannotExecute, Lost, NotStarted, Refused
from lockd.text import shown


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
        "look at the clocks of this host and of the masters': `lockctl masters`, `chronyc tracking`",
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


def report(error: Exception) -> Status:
    """Say on stderr what happened, what is safe and what to do next. Returns the exit status."""
    if isinstance(error, Refused):
        outcome = _OUTCOMES.get(error.code, _OUTCOMES["ERR"])
        return _complain(str(error), outcome, _SAFE_IN.get((error.command, error.code)))
    if isinstance(error, NotStarted):
        outcome = Outcome(Status.LOST, "nothing was started, and the lock was given back", "try again")
        return _complain(f"the lease was lost: {error}", outcome)
    if isinstance(error, Lost):
        safe = "the command has ended, and all that was to end with it, but for what is named"
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
