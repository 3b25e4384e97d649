"""Who has a vote now: what each master is (rules 8, 14), and whether its clock may be trusted (rule 11)."""

from collections.abc import Sequence

from lockd.core.clocks import NOT_WATCHED, Clocks
from lockd.core.membership import State


class Electorate:
    """The masters by what they may do now, as bits: `up` are asked for votes, the votes of `trusted` count,
    `barred` have none because of their clocks alone. `distrust` says why a clock isn't trusted."""

    def __init__(self, clocks: Clocks) -> None:
        self.up = 0
        self.trusted = 0
        self.barred = 0
        self.distrust: list[str | None] = [None] * len(clocks.watches)
        self._clocks = clocks

    @property
    def voting(self) -> int:
        """The masters that are asked, and whose answers count."""
        return self.trusted & self.up

    def weigh(self, states: Sequence[State | None], now_ns: int) -> int:
        """Weigh anew. states: what each master is; None: there is no connection on which it may be asked.
        Returns those whose votes begin or cease to count, as bits."""
        before = self.trusted
        self._clocks.take_median(now_ns)
        self.up = self.trusted = self.barred = 0
        for master, state in enumerate(states):
            bit = 1 << master
            why = self.distrust[master] = self._clocks.distrust(master, now_ns)
            if state is State.UP:
                self.up |= bit
            # One that is stalled isn't asked any more, but what it was asked before still counts.
            if why is None and state in (State.UP, State.STALLED):
                self.trusted |= bit
            elif why is not None and why != NOT_WATCHED:
                self.barred |= bit
        return before ^ self.trusted
