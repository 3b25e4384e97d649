"""Where everything that happens in a campaign is noted: the history that the checker reads."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from lockd.clock import boottime_ns
from tests.harness.history import (
    Abandoned,
    Event,
    Failed,
    Found,
    Granted,
    Handed,
    LetGo,
    Removed,
    TakenOver,
    Tried,
    Unlocked,
)


@dataclass(slots=True)
class Try:
    """What the masters showed of a nonce: that it was asked for, last when, and whether it was extended.
    token: what its app names it by, where the masters show that."""

    resource: bytes
    at_ns: int
    ttl_ms: int
    token: bytes
    extended: bool = False


Block = tuple[int, int, bytes]
"""Fences, first and last, that a master has reserved for the tenure of that nonce."""


@dataclass(slots=True)
class Names:
    """By what leases were known: apps have a token of each, masters the nonce of the tenure that it is under.
    Here a lease has one name, of both, that begins with the nonce. by_token: tries, as far as masters show
    tokens."""

    of_leases: dict[bytes, bytes] = field(default_factory=dict)
    tenures: set[bytes] = field(default_factory=set)
    by_token: dict[bytes, list[bytes]] = field(default_factory=lambda: defaultdict(list))

    def of(self, token: bytes) -> bytes:
        return self.of_leases.get(token, token)

    def is_granted(self, nonce: bytes, token: bytes) -> None:
        self.of_leases[token] = b"%b %b" % (nonce, token)
        self.tenures.add(nonce)


class Recorder:
    """Takes note of events, in the order in which they are noted.

    Of a try and of a sighting only the last counts for the checker: the others are not kept, so that a long
    campaign stays small.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.troubles_ns: list[tuple[int, int]] = []
        """From when until when something was wrong with masters, their clocks, or the way to them."""
        self._troubles = 0
        self._requests = 0
        self._tries: dict[bytes, Try] = {}
        self._blocks: dict[tuple[bytes, str], list[Block]] = defaultdict(list)
        """By resource and master, in their order."""
        self._found: dict[tuple[str, bytes], Found] = {}
        self._taken_over: dict[bytes, TakenOver] = {}

    def note(self, event: Event) -> None:
        self.events.append(event)

    def troubled(self, more: int) -> None:
        """One trouble more, or one less."""
        now_ns = boottime_ns()
        if self._troubles == 0:
            self.troubles_ns.append((now_ns, 1 << 62))
        self._troubles += more
        if self._troubles == 0:
            from_ns, _ = self.troubles_ns.pop()
            self.troubles_ns.append((from_ns, now_ns))

    def next_request(self) -> int:
        """A number that no other request of this history has."""
        self._requests += 1
        return self._requests

    def tried(self, nonce: bytes, seen: Try) -> None:
        """An acquire of this nonce ran on a master just now. Where one was late, that is when it left what it
        left, so the latest counts."""
        before = self._tries.setdefault(nonce, seen)
        before.at_ns = seen.at_ns

    def reserved(self, master: str, nonce: bytes, last: int, size: int) -> None:
        """That master has reserved fences for this try, or for the tenure that came of it, whatever agent has
        taken that over since."""
        first = self._known_first_as(nonce)
        if first in self._tries:
            insort(self._blocks[self._tries[first].resource, master], (last - size + 1, last, first))

    def extended(self, nonce: bytes) -> None:
        """An extension of this nonce ran on a master: its agent had granted it, whoever got to know."""
        if nonce in self._tries:
            self._tries[nonce].extended = True

    def taken_over(self, before: bytes, nonce: bytes) -> None:
        """A master was asked to know the first of them as the second."""
        self._taken_over.setdefault(nonce, TakenOver(boottime_ns(), before, nonce, ""))
        self.extended(before)

    def found(self, event: Found) -> None:
        self._found[event.master, event.token] = event

    @property
    def takings_over(self) -> int:
        return len(self._taken_over)

    @property
    def tries(self) -> int:
        return len(self._tries)

    def history(self) -> list[Event]:
        """All events in the order of time. A try failed when it brought no app anything during the whole run,
        and was never extended. Of what its holders were granted and nobody gave back, the try is left out."""
        names = self._names()
        over = [e.token for e in self.events if isinstance(e, LetGo) and e.why in ("died", "unlock")]
        ended = {names.of(token)[:32] for token in over}
        wanted = {n: seen for n, seen in self._tries.items() if n not in names.tenures or n in ended}
        more = [*self._of_tries(wanted, names), *self._taken_over.values(), *self._sightings(wanted)]
        own = (one for event in self.events for one in _renamed(event, names))
        return sorted([*own, *more], key=lambda event: event.at_ns)

    def _names(self) -> Names:
        """Which tenure a lease is under its fence says: no two quorums reserve the same one."""
        names = Names()
        for nonce, seen in self._tries.items():
            if seen.token:
                names.by_token[seen.token].append(nonce)
        for event in self.events:
            if isinstance(event, Granted) and (nonce := self._tenure_of(event.resource, event.fence)):
                names.is_granted(nonce, event.token)
        return names

    def _tenure_of(self, resource: bytes, fence: int) -> bytes | None:
        found = Counter[bytes]()
        for blocks in (of for (name, _), of in self._blocks.items() if name == resource):
            at = bisect_right(blocks, (fence, 1 << 62, b"")) - 1
            if at >= 0 and blocks[at][1] >= fence:
                found[blocks[at][2]] += 1
        return max(found, key=lambda nonce: found[nonce], default=None)

    def _of_tries(self, wanted: dict[bytes, Try], names: Names) -> Iterable[Event]:
        for nonce, seen in wanted.items():
            yield Tried(seen.at_ns, seen.resource, nonce, seen.ttl_ms)
            if nonce not in names.tenures and not seen.extended:
                yield Failed(seen.at_ns, nonce)

    def _sightings(self, wanted: dict[bytes, Try]) -> Iterable[Found]:
        """Those of leases that are asked about, also by the nonces that they got since."""
        for (_, nonce), event in self._found.items():
            if self._known_first_as(nonce) in wanted:
                yield event

    def _known_first_as(self, nonce: bytes) -> bytes:
        """The nonce of the try that a tenure came of."""
        while nonce in self._taken_over:
            nonce = self._taken_over[nonce].before
        return nonce


def _renamed(event: Event, names: Names) -> Iterable[Event]:
    """Who gives up a request that he has named, gives up each try for it, unless others have what came of
    it."""
    token = getattr(event, "token", None)
    if token is None:
        yield event
    elif isinstance(event, Removed):
        yield replace(event, token=names.of(event.token)[:32])
    elif token in names.of_leases:
        yield replace(event, token=names.of(token))  # type: ignore[call-arg]  # it has one
        if isinstance(event, Granted):
            yield Handed(event.at_ns, names.of(token))
    elif isinstance(event, Unlocked | Abandoned):
        given_up = (nonce for nonce in names.by_token.get(token, ()) if nonce not in names.tenures)
        yield from (replace(event, token=nonce) for nonce in given_up)
    else:
        yield event
