"""What happened in a run, as the checker reads it: the same for simulated clusters and for real ones.

All times are true time, in ns on one clock: virtual time in the simulator, CLOCK_BOOTTIME of the one machine
that a real campaign runs on. A recorder notes what an app may rely on as late as it learns of it, and what it
lets go as early as it decides to: whatever overlaps in a history has then overlapped in truth.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Event:
    at_ns: int

    def __str__(self) -> str:
        values = ", ".join(
            f"{f.name}={_short(getattr(self, f.name))}" for f in fields(self) if f.name != "at_ns"
        )
        return f"{self.at_ns / 1e9:12.6f}  {type(self).__name__:<9}{values}"


def _short(value: object) -> str:
    return value[:8].decode() if isinstance(value, bytes) and len(value) == 32 else str(value)


@dataclass(frozen=True, slots=True)
class Asked(Event):
    """An app asked for a resource. wait_ms None: it doesn't wait. `request` is unique in a history."""

    request: int
    app: str
    resource: bytes
    ttl_ms: int
    wait_ms: int | None = None
    max_hold_ms: int | None = None
    by_process: bool = True
    """The lock lives with its process, not with its connection."""
    host: str = ""
    """Whose agent it asks, where that is known."""
    whole: int = 0
    """Those with the same number are asked for together: all of them, or none."""
    among: tuple[bytes, ...] = ()
    """It is for one of these, whichever is free."""


@dataclass(frozen=True, slots=True)
class Granted(Event):
    """The app has the answer: it holds the resource until `deadline_ns`. tried_ns: when the try began that
    brought it, or the last proof of the tenure that it was handed on under; None where that isn't known: then
    when it was asked for. answered_ns: when the agent gave the answer, where that is known. unseen_ns: for
    how much longer it seems to last on its host, which stood still, without anybody there being able to know.
    token: a name of this lease alone; its first 32 digits are what the masters know its tenure by. secret:
    what its app names it by, where the agent made that up and it is known."""

    request: int
    resource: bytes
    token: bytes
    fence: int
    deadline_ns: int
    tried_ns: int | None = None
    answered_ns: int | None = None
    unseen_ns: int = 0
    secret: bytes = b""


@dataclass(frozen=True, slots=True)
class Handed(Event):
    """An agent gives out that lease, as the first of its tenure or a later one."""

    token: bytes


@dataclass(frozen=True, slots=True)
class Forced(Event):
    """An operator takes that tenure from the masters, or that lease."""

    token: bytes


@dataclass(frozen=True, slots=True)
class Answered(Event):
    """The agent has answered this request with that lease; whether the app has read it is another matter.
    bound: what it lives with."""

    request: int
    token: bytes
    bound: str


@dataclass(frozen=True, slots=True)
class Claimed(Event):
    """The agent has that lease for this request, which has no answer yet: it is for more than one, or for
    another one."""

    request: int
    token: bytes


@dataclass(frozen=True, slots=True)
class HadSlot(Event):
    """The agent has answered this request while another lease of its name is held there: a slot that an
    UNLOCK by the name would leave held. answer: 'granted', or the error."""

    request: int
    token: bytes
    answer: str


@dataclass(frozen=True, slots=True)
class LostUntold(Event):
    """Lost, while no request that it was granted to had an answer."""

    token: bytes


@dataclass(frozen=True, slots=True)
class Declined(Event):
    """The agent has said no to this request; whether the app has read it is another matter."""

    request: int


@dataclass(frozen=True, slots=True)
class TakenBack(Event):
    """An UNLOCK of this request by its name has come to its agent: it is over."""

    request: int


@dataclass(frozen=True, slots=True)
class HungUp(Event):
    """The app has closed the connection on which it asked, and had read no answer. alone: nothing else was
    asked there, so the agent can know."""

    request: int
    alone: bool = True


@dataclass(frozen=True, slots=True)
class Refused(Event):
    """The app was told no. `code` is the first word of the error."""

    request: int
    code: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Waited(Event):
    """A command of that modest app begins, so long after it came to the agent."""

    app: str
    waited_ns: int


@dataclass(frozen=True, slots=True)
class Stocked(Event):
    """How much all accounts have held of what an agent has, at most."""

    host: str
    stock: str
    peak: int
    total: int


@dataclass(frozen=True, slots=True)
class Withdrawn(Event):
    """Nobody waits for this answer any more: the app died, or its agent, or the connection between them."""

    request: int


@dataclass(frozen=True, slots=True)
class Extended(Event):
    """The holder was told that it may go on until then. asked: it had asked for that itself."""

    token: bytes
    deadline_ns: int
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Moved(Event):
    """What the holder was told comes then: its host's clock goes faster or slower from now on."""

    token: bytes
    deadline_ns: int


@dataclass(frozen=True, slots=True)
class LetGo(Event):
    """The holder doesn't rely on it any more. why: 'unlock' (about to be sent), 'died' (and its session lock
    with it), 'left' (a detached lease, to its TTL), 'lost' (was told), 'forced'."""

    token: bytes
    why: str


