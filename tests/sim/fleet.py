"""The fan-out over simulated links: what lockd/masters/fleet.py and formation.py do, on virtual time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from lockd.core.ballots import Attempt, Extension, FenceRound, PutBack, Release, bits
from lockd.core.clocks import Clocks
from lockd.core.electorate import Electorate
from lockd.core.fences import SANE_MOST
from lockd.core.identities import Identity, Members
from lockd.core.membership import (
    Configured,
    Facts,
    Other,
    State,
    judge,
    longest_possible_ttl_ms,
)
from lockd.core.slewing import Reading, Slewing
from tests.sim.history import Failed, Tried
from tests.sim.link import Link
from tests.sim.master import Master
from tests.sim.network import Path

if TYPE_CHECKING:
    from tests.sim.agent import Agent

ALLOWANCE_MS = 100
CLUSTER = "sim"
_CLUSTER_ID = "5" * 32


def first_identity(name: str, names: Iterable[str], max_ttl_ms: int) -> Identity:
    """As the cluster was formed."""
    return Identity(CLUSTER, name, max_ttl_ms, cluster_id=_CLUSTER_ID, members=Members.first(names))


class Fleet:
    """core.ports.Masters for one agent, from its start to its end."""

    def __init__(
        self, agent: Agent, masters: list[Master], paths: list[tuple[Path, Path]], max_ttl_ms: int
    ) -> None:
        self._agent = agent
        self.clocks = Clocks(len(masters), max_ttl_ms=max_ttl_ms, allowance_ms=ALLOWANCE_MS)
        self.electorate = Electorate(self.clocks)
        self.slewing = Slewing()
        self.fence_most = SANE_MOST
        self.configured = Configured(CLUSTER, tuple(master.name for master in masters))
        self.links = [Link(agent, i, there, back) for i, (there, back) in enumerate(paths)]
        self.open_tries: set[bytes] = set()
        self._gained_ns = self.clocks.gained_ns
        self._in_doubt = False

    def weigh(self) -> None:
        states = [link.state if link.introduced else None for link in self.links]
        identities = [link.facts.identity if link.facts else None for link in self.links]
        self.electorate.weigh(states, identities, self._agent.boot_ns())
        self.fence_most = self.clocks.largest_sane_fence(self._agent.boot_ns())
        self._heed_clocks()

    def look_at_own_clock(self, reading: Reading) -> None:
        before, self.electorate.own_clock = self.electorate.own_clock, self.slewing.look(reading) or None
        if self.electorate.own_clock is not None:
            self.clocks.wait_anew(self._agent.boot_ns())
            for link in self.links:
                link.wait_anew()
        if before != self.electorate.own_clock:
            self.weigh()

    def _heed_clocks(self) -> None:
        gained_ns, self._gained_ns = self._gained_ns, self.clocks.gained_ns
        if gained_ns is not self._gained_ns:
            self._agent.locks.clocks_moved(self._agent.boot_ns())
        in_doubt, self._in_doubt = self._in_doubt, self.clocks.in_doubt
        if self._in_doubt and not in_doubt:
            for link in self.links:
                link.probe_soon()

    def judge(self, link: Link, facts: Facts) -> State:
        others = [
            Other(self.name(other.index), other.facts.run_id, other.facts.identity)
            for other in self.links
            if other is not link and other.introduced and other.facts is not None
        ]
        state, _ = judge(self.name(link.index), self.configured, facts, others)
        if state is State.UP:
            of_all = [facts if other is link else other.facts for other in self.links]
            known = [
                of.identity.longest_ttl_ms for of in of_all if of is not None and of.identity is not None
            ]
            self.clocks.allow_for(longest_possible_ttl_ms(known, len(self.links)))
        return state

    def identity_changed(self, link: Link) -> None:
        """Whom the others vote together with may be another now."""
        for other in self.links:
            if other is not link:
                other.judge_again()
                others = [o.facts.identity for o in self.links if o is not other and o.facts is not None]
                shown = [identity for identity in others if identity is not None]
                quorum = len(self.links) // 2 + 1
                other.elsewhere.look(self.name(other.index), shown, quorum, self._agent.boot_ns())
        self.weigh()

    # core.ports.Masters

    @property
    def agreeing(self) -> int:
        return self.electorate.agreeing

    def voting(self) -> int:
        return self.electorate.voting

    def barred_by_clock(self) -> int:
        return self.electorate.barred & self.electorate.up

    @property
    def clocks_in_doubt(self) -> bool:
        return self.clocks.in_doubt

    def why_not(self, master: int) -> str:
        reason = self.electorate.distrust[master] or self.links[master].state
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

    def acquire(self, attempt: Attempt) -> int:
        world = self._agent.world
        world.note(Tried(world.now_ns, attempt.resource, attempt.nonce, attempt.ttl_ms, self._agent.host))
        self.open_tries.add(attempt.nonce)
        return self._ask_all(attempt)

    def propose(self, fence_round: FenceRound) -> int:
        return self._ask_all(fence_round)

    def extend(self, extension: Extension) -> int:
        return self._ask_all(extension)

    def put_back(self, put_back: PutBack, masters: int) -> int:
        return self._ask(put_back, masters & self.electorate.up)

    def _ask_all(self, ballot: Any) -> int:
        return self._ask(ballot, self.electorate.up)

    def _ask(self, ballot: Any, asked: int) -> int:
        for master in bits(asked):
            self.links[master].ask(ballot)
        return asked

    def release(self, release: Release, masters: int) -> int:
        if release.word in self.open_tries:
            self.open_tries.discard(release.word)
            self._agent.world.note(Failed(self._agent.world.now_ns, release.word))
        return sum(1 << master for master in bits(masters) if self.links[master].give_back(release))
