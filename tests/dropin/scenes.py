"""What is played with each library, as far as it offers that.

Nothing is timed: that an end has passed shows in a second lock, taken later for as long, which is free again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tests.dropin.library import Library
from tests.dropin.program import Program, Trouble
from tests.dropin.stage import Stage
from tests.harness.waiting import eventually

SHORT_MS = 1_000
"""Libraries that count in seconds know no shorter one."""
LONG_MS = 30_000
WAIT_MS = 20_000

EXTENSIONS = ("extend", "add", "reacquire")


class Place(Enum):
    """Where a scene can be played."""

    ANYWHERE = "on a plain Redis too"
    AGENTS = "over agents"
    WITHOUT_A_MASTER = "over agents that have lost a master"


@dataclass(frozen=True)
class Scene:
    """`title`: its column. needs: what a library must offer one of."""

    title: str
    play: Callable[[Stage], None]
    needs: frozenset[str]
    place: Place

    def is_for(self, library: Library) -> bool:
        return not self.needs or bool(self.needs & library.offers)


SCENES: dict[str, Scene] = {}


def scene(
    title: str, *needs: str, place: Place = Place.ANYWHERE
) -> Callable[[Callable[[Stage], None]], Callable[[Stage], None]]:
    """A scene for the libraries that offer one of `needs`."""

    def kept(play: Callable[[Stage], None]) -> Callable[[Stage], None]:
        SCENES[play.__name__] = Scene(title, play, frozenset(needs), place)
        return play

    return kept


@scene("excludes")
def two_processes_exclude_each_other(stage: Stage) -> None:
    one, other, name = stage.on(0), stage.on(1), stage.a_name()
    assert one.acquire(name, LONG_MS)
    assert not other.acquire(name, LONG_MS)
    assert not stage.on(0, "third").acquire(name, LONG_MS)
    release(one, name)
    gets(other, name)
    assert not one.acquire(name, LONG_MS)
    release(other, name)


@scene("waits", "waits")
def one_that_waits_gets_it_when_it_is_released(stage: Stage) -> None:
    one, other, name = stage.on(0), stage.on(1), stage.a_name()
    third = stage.on(0, "third")
    assert one.acquire(name, LONG_MS)
    other.begin("acquire", name, ttl_ms=LONG_MS, wait_ms=WAIT_MS)
    assert not any(third.acquire(name, LONG_MS) for _ in range(3))
    release(one, name)
    assert other.answer()
    assert not third.acquire(name, LONG_MS)
    release(other, name)


@scene("expires")
def a_lock_ends_with_its_ttl(stage: Stage) -> None:
    one, other, name = stage.on(0), stage.on(1), stage.a_name()
    assert one.acquire(name, SHORT_MS)
    gets(other, name)
    assert not one.acquire(name, LONG_MS)
    release(other, name)


@scene("late release refused")
def who_releases_too_late_releases_nobody_else_s(stage: Stage) -> None:
    one, other, name = stage.on(0), stage.on(1), stage.a_name()
    assert one.acquire(name, SHORT_MS)
    gets(other, name)
    assert not one.ask("release", name)
    assert not stage.on(0, "third").acquire(name, LONG_MS)
    release(other, name)


@scene("extends", *EXTENSIONS)
def an_extended_lock_is_held_for_longer(stage: Stage) -> None:
    one, other = stage.on(0), stage.on(1)
    names = [extended(stage, verb) for verb in EXTENSIONS if verb in stage.library.offers]
    as_long_as_it_was(stage)
    for name in names:
        assert not other.acquire(name, LONG_MS)
        release(one, name)
        gets(other, name)
        release(other, name)


@scene("late extension refused", *EXTENSIONS)
def who_extends_too_late_extends_nobody_else_s(stage: Stage) -> None:
    one, other, name = stage.on(0), stage.on(1), stage.a_name()
    assert one.acquire(name, SHORT_MS)
    gets(other, name)
    for verb in EXTENSIONS:
        if verb in stage.library.offers:
            assert not one.ask(verb, name, ttl_ms=LONG_MS)
    assert not stage.on(0, "third").acquire(name, LONG_MS)
    release(other, name)


@scene("who has it", "locked", "owned")
def it_says_who_has_it(stage: Stage) -> None:
    one, other, name = stage.on(0), stage.on(1), stage.a_name()
    assert one.acquire(name, LONG_MS)
    for verb, of_other in (("locked", True), ("owned", False)):
        if verb in stage.library.offers:
            assert one.ask(verb, name)
            assert bool(other.ask(verb, name)) == of_other
    release(one, name)
    gets(other, name)
    if "owned" in stage.library.offers:
        assert other.ask("owned", name)
        assert not one.ask("owned", name)
    release(other, name)
    if "locked" in stage.library.offers:
        eventually(lambda: not one.ask("locked", name), "it is free")


@scene("released elsewhere", "release_as")
def another_host_releases_by_the_token(stage: Stage) -> None:
    one, other, name = stage.on(0), stage.on(1), stage.a_name()
    assert one.acquire(name, LONG_MS)
    assert stage.on(0, "third").ask("release_as", name, token="nobody-s") is not True
    assert not other.acquire(name, LONG_MS)
    assert other.ask("release_as", name, token=one.ask("token", name)) is not False
    gets(other, name)
    release(other, name)


@scene("a thread's own", "release_in_thread")
def a_thread_releases_only_what_is_its_own_or_shared(stage: Stage) -> None:
    one, other, name = stage.on(0), stage.on(1), stage.a_name()
    assert one.acquire(name, LONG_MS)
    assert not one.ask("release_in_thread", name)
    assert not other.acquire(name, LONG_MS)
    release(one, name)
    gets(one, name, thread_local=False)
    assert one.ask("release_in_thread", name)
    gets(other, name)
    release(other, name)


@scene("without a TTL", "for ever")
def a_lock_without_a_ttl_is_held_while_its_process_lives(stage: Stage) -> None:
    one, other, name = stage.on(0), stage.on(1), stage.a_name()
    assert one.acquire(name, None)
    as_long_as_it_was(stage)
    assert not other.acquire(name, None)
    release(one, name)
    gets(other, name, None)
    release(other, name)


@scene("freed by death", "for ever", place=Place.AGENTS)
def a_dead_process_frees_what_has_no_ttl(stage: Stage) -> None:
    dying, other, name = stage.one_more_on(0), stage.on(1), stage.a_name()
    assert dying.acquire(name, None)
    assert not other.acquire(name, LONG_MS)
    dying.kill()
    gets(other, name)
    release(other, name)


@scene("agent restarts", place=Place.AGENTS)
def an_agent_restarts_while_a_lock_is_held(stage: Stage) -> None:
    one, other, names = stage.one_more_on(0), stage.on(1), [stage.a_name()]
    assert one.acquire(names[0], LONG_MS)
    if "for ever" in stage.library.offers:
        names.append(stage.a_name())
        assert one.acquire(names[1], None)
    stage.hosts.restart_agent(0)
    for name in names:
        assert not other.acquire(name, LONG_MS)
    if "extend" in stage.library.offers:
        assert after_trouble(one, "extend", names[0], ttl_ms=LONG_MS)
    for name in names:
        assert after_trouble(one, "release", name) is not False
        gets(other, name)
        release(other, name)


@scene("a master down", place=Place.WITHOUT_A_MASTER)
def all_goes_on_without_one_of_the_masters(stage: Stage) -> None:
    two_processes_exclude_each_other(stage)
    who_releases_too_late_releases_nobody_else_s(stage)
    if EXTENSIONS[0] in stage.library.offers:
        an_extended_lock_is_held_for_longer(stage)
        who_extends_too_late_extends_nobody_else_s(stage)


def release(program: Program, name: str) -> None:
    """By who has it. Some libraries don't say whether they did."""
    assert program.ask("release", name) is not False