@dataclass(frozen=True, slots=True)
class Unlocked(Event):
    """Its UNLOCK was answered: it is given back."""

    token: bytes


@dataclass(frozen=True, slots=True)
class Abandoned(Event):
    """Whoever had asked for this has read no answer, has closed the connection, and won't ask again."""

    token: bytes
    app: str


@dataclass(frozen=True, slots=True)
class Missed(Event):
    """The holder named its lease, and was told that it isn't held any more."""

    token: bytes
    why: str


@dataclass(frozen=True, slots=True)
class Lost(Event):
    """The agent told the holder that the lease can't be renewed: it ends at `deadline_ns` (rule 12).
    excused: that came late for a cause that no agent can do anything about, such as its process being
    stopped."""

    token: bytes
    deadline_ns: int
    excused: bool = False


@dataclass(frozen=True, slots=True)
class Believes(Event):
    """The holder's host stood still for so long, which its clock doesn't show: until it is told, it will rely
    on the lease until then."""

    token: bytes
    host: str
    for_ns: int
    deadline_ns: int


@dataclass(frozen=True, slots=True)
class ExtensionAsked(Event):
    """The holder asks its agent to extend it to this TTL: it may have that from now on, answered or not."""

    token: bytes
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class Forgot(Event):
    """The holder does nothing more with the lease, and nothing to end it."""

    token: bytes


@dataclass(frozen=True, slots=True)
class Stopped(Event):
    """That process does nothing from here on, until it goes on."""

    who: str


@dataclass(frozen=True, slots=True)
class WentOn(Event):
    who: str


@dataclass(frozen=True, slots=True)
class Knows(Event):
    """The agent of that host has heard from a quorum of masters for how long it stood still."""

    host: str


@dataclass(frozen=True, slots=True)
class Slewed(Event):
    """The clock of that agent's host is slewed faster than is allowed, for so long that it must know."""

    host: str


@dataclass(frozen=True, slots=True)
class InStep(Event):
    """It is not slewed any more."""

    host: str


@dataclass(frozen=True, slots=True)
class Wrote(Event):
    """A write reached the resource, which checks fences, and was accepted or not."""

    resource: bytes
    token: bytes
    fence: int
    accepted: bool


@dataclass(frozen=True, slots=True)
class Tried(Event):
    """A try for a lease went out. host: whose agent tried, where that is known."""

    resource: bytes
    token: bytes
    ttl_ms: int
    host: str = ""


@dataclass(frozen=True, slots=True)
class Landed(Event):
    """A master said yes to a try, or put a lease back: it is there for its TTL from now."""

    master: str
    token: bytes
    host: str = ""
    put_back: bool = False


@dataclass(frozen=True, slots=True)
class Prolonged(Event):
    """A master went on with this lease: it is there for another TTL from now. host: whose agent had asked."""

    master: str
    token: bytes
    host: str = ""


@dataclass(frozen=True, slots=True)
class GivenBack(Event):
    """A release of this lease ran on a master, whether the lease was there or not."""

    master: str
    token: bytes
    host: str = ""


@dataclass(frozen=True, slots=True)
class Failed(Event):
    """That try brought nothing, and was given back."""

    token: bytes


@dataclass(frozen=True, slots=True)
class Removed(Event):
    """A release took this lease from a master. word: what its app named it by, where it was released so;
    host: whose agent had asked for that."""

    master: str
    token: bytes
    word: bytes = b""
    host: str = ""


@dataclass(frozen=True, slots=True)
class ReleasedByValue(Event):
    """An app has this agent release what is locked with that value, whosever lease it is by now: several
    have the same. As in Redis, it may be another's."""

    resource: bytes
    word: bytes
    host: str


@dataclass(frozen=True, slots=True)
class ToldGone(Event):
    """Its holder has an agent release that lease by its value, and is told that nobody holds it so."""

    token: bytes


@dataclass(frozen=True, slots=True)
class Found(Event):
    """A look at a master found this lease there."""

    master: str
    resource: bytes
    token: bytes


@dataclass(frozen=True, slots=True)
class Died(Event):
    """The agent of a host ended, and with it all that it still had to say."""

    host: str


@dataclass(frozen=True, slots=True)
class Began(Event):
    """The agent of a host has begun to serve, and has taken over what the one before held. trusts: its
    journal was whole, and it could see which processes are alive."""

    host: str
    trusts: bool = True


@dataclass(frozen=True, slots=True)
class TakenOver(Event):
    """The masters are asked to know the lease `before` by `token` from now on."""

    before: bytes
    token: bytes
    host: str


@dataclass(frozen=True, slots=True)
class Read(Event):
    """The agent of a host has learned that the app of this lease knows of its grant."""

    token: bytes
    host: str


@dataclass(frozen=True, slots=True)
class Fault(Event):
    """Something was broken, or mended, on purpose."""

    what: str


@dataclass(frozen=True, slots=True)
class Calm(Event):
    """No faults from here on: all is mended."""


@dataclass(frozen=True, slots=True)
class Ended(Event):
    """The end of the run; nothing is known of what came after."""
