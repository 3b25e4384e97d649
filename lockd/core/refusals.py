"""Why an app does not get what it asked for, in words."""

from lockd.core.ballots.ballot import Ballot
from lockd.core.errors import ErrorWord
from lockd.core.interfaces import Masters
from lockd.core.values import Refusal


def no_quorum(ballot: Ballot, masters: Masters, total: int) -> Refusal:
    """A refusal that gives a reason for each master that had no say."""
    reasons = []
    voting = masters.voting()
    for master in range(total):
        if master in ballot.silent:
            reasons.append(f"{masters.name(master)}={ballot.silent[master].replace(' ', '-')}")
        elif not (ballot.asked & voting) >> master & 1:
            reasons.append(masters.why_not(master))
    return Refusal(ErrorWord.NOQUORUM, " ".join(reasons) or "the answers came too late to be relied upon")
