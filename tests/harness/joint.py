"""A request with several parts over core alone: its app, as it was answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lockd.core.claims import Claims, Joint
from lockd.core.leases import Lease
from lockd.core.several import Several
from lockd.core.slot_names import slot_name
from lockd.core.slots import Slots
from lockd.core.values import Refusal
from tests.harness.clocks import MS
from tests.harness.fleet_model import App, Host

MIN_VALIDITY_MS = 10


class PartApp(App):
    """One part: what it is told goes to the request, as on the server."""

    whole: JointApp

    def granted(self, lease: Lease, now_ns: int) -> None:
        super().granted(lease, now_ns)
        self.whole.core.granted(self, lease, now_ns)

    def refused(self, refusal: Refusal) -> None:
        super().refused(refusal)
        self.whole.core.refused(self, refusal, self.time.now_ns)

    def lost(self, lease: Lease, reason: str) -> None:
        if not self.whole.claims.lost(lease, self.time.now_ns):
            super().lost(lease, reason)

    def ended(self, lease: Lease) -> None:
        super().ended(lease)
        self.whole.claims.ended(lease, self.time.now_ns)


class JointApp:
    """core.claims.Whole: one app's request, and all that it was answered."""

    core: Joint

    def __init__(self, host: Host, claims: Claims | None = None) -> None:
        self.host = host
        self.claims = claims or Claims()
        self.answers: list[list[Lease] | Refusal] = []
        self.fresh: list[Lease] = []

    def part(self, resource: bytes, **wanted: Any) -> PartApp:
        app = PartApp(self.host.time, resource, **wanted)
        app.whole = self
        return app

    def granted(self, leases: list[Lease], fresh: list[Lease], now_ns: int) -> None:
        self.answers.append(leases)
        self.fresh = fresh

    def refused(self, refusal: Refusal) -> None:
        self.answers.append(refusal)

    @property
    def leases(self) -> list[Lease]:
        [answer] = self.answers
        assert isinstance(answer, list), answer
        return answer

    @property
    def refusal(self) -> Refusal:
        [answer] = self.answers
        assert isinstance(answer, Refusal), answer
        return answer

    @property
    def code(self) -> str:
        """The first word of the error it got, 'granted', or '' while it waits."""
        if not self.answers:
            return ""
        return "granted" if isinstance(self.answers[0], list) else self.refusal.code

    def begins(self, *, ready: bool = True) -> None:
        self.core.begins(self.host.time.now_ns, ready=ready)
        self.host.pass_ms(0)

    def gone(self) -> None:
        """Its app goes, and all that follows from that is done."""
        self.core.gone(self.host.time.now_ns)
        self.host.pass_ms(0)


def several(
    host: Host, resources: Sequence[bytes], *, claims: Claims | None = None, ready: bool = True, **wanted: Any
) -> JointApp:
    """An app asks for several, and all masters that aren't slow answer."""
    whole = JointApp(host, claims)
    parts = [whole.part(resource, **wanted) for resource in resources]
    whole.core = Several(host.locks, whole.claims, parts, whole, MIN_VALIDITY_MS * MS)
    whole.begins(ready=ready)
    return whole


def slots(
    host: Host,
    number: int,
    *,
    claims: Claims | None = None,
    first: int = 0,
    ready: bool = True,
    value: bytes = b"",
    wait_ms: int | None = None,
    **wanted: Any,
) -> JointApp:
    """An app asks for one of so many slots of `r`, and all masters that aren't slow answer. first: the one
    that is tried first."""
    whole = JointApp(host, claims)
    order = [slot_name(b"r", (first + one) % number) for one in range(number)]
    wanted |= {"value": value, "counted": False}
    tries = [whole.part(name, **wanted) for name in order]
    waits = {"wait_ms": wait_ms, "named": bool(value)}
    places = [whole.part(name, **wanted | waits) for name in order] if wait_ms else []
    whole.core = Slots(host.locks, whole.claims, b"r", tries, places, whole)
    whole.begins(ready=ready)
    return whole