def gets(program: Program, name: str, ttl_ms: int | None = LONG_MS, **options: Any) -> None:
    """It tries until it does. A machine that stood still for a second gives nothing for once, and says so."""

    def acquired() -> bool:
        try:
            return program.acquire(name, ttl_ms, **options)
        except Trouble as trouble:
            if "NOQUORUM" not in str(trouble):
                raise
            return False

    eventually(acquired, "it is free")


def extended(stage: Stage, verb: str) -> str:
    """The name of a lock that was taken for a short time, and extended before that was over."""
    one = stage.on(0)

    def done() -> str:
        name = stage.a_name()
        assert one.acquire(name, SHORT_MS)
        return name if one.ask(verb, name, ttl_ms=LONG_MS) else ""

    return eventually(done, f"{verb} comes in time")


def as_long_as_it_was(stage: Stage) -> None:
    """Until all that was taken before for a short time, and not extended, has ended."""
    name = stage.a_name()
    assert stage.on(0).acquire(name, SHORT_MS)
    gets(stage.on(1), name)
    release(stage.on(1), name)


def after_trouble(program: Program, verb: str, name: str, **words: Any) -> Any:
    """What it says once its connection, which has ended, is made anew: some tell their app first."""
    [said] = eventually(lambda: [program.ask(verb, name, **words)], verb, not_yet=(Trouble,))
    return said
