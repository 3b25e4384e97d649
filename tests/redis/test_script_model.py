"""The model of the scripts (tests/harness/script_model.py) against the scripts, on each flavour of server.

The same random commands go to both, the real ones built as the agent builds them. Each must get the same
answer, and leave the same stored: every lease with its text and its end, every fence counter, the identity.

The master's wall clock stands still, and moves when the test moves it: nothing here is a matter of timing,
and times have to be the same, not nearly the same. Two servers need help with that:

- Valkey from 9.1 on looks at the clock once in a millisecond, and goes on by itself in between. It is put to
  whole milliseconds only, and what it makes of them is taken from its answers.
- Redis 8 removes what nobody asks for in the very millisecond of its end, but shows it until that is over to
  whoever asks (6.2, 7.0 and Valkey: until that is over, always). Removing unasked is switched off.

LOCKD_EXAMPLES=5000 looks that much further, at every server.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import hiredis
from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.extension import Extension
from lockd.core.ballots.fence_round import FenceRound
from lockd.core.ballots.put_back import PutBack
from lockd.core.ballots.release import How, Release
from lockd.core.fences import BLOCK, COUNTER_AHEAD_US, HINT_AHEAD_US, SANE_MOST, slot_of
from lockd.core.identities import Identity, Members
from lockd.core.leases import Tenure, on_masters
from lockd.dev.processes import LOOPBACK, LocalMaster, server_version
from lockd.masters import scripts
from tests.harness.ballots import a_fence_round, a_put_back, a_release, an_attempt, an_extension
from tests.harness.clock_shim import Clock
from tests.harness.fleet_model import App, Time
from tests.harness.masters import running_masters, short_folder
from tests.harness.script_model import ENDLESS_MS, LIVES_US, Key, Store, own_of
from tests.harness.wire import as_map

EXAMPLES = int(os.environ.get("LOCKD_EXAMPLES", "30"))
STEPS = 50

START_US = 1_790_000_000_000_000
MEMBERS = Members.first(["m1", "m2", "m3"])
IDENTITY = Identity("test", "m1", 60_000, cluster_id="7" * 32, members=MEMBERS)
LATER = IDENTITY.with_members(MEMBERS.with_number("m2", 2))
ANOTHERS = replace(IDENTITY, name="m2")
OLD = {"cluster": "test", "name": "m1", "max_ttl_ms": "60000"}
ELECTORATE = IDENTITY.members_digest.encode()
CEILING_MS = 60_000

RESOURCES = [b"orders/7", b"x425", b"\x00\xff {}*?[\r\n"]  # the first two share a slot
NONCES = [b"1" * 32, b"1" * 31 + b"2"]


@dataclass(frozen=True)
class Terms:
    """How a lease was asked for, as far as the masters are told."""

    max_hold_ms: int
    detached: bool = True
    value: bytes = b""

    def app(self, resource: bytes) -> App:
        return App(Time(), resource, max_hold_ms=self.max_hold_ms, detached=self.detached, value=self.value)


@dataclass(frozen=True)
class Moment:
    """When a command arrives. What has expired by then, nobody has looked at yet.

    of_what: "now", "end" of the resource's lease, or "end of hold", from when on others may not extend it.
    """

    of_what: str
    later_us: int


# Read from behind, "10 host 1 0" is also "0 host 1 0", which is how a session's lease reads.
VALUES = [b"1" * 32, b" p1 =\x00\r\n\xff p2"]
TERMS = [
    Terms(3_600_000, detached=False),
    Terms(10),
    Terms(5_000),
    *(Terms(5_000, value=value) for value in VALUES),
]


# What the agent asks


def attempt(
    resource: bytes,
    nonce: bytes,
    terms: Terms,
    ttl_ms: int = 1_000,
    hint: int = 1,
    *,
    place: bytes = b"",
    waited_us: int = 0,
    grace_ms: int = 0,
) -> Attempt:
    asked = an_attempt(
        terms.app(resource), resource, nonce=nonce, ttl_ms=ttl_ms, hint=hint, shown=terms.app(resource).value
    )
    asked.place, asked.waited_us, asked.grace_ms = place, waited_us, grace_ms
    return asked


def fence_round(resource: bytes, value: int, nonce: bytes = b"", size: int = BLOCK) -> FenceRound:
    return a_fence_round(value, attempt(resource, NONCES[0], TERMS[0]), nonce=nonce, size=size)


def extension(
    resource: bytes, word: bytes, ttl_ms: int, mark: bytes = b"", *, hides: bool = False
) -> Extension:
    return an_extension(resource, word, ttl_ms=ttl_ms, mark=mark, hides=hides)


def take_over(
    resource: bytes, nonces: tuple[bytes, ...], ttl_ms: int, proofs: int, token: bytes, there_ms: int | None
) -> Extension:
    mark = b"p%d" % proofs
    nonce, *before = nonces
    return an_extension(
        resource, nonce, ttl_ms=ttl_ms, mark=mark, token=token, before=tuple(before), there_ms=there_ms
    )


def put_back(
    resource: bytes, nonce: bytes, terms: Terms, ttl_ms: int, proofs: int, age_ms: int = 0
) -> PutBack:
    """How the agent has a lease put back that was proven so often."""
    asked = attempt(resource, nonce, terms)
    tenure = Tenure(asked)
    tenure.proofs = proofs
    text = on_masters(asked.terms, asked.shown, tenure.mark)
    return a_put_back(resource, nonce, ttl_ms=ttl_ms, text=text, age_ms=age_ms)


def release(
    resource: bytes, word: bytes, *, how: How = How.TENURE, before: tuple[bytes, ...] = ()
) -> Release:
    return a_release(resource, word, how=how, before=before)


# What is stored


@dataclass(frozen=True)
class Stored:
    """All that a master stores; `leases`: text, and how many ms until it expires; `lines`: who waits."""

    leases: dict[bytes, tuple[bytes, int]]
    lines: dict[bytes, dict[bytes, bytes]]
    counters: dict[bytes, bytes]
    identity: dict[bytes, bytes]
    keys: int


def stored_in(model: Store, now_us: int) -> Stored:
    leases, lines = {}, {}
    for resource in RESOURCES:
        if line := model.line(resource, now_us).stored():
            lines[resource] = line
        lease = model.lease(resource, now_us)
        if lease is not None:
            leases[resource] = (lease.text, lease.left_ms(now_us // 1000))
    identity = {name.encode(): value.encode() for name, value in model.identity.items()}
    counters = {b"%d" % slot: b"%d" % counter for slot, counter in model.counters.items()}
    keys = len(leases) + len(lines) + bool(counters) + bool(identity)
    return Stored(leases, lines, counters, identity, keys)


class Real:
    """A real master with the scripts, at the time that it is told.

    goes_on_us: how far it may be ahead of that, by itself; its milliseconds are always those it was told.
    """

    def __init__(self, master: LocalMaster, clock: Clock) -> None:
        self.master = master
        self.goes_on_us = 0
        self._clock = clock

    def connect(self) -> None:
        self._reader = hiredis.Reader()
        self._link = socket.create_connection((LOOPBACK, self.master.port))
        self._link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._notices = hiredis.Reader()
        self._hears = socket.create_connection((LOOPBACK, self.master.port))
        self._hears.sendall(scripts.command(b"PSUBSCRIBE", b"lockd:host:*"))
        assert self._next(self._hears, self._notices)[0] == b"psubscribe"
        self.ask(*(scripts.command(b"SCRIPT", b"LOAD", script.text) for script in scripts.ALL))
        self.ask(scripts.command(b"DEBUG", b"SET-ACTIVE-EXPIRE", 0))
        if len({self.time_us() for _ in range(20)}) > 1:
            self.goes_on_us = 999

    def close(self) -> None:
        self._link.close()
        self._hears.close()

    def put_clock_to(self, wanted_us: int) -> int:
        """Returns what it is at: in whole milliseconds where it goes on by itself."""
        now_us = wanted_us - wanted_us % (self.goes_on_us + 1)
        self._clock.stop_at(now_us * 1_000)
        if self.goes_on_us:
            self._wait_until_it_looks(now_us)
        return now_us

    def _wait_until_it_looks(self, now_us: int) -> None:
        """By asking: it looks when a millisecond is over, and only when it needs the time."""
        for _ in range(_LOOKS):
            if 0 <= self.time_us() - now_us <= self.goes_on_us:
                return
        raise AssertionError("it does not see that its clock was moved")

    def time_us(self) -> int:
        [[seconds, micros]] = self.ask(_TIME)
        return int(seconds) * 1_000_000 + int(micros)

    def ask(self, *commands: bytes) -> list[Any]:
        """What these are answered, none with an error."""
        self._link.sendall(b"".join(commands))
        return [self._next(self._link, self._reader) for _ in commands]

    @staticmethod
    def _next(link: socket.socket, reader: hiredis.Reader) -> Any:
        while (reply := reader.gets()) is False:
            data = link.recv(65_536)
            assert data, "the master closed the connection"
            reader.feed(data)
        if isinstance(reply, hiredis.ReplyError):
            # The model has no text either where a key is of another type. No script answers so.
            assert str(reply).startswith("WRONGTYPE"), reply
            return b""
        return reply

    def stored(self) -> Stored:
        *found, counters, identity, keys = self.ask(*_ALL_THAT_IS_STORED)
        texts = zip(RESOURCES, found[::3], found[1::3], strict=True)
        leases = {resource: (text, left_ms) for resource, text, left_ms in texts if text is not None}
        lines = {name: as_map(line) for name, line in zip(RESOURCES, found[2::3], strict=True) if line}
        return Stored(leases, lines, as_map(counters), as_map(identity), keys)

    def published(self) -> list[tuple[bytes, bytes]]:
        """What it has given notice of since it was asked last: host and text."""
        self._hears.sendall(scripts.command(b"PING"))
        heard = []
        while (reply := self._next(self._hears, self._notices))[0] != b"pong":
            heard.append((reply[2].removeprefix(b"lockd:host:"), reply[3]))
        return heard


_SET_MAX_TTL = (Path(scripts.__file__).parent / "scripts/plays/set_max_ttl.lua").read_bytes()
_TIME = scripts.command(b"TIME")
_LOOKS = 100_000
_ALL_THAT_IS_STORED = [
    *(
        scripts.command(word, prefix + resource)
        for resource in RESOURCES
        for word, prefix in (
            (b"GET", scripts.LEASE_PREFIX),
            (b"PTTL", scripts.LEASE_PREFIX),
            (b"HGETALL", b"lockd:places:"),
        )
    ),
    scripts.command(b"HGETALL", scripts.FENCES_KEY),
    scripts.command(b"HGETALL", scripts.IDENTITY_KEY),
    scripts.command(b"DBSIZE"),
]


class Both:
    """A model and a real master that are told the same, at the same times, and have to agree."""

    def __init__(self, real: Real) -> None:
        self.real = real
        self.model = Store()
        self.now_us = real.put_clock_to(START_US)
        self.real.ask(scripts.command(b"FLUSHALL"))

    def pass_us(self, us: int) -> None:
        if us:
            self.now_us = self.real.put_clock_to(self.now_us + us)

    def wait_for(self, moment: Moment, resource: bytes) -> None:
        """Does nothing when it is the end of a lease that isn't there, or has none."""
        begins_us = self.now_us
        if moment.of_what != "now":
            lease = self.model.leases.get(resource)
            if lease is None or lease.expires_ms == ENDLESS_MS:
                return
            begins_us = lease.expires_ms * 1_000
            if moment.of_what == "end of hold" and lease.is_lease:
                granted_us, max_hold_ms, _, _ = lease.fields()
                begins_us = granted_us + max_hold_ms * 1_000
        self.pass_us(begins_us + moment.later_us - self.now_us)

    def vote(
        self, ballot: Attempt | FenceRound | Extension | PutBack, electorate: bytes = ELECTORATE
    ) -> None:
        if isinstance(ballot, Attempt):
            question = scripts.acquire(ballot)
        elif isinstance(ballot, FenceRound):
            question = scripts.propose(ballot)
        elif isinstance(ballot, PutBack):
            question = scripts.put_back(ballot)
        else:
            question = scripts.extend(ballot)
        [[status, value, time_us, *holder_nonce]] = self.real.ask(question + scripts.bulk(electorate))
        assert 0 <= time_us - self.now_us <= self.real.goes_on_us
        assert self.model.vote(ballot, electorate, time_us) == (status, value, *holder_nonce)

    def release(self, ballot: Release) -> None:
        [deleted] = self.real.ask(scripts.release(ballot))
        known: dict[str, Any] = {"how": ballot.how.value, "before": ballot.before, "own": own_of(ballot)}
        assert self.model.release(ballot.resource, ballot.word, self._when(ballot), **known) == deleted

    def _when(self, ballot: Release) -> int:
        """By the place that it left, if it left one: nothing else says at which microsecond that was."""
        left = self.real.stored().lines.get(ballot.resource, {}).get(ballot.place, b"0 0 0")
        time_us = int(left.split()[1]) - LIVES_US
        return time_us if 0 <= time_us - self.now_us <= self.real.goes_on_us else self.now_us

    def identify(self, expected: str, fields: dict[str, str], counters: dict[int, int]) -> None:
        [written] = self.real.ask(scripts.command(*scripts.identify(expected, fields, counters)))
        assert self.model.identify(expected, fields, counters) == written

    def lose_everything(self) -> None:
        self.real.ask(scripts.command(b"FLUSHALL"))
        self.model = Store()

    def lose_identity(self) -> None:
        self.real.ask(scripts.command(b"DEL", scripts.IDENTITY_KEY))
        self.model.set_identity({})

    def have_identity(self, fields: dict[str, str]) -> None:
        """Whatever was there."""
        self.lose_identity()
        words = [word for pair in fields.items() for word in pair]
        self.real.ask(scripts.command(b"HSET", scripts.IDENTITY_KEY, *words))
        self.model.set_identity(fields)

    def plant(self, resource: bytes, text: bytes, ttl_ms: int) -> None:
        """What a lost app host may write. text: empty for a key of another type; ttl_ms: 0 for none."""
        key = scripts.LEASE_PREFIX + resource
        words = (b"SET", key, text) if text else (b"HSET", key, b"f", b"v")
        self.real.ask(scripts.command(b"DEL", key), scripts.command(*words))
        if ttl_ms:
            self.real.ask(scripts.command(b"PEXPIRE", key, ttl_ms))
        expires_ms = self.now_us // 1000 + ttl_ms if ttl_ms else ENDLESS_MS
        self.model.leases[resource] = Key(text, expires_ms)

    def set_max_ttl(self, max_ttl_ms: int) -> None:
        [how] = self.real.ask(scripts.command(b"EVAL", _SET_MAX_TTL, 1, scripts.IDENTITY_KEY, max_ttl_ms))
        assert self.model.set_max_ttl(max_ttl_ms) == how.decode()

    def forget_old_max_ttl(self) -> None:
        self.real.ask(scripts.command(b"HDEL", scripts.IDENTITY_KEY, b"was_max_ttl_ms"))
        self.model.forget_old_max_ttl()

    def compare(self) -> None:
        published, self.model.published = self.model.published, []
        assert published == self.real.published()
        assert stored_in(self.model, self.now_us) == self.real.stored()
        if self.real.goes_on_us:
            # What is of this millisecond may be of later than what comes next: how much is not known.
            self.pass_us(1_000)


