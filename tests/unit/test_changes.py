"""Forming a cluster and admitting a master, step by step: interrupted after each, failing in each, and by two
agents at once of which each sees another machine under one name (rule 8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations, count, islice, product
from typing import Any

import pytest

from lockd.core import link as core_link
from lockd.core.changes.admitting import admit
from lockd.core.changes.forming import form
from lockd.core.changes.ground import Ground
from lockd.core.changes.recovering import recover
from lockd.core.changes.steps import (
    LookAgain,
    NotPossible,
    OwnClockIsWrong,
    Pause,
    Progress,
    ReadCounters,
    ReadField,
    Step,
    Steps,
    Unread,
    Write,
)
from lockd.core.changes.upgrading import upgrade
from lockd.core.clocks import Clocks
from lockd.core.fences import CLOCKS_APART_US, SLOTS
from lockd.core.fleet import Fleet
from lockd.core.identities import Identity, voting_together
from lockd.core.membership import REQUIRED_SETTINGS, Configured, MasterFacts, State
from lockd.core.validity import settle_ns
from tests.harness.clocks import MS
from tests.harness.script_model import Key, Store

MAX_TTL_MS = 1_000
SETTLED_NS = settle_ns(MAX_TTL_MS)
WALL_US = 1_700_000_000_000_000
UNUSED = partial(form, unused=True, known={})
RECOVER = partial(recover, known={})
UPGRADE = partial(upgrade, known={})

_ids = count(1)


class Machine:
    def __init__(self) -> None:
        self.store = Store()
        self.run_id = f"run {next(_ids)}"

    @property
    def identity(self) -> Identity | None:
        return Identity.parse(self.store.identity)

    @property
    def facts(self) -> MasterFacts:
        store = self.store
        keys = len(store.leases) + bool(store.counters) + bool(store.identity)
        return MasterFacts(self.run_id, "test", "master", keys, self.identity, REQUIRED_SETTINGS)


PATIENCE = core_link.Patience(250 * MS, 2_000 * MS)


class Link(core_link.Link):
    def hang_up(self) -> None: ...
    def look_closer(self) -> None: ...
    def give_back_soon(self) -> None: ...


class Masters(Fleet[Link]):
    def __init__(self, names: tuple[str, ...]) -> None:
        clocks = Clocks(len(names), max_ttl_ms=MAX_TTL_MS, allowance_ms=100)
        nothing: Any = None
        super().__init__(
            Configured("test", names),
            clocks,
            nothing,
            lambda i: Link(i, self, clocks.watches[i], PATIENCE, str.encode),
        )

    def flush_soon(self) -> None: ...
    def clocks_moved(self, now_ns: int) -> None: ...
    def probe_soon(self, link: Link) -> None: ...


class Agent:
    """One agent, and the machines that it reaches under the names of the masters. deaf: those that don't
    answer it now; full_disks: those on which it can write nothing."""

    def __init__(self, machines: Sequence[Machine], now_ns: int = SETTLED_NS) -> None:
        self.machines = list(machines)
        self.deaf: set[int] = set()
        self.full_disks: set[int] = set()
        self.now_ns = now_ns
        names = tuple(f"m{n}" for n in range(1, len(machines) + 1))
        self.fleet = Masters(names)
        for link in self.fleet.links:
            link.introduced = True
        self.look()

    def passes(self, ns: int) -> None:
        """Time, in which it looks at them as it always does."""
        self.now_ns += ns
        self.look()

    def look(self) -> set[int]:
        heard = [link for link in self.fleet.links if link.index not in self.deaf]
        for link in heard:
            link.inspected(self.machines[link.index].facts, self.now_ns)
            link.probed(self.now_ns, self.now_ns, WALL_US + self.now_ns // 1000)
        return {link.index for link in heard}

    def begin(self, change: Callable[[Ground], Steps[Progress]]) -> Steps[Progress]:
        new_id = lambda: f"{next(_ids):032x}"  # noqa: E731
        return change(Ground(self.fleet, MAX_TTL_MS, PATIENCE.dead_ns, lambda: self.now_ns, new_id))

    def do(self, step: Step) -> Any:
        """Its links look by themselves after each step too. Raises NotPossible."""
        try:
            return self._do(step)
        finally:
            self.look()

    def _do(self, step: Step) -> Any:
        match step:
            case LookAgain():
                return self.look()
            case Write(master, expected, fields, counters):
                if master in self.deaf | self.full_disks:
                    raise NotPossible("full disk")
                return self.machines[master].store.identify(expected, fields, counters)
            case ReadCounters(masters):
                return {
                    m: Unread("-") if m in self.deaf else self.machines[m].store.counters for m in masters
                }
            case ReadField(master, name):
                return self.machines[master].store.identity.get(name)
            case Pause(for_ns):
                return self.passes(for_ns)

    def work(self, change: Callable[[Ground], Steps[Progress]], unheard: int = -1) -> Iterator[str]:
        """Carries it out; yields after each step, and at last what came of it. unheard: the number of the
        step whose answer is lost, although it was done."""
        steps = self.begin(change)
        ask: Callable[[], Step] = steps.__next__
        for number in count():
            try:
                step = ask()
            except StopIteration as end:
                yield end.value.status
                return
            except NotPossible as why:
                yield str(why)
                return
            ask = partial(steps.throw, NotPossible("no answer"))
            try:
                answer = self.do(step)
            except NotPossible as why:
                ask = partial(steps.throw, why)
            else:
                if number != unheard or not isinstance(step, Write):
                    ask = partial(steps.send, answer)
            yield ""

    def ends(self, change: Callable[[Ground], Steps[Progress]]) -> str:
        return list(self.work(change))[-1]


def blank(masters: int) -> list[Machine]:
    return [Machine() for _ in range(masters)]


def votes_together(machines: Sequence[Machine]) -> int:
    return voting_together([machine.identity for machine in machines]).bit_count()


def use(machines: Sequence[Machine]) -> None:
    """A lease is granted by these."""
    for machine in machines:
        machine.store.leases[b"r"] = Key(b"%032x 0 0 h 1 1" % 7, 1 << 60)
        machine.store.counters[5] = WALL_US


def test_blank_masters_are_formed_to_one_cluster() -> None:
    machines = blank(3)
    agent = Agent(machines)
    assert agent.ends(UNUSED) == "formed"
    assert votes_together(machines) == 3
    assert {link.state for link in agent.fleet.links} == {State.UP}
    assert agent.ends(UNUSED) == "already"


def test_masters_that_may_have_been_used_are_waited_for() -> None:
    agent = Agent(blank(3))
    change = partial(form, unused=False, known={})
    assert agent.ends(change) == "waiting"
    agent.passes(SETTLED_NS)
    assert agent.ends(change) == "formed"


def test_fences_of_masters_that_may_have_been_used_go_on_above_all_earlier_ones() -> None:
    """Agents that saw them have all ended since, and their hosts' clocks may be minutes apart."""
    for known in ({}, {5: WALL_US + 2 * CLOCKS_APART_US}):
        agent = Agent(blank(3))
        change = partial(form, unused=False, known=known)
        assert agent.ends(change) == "waiting"
        agent.passes(SETTLED_NS)
        assert agent.ends(change) == "formed"
        for machine in agent.machines:
            counters = machine.store.counters
            assert len(counters) == SLOTS
            assert min(counters.values()) >= WALL_US + CLOCKS_APART_US
            assert counters[5] >= known.get(5, 0)


