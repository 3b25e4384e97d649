"""All masters as one: which of them are up and asked, and which have a vote (rules 8, 11, 14)."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from lockd.build import mypyc_attr
from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.ballot import Ballot, bits
from lockd.core.ballots.extension import Extension
from lockd.core.ballots.fence_round import FenceRound
from lockd.core.ballots.put_back import PutBack
from lockd.core.ballots.release import Release
from lockd.core.clocks import Clocks
from lockd.core.fences import SANE_MOST
from lockd.core.identities import Identity
from lockd.core.link import EXTEND, Link
from lockd.core.membership import Configured, MasterFacts, OtherMaster, State, judge, longest_possible_ttl_ms
from lockd.core.notices import Notice
from lockd.core.slewing import Reading, Slewing
from lockd.core.validity import NS_PER_MS
from lockd.core.voters import Voters


class Speller(Protocol):
    """How questions read on the wire: the same for all masters."""

    def acquire(self, attempt: Attempt) -> Any: ...

    def propose(self, fence_round: FenceRound) -> Any: ...

    def extend(self, extension: Extension) -> Any: ...

    def put_back(self, ballot: PutBack) -> Any: ...

    def release(self, ballot: Release) -> Any: ...


WEIGH_NS = 200 * NS_PER_MS
"""How often to call `weigh`: trust may change just because time passes."""

AnyLink = TypeVar("AnyLink", bound=Link)


def _nothing() -> None:
    """No journal is kept."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Fleet(Generic[AnyLink]):
    """core.interfaces.Masters, and the Listener of its links.

    trusted: the masters whose votes count, as bits. fence_most: the largest fence that the masters' clocks
    allow. looked: the first look at the masters is over: a quorum has a vote, or it is known of each master
    why it has none. answer_ns: how long it takes to hear one of their answers.
    """

    def __init__(
        self,
        configured: Configured,
        clocks: Clocks,
        speller: Speller,
        link_to: Callable[[int], AnyLink],
    ) -> None:
        self.configured = configured
        self.clocks = clocks
        self.slewing = Slewing()
        self.voters = Voters(clocks)
        self.trusted = 0
        self.fence_most = SANE_MOST
        self.looked = False
        self.answer_ns = 0
        self.before_sending: Callable[[], None] = _nothing
        self._spell = speller
        self._gained_ns = clocks.gained_ns
        self._in_doubt = False
        self._up: tuple[AnyLink, ...] = ()
        self.refusing_extensions = 0
        self.links: Sequence[AnyLink] = [link_to(i) for i in range(len(configured.names))]

    # What its driver does for it

    def flush_soon(self) -> None:
        """Send all links' `out` at the end of this turn."""
        raise NotImplementedError

    def changed(self, link: AnyLink) -> None:
        """A master's state has changed, or whether its vote counts."""

    def clocks_moved(self, now_ns: int) -> None:
        """Clocks of masters have gained on this host's: check what is held here (rule 11d)."""
        raise NotImplementedError

    def probe_soon(self, link: AnyLink) -> None:
        """Read its clock now: others seem to have jumped."""
        raise NotImplementedError

    def looked_at_all(self) -> None:
        """The first look is over."""

    def introduced(self, link: AnyLink) -> None:
        """This master is connected."""

    def not_counted(self, link: AnyLink, why: str) -> None:
        """A vote of this master did not count."""

    def nonsense(self, link: AnyLink) -> None:
        """This master has sent nonsense."""

    def counter_fell(self, link: AnyLink, slot: int) -> None:
        """A fence counter of this master is lower than it was."""

    def noticed(self, link: AnyLink, notice: Notice, now_ns: int) -> None:
        """This master has sent a notice."""
        raise NotImplementedError

    def broke(self, ballot: Ballot, failure: Exception, now_ns: int) -> None:
        """A ballot failed by an error of the agent."""
        raise failure

    # core.interfaces.Masters

    @property
    def agreeing(self) -> int:
        return self.voters.agreeing

    def voting(self) -> int:
        return self.voters.voting

    def giving(self) -> int:
        """Those of them that refuse nothing that they are asked for. An error such as OOM, MISCONF or NOPERM
        refuses it, and one about a single key does not."""
        return self.voters.voting & ~sum(link.bit for link in self._up if link.refuses)

    def barred_by_clock(self) -> int:
        return self.voters.barred & self.voters.up

    @property
    def clocks_in_doubt(self) -> bool:
        return self.clocks.in_doubt

    def why_not(self, master: int) -> str:
        reason = self.refusal_of(self.links[master]) or "slow"
        return f"{self.name(master)}={reason.replace(' ', '-')}"

    def name(self, master: int) -> str:
        return self.configured.names[master]

    def clock_us(self, now_ns: int) -> int:
        return self.clocks.median_us(now_ns)

    def gained_ns(self) -> tuple[int, ...]:
        return self.clocks.gained_ns

    def cut_ns(self, then_ns: tuple[int, ...], proven: int) -> int:
        return self.clocks.cut_ns(then_ns, proven)

    def suspected_cut_ns(self, then_ns: tuple[int, ...], proven: int) -> int:
        return self.clocks.suspected_cut_ns(then_ns, proven)

    def clock_lows_ns(self) -> tuple[int, ...]:
        return self.clocks.lows_ns()

    def gained_since_ns(self, clock_lows_ns: tuple[int, ...]) -> int | None:
        return self.clocks.gained_since_ns(clock_lows_ns)

    def stand(self, proven: int, t1_ns: int, now_ns: int) -> bool:
        candidates = proven & self.voters.voting
        standing = 0
        for link in self._up:
            if candidates & link.bit and link.stands_since(t1_ns, now_ns):
                standing += 1
        return standing >= self.clocks.quorum

    def acquire(self, attempt: Attempt) -> int:
        return self._ask_all(attempt, self._spell.acquire(attempt))

    def propose(self, fence_round: FenceRound) -> int:
        return self._ask_all(fence_round, self._spell.propose(fence_round))

    def extend(self, extension: Extension) -> int:
        return self._ask_all(extension, self._spell.extend(extension))

    def put_back(self, put_back: PutBack, masters: int) -> int:
        question = (put_back, self._spell.put_back(put_back), put_back.t1_ns)
        asked = masters & self.voters.up
        for master in bits(asked):
            self.links[master].ask_vote(question)
        return asked

    def release(self, release: Release, masters: int) -> int:
        question = (release, self._spell.release(release), release.t1_ns)
        self.flush_soon()
        asked = 0
        for link in self.links:
            if masters & link.bit and link.give_back(release, question):
                asked |= link.bit
        return asked

    def _ask_all(self, ballot: Ballot, payload: Any) -> int:
        question = (ballot, payload, ballot.t1_ns)
        self.flush_soon()
        for link in self._up:
            link.put_vote(question)
        return self.voters.up

    # core.link.Listener

    def state_changed(self, link: AnyLink, now_ns: int) -> None:
        self.weigh(now_ns)
        self.changed(link)

    def judge(self, link: AnyLink, facts: MasterFacts) -> tuple[State, str]:
        others = [
            OtherMaster(self.name(other.index), other.facts.run_id, other.facts.identity)
            for other in self.links
            if other is not link and other.introduced and other.facts is not None
        ]
        state, reason = judge(self.name(link.index), self.configured, facts, others)
        if state is State.UP:
            self.clocks.allow_for(self._longest_ttl_ms(link, facts))
        return state, reason

    def _longest_ttl_ms(self, link: AnyLink, facts: MasterFacts) -> int:
        """The longest TTL of any agent's lease, by what the masters of this cluster allow."""
        of_all = [facts if other is link else other.facts for other in self.links]
        identities = [of.identity for of in of_all if of is not None and of.identity is not None]
        return longest_possible_ttl_ms([of.longest_ttl_ms for of in identities], len(self.links))

    def members_digest_of(self, link: AnyLink, identity: Identity) -> str:
        """The digest of members by this agent's own list of masters."""
        return identity.members_digest_as(self.name(link.index), self.configured.names)

    def identity_changed(self, link: AnyLink, now_ns: int) -> None:
        """The set that votes together may have changed, and one of the masters may be being admitted."""
        for other in self.links:
            if other is not link:
                other.judge_again(now_ns)
                self._look_for_admission(other, now_ns)
        self.weigh(now_ns)

    def _look_for_admission(self, link: AnyLink, now_ns: int) -> None:
        known = [of for other in self.links if other is not link and (of := other.identity) is not None]
        link.elsewhere.look(self.name(link.index), known, self.clocks.quorum, now_ns)

    def weigh(self, now_ns: int) -> None:
        """Weigh which masters have a vote now."""
        states = [link.state if link.introduced else None for link in self.links]
        identities = [link.identity for link in self.links]
        changed = self.voters.weigh(states, identities, now_ns)
        self.trusted = self.voters.trusted
        self.fence_most = self.clocks.largest_sane_fence(now_ns)
        self._up = tuple(self.links[master] for master in bits(self.voters.up))
        self.refusing_extensions = sum(link.bit for link in self._up if EXTEND in link.refuses)
        for master in bits(changed):
            self.changed(self.links[master])
        self._heed_clocks(now_ns)
        if not self.looked and self._has_looked():
            self.looked = True
            self.looked_at_all()

    def _heed_clocks(self, now_ns: int) -> None:
        """After a jump, all other masters are asked at once, and what is held here is checked."""
        gained_ns, self._gained_ns = self._gained_ns, self.clocks.gained_ns
        if gained_ns is not self._gained_ns:
            self.clocks_moved(now_ns)
        in_doubt, self._in_doubt = self._in_doubt, self.clocks.in_doubt
        if self._in_doubt and not in_doubt:
            for link in self.links:
                if link.introduced:
                    self.probe_soon(link)

    def look_at_own_clock(self, reading: Reading, now_ns: int) -> None:
        """Neither a vote nor a wait for a max TTL may rest on a clock of this host that is slewed too fast
        (rule 11e)."""
        before, self.voters.own_clock = self.own_clock, self.slewing.look(reading) or None
        if self.own_clock is not None:
            self.clocks.wait_anew(now_ns)
            for link in self.links:
                link.wait_anew(now_ns)
        if (before is None) != (self.own_clock is None):
            self.weigh(now_ns)

    @property
    def own_clock(self) -> str | None:
        """What is wrong with this host's clock."""
        return self.voters.own_clock

    def _has_looked(self) -> bool:
        if self.voting().bit_count() >= self.clocks.quorum:
            return True
        return all(self._is_known(link) for link in self.links)

    def _is_known(self, link: AnyLink) -> bool:
        """Whether it is known by now that this master has a vote, or why not."""
        if link.state is State.UP:
            return link.introduced and self.clocks.watches[link.index].sampled_ns >= 0
        return link.state is not State.CONNECTING

    def refusal_of(self, link: AnyLink) -> str:
        """Why a master has no vote now; '' when it has one."""
        if link.state is not State.UP:
            return f"{link.state}: {link.reason}" if link.reason else str(link.state)
        if distrust := self.voters.distrust[link.index]:
            return distrust
        if link.refuses:
            return "it refuses " + ", ".join(f"{kind}: {why}" for kind, why in sorted(link.refuses.items()))
        return "" if link.introduced else "not introduced yet"
