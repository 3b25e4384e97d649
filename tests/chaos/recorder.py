"""Where everything that happens in a campaign is noted: the history that the checker reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from lockd.clock import boottime_ns
from tests.harness.history import (
    Abandoned,
    Event,
    Failed,
    Found,
    Granted,
    LetGo,
    Removed,
    TakenOver,
    Tried,
    Unlocked,
)


@dataclass(slots=True)
class Try:
    """What the masters showed of a nonce: that it was asked for, last when, and whether it was extended.
    hint: no fence of its grant is below. token: what its app has chosen, if it has; grants have that."""

    resource: bytes
    at_ns: int
    ttl_ms: int
    hint: int
    token: bytes
    extended: bool = False


@dataclass(slots=True)
class Names:
    """By what a lease was known: tries to the tokens of the grants that they brought, as far as one did."""

    granted: dict[bytes, bytes] = field(default_factory=dict)
    by_token: dict[bytes, list[bytes]] = field(default_factory=dict)

    def of(self, nonce: bytes) -> bytes:
        return self.granted.get(nonce, nonce)


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
        and was never extended.

        The masters know a lease by a nonce, its app may have chosen the token: here it has one name. Of what
        its holder was granted and gave back itself, the try is left out.
        """
        names = self._names()
        ended = {e.token for e in self.events if isinstance(e, LetGo) and e.why in ("died", "unlock")}
        wanted = {
            n: seen for n, seen in self._tries.items() if n not in names.granted or names.of(n) in ended
        }
        more = [
            *self._of_tries(wanted, names),
            *self._takings_over(names),
            *(replace(e, token=names.of(e.token)) for e in self._sightings(wanted)),
        ]
        own = (one for event in self.events for one in _renamed(event, names))
        return sorted([*own, *more], key=lambda event: event.at_ns)

    def _names(self) -> Names:
        names = Names()
        for nonce, seen in self._tries.items():
            if seen.token:
                names.by_token.setdefault(seen.token, []).append(nonce)
        for event in self.events:
            if isinstance(event, Granted):
                tries = [n for n in names.by_token.get(event.token, ()) if self._tries[n].hint <= event.fence]
                nonce = max(tries, key=lambda n: self._tries[n].hint, default=event.token)
                names.granted[nonce] = event.token
        return names

    def _of_tries(self, wanted: dict[bytes, Try], names: Names) -> Iterable[Event]:
        for nonce, seen in wanted.items():
            yield Tried(seen.at_ns, seen.resource, names.of(nonce), seen.ttl_ms)
            if nonce not in names.granted and not seen.extended:
                yield Failed(seen.at_ns, nonce)

    def _takings_over(self, names: Names) -> Iterable[Event]:
        return (replace(event, before=names.of(event.before)) for event in self._taken_over.values())

    def _sightings(self, wanted: dict[bytes, Try]) -> Iterable[Found]:
        """Those of leases that are asked about, also by the nonces that they got since."""
        first = {nonce: event.before for nonce, event in self._taken_over.items()}
        for (_, nonce), event in self._found.items():
            name = nonce
            while name in first:
                name = first[name]
            if name in wanted:
                yield event


def _renamed(event: Event, names: Names) -> Iterable[Event]:
    """Who gives up a request that he has named, gives up each try for it."""
    if isinstance(event, Removed):
        yield replace(event, token=names.of(event.token))
    elif isinstance(event, Unlocked | Abandoned) and event.token not in names.granted.values():
        yield from (replace(event, token=nonce) for nonce in names.by_token.get(event.token, ()))
    else:
        yield event