@pytest.mark.parametrize("known", [{}, {5: 4_711}])
def test_wherever_forming_is_broken_off_another_agent_forms_it(known: dict[int, int]) -> None:
    for done in range(30):
        machines = blank(5)
        steps = Agent(machines).work(partial(form, unused=True, known=known))
        left_over = [next(steps, None) for _ in range(done)]
        assert Agent(machines).ends(partial(form, unused=True, known=known)) in ("formed", "already")
        assert votes_together(machines) == 5
        if "formed" in left_over:
            return
    pytest.fail("it never ends")


def test_whoever_finds_masters_begun_lets_those_who_are_at_it_go_on() -> None:
    machines = blank(5)
    first, second = Agent(machines).work(UNUSED), Agent(machines)
    while not any(machine.identity for machine in machines):
        next(first)
    steps = second.begin(UNUSED)
    step = next(steps)
    while not isinstance(step, Pause):
        step = steps.send(second.do(step))
    next(first)
    step = steps.send(second.do(step))
    with pytest.raises(NotPossible, match="another operator is forming it"):
        steps.send(second.do(step))
    assert list(first)[-1] == "formed"
    assert votes_together(machines) == 5


@pytest.mark.parametrize("lost", range(12))
def test_whichever_answer_is_lost_forming_is_possible_again(lost: int) -> None:
    machines = blank(5)
    for _ in Agent(machines).work(UNUSED, unheard=lost):
        pass
    assert Agent(machines).ends(UNUSED) in ("formed", "already")
    assert votes_together(machines) == 5


