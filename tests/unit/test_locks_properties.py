"""What holds whatever happens: several agents, late answers, broken links, dead masters, jumping clocks.

Time is virtual, messages on one link stay in order, those on different links don't. What an app believes is
checked against all others.
"""

from collections import defaultdict
from heapq import heappop, heappush
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)

from lockd.core.clocks import Clocks
from lockd.core.leases import Lease
from lockd.core.values import Extended, Refusal
from tests.harness.clocks import MS
from tests.harness.fleet_model import Answer, App, Host, Master, Time

AGENTS, MASTERS = 3, 5
MAX_TTL_MS = 2_000
EVERYTHING_IS_OVER_MS = 30_000
THEN_MS = st.sampled_from([3, 3, 0, 0.4, 900])
"""How long until the next thing happens: mostly long enough for an answer."""


class Claim(App):
    """An app that tells the referee what it holds, and until when it believes that."""

    def __init__(self, world: "World", host: Host, resource: bytes, **wanted) -> None:
        super().__init__(world.time, resource, **wanted)
        self.world = world
        self.host = host
        self.given_up = False
        self.extended_ns = 0

    def granted(self, lease: Lease, now_ns: int) -> None:
        super().granted(lease, now_ns)
        self.world.claimed(self)

    def lost(self, lease: Lease, reason: str) -> None:
        super().lost(lease, reason)
        assert self.time.now_ns < lease.promised_ns, f"told only after what it was promised: {reason}"

    def believes_at(self, now_ns: int) -> bool:
        """An app may rely on its lease until the deadline, also once told of its loss, or till it lets go."""
        if self.lease is None or self.given_up:
            return False
        return now_ns < max(self.lease.deadline_ns, self.extended_ns)


class Elsewhere(Answer):
    """The answer to an EXTEND through whichever agent: the app relies on the deadline that it names."""

    def __init__(self, claim: Claim) -> None:
        super().__init__()
        self.claim = claim

    def done(self, lease: Extended | None) -> None:
        super().done(lease)
        if lease is not None and not self.claim.given_up:
            self.claim.extended_ns = max(self.claim.extended_ns, lease.deadline_ns)


class World:
    """Virtual time for agents and messages together."""

    def __init__(self) -> None:
        self.time = Time()
        self.masters = [Master(self.time, max_ttl_ms=MAX_TTL_MS) for _ in range(MASTERS)]
        self.hosts = [Host(self.time, self.masters, self.clocks()) for _ in range(AGENTS)]
        self.delay_us = {(h, m): 200 + 130 * m + 70 * h for h in range(AGENTS) for m in range(MASTERS)}
        self.epoch: dict[tuple[int, int], int] = defaultdict(int)
        self._last_ns: dict[tuple[int, int, str], int] = defaultdict(int)
        self._events: list[tuple[int, int, object, tuple]] = []
        self._order = count()
        self.claims: list[Claim] = []
        self.fences: dict[bytes, list[int]] = defaultdict(list)
        self.replies: list[Answer] = []
        self._probe_all()

    @staticmethod
    def clocks() -> Clocks:
        return Clocks(MASTERS, max_ttl_ms=MAX_TTL_MS, allowance_ms=100)

    # Messages

    def _at(self, when_ns: int, what, *args) -> None:
        heappush(self._events, (when_ns, next(self._order), what, args))

    def _in_order(self, h: int, m: int, way: str) -> int:
        key = (h, m, way)
        self._last_ns[key] = max(self._last_ns[key], self.time.now_ns + self.delay_us[h, m] * 1000)
        return self._last_ns[key]

    def _send(self) -> None:
        for h, host in enumerate(self.hosts):
            for m, link in enumerate(host.fleet.links):
                for _ in range(link.send()):
                    self._at(self._in_order(h, m, "there"), self._arrives, h, m, self.epoch[h, m])

    def _arrives(self, h: int, m: int, epoch: int) -> None:
        if epoch == self.epoch[h, m]:
            self.hosts[h].fleet.arrive(m)
            self._at(self._in_order(h, m, "back"), self._heard, h, m, epoch)

    def _heard(self, h: int, m: int, epoch: int) -> None:
        if epoch == self.epoch[h, m]:
            self.hosts[h].fleet.hear(m)

    def _probe_all(self) -> None:
        """Each agent reads each master's clock once a second, where it reaches it."""
        for h, host in enumerate(self.hosts):
            for m, link in enumerate(host.fleet.links):
                if link.up:
                    self._probe(h, m)
        self._at(self.time.now_ns + 1_000 * MS, self._probe_all)

    def _probe(self, h: int, m: int) -> None:
        fleet, now_ns = self.hosts[h].fleet, self.time.now_ns
        sent_ns = now_ns - 2 * min(self.delay_us[h, m], 5_000) * 1000
        read_us = self.masters[m].now_us - min(self.delay_us[h, m], 5_000)
        fleet.links[m].probed(sent_ns, now_ns, read_us)
        fleet.weigh(now_ns)

    def cut(self, h: int, m: int, arrived: int) -> None:
        if self.hosts[h].fleet.links[m].up:
            self.epoch[h, m] += 1
            self.hosts[h].fleet.break_off(m, arrived=arrived)

    @property
    def cuts(self) -> int:
        """How many links are broken: with many, nothing is granted and little is tested."""
        return sum(not link.up for host in self.hosts for link in host.fleet.links)

    def mend(self, h: int, m: int) -> None:
        if not self.hosts[h].fleet.links[m].up:
            self._probe(h, m)
            self.hosts[h].fleet.come_back(m)

    def advance(self, ms: float) -> None:
        until_ns = self.time.now_ns + int(ms * MS)
        while True:
            due = [self.hosts[h].locks.timers.run(self.time.now_ns) for h in range(AGENTS)]
            self._send()
            next_ns = min((when for when in due if when is not None), default=until_ns + 1)
            if self._events:
                next_ns = min(next_ns, self._events[0][0])
            if next_ns > until_ns:
                break
            self.time.now_ns = max(self.time.now_ns, next_ns)
            while self._events and self._events[0][0] <= self.time.now_ns:
                _, _, what, args = heappop(self._events)
                what(*args)
                self._send()
        self.time.now_ns = until_ns

    # The referee

    def claimed(self, claim: Claim) -> None:
        now_ns = self.time.now_ns
        rivals = [
            c
            for c in self.claims
            if c is not claim and c.resource == claim.resource and c.believes_at(now_ns)
        ]
        assert not rivals, f"two leases valid at once on {claim.resource!r}"
        assert claim.believes_at(now_ns), "granted already expired"
        fences, fence = self.fences[claim.resource], claim.held.fence
        assert not fences or fence > fences[-1], "a later grant has a smaller fence"
        fences.append(fence)


