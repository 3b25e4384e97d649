"""What an agent notes of its leases for the next one on its host (rule 13): bytes to records and back.

A note is written before an app is told of its grant or its extension, and before a release is sent. It has to
survive the agent's death, not the host's, so it is kept in memory (/run), and writing it never waits for a
disk.

    file    = magic, format, frame …
    frame   = length, CRC-32 of that, CRC-32 of the entries, entries: all of them count, or none
    entries = H held (all of a lease, and of its tenure: what was before it under that tenure is over)
              M moved (what a renewal changes) · T told (its app has read of it)
              E ending (the tenure's release is under way, or it is nobody's for a moment)
              D done (nobody has to do anything about it)

The first frame says whose journal it is. An incomplete last frame was never acted upon, so what is before it
is the last that the agent did. If a frame was damaged, or the file is an older copy, that is not known: its
leases may have been handed on since, under the same tenures. So nothing is taken over from it or released by
it. A `Seal` beside the journal tells the last version from an older copy. Nothing is believed without the
masters: an old or invented journal names tenures that the masters don't show, and those can't be proven.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Self
from zlib import crc32

from lockd.core.identities import LONGEST_TTL_MS
from lockd.core.leases import Lease, Standing, Tenure, pid_and_uid
from lockd.core.validity import NEVER_NS, NS_PER_MS
from lockd.core.values import Bound

MAGIC = b"lockd journal\n"
FORMAT = 1
HEAD = struct.Struct(">14sH")
FRAME = struct.Struct(">III")
_LONGEST_FRAME = 1 << 20
_LONGEST_UNWRITTEN = 1 << 16
_PART_BYTES = 1 << 16
_NOTED_MOST = _PART_BYTES // 4
_GONE_BYTES = 64
GROWN = 3
"""A journal that is so many times as long as what is live is written anew."""
_MOST_WORDS = 256
_NUMBER = struct.Struct(">I")
_TERMS = struct.Struct(">qqqqIQBB")
_SIZES = struct.Struct(">6I")
_UNTIL = struct.Struct(">qIII")
_BOUND = (Bound.PROCESS, Bound.CONNECTION)
_LOST, _UNPROVEN, _TOLD, _OUTLIVED = 1, 2, 4, 8
_NEVER = -1
"""Stands for a time that is missing."""


class Unreadable(Exception):
    """This is not a journal that can be read, or not all of it can; the text says why."""


class _Torn(Unreadable):
    """Its agent died while it was writing the last frame."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose journal it is. Pids, and times on CLOCK_BOOTTIME, are comparable only within one boot and one
    namespace of each kind; bits that stand for masters, only with the same list of masters."""

    boot_id: str
    pid_namespace: str
    time_namespace: str
    cluster: str
    masters: tuple[str, ...]

    def other_than(self, ours: Self) -> str | None:
        """How it differs from ours, in a word; None: it is ours."""
        names = ("boot_id", "pid_namespace", "time_namespace", "cluster", "masters")
        return next(
            (name.replace("_", " ") for name in names if getattr(self, name) != getattr(ours, name)), None
        )


@dataclass(frozen=True, slots=True)
class Moving:
    """What a proof changes of a lease. proven, gone: masters, as bits. clock_lows_ns: how far the masters'
    clocks were ahead of CLOCK_BOOTTIME, at least; NEVER_NS where that was not known. let_go_ns: None as long
    as its process is not known to be dead. lost: its holder was told so. unproven: it was taken over, and no
    quorum had gone on with it yet. told: its app is known to have read of it. outlived: its process is dead,
    and a child goes on with it."""

    t1_ns: int
    deadline_ns: int
    promised_ns: int
    until_ns: int
    hold_until_ns: int
    granted_ns: int
    let_go_ns: int | None
    ttl_ms: int
    proofs: int
    proven: int
    gone: int
    lost: bool
    unproven: bool
    told: bool
    outlived: bool
    clock_lows_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """A lease as it was last noted, and its tenure, to which the nonce and began_ns belong. before: the
    nonces that masters may still know it by, while it is `unproven`."""

    nonce: bytes
    resource: bytes
    token: bytes
    label: str
    owner: bytes
    began_ns: int
    fence: int
    max_hold_ms: int
    lock_delay_ms: int
    pid: int
    started: int
    bound: Bound
    notify: bool
    before: tuple[bytes, ...]
    now: Moving


@dataclass(frozen=True, slots=True)
class Ending:
    """A release that no quorum had confirmed yet. It is worth sending until `until_ns`."""

    resource: bytes
    nonces: tuple[bytes, ...]
    until_ns: int


@dataclass(frozen=True, slots=True)
class Moved:
    nonce: bytes
    now: Moving


@dataclass(frozen=True, slots=True)
class Told:
    nonce: bytes


@dataclass(frozen=True, slots=True)
class Done:
    nonce: bytes


Entry = Held | Moved | Told | Ending | Done


@dataclass(slots=True)
class Replayed:
    """The contents of a journal; by nonce. trouble: what was wrong with the rest of it. is_whole: there is no
    rest that its agent may have acted upon."""

    held: dict[bytes, Held] = field(default_factory=dict)
    endings: dict[bytes, Ending] = field(default_factory=dict)
    trouble: str | None = None
    is_whole: bool = True

    def take(self, entry: Entry) -> None:
        if isinstance(entry, Held):
            self.held[entry.nonce] = entry
            self.endings.pop(entry.nonce, None)
        elif isinstance(entry, Ending):
            self.held.pop(entry.nonces[0], None)
            self.endings[entry.nonces[0]] = entry
        elif isinstance(entry, Done):
            self.held.pop(entry.nonce, None)
            self.endings.pop(entry.nonce, None)
        elif (held := self.held.get(entry.nonce)) is not None:
            self.held[entry.nonce] = _changed(held, entry)


def _changed(held: Held, entry: Moved | Told) -> Held:
    if isinstance(entry, Told):
        return replace(held, now=replace(held.now, told=True))
    return replace(held, now=entry.now, before=held.before if entry.now.unproven else ())


_SEAL = struct.Struct(">QI")


@dataclass(frozen=True, slots=True)
class Seal:
    """The length and checksum of a journal when its agent last wrote to it."""

    size: int
    checksum: int

    @classmethod
    def of(cls, data: bytes) -> Self:
        return cls(len(data), crc32(data))

    def behind(self, record: bytes) -> "Seal":
        """The seal once that record is written, too."""
        return Seal(self.size + len(record), crc32(record, self.checksum))

    def fits(self, data: bytes) -> bool:
        """The seal is of that journal. At most, its agent had written one record more, and died before it
        updated the seal."""
        return 0 < self.size <= len(data) and crc32(data[: self.size]) == self.checksum

    @property
    def text(self) -> bytes:
        """As it is stored."""
        return _SEAL.pack(self.size, self.checksum)

    @classmethod
    def read(cls, text: bytes) -> Self:
        return cls(*_SEAL.unpack(text))


SEAL_SIZE = _SEAL.size
NO_SEAL = Seal(0, 0)
"""It fits no journal."""


def _words(words: Sequence[bytes]) -> bytes:
    """The lengths of all words, then the words."""
    return _lengths(len(words)).pack(*map(len, words)) + b"".join(words)


@cache
def _lengths(count: int) -> struct.Struct:
    return struct.Struct(f">{count}I")


def _framed(entries: bytes) -> bytes:
    size = _NUMBER.pack(len(entries))
    return FRAME.pack(len(entries), crc32(size), crc32(entries)) + entries


def _after_kind(*parts: struct.Struct) -> struct.Struct:
    """All numbers of an entry."""
    return struct.Struct(">c" + "".join(part.format[1:] for part in parts))


_ENDING = _after_kind(_UNTIL)
_NAMING = _after_kind(_NUMBER)


def _moving(lease: Lease) -> tuple[int, ...]:
    """The numbers of a `Moving`, in their order."""
    let_go_ns = _NEVER if lease.let_go_ns is None else lease.let_go_ns
    flags = 0 if lease.standing is Standing.HELD else _LOST
    if not lease.is_ours:
        flags |= _UNPROVEN
    if lease.told:
        flags |= _TOLD
    if lease.outlived:
        flags |= _OUTLIVED
    tenure = lease.tenure
    return (
        flags, tenure.t1_ns, lease.deadline_ns, lease.promised_ns, tenure.until_ns, lease.hold_until_ns,
        lease.granted_ns, let_go_ns, lease.ttl_ms, tenure.proofs, tenure.proven, tenure.gone.mask,
    )  # fmt: skip


class Format:
    """How entries read, for this number of masters. All numbers come first, packed in one call, since this is
    done for each grant. The last numbers are the lengths of the words that follow."""

    def __init__(self, masters: int) -> None:
        self._moving = struct.Struct(f">B8qIHH{masters}q")
        self._moved = _after_kind(self._moving, _NUMBER)
        self._held = _after_kind(self._moving, _TERMS, _SIZES)

    def head(self, origin: Origin) -> bytes:
        words = (origin.boot_id, origin.pid_namespace, origin.time_namespace, origin.cluster, *origin.masters)
        count = _NUMBER.pack(len(words))
        return HEAD.pack(MAGIC, FORMAT) + _framed(count + _words([word.encode() for word in words]))

    def held(self, lease: Lease, clock_lows_ns: tuple[int, ...]) -> bytes:
        holder, nonce, resource, token = lease.holder, lease.nonce, lease.resource, lease.token
        owner, label = holder.owner, holder.label.encode()
        before = () if lease.is_ours else lease.tenure.before
        numbers = self._held.pack(
            b"H", *_moving(lease), *clock_lows_ns, lease.tenure.began_ns,
            lease.fence, holder.max_hold_ms, holder.lock_delay_ms, holder.pid, holder.started,
            holder.bound is Bound.CONNECTION, holder.notify,
            len(nonce), len(resource), len(token), len(label), len(owner), len(before),
        )  # fmt: skip
        words = nonce + resource + token + label + owner
        return numbers + words + _words(before) if before else numbers + words

    def moved_in(self, held: bytes, moved: bytes) -> bytes:
        """The first entry, updated with what the second one says."""
        size = 1 + self._moving.size
        return held[:1] + moved[1:size] + held[size:]

    def moved(self, lease: Lease, clock_lows_ns: tuple[int, ...]) -> bytes:
        nonce = lease.nonce
        return self._moved.pack(b"M", *_moving(lease), *clock_lows_ns, len(nonce)) + nonce

    def told_in(self, held: bytes) -> bytes:
        """The same entry, once its app has read of the lease."""
        return held[:1] + bytes((held[1] | _TOLD,)) + held[2:]

    def told(self, nonce: bytes) -> bytes:
        return _NAMING.pack(b"T", len(nonce)) + nonce

    def ending(self, resource: bytes, nonces: tuple[bytes, ...], until_ns: int) -> bytes:
        nonce, before = nonces[0], nonces[1:]
        numbers = _ENDING.pack(b"E", until_ns, len(resource), len(nonce), len(before))
        entry = numbers + resource + nonce
        return entry + _words(before) if before else entry

    def done(self, nonce: bytes) -> bytes:
        return _NAMING.pack(b"D", len(nonce)) + nonce

    def entries(self, frame: bytes) -> Iterator[Entry]:
        """Raises struct.error or ValueError at an entry that makes no sense."""
        reading = _Reading(frame)
        while not reading.is_over:
            kind = reading.take(1)
            if kind == b"H":
                yield self._read_held(reading)
            elif kind == b"M":
                now = self._read_moving(reading)
                yield Moved(reading.word(), now)
            elif kind == b"T":
                yield Told(reading.word())
            elif kind == b"E":
                until_ns, *sizes, before = reading.numbers(_UNTIL)
                resource, nonce = map(reading.take, sizes)
                yield Ending(resource, (nonce, *reading.words(before)), until_ns)
            elif kind == b"D":
                yield Done(reading.word())
            else:
                raise ValueError(f"an entry of kind {kind!r}")

    def _read_moving(self, reading: "_Reading") -> Moving:
        numbers = reading.numbers(self._moving)
        flags, t1, deadline, promised, until, hold_until, granted, let_go, ttl_ms, *more = numbers
        proofs, proven, gone, *lows_ns = more
        _check_times(numbers[1:8] + tuple(lows_ns))
        if max(deadline, promised) - t1 > LONGEST_TTL_MS * NS_PER_MS or not 0 < ttl_ms <= LONGEST_TTL_MS:
            raise ValueError("a lease that lasts longer than any may")
        if (proven | gone) >> len(lows_ns):
            raise ValueError("masters that do not exist")
        return Moving(
            t1, deadline, promised, until, hold_until, granted, None if let_go == _NEVER else let_go, ttl_ms,
            proofs, proven, gone, bool(flags & _LOST), bool(flags & _UNPROVEN), bool(flags & _TOLD),
            bool(flags & _OUTLIVED),
            tuple(lows_ns),
        )  # fmt: skip

    def _read_held(self, reading: "_Reading") -> Held:
        now = self._read_moving(reading)
        began_ns, fence, max_hold_ms, lock_delay_ms, pid, started, bound, notify = reading.numbers(_TERMS)
        *sizes, before = reading.numbers(_SIZES)
        nonce, resource, token, label, owner = map(reading.take, sizes)
        pid_and_uid(owner)
        _check_times((max_hold_ms * NS_PER_MS, lock_delay_ms * NS_PER_MS))
        if pid >> 31:
            raise ValueError(f"pid {pid}")
        return Held(
            nonce, resource, token, label.decode(), owner, began_ns, fence, max_hold_ms, lock_delay_ms, pid,
            started, _BOUND[bound], bool(notify), tuple(reading.words(before)), now,
        )  # fmt: skip


def _check_times(times_ns: tuple[int, ...]) -> None:
    """Times that are calculated from these have to fit into a journal, too."""
    if max(map(abs, times_ns)) > NEVER_NS:
        raise ValueError("an impossible time")


class _Reading:
    """Takes bytes from the front. Raises when more are asked for than are left."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_over(self) -> bool:
        return self._at >= len(self._data)

    def take(self, size: int) -> bytes:
        at, self._at = self._at, self._at + size
        if self._at > len(self._data):
            raise ValueError("it ends too soon")
        return self._data[at : self._at]

    def numbers(self, kind: struct.Struct) -> tuple[int, ...]:
        return kind.unpack(self.take(kind.size))

    def number(self) -> int:
        return self.numbers(_NUMBER)[0]

    def word(self) -> bytes:
        return self.take(self.number())

    def words(self, count: int) -> list[bytes]:
        if count > _MOST_WORDS:
            raise ValueError(f"{count} words")
        return [self.take(length) for length in self.numbers(_lengths(count))]


