"""Where everything that happens in a campaign is noted: the history that the checker reads."""

from __future__ import annotations

from dataclasses import dataclass

from lockd.clock import boottime_ns
from tests.harness.history import Event, Failed, Found, Granted, Tried


@dataclass(slots=True)
class Try:
    """What the masters showed of a token: that it was asked for, last when, and whether it was extended."""

    resource: bytes
    at_ns: int
    ttl_ms: int
    extended: bool = False


class Recorder:
    """Takes note of events, in the order in which they are noted.

    Of a try and of a sighting only the last counts for the checker: the others are not kept, so that a long
    campaign stays small.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._requests = 0
        self._tries: dict[bytes, Try] = {}
        self._found: dict[tuple[str, bytes], Found] = {}

    def note(self, event: Event) -> None:
        self.events.append(event)

    def next_request(self) -> int:
        """A number that no other request of this history has."""
        self._requests += 1
        return self._requests

    def tried(self, resource: bytes, token: bytes, ttl_ms: int) -> None:
        """An acquire with this token ran on a master just now. Where one was late, that is when it left what
        it left, so the latest counts."""
        seen = self._tries.get(token)
        if seen is None:
            self._tries[token] = Try(resource, boottime_ns(), ttl_ms)
        else:
            seen.at_ns = boottime_ns()

    def extended(self, token: bytes) -> None:
        """An extension with this token ran on a master: its agent had granted it, whoever got to know."""
        if token in self._tries:
            self._tries[token].extended = True

    def found(self, event: Found) -> None:
        self._found[event.master, event.token] = event

    @property
    def tries(self) -> int:
        return len(self._tries)

    def history(self) -> list[Event]:
        """All events in the order of time. A try failed when its token came to no app during the whole run,
        and was never extended."""
        granted = {event.token for event in self.events if isinstance(event, Granted)}
        failed = {t for t, seen in self._tries.items() if t not in granted and not seen.extended}
        more: list[Event] = []
        for token in failed:
            seen = self._tries[token]
            more += [Tried(seen.at_ns, seen.resource, token, seen.ttl_ms), Failed(seen.at_ns, token)]
        more += [event for (_, token), event in self._found.items() if token in failed]
        return sorted(self.events + more, key=lambda event: event.at_ns)