def granted(views: Sequence[Sequence[Machine]], leases: list[tuple[Machine, ...]]) -> None:
    """Whoever finds a quorum in a view of the masters has a lease granted by no more than it takes."""
    for view in views:
        for pair in combinations(view, 2):
            ids = {machine.store.identity.get("cluster_id") for machine in pair}
            if len(ids) == 1 and votes_together(pair) == 2 and not any(m.store.leases for m in pair):
                assert not leases, "two hold one resource"
                leases.append(pair)
                use(pair)


@pytest.mark.parametrize("deaf", [None, 1, 2])
@pytest.mark.parametrize("broken_off", [3, 4])
def test_two_machines_of_one_name_never_help_to_two_quorums(deaf: int | None, broken_off: int) -> None:
    """Forming was broken off; one agent still reaches the machine that was begun then, another agent the one
    that took its place. Both form the cluster, in whatever order."""
    for first, second in product(range(12), range(16)):
        old, *others = blank(3)
        asks_old = Agent([old, *others])
        begun = Agent([old, *others]).work(UNUSED)
        for _ in range(broken_off):
            next(begun)
        asks_new = Agent([Machine(), *others])
        leases: list[tuple[Machine, ...]] = []
        changes = asks_new.work(UNUSED), asks_old.work(UNUSED)
        asks_old.deaf = {deaf} - {None}  # type: ignore[assignment]
        for change, steps in ((0, first), (1, second), (0, 20), (1, 20)):
            for _ in range(steps):
                next(changes[change], None)
                granted((asks_new.machines, asks_old.machines), leases)


def test_where_one_that_was_begun_has_voted_the_blank_ones_stay_blank() -> None:
    """It can be begun anew around those that have their data."""
    machines = blank(5)
    steps = Agent(machines).work(UNUSED)
    while machines[2].identity is None:
        next(steps)
    agent = Agent(machines)
    change = agent.work(UNUSED)
    next(change)
    use(machines[:3])
    assert "voted meanwhile" in list(change)[-1]
    assert [machine.store.blank for machine in machines] == [False] * 3 + [True] * 2
    recovers(agent)
    assert votes_together(machines) == 5
    assert all(machine.store.counters[5] > WALL_US for machine in machines)


def recovers(agent: Agent) -> None:
    """Its operator asks again, once it has waited."""
    assert agent.ends(RECOVER) == "waiting"
    agent.passes(SETTLED_NS)
    assert agent.ends(RECOVER) == "recovered"


def with_most_wiped() -> list[Machine]:
    """They were blank for long when anybody looks."""
    machines = blank(5)
    Agent(machines).ends(UNUSED)
    for number, machine in enumerate(machines):
        machine.store.counters = {5: WALL_US}
        if number > 1:
            machine.store = Store()
    return machines