# What may happen

# One of them more often: commands have to meet.
resources, nonces = (st.sampled_from(pool[:1] * 2 + pool) for pool in (RESOURCES, NONCES))
# The one that it has from now on, and those that it may have had.
befores = st.permutations([*NONCES, b"1" * 31 + b"3"]).map(tuple) | st.permutations(NONCES).map(tuple)
# What an app may say: the nonce that it got for a token, or what it chose.
words = st.sampled_from(NONCES + VALUES)
places = st.sampled_from([b"", b"host 1a", b"host 1b", b"another 1a", b"\xff 3"])
terms_of_leases = st.sampled_from(TERMS)
electorates = st.sampled_from(
    [ELECTORATE] * 15 + [LATER.members_digest.encode(), ANOTHERS.members_digest.encode(), b""]
)
expected = st.sampled_from(["", "old", IDENTITY.members_digest, LATER.members_digest])
fields = st.sampled_from(
    [IDENTITY.fields, LATER.fields, LATER.list_fields, replace(IDENTITY, max_ttl_ms=1_000).fields]
)
ttls_ms = st.sampled_from([1, 2, 10, 100, 1_000, 5_000, CEILING_MS - 1, CEILING_MS, CEILING_MS + 1])
ages_ms = st.sampled_from([0, 1, 9, 10, 11, 500, 4_990])
proofs = st.sampled_from([1, 2, 11])
ends = st.sampled_from([Moment("end", us) for us in (-1, 0, 999, 1_000)])
ends_of_hold = st.sampled_from([Moment("end of hold", us) for us in (-5_000, -1_001, -1_000, -999, 0)])
moments = st.one_of(
    st.just(Moment("now", 0)),
    st.sampled_from([Moment("now", us) for us in (1, 999, 1_000, 1_001, 10_000, 1_000_000)]),
    ends,
    ends_of_hold,
)
low, usual = st.integers(1, 3 * BLOCK), st.integers(START_US, START_US + 1_000)
# The clock goes on meanwhile: by less than this.
around = st.integers(-2 * BLOCK, 2 * BLOCK) | st.integers(0, 10_000_000)
high = st.builds(
    int.__add__, st.sampled_from([START_US + HINT_AHEAD_US, START_US + COUNTER_AHEAD_US]), around
)
insane = st.sampled_from([SANE_MOST - BLOCK - 1, SANE_MOST - BLOCK, SANE_MOST - 1, SANE_MOST, 1 << 60])
fences = st.one_of(low, low, low, usual, usual, usual, high, insane)
counters: st.SearchStrategy[dict[int, int]] = st.just({}) | st.dictionaries(
    st.sampled_from(sorted({slot_of(resource) for resource in RESOURCES})),
    low | usual | high | st.sampled_from([SANE_MOST - BLOCK - 1, SANE_MOST - 1, (1 << 53) - 1]),
)