def _frames(data: bytes, at: int) -> Iterator[bytes]:
    """Raises Unreadable at the first frame that is not whole."""
    while at < len(data):
        if len(data) - at < FRAME.size:
            raise _Torn("its last record is torn")
        size, check_of_size, checksum = FRAME.unpack_from(data, at)
        if crc32(_NUMBER.pack(size)) != check_of_size:
            raise Unreadable("a record has a wrong length")
        at += FRAME.size
        frame = data[at : at + size]
        at += size
        if len(frame) < size <= _LONGEST_FRAME:
            raise _Torn("its last record is torn")
        if size > _LONGEST_FRAME or crc32(frame) != checksum:
            raise Unreadable("a record has a wrong checksum")
        if not size:
            # Empty frames are never written, and a gigabyte of zeros would be 134 million of them.
            raise Unreadable("a record says nothing")
        yield frame


def check_format(data: bytes) -> None:
    """Raises Unreadable when this version does not know the format."""
    if len(data) < HEAD.size or not data.startswith(MAGIC):
        raise Unreadable("it is not the journal of an agent")
    form = HEAD.unpack_from(data)[1]
    if form != FORMAT:
        raise Unreadable(f"it is of format {form}, and this version reads {FORMAT}")


def replay(data: bytes, ours: Origin, *, is_last: bool = True) -> Replayed:
    """What is noted in this journal, as far as it can be read. is_last: its seal fits. Raises Unreadable when
    it is not ours (another format, boot, namespace or cluster). Then nothing is taken from it."""
    replayed = Replayed()
    for _ in replaying(data, ours, replayed, is_last=is_last):
        pass
    return replayed