def asked_again(agent: Agent, change: Callable[[Ground], Steps[Progress]]) -> Iterator[str]:
    """Until it ends with more than that one has to wait."""
    how = "waiting"
    while how == "waiting":
        for how in agent.work(change):
            yield how
        agent.passes(SETTLED_NS)


def test_wherever_beginning_anew_is_broken_off_another_agent_does_it_or_a_quorum_votes() -> None:
    for done in range(60):
        machines = with_most_wiped()
        steps = asked_again(Agent(machines), RECOVER)
        left_over = [next(steps, None) for _ in range(done)]
        if votes_together(machines) < 3:
            *_, how = asked_again(Agent(machines), RECOVER)
            assert how == "recovered"
            assert all(machine.store.counters[5] > WALL_US for machine in machines)
        assert votes_together(machines) >= 3
        if "recovered" in left_over:
            return
    pytest.fail("it never ends")


def test_whose_vote_was_taken_by_another_agent_meanwhile_is_not_written_to() -> None:
    machines = with_most_wiped()
    first, second = Agent(machines), Agent(machines)
    assert first.ends(RECOVER) == second.ends(RECOVER) == "waiting"
    first.passes(SETTLED_NS)
    assert "another operator has changed m1, m2 since this began" in first.ends(RECOVER)
    second.passes(SETTLED_NS)
    assert second.ends(RECOVER) == "recovered"
    assert votes_together(machines) == 5


class Resource:
    """A resource that two agents lock which reach different machines: a lease lives for a max TTL."""

    def __init__(self) -> None:
        self._lease: tuple[tuple[Machine, ...], int] = ((), -1)

    def is_granted(self, view: Sequence[Machine], now_ns: int) -> bool:
        """To whoever finds a quorum there, by no more masters than it takes."""
        holders, until_ns = self._lease
        quorum, held = len(view) // 2 + 1, now_ns < until_ns
        may = [machine for machine in view if (of := machine.identity) is not None and not of.is_older]
        if votes_together(may) < quorum:
            return False
        for voters in combinations(may, quorum):
            if votes_together(voters) == quorum and not (held and set(voters) & set(holders)):
                assert not held, "two hold one resource"
                self._lease = voters, now_ns + MAX_TTL_MS * MS
                return True
        return False

    def goes_on(self, steps: Iterator[str], *agents: Agent) -> bool:
        """One of them does a step, and both lock. False: it is over."""
        is_over = next(steps, None) is None
        now_ns = max(agent.now_ns for agent in agents)
        for agent in agents:
            agent.now_ns = now_ns
            self.is_granted(agent.machines, now_ns)
        return not is_over


def test_a_machine_that_was_replaced_keeps_no_quorum_when_the_others_begin_anew() -> None:
    """One agent still reaches it, and with it a quorum."""
    for steps in range(40):
        old, gone, left = machines = blank(3)
        Agent(machines).ends(UNUSED)
        gone.store = Store()
        agent = Agent([Machine(), gone, left])
        agent.passes(SETTLED_NS)
        resource = Resource()
        work = asked_again(agent, RECOVER)
        for _ in islice(work, steps):
            pass
        for _ in work:
            resource.is_granted([old, left], agent.now_ns)
            resource.is_granted(agent.machines, agent.now_ns)
        assert resource.is_granted(agent.machines, agent.now_ns + SETTLED_NS)


def test_two_that_begin_anew_with_two_machines_of_one_name_find_no_two_quorums() -> None:
    """The first is stopped for long, anywhere; the second, when a quorum of its cluster may vote."""
    for first in range(28):
        old = with_most_wiped()
        new = [*old[:2], Machine(), *old[3:]]
        agents, resource = (Agent(old), Agent(new)), Resource()
        one, two = (asked_again(agent, RECOVER) for agent in agents)
        for _ in range(first):
            resource.goes_on(one, *agents)
        while votes_together(new) < 3 and resource.goes_on(two, *agents):
            pass
        while resource.goes_on(one, *agents) or resource.goes_on(two, *agents):
            pass