class ModelAgainstScripts(RuleBasedStateMachine):
    def __init__(self, real: Real) -> None:
        super().__init__()
        self.both = Both(real)

    @invariant()
    def both_store_the_same(self) -> None:
        self.both.compare()

    @initialize(counters=counters)
    def the_master_gets_its_identity(self, counters: dict[int, int]) -> None:
        self.both.identify("", IDENTITY.fields, counters)

    @rule(expected=expected, fields=fields, counters=counters)
    def identify(self, expected: str, fields: dict[str, str], counters: dict[int, int]) -> None:
        # A part of an identity is only ever written beside the rest of it.
        assume(expected or "max_ttl_ms" in fields)
        self.both.identify(expected, fields, counters)

    @rule(max_ttl_ms=st.sampled_from([500, 5_000, CEILING_MS, CEILING_MS + 1]))
    def the_max_ttl_is_changed(self, max_ttl_ms: int) -> None:
        self.both.set_max_ttl(max_ttl_ms)

    @rule()
    def the_larger_max_ttl_of_before_is_forgotten(self) -> None:
        self.both.forget_old_max_ttl()

    @rule(counters=counters)
    def an_older_identity_is_brought_up_to_date(self, counters: dict[int, int]) -> None:
        self.both.have_identity(OLD)
        self.both.compare()
        self.both.identify("old", IDENTITY.fields, counters)

    @rule(
        moment=moments,
        resource=resources,
        nonce=nonces,
        terms=terms_of_leases,
        ttl_ms=ttls_ms,
        hint=fences,
        electorate=electorates,
        place=places,
        waited_us=st.sampled_from([0, 1, 500, 1_000_000, 100_000_000]),
        grace_ms=st.sampled_from([0, 7, 250, 9_000]),
        asks=st.booleans(),
    )
    def acquire(
        self,
        moment: Moment,
        resource: bytes,
        nonce: bytes,
        terms: Terms,
        ttl_ms: int,
        hint: int,
        electorate: bytes,
        place: bytes,
        waited_us: int,
        grace_ms: int,
        asks: bool,
    ) -> None:
        self.both.wait_for(moment, resource)
        tried = attempt(
            resource, nonce, terms, ttl_ms, hint, place=place, waited_us=waited_us, grace_ms=grace_ms
        )
        tried.asks = asks and place != b""
        self.both.vote(tried, electorate)

    @rule(
        resource=resources, ttl_ms=st.sampled_from([0, 1_000, 90_000]),
        text=st.sampled_from([b"", b"", b"x", b"\0" * 5_000, NONCES[0] + b" and more", NONCES[0]]),
    )  # fmt: skip
    def a_lost_host_writes_there(self, resource: bytes, ttl_ms: int, text: bytes) -> None:
        self.both.plant(resource, text, ttl_ms)

    @rule(resource=resources, nonce=nonces | st.just(b""), how=st.sampled_from([How.FORCED, How.EARLY]))
    def release_by_force_or_early(self, resource: bytes, nonce: bytes, how: How) -> None:
        self.both.release(release(resource, nonce, how=how))

    @rule(
        resource=resources, how=st.sampled_from([How.TRY, How.AGAIN]), nonce=nonces, place=places,
        waited_us=st.sampled_from([0, 1, 900_000]), grace_ms=st.sampled_from([0, 7, 9_000]),
    )  # fmt: skip
    def release_of_a_try_or_beside_a_turn(
        self, resource: bytes, how: How, nonce: bytes, place: bytes, waited_us: int, grace_ms: int
    ) -> None:
        ballot = release(resource, nonce, how=how)
        ballot.place = place or (b"host 1c" if how is How.AGAIN else b"")
        ballot.waited_us, ballot.grace_ms = waited_us, grace_ms
        self.both.release(ballot)

    @rule(resource=resources, nonce=nonces, place=places, grace_ms=st.sampled_from([0, 7, 9_000]))
    def release_at_the_end_of_a_turn(
        self, resource: bytes, nonce: bytes, place: bytes, grace_ms: int
    ) -> None:
        ballot = release(resource, nonce, how=How.TURN)
        ballot.place, ballot.grace_ms = place or b"host 1c", grace_ms
        self.both.release(ballot)

    @rule(resource=resources, how=st.sampled_from([How.FREED, How.USED]), place=places)
    def answer(self, resource: bytes, how: How, place: bytes) -> None:
        ballot = release(resource, b"", how=how)
        ballot.place = place or b"host 1c"
        self.both.release(ballot)

    @rule(resource=resources, place=places)
    def pass_on(self, resource: bytes, place: bytes) -> None:
        self.both.release(release(resource, place, how=How.PASS))

    @rule(resource=resources, value=fences, electorate=electorates)
    def propose(self, resource: bytes, value: int, electorate: bytes) -> None:
        self.both.vote(fence_round(resource, value), electorate)

    @rule(
        moment=moments, resource=resources, nonce=nonces, value=fences, size=st.sampled_from((64, 1024)),
        electorate=electorates,
    )  # fmt: skip
    def ask_for_the_next_block(
        self, moment: Moment, resource: bytes, nonce: bytes, value: int, size: int, electorate: bytes
    ) -> None:
        self.both.wait_for(moment, resource)
        self.both.vote(fence_round(resource, value, nonce, size), electorate)

    @rule(resource=resources, above=st.integers(-1, 2))
    def propose_near_the_counter(self, resource: bytes, above: int) -> None:
        counter = self.both.model.counters.get(slot_of(resource), 0)
        self.both.vote(fence_round(resource, max(1, counter + above)))

    @rule(
        moment=ends_of_hold | moments, resource=resources, word=words, ttl_ms=ttls_ms, electorate=electorates
    )
    def extend_as_an_agent_that_does_not_know_it(
        self, moment: Moment, resource: bytes, word: bytes, ttl_ms: int, electorate: bytes
    ) -> None:
        self.both.wait_for(moment, resource)
        self.both.vote(extension(resource, word, ttl_ms), electorate)

    @rule(
        moment=moments,
        resource=resources,
        nonce=nonces,
        proofs=proofs,
        ttl_ms=ttls_ms,
        hides=st.booleans(),
        electorate=electorates,
    )
    def extend_as_its_own_agent(
        self,
        moment: Moment,
        resource: bytes,
        nonce: bytes,
        proofs: int,
        ttl_ms: int,
        hides: bool,
        electorate: bytes,
    ) -> None:
        self.both.wait_for(moment, resource)
        self.both.vote(extension(resource, nonce, ttl_ms, b"p%d" % proofs, hides=hides), electorate)

    @rule(
        moment=moments, resource=resources, nonces=befores, proofs=proofs, ttl_ms=ttls_ms, token=words,
        there_ms=st.none() | st.sampled_from([0, 1, 50, 5_000]), electorate=electorates,
    )  # fmt: skip
    def take_over(
        self,
        moment: Moment,
        resource: bytes,
        nonces: tuple[bytes, ...],
        proofs: int,
        ttl_ms: int,
        token: bytes,
        there_ms: int | None,
        electorate: bytes,
    ) -> None:
        self.both.wait_for(moment, resource)
        self.both.vote(take_over(resource, nonces, ttl_ms, proofs, token, there_ms), electorate)

    @rule(
        moment=ends | moments,
        resource=resources,
        nonce=nonces,
        terms=terms_of_leases,
        proofs=proofs,
        ttl_ms=ttls_ms,
        age_ms=ages_ms,
        electorate=electorates,
    )
    def put_back(
        self,
        moment: Moment,
        resource: bytes,
        nonce: bytes,
        terms: Terms,
        proofs: int,
        ttl_ms: int,
        age_ms: int,
        electorate: bytes,
    ) -> None:
        self.both.wait_for(moment, resource)
        self.both.vote(put_back(resource, nonce, terms, ttl_ms, proofs, age_ms), electorate)

    @rule(moment=ends | moments, resource=resources, nonces=befores | nonces.map(lambda nonce: (nonce,)))
    def release(self, moment: Moment, resource: bytes, nonces: tuple[bytes, ...]) -> None:
        nonce, *before = nonces
        self.both.wait_for(moment, resource)
        self.both.release(release(resource, nonce, before=tuple(before)))

    @rule(resource=resources, word=words)
    def release_by_the_word_of_an_app(self, resource: bytes, word: bytes) -> None:
        self.both.release(release(resource, word, how=How.BY_APP))

    @rule(us=st.integers(1, 5_000_000) | st.sampled_from([30_000_000, -1, -1_000, -5_000_000, -500_000_000]))
    def the_clock_moves(self, us: int) -> None:
        self.both.pass_us(us)

    @rule(then_identified=st.sampled_from([True, True, True, False]), counters=counters)
    def the_master_is_wiped(self, then_identified: bool, counters: dict[int, int]) -> None:
        self.both.lose_everything()
        self.both.compare()
        if then_identified:
            self.both.identify("", IDENTITY.fields, counters)

    @rule()
    def the_identity_is_deleted_and_does_not_come_back_while_anything_else_is_there(self) -> None:
        self.both.lose_identity()
        self.both.identify("", IDENTITY.fields, {})
        self.both.compare()
        self.both.have_identity(IDENTITY.fields)