def replaying(data: bytes, ours: Origin, replayed: Replayed, *, is_last: bool) -> Iterator[None]:
    """The same in steps, one for each record. replayed: what was read so far; it counts once all is read."""
    check_format(data)
    frames = _frames(data, HEAD.size)
    differs = _origin(next(frames, b"")).other_than(ours)
    if differs is not None:
        raise Unreadable(f"it is of another {differs}")
    yield from _replaying(frames, Format(len(ours.masters)), replayed)
    if not is_last:
        replayed.is_whole = False
        replayed.trouble = replayed.trouble or (
            "it has changed since its agent stopped: perhaps it is an older copy"
        )


def _origin(frame: bytes) -> Origin:
    try:
        reading = _Reading(frame)
        words = [word.decode() for word in reading.words(reading.number())]
        boot_id, pid_namespace, time_namespace, cluster, *masters = words
    except (struct.error, ValueError) as failure:
        raise Unreadable(f"it does not say whose it is: {failure}") from failure
    return Origin(boot_id, pid_namespace, time_namespace, cluster, tuple(masters))


def _replaying(frames: Iterator[bytes], form: Format, replayed: Replayed) -> Iterator[None]:
    try:
        for frame in frames:
            for entry in list(form.entries(frame)):
                replayed.take(entry)
            yield
    except _Torn as torn:
        replayed.trouble = str(torn)
    except Unreadable as unreadable:
        replayed.trouble, replayed.is_whole = str(unreadable), False
    except (struct.error, ValueError, IndexError) as failure:
        replayed.trouble, replayed.is_whole = f"a record is invalid: {failure}", False