def of_old_format(masters: int) -> list[Machine]:
    """Two machines of one name look alike in it: it had no admission numbers."""
    machines = blank(masters)
    for number, machine in enumerate(machines, 1):
        machine.store.set_identity({"cluster": "test", "name": f"m{number}", "max_ttl_ms": "1000"})
        machine.store.counters = {5: WALL_US}
    return machines


def test_identities_of_an_earlier_format_are_upgraded_when_what_was_granted_by_them_is_over() -> None:
    machines = of_old_format(5)
    agent = Agent(machines)
    assert agent.ends(UPGRADE) == "waiting"
    agent.passes(SETTLED_NS)
    assert agent.ends(UPGRADE) == "upgraded"
    assert votes_together(machines) == 5
    assert all(machine.store.counters[5] > WALL_US for machine in machines)
    assert agent.ends(UPGRADE) == "already"


def test_wherever_upgrading_is_broken_off_there_is_a_way_on() -> None:
    """To upgrade again, to begin anew where none is of the earlier format any more, or, where a quorum votes,
    to wipe the others."""
    ways = set()
    for done in range(40):
        machines = of_old_format(5)
        steps = asked_again(Agent(machines), UPGRADE)
        left_over = [next(steps, None) for _ in range(done)]
        *_, how = asked_again(Agent(machines), UPGRADE)
        if votes_together(machines) < 3:
            ways.add(how)
            *_, how = asked_again(Agent(machines), RECOVER)
        assert votes_together(machines) >= 3
        ways.add(how)
        if "upgraded" in left_over:
            break
    assert {way.partition(":")[0] for way in ways} == {
        "upgraded", "already", "recovered", "a quorum is upgraded",
        "all masters must be up, with an identity of this format or an earlier one. Nothing was changed",
    }  # fmt: skip


def test_what_was_blank_when_its_vote_was_taken_is_upgraded_with_counters_above_all() -> None:
    """Beginning anew was broken off, anywhere; the same agent is told to upgrade."""
    ways = set()
    for done in range(40):
        machines = with_most_wiped()
        ahead = machines[0].store.counters[5] = WALL_US + 2 * CLOCKS_APART_US
        agent = Agent(machines)
        for _ in islice(asked_again(agent, RECOVER), done):
            pass
        *_, how = asked_again(agent, UPGRADE)
        ways.add(how)
        if how == "upgraded":
            assert all(machine.store.counters[5] >= ahead for machine in machines)
            assert all(len(machine.store.counters) == SLOTS for machine in machines)
    assert {"upgraded", "already"} <= ways


def test_two_machines_of_one_name_find_no_two_quorums_when_they_are_upgraded() -> None:
    """Upgrading was broken off, anywhere; the machine that was put in one's place before looks like it."""
    for first, replaced in product(range(14), range(3)):
        old = of_old_format(3)
        new = of_old_format(3)[replaced]
        agents = Agent(old), Agent([new if n == replaced else machine for n, machine in enumerate(old)])
        resource = Resource()
        works = [asked_again(agent, UPGRADE) for agent in agents]
        for agent, steps in ((0, first), (1, 40), (0, 40)):
            for _ in range(steps):
                resource.goes_on(works[agent], *agents)


@pytest.mark.parametrize("change", [UNUSED, RECOVER])
def test_what_is_known_of_a_master_that_does_not_answer_forms_nothing(change: Any) -> None:
    machines = blank(3)
    agent = Agent(machines)
    if change is not UNUSED:
        Agent(machines).ends(UNUSED)
        machines[1].store, machines[2].store = Store(), Store()
        agent.passes(SETTLED_NS)
    agent.deaf = {2}
    before = [machine.store.snapshot() for machine in machines]
    agent.passes(SETTLED_NS)
    assert "m3: no answer in time: repeat this" in agent.ends(change)
    assert [machine.store for machine in machines] == before