@contextmanager
def real_master(binary: Path, **master_settings: str | None) -> Iterator[Real]:
    if server_version(binary)[1:] >= (7, 0):
        master_settings["enable-debug-command"] = "local"
    with short_folder() as folder:
        clock = Clock(folder / "clock")
        clock.stop_at(START_US * 1_000)
        with running_masters(folder, 1, binary, master_settings, clock.environment()) as [master]:
            real = Real(master, clock)
            real.connect()
            yield real
            real.close()


def test_the_model_and_the_scripts_answer_and_store_the_same(any_server: Path) -> None:
    chosen = settings(max_examples=EXAMPLES, stateful_step_count=STEPS)
    with real_master(any_server, appendonly="no") as real:
        run_state_machine_as_test(lambda: ModelAgainstScripts(real), settings=chosen)


def test_a_restart_changes_nothing_of_it(any_server: Path) -> None:
    with real_master(any_server) as real:
        both = Both(real)
        both.identify("", IDENTITY.fields, {1: SANE_MOST - 1})
        one, two, three = RESOURCES
        both.vote(attempt(one, NONCES[0], TERMS[0], 5_000, START_US))
        both.vote(attempt(two, NONCES[1], TERMS[1], 1_000, START_US))
        both.vote(put_back(three, NONCES[0], TERMS[3], 9_000, 1, age_ms=80_000))
        both.pass_us(2_500_000)
        both.vote(extension(one, NONCES[0], 8_000, b"p1"))
        real.close()
        real.master.restart()
        real.connect()
        both.compare()
        both.pass_us(3_000_000)
        both.compare()
        assert sorted(both.model.leases) == sorted([one, three])


