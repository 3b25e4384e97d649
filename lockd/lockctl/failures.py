"""What went wrong, and what that means for the user of the command: its exit status, and what to say."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import click

from lockd.core.errors import ErrorWord, Kind
from lockd.lockctl.errors import CannotExecute, Lost, NotStarted, Refused
from lockd.text import printable


class ExitStatus(IntEnum):
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

    status: ExitStatus
    safe: str
    then: str


_STATUSES = {
    Kind.CONTENDED: ExitStatus.TAKEN,
    Kind.UNAVAILABLE: ExitStatus.NO_QUORUM,
    Kind.NOT_HELD: ExitStatus.NO,
    Kind.LOST: ExitStatus.LOST,
    Kind.FORBIDDEN: ExitStatus.DENIED,
    Kind.STOPPING: ExitStatus.UNREACHABLE,
    Kind.WRONG: ExitStatus.WRONG,
}
_SAFE_IN = {
    ("UNLOCK", ErrorWord.NOQUORUM): "the lease ends by itself, at its deadline at the latest",
    ("EXTEND", ErrorWord.NOQUORUM): "the lease stays valid until its deadline",
}


def report(error: Exception) -> ExitStatus:
    """Say on stderr what happened, what is safe and what to do next. Returns the exit status."""
    if isinstance(error, Refused):
        word = ErrorWord.named(error.code)
        outcome = Outcome(_STATUSES[word.kind], word.safe, word.then)
        return _complain(str(error), outcome, _SAFE_IN.get((error.command, word)))
    if isinstance(error, NotStarted):
        outcome = Outcome(ExitStatus.LOST, "nothing was started, and the lock was released", "try again")
        return _complain(f"the lease was lost: {error}", outcome)
    if isinstance(error, Lost):
        safe = "the command and the processes it started were ended, except those named"
        return _complain(
            f"the lease was lost: {error}", Outcome(ExitStatus.LOST, safe, ErrorWord.EXPIRED.then)
        )
    if isinstance(error, CannotExecute):
        status = ExitStatus.NOT_FOUND if error.missing else ExitStatus.NOT_EXECUTABLE
        return _complain(str(error), Outcome(status, "the lock was given back", "correct the command"))
    safe = (
        "leases of this host end at their deadlines, unless an agent starts before that and takes them over"
    )
    then = "check that the agent runs, that --socket is its socket, and that you may use it: `lockctl doctor`"
    return _complain(str(error), Outcome(ExitStatus.UNREACHABLE, safe, then))


def _complain(what: str, outcome: Outcome, safe: str | None = None) -> ExitStatus:
    click.echo(f"lockctl: {printable(what)}", err=True)
    click.echo(f"  safe: {safe or outcome.safe}", err=True)
    click.echo(f"  next: {outcome.then}", err=True)
    return outcome.status
