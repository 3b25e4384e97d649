"""Ballots settle in time, and count while the masters that answered vote together."""

from collections import deque
from collections.abc import Callable

from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.ballot import Ballot
from lockd.core.ballots.extension import Extension
from lockd.core.ballots.fence_round import FenceRound
from lockd.core.interfaces import Masters
from lockd.core.line import Line
from lockd.core.refusals import SHIFTED, UNCERTAIN, no_quorum
from lockd.core.turns import HOUSE, Job, Turns
from lockd.core.validity import NS_PER_MS
from lockd.core.values import RedlockParameters, Refusal

_TIMED_OUT_AT_ONCE = 64


class Votes:
    """The ballots of one agent. broke: called for a ballot that raised an exception when its time was up."""

    def __init__(
        self,
        parameters: RedlockParameters,
        masters: Masters,
        turns: Turns,
        broke: Callable[[Ballot, int], None],
    ) -> None:
        self.quorum = parameters.quorum
        self.timeout_ns = parameters.master_timeout_ms * NS_PER_MS
        self.line = Line(turns)
        self.running: deque[Ballot] = deque()
        self._of = parameters.masters
        self._masters = masters
        self._turns = turns
        self._broke = broke
        self._sweep: Job | None = None

    def let_in(self, ballot: Ballot, timeout_ns: int) -> None:
        """One that had its turn in the line to the masters, and counts there until it settles."""
        ballot.line = self.line.begins()
        self.watch(ballot, timeout_ns)

    def charge(self, ballot: Ballot) -> None:
        """Its account pays for hearing the answers. `watch` has that done."""
        self._turns.charge(ballot.account, ballot.asked.bit_count() * self._masters.answer_ns)

    def watch(self, ballot: Ballot, timeout_ns: int) -> None:
        """Make sure that a ballot settles in time (rule 5). Nearly all have the same limit, so a queue is
        enough for those."""
        self.charge(ballot)
        if not ballot.pending:
            # No master was asked: it is settled at once, but not before its owner knows of it.
            timeout_ns = 0
        if timeout_ns < self.timeout_ns:
            self._turns.at(ballot.account, ballot.t1_ns + timeout_ns, self._time_out, ballot)
            return
        self._forget_settled()
        self.running.append(ballot)
        self._sweeps_at(ballot.t1_ns + timeout_ns)

    def _sweeps_at(self, when_ns: int) -> None:
        """Unless it settles before that."""
        if self._sweep is None:
            self._sweep = self._turns.at(HOUSE, when_ns, self._sweep_up)

    def _sweep_up(self, now_ns: int) -> None:
        """When all masters stand still, all time out together, each in its account's turn."""
        running, self._sweep = self.running, None
        for _ in range(_TIMED_OUT_AT_ONCE):
            if not running or running[0].t1_ns + self.timeout_ns > now_ns:
                break
            ballot = running.popleft()
            self._turns.at(ballot.account, now_ns, self._time_out, ballot)
        self._forget_settled()
        if running:
            self._sweeps_at(max(now_ns, running[0].t1_ns + self.timeout_ns))

    def _forget_settled(self) -> None:
        """Otherwise thousands, and everything that they name, would be remembered for as long as masters may
        take."""
        running = self.running
        while running and running[0].outcome is not None:
            running.popleft()

    def _time_out(self, ballot: Ballot, now_ns: int) -> None:
        try:
            ballot.time_out(now_ns)
        except Exception:
            self._broke(ballot, now_ns)
            raise

    def agree_now(self, voters: int) -> bool:
        """Rule 8, when votes are counted: a quorum of these still vote together. One may have answered before
        this agent learned that another machine was admitted in its place, and the others afterwards."""
        return (voters & self._masters.agreeing).bit_count() >= self.quorum

    @property
    def can_renew(self) -> bool:
        """The masters that refuse extensions leave a quorum that does not, as far as is known."""
        return self._of - self._masters.refusing_extensions.bit_count() >= self.quorum

    def no_quorum(self, ballot: Attempt | FenceRound | Extension, voters: int) -> Refusal:
        """Why no quorum has agreed. It is not the masters' fault if they changed meanwhile, or if their
        clocks have moved, which is understood in a moment (rule 11d)."""
        if ballot.agreed and not self.agree_now(voters):
            return SHIFTED
        may_vote = self._masters.voting() | self._masters.barred_by_clock()
        if ballot.gained_ns is not self._masters.gained_ns() and may_vote.bit_count() >= self.quorum:
            return UNCERTAIN
        return no_quorum(ballot, self._masters, self._of)