def with_one_wiped() -> list[Machine]:
    machines = blank(5)
    Agent(machines).ends(UNUSED)
    for machine in machines:
        machine.store.counters[5] = WALL_US
    machines[2].store = Store()
    return machines


def check_admission(machines: Sequence[Machine]) -> None:
    others = [machine for machine in machines if machine is not machines[2]]
    assert votes_together(others) == 4
    if (identity := machines[2].identity) is not None:
        numbers = [of.identity.members.number_of("m3") for of in others if of.identity is not None]
        assert sum(number == identity.number for number in numbers) >= 3
        assert machines[2].store.counters[5] == WALL_US


ADMIT = partial(admit, name="m3")


def admits(agent: Agent, steps: int) -> str:
    """As often as an operator asks until it is done, and no more steps than that."""
    how, left = "", steps
    for _ in range(4):
        for how in islice(agent.work(ADMIT), left):  # noqa: B007
            left -= 1
            check_admission(agent.machines)
        agent.passes(SETTLED_NS)
    return how


def test_wherever_admitting_is_broken_off_another_agent_admits_it() -> None:
    for done in range(20):
        machines = with_one_wiped()
        admits(Agent(machines), done)
        assert admits(Agent(machines), 100) == "already"
        assert votes_together(machines) == 5


@pytest.mark.parametrize("lost", range(8))
def test_whichever_answer_is_lost_admitting_is_possible_again(lost: int) -> None:
    machines = with_one_wiped()
    agent = Agent(machines)
    for _ in agent.work(ADMIT, unheard=lost):
        check_admission(machines)
    assert admits(agent, 100) == "already"
    assert votes_together(machines) == 5


def test_a_number_that_is_on_too_few_lets_nobody_in() -> None:
    machines = with_one_wiped()
    agent = Agent(machines)
    agent.full_disks = {3, 4}
    for _ in range(3):
        [*_, how] = agent.work(ADMIT)
        assert how == "the new number of m3 has to be on 3 other masters, and is on 2: full disk"
        agent.passes(SETTLED_NS)
    assert machines[2].store.blank


@pytest.mark.parametrize("change", [UNUSED, RECOVER, ADMIT])
def test_nothing_is_changed_by_a_clock_that_is_slewed(change: Any) -> None:
    agent = Agent(blank(3))
    agent.fleet.voters.own_clock = "slewed"
    with pytest.raises(OwnClockIsWrong):
        next(agent.begin(change))


@pytest.mark.parametrize("change", [ADMIT, RECOVER])
def test_a_blank_machine_that_takes_the_place_of_the_one_that_was_waited_for_is_left_alone(
    change: Any,
) -> None:
    machines = with_one_wiped() if change is ADMIT else with_most_wiped()
    agent, other = Agent(machines), Machine()
    for _ in range(4):  # asked again, until nothing is waited for any more
        steps = agent.begin(change)
        how = until_it_reads_counters(agent, steps)
        if isinstance(how, ReadCounters):
            break
        agent.passes(SETTLED_NS)
    agent.machines[2], link = other, agent.fleet.links[2]
    link.broken("another is at its address", agent.now_ns)
    link.introduced = True
    with pytest.raises(NotPossible, match="m3 has changed in the last moment"):
        goes_on(agent, steps, how)
    assert other.store.blank


def until_it_reads_counters(agent: Agent, steps: Steps[Progress]) -> Step | None:
    step = next(steps)
    while not isinstance(step, ReadCounters):
        try:
            step = steps.send(agent.do(step))
        except StopIteration:
            return None
    return step


def goes_on(agent: Agent, steps: Steps[Progress], step: Step | None) -> None:
    while step is not None:
        step = steps.send(agent.do(step))
