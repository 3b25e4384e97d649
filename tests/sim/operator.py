"""The operator: has an agent admit each blank master, and bring up to date what was away, again and again.

What an agent does for him is lockd/masters/admission.py on virtual time; the steps themselves are the
product's (lockd/core/admission.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lockd.core.admission import Numbered, Ready, Renumber, TooFewOthers, brought_up, next_step
from lockd.core.ballots.ballot import bits
from lockd.core.identities import Identity, Members, voting_together
from lockd.core.membership import State, TooFewReadings, highest_counters, wait_for_blank
from lockd.core.recovery import counters_after_loss, is_left
from lockd.core.validity import settle_ns
from tests.sim.world import MS, SECOND, World

if TYPE_CHECKING:
    from tests.sim.agent import Agent
    from tests.sim.link import Link

ASK_EVERY_NS = 1 * SECOND
ANSWER_NS = 250 * MS


class Operator:
    """He asks one agent until it is done, or has had time enough; then the next."""

    def __init__(self, world: World, agents: list[Agent], max_ttl_ms: int) -> None:
        self._world = world
        self._agents = agents
        self._max_ttl_ms = max_ttl_ms
        self._turn = 0
        self._patience_ns = settle_ns(max_ttl_ms) + 3 * SECOND
        self._asked_since_ns = 0
        world.after(ASK_EVERY_NS, self._ask)

    def _ask(self) -> None:
        agent = self._agents[self._turn % len(self._agents)]
        late = self._world.now_ns - self._asked_since_ns > self._patience_ns
        if late or not agent.running or not self._work_for(agent):
            self._turn += 1
            self._asked_since_ns = self._world.now_ns
        self._world.after(ASK_EVERY_NS, self._ask)

    def _work_for(self, agent: Agent) -> bool:
        """Whether this agent sees something to be done; it is told to."""
        links = [link for link in agent.fleet.links if link.introduced]
        if Recovery.is_needed(agent):
            agent.take(self, Recovery(agent, self._max_ttl_ms).try_it)
            return True
        for link in links:
            if link.state in (State.BLANK, State.OUTDATED):
                agent.take(self, Change(agent, link, self._max_ttl_ms).begin)
                return True
        return False


class Change:
    """One ADMIT, as an agent carries it out."""

    def __init__(self, agent: Agent, link: Link, max_ttl_ms: int) -> None:
        self._agent = agent
        self._link = link
        self._fleet = agent.fleet
        self._max_ttl_ms = max_ttl_ms
        self._quorum = len(self._fleet.links) // 2 + 1
        self._readings: list[dict[int, int]] = []
        self._written = 0

    def begin(self) -> None:
        """First of all it looks at all of them again."""
        for link in self._fleet.links:
            link.inspect_soon()
        self._agent.wake_after(ANSWER_NS, self._go_on)

    def _go_on(self) -> None:
        if self._link.state is State.BLANK and self._link.introduced:
            self._step()
        elif self._link.state is State.OUTDATED and self._link.introduced:
            self._bring_up()

    def _others(self) -> dict[int, Identity]:
        shown = [
            link.facts.identity
            if link is not self._link
            and link.introduced
            and link.facts
            and link.state in (State.UP, State.STALLED)
            else None
            for link in self._fleet.links
        ]
        return {i: of for i in bits(voting_together(shown)) if (of := shown[i]) is not None}

    def _step(self) -> None:
        link, name = self._link, self._fleet.name(self._link.index)
        now_ns = self._agent.boot_ns()
        try:
            step = next_step(
                name, self._others(), self._quorum, link.numbered, link.elsewhere,
                link.blank_since_ns or now_ns, self._max_ttl_ms, now_ns,
            )  # fmt: skip
        except TooFewOthers:
            return
        if isinstance(step, Renumber):
            self._renumber(step)
        elif isinstance(step, Ready):
            self._let_in(step)

    def _renumber(self, step: Renumber) -> None:
        for i, members in step.lists.items():
            self._write(self._fleet.links[i], members_of(self._fleet.links[i]).with_members(members))
        self._agent.wake_after(ANSWER_NS, self._renumbered, step.number)

    def _renumbered(self, number: int) -> None:
        if self._written >= self._quorum:
            self._link.numbered = Numbered(number, self._agent.boot_ns())
            self._link.elsewhere.was_here()

    def _write(self, link: Link, identity: Identity) -> None:
        shown = members_of(link).electorate
        link.call("identify", self._heard(link), shown, identity.list_fields, {})

    def _heard(self, link: Link) -> Callable[[int], None]:
        def heard(written: int) -> None:
            self._written += written
            link.inspect_soon()

        return heard

    def _let_in(self, ready: Ready) -> None:
        for i in ready.numbered:
            if self._fleet.electorate.trusted >> i & 1 and self._fleet.links[i].connection is not None:
                self._fleet.links[i].call("counters", self._readings.append)
        # Who doesn't answer in time is not waited for.
        self._agent.wake_after(ANSWER_NS, self._counted, ready)

    def _counted(self, ready: Ready) -> None:
        try:
            most = self._fleet.clocks.largest_sane_fence(self._agent.boot_ns())
            counters = highest_counters(self._readings, self._quorum, most)
        except TooFewReadings:
            return
        others, link = list(self._others().values()), self._link
        if others and link.introduced and link.state is State.BLANK:
            new = Identity(
                others[0].cluster, self._fleet.name(link.index), self._max_ttl_ms,
                cluster_id=others[0].cluster_id, members=ready.members,
            )  # fmt: skip
            link.call("identify", self._heard(link), "", new.fields, counters)

    def _bring_up(self) -> None:
        identity, others = members_of(self._link), self._others()
        members = brought_up(identity, others.values()) if len(others) >= self._quorum else None
        if members is not None:
            self._write(self._link, identity.with_members(members))


class Recovery:
    """lockctl cluster recover: where no quorum votes together, and a part is blank."""

    def __init__(self, agent: Agent, max_ttl_ms: int) -> None:
        self._agent = agent
        self._max_ttl_ms = max_ttl_ms
        self._readings: list[dict[int, int]] = []

    @staticmethod
    def is_needed(agent: Agent) -> bool:
        links = agent.fleet.links
        states = [link.state if link.introduced else None for link in links]
        return (
            all(link.introduced and (link.state is State.BLANK or has_data(agent, link)) for link in links)
            and State.BLANK in states
            and states.count(State.UP) < len(links) // 2 + 1
            and states.count(State.BLANK) < len(links)
        )

    def try_it(self) -> None:
        blank = [link for link in self._agent.fleet.links if link.state is State.BLANK]
        now_ns = self._agent.boot_ns()
        since_ns = [link.blank_since_ns or now_ns for link in blank]
        if not blank or wait_for_blank(since_ns, self._max_ttl_ms, now_ns).remaining_ms:
            return
        for link in self._agent.fleet.links:
            if has_data(self._agent, link) and link.introduced:
                link.call("counters", self._readings.append)
        self._agent.wake_after(ANSWER_NS, self._begin_anew)

    def _begin_anew(self) -> None:
        if not self.is_needed(self._agent):
            return
        fleet, now_ns = self._agent.fleet, self._agent.boot_ns()
        counters = counters_after_loss(
            self._readings, fleet.clocks.median_us(now_ns), fleet.clocks.largest_sane_fence(now_ns)
        )
        cluster_id = f"{self._agent.dice.getrandbits(128):032x}"
        for link in sorted(fleet.links, key=lambda link: link.state is State.BLANK):
            new = Identity(
                fleet.configured.cluster, fleet.name(link.index), self._max_ttl_ms,
                cluster_id=cluster_id, members=Members.first(fleet.configured.names),
            )  # fmt: skip
            shown = "" if link.state is State.BLANK else members_of(link).electorate
            link.call("identify", lambda _, link=link: link.inspect_soon(), shown, new.fields, counters)


def has_data(agent: Agent, link: Link) -> bool:
    identity = link.facts.identity if link.facts is not None else None
    return is_left(link.state, identity, agent.fleet.configured.cluster)


def members_of(link: Link) -> Identity:
    assert link.facts is not None
    assert link.facts.identity is not None
    return link.facts.identity