class Rewriting:
    """A journal that is written anew, part after part, while its agent goes on. Until the new one is done and
    takes its place, the old one is the journal: records are written there, too.

    Each lease is copied as it is when its turn comes. Each record that is written meanwhile comes into the
    new journal before what is copied after it. So replay comes to the same end as with the old one: a copy
    says all that was noted of its lease until then, and what is noted later is found behind it. A record of
    what is not copied yet says no more than its copy will. What is over when its turn comes is not copied.

    seal: of the parts so far.
    """

    def __init__(self, head: bytes, live: dict[bytes, bytes]) -> None:
        self._live = live
        self._left = list(live)
        self._noted = [head]
        self._noted_bytes = 0
        self.seal = NO_SEAL

    def note(self, record: bytes) -> None:
        """The agent has this to write, into both."""
        self._noted.append(record)
        self._noted_bytes += len(record)

    @property
    def is_behind(self) -> bool:
        """So much was noted since the last part that the next one has to come now, however busy the agent is.
        A part copies four times as much: meanwhile either journal grows by a quarter of what is live, at
        most."""
        return self._noted_bytes > _NOTED_MOST

    @property
    def is_done(self) -> bool:
        """It has everything, as long as nothing else is noted."""
        return not (self._left or self._noted)

    def part(self, size: int = _PART_BYTES) -> bytes:
        """What comes next; it may be nothing."""
        part = b"".join((*self._noted, self._copies(size)))
        self._noted, self._noted_bytes = [], 0
        self.seal = self.seal.behind(part)
        return part

    def _copies(self, size: int) -> bytes:
        """One record of several leases takes half the time of one for each."""
        entries = list[bytes]()
        while self._left and size > 0:
            entry = self._live.get(self._left.pop())
            if entry is not None:
                entries.append(entry)
                size -= len(entry)
            size -= _GONE_BYTES
        return _framed(b"".join(entries)) if entries else b""


