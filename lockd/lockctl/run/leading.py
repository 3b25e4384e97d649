"""`lockctl lead`: a command that runs on the leader's host, for as long as it leads.

It is `lockctl run` again and again: when there is no lease yet, or the last one was lost, it stands for the
next. Each lease is a term, and its fence is the term's number. By the deadline of a term, everything that was
started in it has ended.
"""

from __future__ import annotations

import time

from lockd.core.errors import ErrorWord, Kind
from lockd.lockctl.errors import Lost, Refused, Unreachable
from lockd.lockctl.run.job import run
from lockd.lockctl.run.lease import Job
from lockd.lockctl.run.terminal import say

_REST_S = 0.5
_FOR_GOOD = (Kind.FORBIDDEN, Kind.WRONG)


def lead(job: Job) -> int:
    """Run the command whenever this host has the resource, until the command ends by itself. Returns its exit
    status, as `run` does.

    Raises Refused if it may not be locked, or not with these options, CannotExecute, and Lost when a signal
    has told the command to end while its lease was lost.
    """
    said = ""
    while True:
        try:
            return run(job, goes_on=True)
        except Lost as lost:
            if lost.told_to_end:
                raise
            said = _say(f"{lost}: no longer leader, waiting to become leader again", said)
        except (Refused, Unreachable) as why:
            if isinstance(why, Refused) and ErrorWord.named(why.code).kind in _FOR_GOOD:
                raise
            if isinstance(why, Refused) and why.code == ErrorWord.TIMEOUT:
                continue
            said = _say(f"no leader here yet: {why}", said)
        time.sleep(_REST_S)


def _say(text: str, said: str) -> str:
    """Say it once, as long as the text stays the same."""
    if text != said:
        say(text)
    return text
