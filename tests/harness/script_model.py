"""What the scripts in lockd/masters/scripts/*.lua do, as a model in memory: one master's keys.

The real scripts and this are fed the same commands in tests/redis/test_script_model.py and must give the same
answers and keep the same state. As in Redis, keys expire by the master's wall clock, in whole milliseconds,
and a key is gone once the clock has passed its end.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.extension import Extension
from lockd.core.ballots.fence_round import FenceRound
from lockd.core.ballots.put_back import PutBack
from lockd.core.ballots.release import Release
from lockd.core.fences import BLOCK, COUNTER_AHEAD_US, HINT_AHEAD_US, SANE_MOST, slot_of
from lockd.core.leases import on_masters

_TEXT = re.compile(rb"([^ ]+) ([0-9]+) ([0-9]+)( [^ ]+ [0-9]+ [0-9]+)(?: p([0-9]+))?(?: =(.*))?", re.DOTALL)

_RESERVED = b"reserved "
ENDLESS_MS = 1 << 60

Answer = tuple[int, int] | tuple[int, int, bytes]
"""Status and value, as the scripts return them in front of their time; and the nonce behind it, if any."""


Own = tuple[bytes, int, int]
"""The place that a host leaves with a release, or of who is told something; its grace (ms), and for how long
it has waited (us)."""


def own_of(release: Release) -> Own | None:
    return (release.place, release.grace_ms, release.waited_us) if release.place else None


@dataclass(slots=True)
class Key:
    """A lease on a master. `text` reads as the scripts write it: nonce, when granted (us), and the rest. Or
    somebody else has put any text there, or a key of another type, which has none here."""

    text: bytes
    expires_ms: int

    @property
    def is_lease(self) -> bool:
        return _TEXT.fullmatch(self.text) is not None

    def left_ms(self, now_ms: int) -> int:
        return -1 if self.expires_ms == ENDLESS_MS else self.expires_ms - now_ms

    @property
    def nonce(self) -> bytes:
        return self.text[:32]

    @property
    def reserved(self) -> bytes | None:
        """For which place; None: it is a lease."""
        return self.text.removeprefix(_RESERVED) if self.text.startswith(_RESERVED) else None

    @property
    def host(self) -> bytes | None:
        """Of the agent that has it."""
        return self.text.split(b" ")[3] if self.is_lease else None

    @property
    def is_extended_elsewhere(self) -> bool:
        """Its max hold has a 0 in front."""
        return re.match(rb"\S+ \d+ 0\d*[1-9]", self.text) is not None

    def named(self, how: bytes) -> bytes | None:
        """What a release of that kind has to name."""
        if how == b"pass":
            return self.reserved
        return self.fields()[3] if how == b"app" and self.is_lease else self.nonce

    def fields(self) -> tuple[int, int, bytes, bytes]:
        """When granted (us), max hold (ms), the number of the proof that it was put back behind (b'': it
        wasn't), and its app's token."""
        found = _TEXT.fullmatch(self.text)
        assert found is not None, self.text
        nonce, granted_us, max_hold_ms, _owner, mark, value = found.groups()
        return int(granted_us), int(max_hold_ms), mark or b"", nonce if value is None else value


LIVES_US = 4_000_000
PLACES = 32
RECALLS_US = 20_000
LONGEST_GRACE_MS = 250
LEAST_GRACE_MS = 5


@dataclass(frozen=True, slots=True)
class Place:
    """Of a host that waits: since when, until when that counts if it is not renewed, and its grace."""

    began_us: int
    ends_us: int
    grace_ms: int

    def text(self) -> bytes:
        return b"%d %d %d" % (self.began_us, self.ends_us, self.grace_ms)

    def lives(self, now_us: int) -> bool:
        return now_us < self.ends_us <= now_us + LIVES_US


@dataclass(slots=True)
class Line:
    """Who waits for a resource on a master, and when it was recalled last. All of it is gone when nobody has
    renewed anything for as long as a place lives."""

    places: dict[bytes, Place] = field(default_factory=dict)
    recalled: tuple[int, bytes] | None = None
    expires_ms: int = 0

    def stored(self) -> dict[bytes, bytes]:
        texts = {name: place.text() for name, place in self.places.items()}
        return texts if self.recalled is None else texts | {b"recalled": b"%d %b" % self.recalled}


@dataclass(slots=True)
class Store:
    """The keys of one master, and the scripts. `now_us` is the master's wall clock in each call."""

    identity: dict[str, str] = field(default_factory=dict)
    electorate: bytes | None = None
    max_ttl_ms: int = 0
    longest_ttl_ms: int = 0
    copied: bool = False
    counters: dict[int, int] = field(default_factory=dict)
    leases: dict[bytes, Key] = field(default_factory=dict)
    lines: dict[bytes, Line] = field(default_factory=dict)
    published: list[tuple[bytes, bytes]] = field(default_factory=list)
    """To be taken from here: host and notice."""

    def snapshot(self) -> Store:
        """A copy that what comes later doesn't change."""
        leases = {resource: copy.copy(key) for resource, key in self.leases.items()}
        lines = {name: replace(line, places=dict(line.places)) for name, line in self.lines.items()}
        return replace(
            self, identity=dict(self.identity), counters=dict(self.counters), leases=leases, lines=lines,
            published=[],
        )  # fmt: skip

    @property
    def blank(self) -> bool:
        return not self.identity and not self.counters and not self.leases and not self.lines

    def lease(self, resource: bytes, now_us: int) -> Key | None:
        key = self.leases.get(resource)
        if key is not None and now_us // 1000 > key.expires_ms:
            del self.leases[resource]
            key = None
        return key

    @property
    def current(self) -> str | None:
        """What identify.lua compares: see there."""
        old = "old" if "cluster" in self.identity else None
        return self.identity.get("electorate") or ("" if self.blank else old)

    def identify(self, expected: str, fields: Mapping[str, str], counters: Mapping[int, int]) -> int:
        if expected != self.current:
            return 0
        for slot, counter in counters.items():
            if self.counters.get(slot, -1) < counter:
                self.counters[slot] = counter
        self.set_identity({**self.identity, **fields})
        return 1

    def set_identity(self, fields: Mapping[str, str]) -> None:
        """As it is, whoever wrote it."""
        self.identity = dict(fields)
        electorate = fields.get("electorate")
        self.electorate = None if electorate is None else electorate.encode()
        self.max_ttl_ms = int(fields.get("max_ttl_ms", 0))
        self.longest_ttl_ms = max(self.max_ttl_ms, int(fields.get("was_max_ttl_ms", 0)))

    def set_max_ttl(self, max_ttl_ms: int) -> str:
        """By plays/set_max_ttl.lua."""
        if not self.max_ttl_ms:
            return "blank"
        if self.max_ttl_ms == max_ttl_ms:
            return "same"
        was = {"was_max_ttl_ms": str(self.longest_ttl_ms)} if self.longest_ttl_ms > max_ttl_ms else {}
        self.forget_old_max_ttl()
        self.set_identity({**self.identity, "max_ttl_ms": str(max_ttl_ms), **was})
        return "changed"

    def forget_old_max_ttl(self) -> None:
        """As change_max_ttl.yml ends."""
        self.set_identity({name: word for name, word in self.identity.items() if name != "was_max_ttl_ms"})

    def vote(
        self, ballot: Attempt | FenceRound | Extension | PutBack, electorate: bytes, now_us: int
    ) -> Answer:
        """What this master answers when an agent asks it as lockd/masters/scripts.py does."""
        if isinstance(ballot, Attempt):
            return self.acquire(
                ballot.resource,
                ballot.nonce,
                on_masters(ballot.terms, ballot.shown),
                ballot.ttl_ms,
                slot_of(ballot.resource),
                ballot.hint,
                electorate,
                now_us,
                place=b"" if ballot.asks else ballot.place,
                asker=ballot.place if ballot.asks else b"",
                waited_us=ballot.waited_us,
                grace_ms=ballot.grace_ms,
            )
        if isinstance(ballot, FenceRound):
            tenure = (ballot.resource, ballot.nonce) if ballot.nonce else None
            return self.propose(
                slot_of(ballot.resource), ballot.value, electorate, now_us, size=ballot.size, tenure=tenure
            )
        if isinstance(ballot, PutBack):
            words = (ballot.resource, ballot.nonce, ballot.ttl_ms, electorate, ballot.text, ballot.age_ms)
            return self.put_back(*words, now_us)
        extend = self.take_over if ballot.before else self.extend
        more = (ballot.token, ballot.before, ballot.there_ms) if ballot.before else (ballot.hides,)
        return extend(ballot.resource, ballot.word, ballot.ttl_ms, electorate, ballot.mark, now_us, *more)

    def acquire(
        self,
        resource: bytes,
        nonce: bytes,
        terms: bytes,
        ttl_ms: int,
        slot: int,
        hint: int,
        electorate: bytes,
        now_us: int,
        *,
        place: bytes = b"",
        asker: bytes = b"",
        waited_us: int = 0,
        grace_ms: int = 0,
    ) -> Answer:
        if self.electorate != electorate:
            return -1, 0
        if ttl_ms > self.max_ttl_ms:
            return -2, self.max_ttl_ms
        fence = self.counters.get(slot, 0) + 1
        if fence < hint <= now_us + HINT_AHEAD_US - BLOCK + 1:
            fence = hint
        last = fence + BLOCK - 1
        if last > now_us + COUNTER_AHEAD_US or last >= SANE_MOST:
            return -3, 0
        now_ms = now_us // 1000
        key = self.lease(resource, now_us)
        if key is None or (place and key.reserved == place):
            self.leases[resource] = Key(b"%b %d %b" % (nonce, now_us, terms), now_ms + ttl_ms)
        elif key.nonce != nonce:
            longest_ms = self.longest_ttl_ms if key.reserved is None else LONGEST_GRACE_MS
            key.expires_ms = min(key.expires_ms, now_ms + longest_ms)
            if key.reserved is None and not key.is_lease:
                return -5, 0
            if place:
                mine = Place(now_us - waited_us, now_us + LIVES_US, grace_ms)
                self._wait_in_line(resource, place, mine, key)
            left_ms = key.expires_ms - now_ms
            if key.reserved is not None:
                return 5, left_ms
            asks = bool(asker) and key.text.split(b" ")[2] == b"00"
            if asks and key.host is not None:
                self.published.append((key.host, b"ask %b %b %b" % (key.nonce, asker, resource)))
            return 6 if asks else 0, left_ms, key.nonce
        else:
            key.expires_ms = now_ms + ttl_ms
        self.counters[slot] = last
        if place:
            self._has_its_turn(resource, place, nonce, now_us, detached=not terms.startswith(b"0"))
        return 1, fence

    # Who waits

    def line(self, resource: bytes, now_us: int) -> Line:
        """An empty one where there is none."""
        line = self.lines.get(resource)
        if line is not None and now_us // 1000 > line.expires_ms:
            del self.lines[resource]
            line = None
        return line or Line()

    def _others(self, resource: bytes, place: bytes, now_us: int) -> tuple[Line, dict[bytes, Place]]:
        """Those that nobody renews any more are forgotten."""
        line = self.line(resource, now_us)
        for name in [name for name, one in line.places.items() if not one.lives(now_us)]:
            del line.places[name]
        self._tidy(resource, line)
        return line, {name: one for name, one in line.places.items() if name != place}

    def _tidy(self, resource: bytes, line: Line) -> None:
        if not line.places and line.recalled is None:
            self.lines.pop(resource, None)

    def _written(self, resource: bytes, line: Line, now_us: int) -> None:
        line.expires_ms = now_us // 1000 + LIVES_US // 1000
        self.lines[resource] = line

    def _recall(self, resource: bytes, line: Line, host: bytes, nonce: bytes, now_us: int) -> None:
        line.recalled = now_us, nonce
        self._written(resource, line, now_us)
        self.published.append((host, b"recall %b %b" % (nonce, resource)))

    def _wait_in_line(self, resource: bytes, name: bytes, place: Place, key: Key) -> None:
        now_us = place.ends_us - LIVES_US
        line, others = self._others(resource, name, now_us)
        if len(others) >= PLACES:
            youngest = max(others, key=lambda one: (others[one].began_us, one))
            if place.began_us < others[youngest].began_us:
                del line.places[youngest], others[youngest]
        mine = line.places.get(name)
        if len(others) < PLACES and not (mine and mine.ends_us - now_us > LIVES_US // 2):
            line.places[name] = place
            self._written(resource, line, now_us)
        recalled_us, whom = line.recalled or (0, b"")
        lately = whom == key.nonce and 0 <= now_us - recalled_us < RECALLS_US
        if key.host is not None and not lately:
            self._recall(resource, line, key.host, key.nonce, now_us)

    def _has_its_turn(
        self, resource: bytes, name: bytes, nonce: bytes, now_us: int, *, detached: bool
    ) -> None:
        line, others = self._others(resource, name, now_us)
        line.places.pop(name, None)
        self._tidy(resource, line)
        if others:
            self._recall(resource, line, name.partition(b" ")[0], nonce, now_us)
            host, agent = min(others, key=lambda one: (others[one].began_us, one)).split(b" ")
            if not detached:
                self.published.append((host, b"held %b %b" % (agent, resource)))

    def _waits_again(self, resource: bytes, now_us: int, own: Own) -> None:
        if self.electorate is None:
            return
        line, (name, grace_ms, waited_us) = self.line(resource, now_us), own
        line.places.pop(name, None)
        if len(line.stored()) < PLACES:
            line.places[name] = Place(now_us - waited_us, now_us + LIVES_US, grace_ms)
            self._written(resource, line, now_us)
        self._tidy(resource, line)

    def _goes_to_the_first(self, resource: bytes, now_us: int, own: Own | None) -> None:
        """What was deleted: it is reserved for the grace of who waits for the longest. own: the place and
        grace of the host whose turn it was."""
        line = self.line(resource, now_us)
        living = {name: one for name, one in line.places.items() if one.lives(now_us)}
        if own is not None:
            living.pop(own[0], None)
        if own is not None and len(living) < PLACES:
            place, grace_ms, _ = own
            living[place] = line.places[place] = Place(now_us, now_us + LIVES_US, grace_ms)
            self._written(resource, line, now_us)
        first, *behind = sorted(living, key=lambda name: (living[name].began_us, name)) or [b""]
        if not first:
            del self.leases[resource]
            return
        grace_ms = max(LEAST_GRACE_MS, min(LONGEST_GRACE_MS, living[first].grace_ms))
        self.leases[resource] = Key(b"reserved " + first, now_us // 1000 + grace_ms)
        del line.places[first]
        self._tidy(resource, line)
        for name, wait_ms in [(first, 0), *((name, grace_ms) for name in behind[:1])]:
            host, agent = name.split(b" ")
            self.published.append((host, b"turn %b %d %b" % (agent, wait_ms, resource)))

    def propose(
        self,
        slot: int,
        value: int,
        electorate: bytes,
        now_us: int,
        *,
        size: int = BLOCK,
        tenure: tuple[bytes, bytes] | None = None,
    ) -> Answer:
        """tenure: for whose next block it is, as resource and nonce."""
        if self.electorate != electorate:
            return -1, 0
        if tenure is not None:
            key = self.lease(tenure[0], now_us)
            if key is None or key.nonce != tenure[1]:
                return 3, 0
        last = value + size - 1
        counter = self.counters.get(slot, 0)
        if counter > now_us + COUNTER_AHEAD_US or counter >= SANE_MOST:
            return -3, 0
        if last > now_us + HINT_AHEAD_US or last >= SANE_MOST:
            return -4, 0
        if value <= counter:
            return 0, counter
        self.counters[slot] = last
        return 1, value

    def extend(
        self,
        resource: bytes,
        word: bytes,
        ttl_ms: int,
        electorate: bytes,
        mark: bytes,
        now_us: int,
        hides: bool = False,
    ) -> Answer:
        """mark: of its last proof, when its own agent asks by its nonce; b'': by its app's token. hides: that
        token is shown no more."""
        if self.electorate != electorate:
            return -1, 0
        if ttl_ms > self.max_ttl_ms:
            return -2, self.max_ttl_ms
        now_ms = now_us // 1000
        key = self.lease(resource, now_us)
        if key is None:
            return 3, 0
        if not key.is_lease:
            return 0, key.left_ms(now_ms)
        granted_us, max_hold_ms, marked, token = key.fields()
        if word != (key.nonce if mark else token):
            return 0, key.expires_ms - now_ms
        if not mark:
            left_ms = (max_hold_ms * 1000 - (now_us - granted_us)) // 1000
            if left_ms <= 0:
                return 4, 0
            ttl_ms = min(ttl_ms, left_ms)
        key.expires_ms = max(key.expires_ms, now_ms + ttl_ms)
        was_elsewhere = key.is_extended_elsewhere
        was_put_back = marked != b"" and (not mark or int(marked) >= int(mark[1:]))
        if not (mark or was_elsewhere or was_put_back):
            nonce, granted, rest = key.text.split(b" ", 2)
            key.text = b"%b %b 0%b" % (nonce, granted, rest)
        if hides:
            found = _TEXT.fullmatch(key.text)
            assert found is not None
            key.text = key.text[: found.end(4)] + (b" p" + marked if marked else b"")
        proves = 7 if mark and was_elsewhere else 1
        return 2 if was_put_back else proves, min(key.expires_ms - now_ms, ttl_ms)

    def take_over(
        self,
        resource: bytes,
        nonce: bytes,
        ttl_ms: int,
        electorate: bytes,
        mark: bytes,
        now_us: int,
        token: bytes,
        before: Sequence[bytes],
        there_ms: int | None,
    ) -> Answer:
        """there_ms: None where it was proven by its new nonce already."""
        if self.electorate != electorate:
            return -1, 0
        if ttl_ms > self.max_ttl_ms:
            return -2, self.max_ttl_ms
        now_ms = now_us // 1000
        key = self.lease(resource, now_us)
        if key is None:
            return 3, 0
        found = _TEXT.fullmatch(key.text)
        if found is None or key.nonce not in (nonce, *before):
            return 0, key.left_ms(now_ms)
        terms, marked = key.text[found.start(2) : found.end(3) + len(found[4])], found[5]
        was_there_ms = (now_us - int(found[2])) / 1000
        if key.nonce != nonce and (there_ms is None or was_there_ms < there_ms):
            marked = mark[1:]
        put_back = b"" if marked is None else b" p" + marked
        shown = b" =" + token if token else b""
        key.text = b"%b %b%b%b" % (nonce, terms, put_back, shown)
        key.expires_ms = max(now_ms + ttl_ms, key.expires_ms)
        return 2 if marked is not None and int(marked) >= int(mark[1:]) else 1, ttl_ms

    def put_back(
        self,
        resource: bytes,
        nonce: bytes,
        ttl_ms: int,
        electorate: bytes,
        text: bytes,
        age_ms: int,
        now_us: int,
    ) -> Answer:
        if self.electorate != electorate:
            return -1, 0
        if ttl_ms > self.max_ttl_ms:
            return -2, self.max_ttl_ms
        now_ms = now_us // 1000
        key = self.lease(resource, now_us)
        if key is None:
            granted_us = now_us - age_ms * 1000
            self.leases[resource] = Key(b"%b %d %b" % (nonce, granted_us, text), now_ms + ttl_ms)
            return 2, ttl_ms
        return int(key.nonce == nonce), key.left_ms(now_ms)

    def release(
        self,
        resource: bytes,
        word: bytes,
        now_us: int,
        *,
        how: bytes = b"",
        before: Sequence[bytes] = (),
        own: Own | None = None,
    ) -> int:
        """word: its nonce, or, by an "app", the token that it has, or, to "pass" it on, the place for which
        it is reserved; before: nonces that it had earlier; own: of a host whose "turn" it was, or whose
        "try"."""
        if how in (b"freed", b"used"):
            assert own is not None
            host, agent = own[0].split(b" ")
            self.published.append((host, b"%b %b %b" % (how, agent, resource)))
            return 0
        if how == b"again":
            assert own is not None
            self._waits_again(resource, now_us, own)
            return 0
        key = self.lease(resource, now_us)
        if key is None or key.named(how) not in (word, *before):
            return 0
        if not key.text:
            if how == b"forced":
                del self.leases[resource]
            return int(how == b"forced")
        if how == b"early" and key.is_extended_elsewhere:
            return 0
        if how == b"try":
            del self.leases[resource]
            if own is not None:
                self._waits_again(resource, now_us, own)
        else:
            self._goes_to_the_first(resource, now_us, own)
        if how in (b"forced", b"app") and key.host is not None:
            notice = b"gone" if how == b"forced" else b"released"
            self.published.append((key.host, b"%b %b %b" % (notice, key.nonce, resource)))
        return 1