class Ledger:
    """core.interfaces.Journal: the last entry of each lease, and what has to be written of it.

    write: appends to the journal. Entries D (done) are written with the next record; if one gets lost, a
    release is sent that was not needed. Entries E (ending) are written with the next record, too, or before
    the release goes out (`keep_up`). live_bytes: how long the journal would be if it was written anew, at
    most. rewriting: that is under way.

    No note fails for who makes it: a grant, an extension or a release would be left half done. broke: called
    with an error of the agent that kept one from being made. Then the journal is not the last any more, and
    has to be removed: its agent goes on as one that keeps none.
    """

    def __init__(
        self, origin: Origin, write: Callable[[bytes], None], broke: Callable[[Exception], None]
    ) -> None:
        self.origin = origin
        self._write = write
        self._broke = broke
        self._form = Format(len(origin.masters))
        self._head = self._form.head(origin)
        self._live: dict[bytes, bytes] = {}
        self._unwritten = b""
        self._is_due = False
        self.live_bytes = len(self._head)
        self.rewriting: Rewriting | None = None

    def rewrite(self) -> Rewriting:
        """Begin a journal without what is over. One that was begun before is not gone on with."""
        self.rewriting = Rewriting(self._head, self._live)
        return self.rewriting

    def held(self, lease: Lease, clock_lows_ns: tuple[int, ...]) -> None:
        self._note(lease.nonce, lambda: self._put(lease.nonce, self._form.held(lease, clock_lows_ns)))

    def moved(self, lease: Lease, clock_lows_ns: tuple[int, ...]) -> None:
        before = self._live.get(lease.nonce)
        if before is not None:
            self._note(lease.nonce, lambda: self._moved(before, lease, clock_lows_ns))

    def _moved(self, before: bytes, lease: Lease, clock_lows_ns: tuple[int, ...]) -> None:
        moved = self._form.moved(lease, clock_lows_ns)
        self._put(lease.nonce, self._form.moved_in(before, moved), moved)

    def told(self, lease: Lease) -> None:
        before = self._live.get(lease.nonce)
        if before is not None:
            nonce = lease.nonce
            self._note(nonce, lambda: self._put(nonce, self._form.told_in(before), self._form.told(nonce)))

    def ending(self, tenure: Tenure) -> None:
        self._note(tenure.nonce, lambda: self._ending(tenure))

    def _ending(self, tenure: Tenure) -> None:
        entry = self._form.ending(tenure.resource, tenure.nonces, tenure.until_ns)
        self._live_is(tenure.nonce, entry)
        self._is_due = True
        self._write_later(entry)

    def still_ending(self, ending: Ending) -> None:
        nonce = ending.nonces[0]
        self._note(
            nonce,
            lambda: self._put(nonce, self._form.ending(ending.resource, ending.nonces, ending.until_ns)),
        )

    def keep_up(self) -> None:
        if self._is_due:
            self._note(b"", lambda: self._write_out(self._unwritten))

    def ended(self, nonce: bytes) -> None:
        if self._forget(nonce):
            self._note(b"", lambda: self._write_later(self._form.done(nonce)))

    def _note(self, nonce: bytes, make: Callable[[], None]) -> None:
        """What could not be noted of a lease is in no later journal either."""
        try:
            make()
        except Exception as failure:
            self._forget(nonce)
            self._unwritten, self._is_due = b"", False
            self._broke(failure)

    def _forget(self, nonce: bytes) -> bool:
        """Whether something of it was noted."""
        entry = self._live.pop(nonce, None)
        if entry is not None:
            self.live_bytes -= FRAME.size + len(entry)
        return entry is not None

    def _write_later(self, entry: bytes) -> None:
        self._unwritten += entry
        if len(self._unwritten) >= _LONGEST_UNWRITTEN:
            self._write_out(self._unwritten)

    def _put(self, nonce: bytes, entry: bytes, change: bytes = b"") -> None:
        self._live_is(nonce, entry)
        self._write_out(self._unwritten + (change or entry))

    def _live_is(self, nonce: bytes, entry: bytes) -> None:
        before = self._live.get(nonce)
        self.live_bytes += len(entry) + FRAME.size if before is None else len(entry) - len(before)
        self._live[nonce] = entry

    def _write_out(self, entries: bytes) -> None:
        self._unwritten, self._is_due = b"", False
        record = _framed(entries)
        if self.rewriting is not None:
            self.rewriting.note(record)
        self._write(record)


class Unkept:
    """core.interfaces.Journal, for agents that keep none."""

    def held(self, lease: Lease, clock_lows_ns: tuple[int, ...]) -> None: ...

    def moved(self, lease: Lease, clock_lows_ns: tuple[int, ...]) -> None: ...

    def told(self, lease: Lease) -> None: ...

    def ending(self, tenure: Tenure) -> None: ...

    def still_ending(self, ending: Ending) -> None: ...

    def ended(self, nonce: bytes) -> None: ...

    def keep_up(self) -> None: ...