class Cluster(RuleBasedStateMachine):
    """Apps that do anything, over links and masters to which anything happens."""

    apps = Bundle("apps")
    agent = st.integers(0, AGENTS - 1)
    master = st.integers(0, MASTERS - 1)

    @initialize(victim=master)
    def begin(self, victim: int) -> None:
        self.world = World()
        self.victim = victim
        """The one master whose clock is ever set by hand: of two at once a median could not tell."""

    @rule(
        target=apps,
        h=agent,
        resource=st.sampled_from([b"a", b"a", b"b"]),
        ttl_ms=st.sampled_from([100, 300, 1_000, 2_000]),
        wait_ms=st.sampled_from([None, 30, 1_000, 5_000]),
        max_hold_ms=st.sampled_from([2_000, 3_000, 3_600_000]),
        lock_delay_ms=st.sampled_from([0, 0, 400]),
        detached=st.booleans(),
        then_ms=THEN_MS,
    )
    def lock(self, h: int, resource: bytes, then_ms: float, **wanted) -> Claim:
        host = self.world.hosts[h]
        claim = Claim(self.world, host, resource, **wanted)
        self.world.claims.append(claim)
        host.locks.lock(claim, self.world.time.now_ns)
        self.world.advance(then_ms)
        return claim

    @rule(claim=apps, h=agent, then_ms=THEN_MS)
    def unlock(self, claim: Claim, h: int, then_ms: float) -> None:
        """Through its own agent, or for a detached lease through any."""
        if claim.lease is None or claim.given_up:
            return
        claim.given_up = True
        host = self.world.hosts[h] if claim.detached else claim.host
        answer = Answer()
        self.world.replies.append(answer)
        host.locks.unlock(claim.resource, claim.held.token, answer, self.world.time.now_ns)
        self.world.advance(then_ms)

    @rule(claim=apps, h=agent, ttl_ms=st.sampled_from([100, 500, 2_000]), then_ms=THEN_MS)
    def extend(self, claim: Claim, h: int, ttl_ms: int, then_ms: float) -> None:
        if claim.lease is None or claim.given_up:
            return
        host = self.world.hosts[h] if claim.detached else claim.host
        answer = Elsewhere(claim)
        self.world.replies.append(answer)
        host.locks.extend(claim.resource, claim.held.token, ttl_ms, answer, self.world.time.now_ns)
        self.world.advance(then_ms)

    @rule(claim=consumes(apps))
    def app_dies(self, claim: Claim) -> None:
        claim.given_up = True
        if claim.lease is None:
            claim.host.locks.gone(claim, self.world.time.now_ns)
        elif not claim.detached:
            claim.host.locks.holder_gone(claim.held, self.world.time.now_ns)

    @rule(ms=st.sampled_from([0.1, 0.5, 2, 10, 60, 90, 300, 1_000, 3_000]))
    def time_passes(self, ms: float) -> None:
        self.world.advance(ms)

    @precondition(lambda self: self.world.cuts < 4)
    @rule(h=agent, m=master, arrived=st.integers(0, 3))
    def link_breaks(self, h: int, m: int, arrived: int) -> None:
        self.world.cut(h, m, arrived)

    @rule(h=agent, m=master)
    def link_is_refused(self, h: int, m: int) -> None:
        if not self.world.hosts[h].fleet.links[m].up:
            self.world.hosts[h].fleet.fail_to_connect(m)

    @rule(h=agent, m=master)
    def link_mends(self, h: int, m: int) -> None:
        self.world.mend(h, m)

    @rule(h=agent, m=master, ms=st.sampled_from([0.1, 1, 20, 120, 400]))
    def link_changes_its_pace(self, h: int, m: int, ms: float) -> None:
        self.world.delay_us[h, m] = int(ms * 1000)

    @precondition(lambda self: self.world.cuts < 4)
    @rule(m=master, arrived=st.integers(0, 3))
    def master_dies(self, m: int, arrived: int) -> None:
        """Its data is safe (fsync=always): it comes back with all that it said yes to."""
        for h in range(AGENTS):
            self.world.cut(h, m, arrived)

    @rule(m=master)
    def master_comes_back(self, m: int) -> None:
        for h in range(AGENTS):
            self.world.mend(h, m)

    @rule(seconds=st.sampled_from([-20, 2, 7, 60]))
    def a_clock_is_set(self, seconds: int) -> None:
        self.world.masters[self.victim].ahead_us += seconds * 1_000_000

    @rule(h=agent, seconds=st.integers(-3_600, 3_600))
    def an_agents_own_wall_clock_is_set(self, h: int, seconds: int) -> None:
        """Only hints for fences rest on it."""
        self.world.hosts[h].locks.wall_ahead_ns += seconds * 1_000 * MS

    @precondition(lambda self: len(self.world.claims) > 8)
    @rule()
    def the_last_agent_drains(self) -> None:
        self.world.hosts[-1].locks.drain(self.world.time.now_ns)
        assert self.world.hosts[-1].locks.waiting == 0

    @invariant()
    def at_most_one_holder_of_each_resource(self) -> None:
        now_ns = self.world.time.now_ns
        for resource in (b"a", b"b"):
            holders = [c for c in self.world.claims if c.resource == resource and c.believes_at(now_ns)]
            assert len(holders) <= 1, f"{len(holders)} hold {resource!r}"

    @invariant()
    def nobody_is_answered_twice(self) -> None:
        for claim in self.world.claims:
            assert len(claim.answers) <= 1
            assert len(claim.losses) <= 1
            assert len(claim.ends) <= 1
        for reply in self.world.replies:
            assert len(reply.all) <= 1

    @invariant()
    def the_counters_count(self) -> None:
        for host in self.world.hosts:
            mine = [c for c in self.world.claims if c.host is host]
            assert host.locks.held == sum(c.lease is not None and not c.ends for c in mine)
            assert host.locks.waiting == sum(not c.answers and not c.given_up for c in mine)

    @invariant()
    def a_wait_ends_when_it_was_to_end(self) -> None:
        for claim in self.world.claims:
            if not claim.answers and not claim.given_up:
                assert claim.give_up_ns is None or self.world.time.now_ns <= claim.give_up_ns

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.everybody_goes_home()
            self.nothing_is_left()

    def everybody_goes_home(self) -> None:
        world = self.world
        for claim in world.claims:
            if claim.lease is not None and not claim.detached:
                claim.host.locks.holder_gone(claim.held, world.time.now_ns)
                claim.given_up = True
        for h in range(AGENTS):
            for m in range(MASTERS):
                world.delay_us[h, m] = 300
                world.mend(h, m)
        world.advance(EVERYTHING_IS_OVER_MS)
        for claim in world.claims:
            if claim.lease is not None and not claim.detached:
                claim.host.locks.holder_gone(claim.held, world.time.now_ns)
        world.advance(EVERYTHING_IS_OVER_MS)

    def nothing_is_left(self) -> None:
        world = self.world
        for claim in world.claims:
            assert claim.answers or claim.given_up, "never answered"
            assert (claim.lease is not None) == bool(claim.ends), "a lease that never ended"
        for reply in world.replies:
            assert reply.came, "an UNLOCK or EXTEND that was never answered"
            assert isinstance(reply.all[0], Refusal | Extended | None)
        for host in world.hosts:
            assert host.at_rest(), "queues, counters or timers are left"
        for m, master in enumerate(world.masters):
            if m == self.victim:
                continue  # it keeps leases for as long as its clock was set back
            assert [master.holder_of(r) for r in (b"a", b"b")] == [None, None], (
                f"something is left on m{m + 1}"
            )


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=60, stateful_step_count=40)
