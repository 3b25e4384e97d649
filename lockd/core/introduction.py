"""The questions that a master is asked on a new connection before all others, and at each look at it, one
after the other, and what follows from each answer.

The driver takes a step, asks, and sends the answer into the generator. If the step fails or the connection
breaks, the generator ends there.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from lockd.core.link import Link
from lockd.core.membership import State


@dataclass(frozen=True, slots=True)
class ReadFacts:
    """The answer is its MasterFacts, with the fence counters of these slots."""

    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NoteCopy:
    """Note on it that it is a promoted copy. If that can't be written (a full disk), the next look tries
    again."""


@dataclass(frozen=True, slots=True)
class ReadCounter:
    """The answer is the fence counter as the master stores it ("0" if there is none), and its clock in µs."""

    slot: int


@dataclass(frozen=True, slots=True)
class EndSession:
    """Have it drop what arrived on the connection of that number and was not run yet."""

    number: int


@dataclass(frozen=True, slots=True)
class HaveScripts:
    """Check that it has the scripts, or load them."""


@dataclass(frozen=True, slots=True)
class HearNotices:
    """Subscribe to its notices on this connection. A master that can't send them votes all the same."""


Step = ReadFacts | NoteCopy | ReadCounter | EndSession | HaveScripts | HearNotices
Steps = Generator[Step, Any, bool]
"""The steps return whether the master may be asked."""

Now = Callable[[], int]


def introduce(link: Link, session: int, now_ns: Now) -> Steps:
    """session: the number that the master has given to this connection."""
    yield from _look(link, now_ns)
    if link.state is State.LOADING:
        return False
    # What is still in the old connection must not run after what comes now (rule 3).
    old = link.session_to_end()
    if old is not None:
        yield EndSession(old)
    link.session_began(session)
    yield HaveScripts()
    yield HearNotices()
    link.introduce(now_ns())
    return True


def look_again(link: Link, now_ns: Now) -> Steps:
    """The steps for a master that is introduced."""
    yield from _look(link, now_ns)
    link.ask_refused_again(now_ns())
    return True


def beat(link: Link, now_ns: Now) -> Steps:
    """Every few seconds, or when something looked wrong. What it refused with an error is asked again,
    too."""
    yield from look_again(link, now_ns)
    link.settle_debts(now_ns(), after_break=False)
    return True


def _look(link: Link, now_ns: Now) -> Generator[Step, Any, None]:
    link.inspected((yield ReadFacts(link.counters.next_slots())), now_ns())
    if link.copy_to_write_down:
        yield NoteCopy()
    slot = link.counter_to_read
    if slot is not None:
        stored, master_us = yield ReadCounter(slot)
        link.counter_read(slot, stored, master_us, now_ns())
