"""The operator: has agents form the cluster, admit each blank master, bring up to date what was away, and
begin anew where a quorum lost its data, again and again."""

from __future__ import annotations

from functools import partial

from lockd.core.changes.admitting import admit
from lockd.core.changes.forming import form
from lockd.core.changes.recovering import recover
from lockd.core.changes.upgrading import upgrade
from lockd.core.membership import State
from lockd.core.validity import settle_ns
from tests.harness.clocks import MS, S
from tests.sim.agent import Agent
from tests.sim.changes import Carrier, Change
from tests.sim.link import Link
from tests.sim.plan import ASK_EVERY_MS
from tests.sim.world import World

ASK_EVERY_NS = ASK_EVERY_MS * MS


class Operator:
    """He asks one agent until it is done, or has had time enough; then the next. He does what he is told by
    those who refuse."""

    def __init__(
        self, world: World, agents: list[Agent], max_ttl_ms: int, *, unused: bool, number: int = 0
    ) -> None:
        """unused: no agent has ever used the masters. number: of several, who know nothing of each other."""
        self._world = world
        self._agents = agents
        self._max_ttl_ms = max_ttl_ms
        self._unused = unused
        self._recovers = False
        self._stuck = 0
        self._dice = world.dice(f"operator {number}")
        self._turn = number
        self._hurries = self._dice.random() < 0.7
        self._patience_ns = settle_ns(max_ttl_ms) + 3 * S
        self._asked_since_ns = 0
        self._leaves_it_until_ns = 0
        """To the other operator, who is at work on the same."""
        world.after(ASK_EVERY_NS, self._ask)

    def _ask(self) -> None:
        self._world.after(ASK_EVERY_NS, self._ask)
        if self._world.now_ns < self._leaves_it_until_ns:
            return
        agent = self._agents[self._turn % len(self._agents)]
        late = self._world.now_ns - self._asked_since_ns > self._patience_ns
        if late or not agent.running or not self._work_for(agent):
            self._turn += 1
            self._asked_since_ns = self._world.now_ns

    def _work_for(self, agent: Agent) -> bool:
        """Whether this agent is at work, or sees something to be done; it is told to."""
        if agent.changes is None and (change := self._change(agent)) is not None:
            by_user = self._dice.random() < 0.5
            ended = partial(self._ended, agent)
            agent.changes = carrier = Carrier(agent, change, agent.max_ttl_ms, by_user=by_user, ended=ended)
            agent.take(self, carrier.begin)
        return agent.changes is not None

    def _change(self, agent: Agent) -> Change | None:
        fleet = agent.fleet
        if sum(_is(link, State.UP) for link in fleet.links) >= fleet.clocks.quorum:
            self._unused = False
            link = next((link for link in fleet.links if self._is_seen_to(agent, link)), None)
            return None if link is None else partial(admit, name=fleet.name(link.index))
        if not self._are_there(agent):
            return None
        known = agent.locks.known_counters()
        if self._recovers:
            return partial(recover, known=known)
        if any(link.state is State.OTHER_FORMAT or link.taken for link in fleet.links):
            return partial(upgrade, known=known)
        return partial(form, unused=self._unused, known=known)

    def _is_seen_to(self, agent: Agent, link: Link) -> bool:
        """He may find a blank master only after a while."""
        if _is(link, State.BLANK) and link.blank_since_ns is not None and not self._hurries:
            return agent.boot_ns() - link.blank_since_ns > settle_ns(self._max_ttl_ms)
        return _is(link, State.BLANK, State.OUTDATED)

    def _are_there(self, agent: Agent) -> bool:
        """By the list of all masters, which not every agent has."""
        links = agent.fleet.links
        listed = len(agent.listed) == len(agent.machines)
        return listed and all(link.introduced and link.state in _MAY_BE_FORMED for link in links)

    def _ended(self, agent: Agent, how: str) -> None:
        agent.changes = None
        if how in ("formed", "already", "recovered", "upgraded"):
            self._unused = self._recovers = False
        elif how.startswith("all masters have data"):
            self._stuck += 1
            self._recovers = False
            if self._stuck % 3 == 0:
                self._wipe_one(agent)
        elif how.startswith("another operator has changed"):
            self._leaves_it_until_ns = self._world.now_ns + self._patience_ns
        elif " " in how and "repeat this" not in how:
            self._recovers = not self._recovers

    def _wipe_one(self, agent: Agent) -> None:
        """As lockctl doctor says where all have data, and too few vote together."""
        self._unused = False
        link = next((link for link in agent.fleet.links if link.state is not State.UP), None)
        if link is not None:
            agent.machine(link.index).crash(wiped=True)()


_MAY_BE_FORMED = (
    State.BLANK, State.UP, State.FOREIGN, State.OUTDATED, State.REPLACED, State.OTHER_FORMAT,
)  # fmt: skip


def _is(link: Link, *states: State) -> bool:
    return link.introduced and link.state in states
