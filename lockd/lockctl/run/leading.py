"""`lockctl lead`: a command that runs where its leader is, for as long as that leads.

`lockctl run` again and again: when there is no lease yet, or the last one was lost, it stands for the next.
Each is a term, and its fence the number of that. Until a term's deadline all that was started under it has
ended.
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
    """Run the command whenever its resource is ours, until it ends by itself. Returns its exit status, as
    `run`.

    Raises Refused where it may not be locked or not so, CannotExecute, and Lost when a signal has told it to
    end while its lease was lost.
    """
    said = ""
    while True:
        try:
            return run(job, goes_on=True)
        except Lost as lost:
            if lost.told_to_end:
                raise
            said = _say(f"{lost}: it is deposed, and stands for leader again", said)
        except (Refused, Unreachable) as why:
            if isinstance(why, Refused) and ErrorWord.named(why.code).kind in _FOR_GOOD:
                raise
            if isinstance(why, Refused) and why.code == ErrorWord.TIMEOUT:
                continue
            said = _say(f"no leader here yet: {why}", said)
        time.sleep(_REST_S)


def _say(text: str, said: str) -> str:
    """Once, while nothing else happens."""
    if text != said:
        say(text)
    return text
