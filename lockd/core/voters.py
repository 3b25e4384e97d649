"""Which masters have a vote now. It depends on what each master is, on which masters vote together (rules 8,
14), and on whether their clocks may be trusted (rule 11)."""

from collections.abc import Sequence

from lockd.core.clocks import NOT_WATCHED, Clocks
from lockd.core.identities import Identity, agrees_with_all, voting_together
from lockd.core.membership import State

_AT_ODDS = "its list of members differs from that of the others"


class Voters:
    """The masters by what they may do now, as bits. `up` are asked for votes. The votes of `trusted` count.
    `barred` have none because of their clocks alone. `distrust` says why a clock isn't trusted. `agreeing`:
    those of `trusted`, and masters that are away and voted together with them: a vote that they gave before
    still counts. own_clock: what is wrong with this host's clock, so that no vote may rest on it (rule
    11e)."""

    def __init__(self, clocks: Clocks) -> None:
        self.up = 0
        self.trusted = 0
        self.agreeing = 0
        self.barred = 0
        self.own_clock: str | None = None
        self.distrust: list[str | None] = [None] * len(clocks.watches)
        self._clocks = clocks
        self._counted: list[Identity | None] = []
        self._together = 0

    @property
    def voting(self) -> int:
        """The masters that are asked, and whose answers count."""
        return self.trusted & self.up

    def weigh(
        self, states: Sequence[State | None], identities: Sequence[Identity | None], now_ns: int
    ) -> int:
        """Weigh again. states: what each master is; None: there is no connection on which it may be asked.
        identities: what each shows. Returns the masters whose votes begin or cease to count, as bits."""
        before = self.trusted
        counted = [
            identity if state in (State.UP, State.STALLED) else None
            for state, identity in zip(states, identities, strict=True)
        ]
        together = self._voting_together(counted)
        self._clocks.look_into_jumps(now_ns)
        self._clocks.take_median(now_ns)
        self.up = self.trusted = self.barred = 0
        for master, state in enumerate(states):
            bit = 1 << master
            why = self.distrust[master] = self._clocks.distrust(master, now_ns) or self.own_clock
            if state in (State.UP, State.STALLED) and not together & bit:
                # Votes that it was asked for before don't count either: every two masters of a quorum have to
                # agree.
                self.distrust[master] = _AT_ODDS
                continue
            if state is State.UP:
                self.up |= bit
            # A stalled master isn't asked any more, but votes that it was asked for before still count.
            if why is None and state in (State.UP, State.STALLED):
                self.trusted |= bit
            elif why is not None and why != NOT_WATCHED:
                self.barred |= bit
        self.agreeing = self.trusted | self._away_and_agreeing(states, identities, together)
        return before ^ self.trusted

    def _voting_together(self, counted: list[Identity | None]) -> int:
        """This goes through all subsets, several times a second: what masters show rarely changes."""
        if counted != self._counted:
            self._counted, self._together = counted, voting_together(counted)
        return self._together

    def _away_and_agreeing(
        self, states: Sequence[State | None], identities: Sequence[Identity | None], together: int
    ) -> int:
        """Judged by what each showed last. If another machine was admitted in place of one meanwhile, the
        lists of the others say so (rule 8)."""
        voters = [identity for i, identity in enumerate(identities) if identity and together >> i & 1]
        found = 0
        for i, (state, identity) in enumerate(zip(states, identities, strict=True)):
            away = state in (None, State.DOWN) and self.distrust[i] is None
            if away and identity is not None and agrees_with_all(identity, voters):
                found |= 1 << i
                voters.append(identity)  # every two of a quorum have to agree
        return found