def test_a_full_line_drops_who_came_last_and_nobody_for_one_who_came_later(any_server: Path) -> None:
    with real_master(any_server, appendonly="no") as real:
        both = Both(real)
        both.identify("", IDENTITY.fields, {})
        both.vote(attempt(RESOURCES[0], NONCES[0], TERMS[0], 9_000, START_US))
        for number in (*range(40), 3, 39, *range(50, 60)):
            waited_us = 1_000_000 - number * 1_000 if number < 50 else 2_000_000
            tried = attempt(RESOURCES[0], NONCES[1], TERMS[0], place=b"host %d" % number, waited_us=waited_us)
            both.vote(tried)
            both.pass_us(1_000)
            both.compare()
        after = release(RESOURCES[0], NONCES[0], how=How.TURN)
        after.place = b"host 70"
        both.release(after)
        both.compare()
        line = both.model.line(RESOURCES[0], both.now_us)
        assert sorted(int(name.split()[1]) for name in line.places) == [*range(22), *range(51, 60)]


def test_a_turn_takes_the_place_of_its_host_and_one_that_is_over_leaves_it_anew(any_server: Path) -> None:
    """Each with an older place there, as one may be that was lost on the way to other masters."""
    first, second, host = NONCES[0], NONCES[1], b"host 1"
    with real_master(any_server, appendonly="no") as real:
        both = Both(real)
        both.identify("", IDENTITY.fields, {})
        for number in (1, 2):
            both.vote(attempt(RESOURCES[0], first, TERMS[0], 9_000, START_US))
            place = b"host %d" % number
            both.vote(attempt(RESOURCES[0], second, TERMS[0], place=place, waited_us=900_000 - number))
            # What is of later than now is none: a clock that goes on by itself may go back by that.
            both.pass_us(1_000)
        both.release(release(RESOURCES[0], first, how=How.TRY))
        both.vote(attempt(RESOURCES[0], second, TERMS[0], 9_000, START_US, place=host))
        both.pass_us(1_000)
        both.compare()
        assert real.stored().lines[RESOURCES[0]].keys() - {b"recalled"} == {b"host 2"}
        both.vote(attempt(RESOURCES[0], first, TERMS[0], place=host, waited_us=2_000_000))
        both.pass_us(1_000)
        over = release(RESOURCES[0], second, how=How.TURN)
        over.place = host
        both.release(over)
        reserved = b"reserved host 2"
        assert real.stored().leases[RESOURCES[0]][0] == reserved, "not for its own host once more"
