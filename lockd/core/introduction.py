"""What a master is asked on a new connection before anything else, and at each look at it: one thing after
the other, and what follows from each answer.

Whoever carries the bytes takes a step, and sends its answer into the generator; where the step fails or the
connection breaks, it ends there.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from lockd.core.link import Link
from lockd.core.membership import State


@dataclass(frozen=True, slots=True)
class ReadFacts:
    """The answer is its MasterFacts."""


@dataclass(frozen=True, slots=True)
class NoteCopy:
    """Write down on it that it is a promoted copy. Where that can't be done (a full disk), the next look
    tries again."""


@dataclass(frozen=True, slots=True)
class ReadCounter:
    """The answer is the fence counter as the master has it, "0" where it has none, and its clock in µs."""

    slot: int


@dataclass(frozen=True, slots=True)
class EndSession:
    """Have it throw away what came on the connection of that number and was not run yet."""

    number: int


@dataclass(frozen=True, slots=True)
class HaveScripts:
    """See that it has the scripts, or bring them."""


@dataclass(frozen=True, slots=True)
class HearNotices:
    """Have it say on this connection what its notices are. A master that can't votes all the same."""


Step = ReadFacts | NoteCopy | ReadCounter | EndSession | HaveScripts | HearNotices
Steps = Generator[Step, Any, bool]
"""They end with whether it may be asked."""

Now = Callable[[], int]


def introduce(link: Link, session: int, now_ns: Now) -> Steps:
    """session: the number that the master has given to this connection."""
    yield from _look(link, now_ns)
    if link.state is State.LOADING:
        return False
    # What lies in the old connection must not run after what comes now (rule 3).
    old = link.session_to_end()
    if old is not None:
        yield EndSession(old)
    link.session_began(session)
    yield HaveScripts()
    yield HearNotices()
    link.introduce(now_ns())
    return True


def look_again(link: Link, now_ns: Now) -> Steps:
    """At one that is introduced."""
    yield from _look(link, now_ns)
    link.ask_refused_again(now_ns())
    return True


def beat(link: Link, now_ns: Now) -> Steps:
    """Every few seconds, or when something looked wrong: what it refused with an error is asked again,
    too."""
    yield from look_again(link, now_ns)
    link.settle_debts(now_ns(), after_break=False)
    return True


def _look(link: Link, now_ns: Now) -> Generator[Step, Any, None]:
    link.inspected((yield ReadFacts()), now_ns())
    if link.copy_to_write_down:
        yield NoteCopy()
    slot = link.counter_to_read
    if slot is not None:
        stored, master_us = yield ReadCounter(slot)
        link.counter_read(slot, stored, master_us, now_ns())
