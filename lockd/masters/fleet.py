"""The fan-out: what core asks goes to all masters at once, and what they answer goes back to its ballot."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from lockd.clock import boottime_ns
from lockd.config import Config
from lockd.core.ballots import Attempt, Ballot, Extension, FenceRound, PutBack, Release, bits
from lockd.core.clocks import Clocks
from lockd.core.electorate import Electorate
from lockd.core.fences import SANE_MOST
from lockd.core.membership import Configured, Facts, Other, State, judge, longest_possible_ttl_ms
from lockd.core.slewing import Reading, Slewing
from lockd.masters import scripts
from lockd.masters.link import Link

_LOOK_S = 0.05


class Gauge(Protocol):
    """Who wants to know how long the masters take, and which of their votes did not count."""

    def connected(self, master: int) -> None: ...

    def votes_of(self, master: int) -> Callable[[int], None]: ...

    def probed(self, master: int, ns: int) -> None: ...

    def not_counted(self, master: int, why: str) -> None: ...

    def nonsense(self, master: int) -> None: ...


class Fleet:
    """All masters of the configuration. `trusted`: those whose votes count, as bits (rules 8, 11, 14)."""

    def __init__(
        self,
        config: Config,
        gauge: Gauge,
        changed: Callable[[Link], None],
        broke: Callable[[Ballot, Exception, int], None],
        clocks_moved: Callable[[int], None],
    ) -> None:
        """changed: a master's state did, or whether its vote counts. broke: a ballot failed by a mistake of
        ours. clocks_moved: those of masters have gained on this host's (rule 11d)."""
        self.config = config
        self.broke = broke
        self._gauge = gauge
        self.clocks = Clocks(
            len(config.masters),
            max_ttl_ms=config.max_ttl_ms,
            allowance_ms=config.clock_skew_allowance_ms,
        )
        self.links = [
            Link(i, master, config, self, self.clocks.watches[i]) for i, master in enumerate(config.masters)
        ]
        self.trusted = 0
        self.fence_most = SANE_MOST
        self.looked = asyncio.Event()
        """The first look at the masters is over: a quorum has a vote, or it is known of each why not."""
        self._electorate = Electorate(self.clocks)
        self.slewing = Slewing()
        self._gained_ns = self.clocks.gained_ns
        self._in_doubt = False
        self._up: tuple[Link, ...] = ()
        self.configured = Configured(config.cluster, tuple(master.name for master in config.masters))
        self._changed = changed
        self._clocks_moved = clocks_moved
        self._flushes = False
        self._tasks: list[asyncio.Task[None]] = []

    # core.ports.Masters

    @property
    def agreeing(self) -> int:
        return self._electorate.agreeing

    def voting(self) -> int:
        return self._electorate.voting

    def barred_by_clock(self) -> int:
        return self._electorate.barred & self._electorate.up

    @property
    def clocks_in_doubt(self) -> bool:
        return self.clocks.in_doubt

    def why_not(self, master: int) -> str:
        link = self.links[master]
        reason = self.refusal_of(link) or "slow"
        return f"{link.master.name}={reason.replace(' ', '-')}"

    def name(self, master: int) -> str:
        return self.links[master].master.name

    def clock_us(self, now_ns: int) -> int:
        return self.clocks.median_us(now_ns)

    def gained_ns(self) -> tuple[int, ...]:
        return self.clocks.gained_ns

    def cut_ns(self, then_ns: tuple[int, ...], proven: int) -> int:
        return self.clocks.cut_ns(then_ns, proven)

    def suspected_cut_ns(self, then_ns: tuple[int, ...], proven: int) -> int:
        return self.clocks.suspected_cut_ns(then_ns, proven)

    def acquire(self, attempt: Attempt) -> int:
        return self._ask_all(attempt, scripts.acquire(attempt))

    def propose(self, fence_round: FenceRound) -> int:
        return self._ask_all(fence_round, scripts.propose(fence_round))

    def extend(self, extension: Extension) -> int:
        return self._ask_all(extension, scripts.extend(extension))

    def put_back(self, put_back: PutBack, masters: int) -> int:
        question = (put_back, scripts.put_back(put_back), put_back.t1_ns)
        asked = masters & self._electorate.up
        for master in bits(asked):
            self.links[master].ask_vote(question)
        return asked

    def release(self, release: Release, masters: int) -> int:
        question = (release, scripts.release(release), release.t1_ns)
        self.flush_soon()
        asked = 0
        for link in self.links:
            if masters & link.bit and link.give_back(release, question):
                asked |= link.bit
        return asked

    def _ask_all(self, ballot: Ballot, payload: bytes) -> int:
        question = (ballot, payload, ballot.t1_ns)
        self.flush_soon()
        for link in self._up:
            link.put_vote(question)
        return self._electorate.up

    # masters.link.Listener

    def flush_soon(self) -> None:
        if not self._flushes:
            self._flushes = True
            asyncio.get_running_loop().call_soon(self._flush_next_turn)

    def _flush_next_turn(self) -> None:
        """Poll once more first: what else is ready by now goes into the same write, and the same fsync."""
        asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushes = False
        for link in self.links:
            link.flush()

    def state_changed(self, link: Link) -> None:
        self.weigh(boottime_ns())
        self._changed(link)

    def judge(self, link: Link, facts: Facts) -> tuple[State, str]:
        others = [
            Other(o.master.name, o.facts.run_id, o.facts.identity)
            for o in self.links
            if o is not link and o.introduced and o.facts is not None
        ]
        state, reason = judge(link.master.name, self.configured, facts, others)
        if state is State.UP:
            self.clocks.allow_for(self._longest_ttl_ms(link, facts))
        return state, reason

    def _longest_ttl_ms(self, link: Link, facts: Facts) -> int:
        """Of a lease of any agent, by what the masters of this cluster allow."""
        of_all = [facts if other is link else other.facts for other in self.links]
        identities = [of.identity for of in of_all if of is not None and of.identity is not None]
        return longest_possible_ttl_ms([of.longest_ttl_ms for of in identities], len(self.links))

    def identity_changed(self, link: Link) -> None:
        """Whom the others vote together with may be another now, and one of them may be being admitted."""
        for other in self.links:
            if other is not link:
                other.judge_again()
                self._look_for_admission(other)
        self.weigh(boottime_ns())

    def _look_for_admission(self, link: Link) -> None:
        others = [o.facts.identity for o in self.links if o is not link and o.facts is not None]
        shown = [identity for identity in others if identity is not None]
        link.elsewhere.look(link.master.name, shown, self.config.quorum, boottime_ns())

    def introduced(self, link: Link) -> None:
        self._gauge.connected(link.index)

    def votes_of(self, master: int) -> Callable[[int], None]:
        return self._gauge.votes_of(master)

    def probed(self, link: Link, took_ns: int) -> None:
        self._gauge.probed(link.index, took_ns)

    def not_counted(self, link: Link, why: str) -> None:
        self._gauge.not_counted(link.index, why)

    def nonsense(self, link: Link) -> None:
        self._gauge.nonsense(link.index)

    def weigh(self, now_ns: int) -> None:
        """Who has a vote now."""
        states = [link.state if link.introduced else None for link in self.links]
        identities = [link.facts.identity if link.facts else None for link in self.links]
        changed = self._electorate.weigh(states, identities, now_ns)
        self.trusted = self._electorate.trusted
        self.fence_most = self.clocks.largest_sane_fence(now_ns)
        self._up = tuple(self.links[master] for master in bits(self._electorate.up))
        for master in bits(changed):
            self._changed(self.links[master])
        self._heed_clocks(now_ns)
        if not self.looked.is_set() and self._has_looked():
            self.looked.set()

    def look_at_own_clock(self, reading: Reading, now_ns: int) -> None:
        """No vote may rest on a clock of this host that is slewed too fast, and no wait for a max TTL
        (rule 11e)."""
        before, self._electorate.own_clock = self._electorate.own_clock, self.slewing.look(reading) or None
        if self.own_clock is not None:
            self.clocks.wait_anew(now_ns)
            for link in self.links:
                link.wait_anew(now_ns)
        if (before is None) != (self._electorate.own_clock is None):
            self.weigh(now_ns)

    @property
    def own_clock(self) -> str | None:
        """What is wrong with this host's."""
        return self._electorate.own_clock

    def _heed_clocks(self, now_ns: int) -> None:
        """Where they have jumped, all others are asked at once, and what is held here is looked at."""
        gained_ns, self._gained_ns = self._gained_ns, self.clocks.gained_ns
        if gained_ns is not self._gained_ns:
            self._clocks_moved(now_ns)
        in_doubt, self._in_doubt = self._in_doubt, self.clocks.in_doubt
        if self._in_doubt and not in_doubt:
            for link in self.links:
                link.probe_soon()

    def _has_looked(self) -> bool:
        if self.voting().bit_count() >= self.config.quorum:
            return True
        return all(self._is_known(link) for link in self.links)

    def _is_known(self, link: Link) -> bool:
        """Whether it has a vote was found out."""
        if link.state is State.UP:
            return link.introduced and self.clocks.watches[link.index].sampled_ns >= 0
        return link.state is not State.CONNECTING

    def refusal_of(self, link: Link) -> str:
        """Why a master has no vote now; '' when it has one."""
        if link.state is not State.UP:
            return f"{link.state}: {link.reason}" if link.reason else str(link.state)
        return self._electorate.distrust[link.index] or ("" if link.introduced else "not introduced yet")

    # Life

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(link.run(), name=f"link {link.master.name}") for link in self.links]
        self._tasks.append(loop.create_task(self._watch(), name="watch"))

    async def _watch(self) -> None:
        """Look at all links often, and weigh anew every second: trust comes and goes with time alone."""
        beats = 0
        while True:
            await asyncio.sleep(_LOOK_S)
            now_ns = boottime_ns()
            for link in self.links:
                link.look(now_ns)
            beats += 1
            if beats % 4 == 0:
                self.weigh(now_ns)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for link in self.links:
            link.drop("the agent stops")
