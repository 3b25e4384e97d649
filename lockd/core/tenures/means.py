"""What all parts of tenures work with."""

from dataclasses import dataclass

from lockd.core.interfaces import Journal, Masters, Watcher
from lockd.core.tenures.campaigns import Campaigns
from lockd.core.tenures.votes import Votes
from lockd.core.turns import Turns
from lockd.core.values import RedlockParameters


@dataclass(frozen=True, slots=True)
class Means:
    """Those of one agent."""

    parameters: RedlockParameters
    masters: Masters
    watcher: Watcher
    journal: Journal
    turns: Turns
    votes: Votes
    campaigns: Campaigns
