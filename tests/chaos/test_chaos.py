"""Short campaigns on real processes (`make chaos` runs long ones), and proof that a campaign finds what is
wrong on purpose: an agent, a restart without a guard, a store that takes whatever comes."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import uvloop

from lockd.dev.processes import LOOPBACK
from lockd.masters import scripts
from tests.chaos.apps import App, Held, Wish
from tests.chaos.campaign import Outcome, Plan, Scene, campaign, scene
from tests.chaos.ground import Terms
from tests.chaos.hosts import until
from tests.chaos.nemesis import KINDS, NEEDS_DISKS
from tests.chaos.proxy import BOTH
from tests.chaos.report import as_text, keep
from tests.chaos.wire import Connection
from tests.harness.clock_shim import build
from tests.harness.disks import why_no_disks
from tests.harness.history import Abandoned, Event, Lost
from tests.harness.waiting import PATIENCE_S

pytestmark = pytest.mark.thorough

MIXES = {
    "masters and agents": ("kill", "stop", "wipe", "pause", "agent-kill", "agent-stop", "agent-pause"),
    "network and clocks": ("cut", "delay", "reset", "late", "clock"),
    "disks": ("power", "disk"),
    "agents with holders": (
        "agent-kill", "agent-stop", "agent-restart", "journal", "holder-kill", "holder-pause",
    ),
}  # fmt: skip
LONG_MS = 30_000
RESOURCE = b"r"


def fight(folder: Path, binary: Path, plan: Plan) -> Outcome:
    """A campaign in which nothing may be violated; what it leaves when something was is kept."""
    outcome = uvloop.run(campaign(folder, binary, plan))
    if outcome.violations:
        pytest.fail(as_text(plan, outcome, keep(plan, outcome, folder)))
    return outcome


def test_every_kind_of_fault_is_in_a_short_campaign() -> None:
    assert {kind for kinds in MIXES.values() for kind in kinds} == set(KINDS)


@pytest.mark.parametrize("mix", MIXES)
def test_no_promise_is_broken_under(mix: str, folder: Path, server_binary: Path) -> None:
    kinds = MIXES[mix]
    if set(kinds) & set(NEEDS_DISKS) and why_no_disks():
        pytest.skip(why_no_disks())
    if "clock" in kinds:
        build(folder)  # skips where it can't be
    plan = Plan(seconds=2, seed=1, kinds=kinds, apps=12, holders=2, pace_s=0.4)
    outcome = fight(folder, server_binary, plan)
    assert set(outcome.injected) == set(kinds)
    for what in ("grants", "refusals", "released", "tries", "writes", "grants to processes"):
        assert outcome.counts[what] > 0, what


# What a campaign is there for must be found


Script = Callable[[Scene], Awaitable[None]]


def violated(
    folder: Path, binary: Path, script: Script, *agents: str, checks_fences: bool = True, **terms: Any
) -> set[str]:
    """The promises that were broken when apps did just this; agents: what is wrong with each."""

    async def play() -> set[str]:
        wanted = Terms(agents=agents, **terms)
        async with scene(folder, binary, wanted, checks_fences) as made:
            await script(made)
            broken = await made.end()
            print(*broken, sep="\n")
            return {violation.promise for violation in broken}

    return uvloop.run(play())


async def an_app(made: Scene, agent: str) -> App:
    app = made.app(f"app on {agent}", agent)
    await app.connect()
    return app


def losses(events: list[Event]) -> list[Lost]:
    return [event for event in events if isinstance(event, Lost)]


async def locked(app: App, wish: Wish) -> Held:
    """Asked for until it is had: what is refused because this machine stood still is no answer."""
    end_s = time.monotonic() + PATIENCE_S
    while (held := await app.lock(wish)) is None:
        assert time.monotonic() < end_s, f"{app.name} does not get {wish}"
    return held


async def two_in_turn(made: Scene) -> None:
    """One app locks and keeps silent; one on another host waits for it, and writes before the first does."""
    first, second = await an_app(made, "a1"), await an_app(made, "a2")
    one = await locked(first, Wish(RESOURCE, 600, detached=True))
    two = await locked(second, Wish(RESOURCE, 600, wait_ms=20_000))
    second.write(two)
    first.write(one)


def test_two_in_turn_break_nothing(folder: Path, server_binary: Path) -> None:
    assert violated(folder, server_binary, two_in_turn, "", "") == set()


def test_deadlines_that_are_too_long_are_found(folder: Path, server_binary: Path) -> None:
    assert "exclusion" in violated(folder, server_binary, two_in_turn, "long deadlines", "")


def test_fences_that_do_not_grow_are_found(folder: Path, server_binary: Path) -> None:
    assert "fences" in violated(folder, server_binary, two_in_turn, "one fence", "one fence")


def test_a_store_that_does_not_check_fences_is_found(folder: Path, server_binary: Path) -> None:
    found = violated(folder, server_binary, two_in_turn, "", "", checks_fences=False)
    assert found == {"stale writes"}


def test_a_quorum_that_is_none_is_found(folder: Path, server_binary: Path) -> None:
    async def halves(made: Scene) -> None:
        first, second = await an_app(made, "a1"), await an_app(made, "a2")
        for master in ("m1", "m2", "m3"):
            made.ground.line("a1", master).hold(BOTH)
        for master in ("m4", "m5"):
            made.ground.line("a2", master).hold(BOTH)
        await locked(first, Wish(RESOURCE, LONG_MS, wait_ms=20_000, detached=True))
        await locked(second, Wish(RESOURCE, LONG_MS, wait_ms=20_000, detached=True))

    found = violated(folder, server_binary, halves, "small quorum", "small quorum", max_ttl_ms=LONG_MS)
    assert "exclusion" in found


def test_a_release_under_its_live_holder_is_found(folder: Path, server_binary: Path) -> None:
    async def hold(made: Scene) -> None:
        await locked(await an_app(made, "a1"), Wish(RESOURCE, LONG_MS, detached=True))
        await until(lambda: any(monitor.releases for monitor in made.monitors), "a release")

    found = violated(folder, server_binary, hold, "takes away", max_ttl_ms=LONG_MS)
    assert found == {"live releases"}


def test_a_loss_that_is_told_late_is_found(folder: Path, server_binary: Path) -> None:
    async def hold(made: Scene) -> None:
        app, events = await an_app(made, "a1"), made.recorder.events
        for told in range(1, 30):  # one that is late because this machine was busy is excused
            await locked(app, Wish(RESOURCE, 2_000, wait_ms=20_000, max_hold_ms=2_000, notify=True))
            await until(lambda told=told: len(losses(events)) == told, "it is told")  # type: ignore[misc]
            if not losses(events)[-1].excused:
                return

    assert violated(folder, server_binary, hold, "tells late") == {"notice"}


def test_what_a_failed_try_leaves_for_ever_is_found(folder: Path, server_binary: Path) -> None:
    async def leave(made: Scene) -> None:
        master = await Connection.to_port(LOOPBACK, made.ground.masters["m1"].process.port)
        key, token = scripts.LEASE_PREFIX + RESOURCE, b"0" * 32
        keys = (key, scripts.FENCES_KEY)
        electorate = (await master.ask("HGET", scripts.IDENTITY_KEY, "electorate")).value
        tried = await master.ask(
            "EVALSHA", scripts.ACQUIRE.digest, 2, *keys, token, b"0 host 1 1", 600, 1, 1, 64, electorate
        )
        assert tried.value[0] == 1
        await until(lambda: made.recorder.tries == 1, "the try is seen")
        await master.ask("PERSIST", key)
        await asyncio.sleep(3)  # longer than its TTL and all that may be late

    assert violated(folder, server_binary, leave, "") == {"leftovers"}


async def a_bare_quorum(made: Scene) -> None:
    """One app holds a lease that only m1, m2 and m3 know of: the other two are down."""
    for name in ("m4", "m5"):
        await made.ground.masters[name].kill()
    await made.ground.wait_voting(3)
    wish = Wish(RESOURCE, made.ground.terms.max_ttl_ms, wait_ms=20_000, detached=True)
    await locked(await an_app(made, "a1"), wish)


async def the_others_come_back(made: Scene) -> None:
    """And somebody on another host wants it too."""
    await asyncio.gather(*(made.ground.masters[name].start() for name in ("m4", "m5")))
    wish = Wish(RESOURCE, made.ground.terms.max_ttl_ms, wait_ms=40_000)
    await locked(await an_app(made, "a2"), wish)


@pytest.mark.parametrize("guarded", [False, True])
def test_a_master_that_lost_data_and_did_not_stay_out_is_found(
    guarded: bool, folder: Path, server_binary: Path
) -> None:
    async def lose(made: Scene) -> None:
        first = made.ground.masters["m1"]
        await first.stop()
        before = folder / "before"
        shutil.copytree(first.process.folder, before)
        await first.start()
        await a_bare_quorum(made)
        await first.put_back(before)
        await asyncio.gather(first.start(), the_others_come_back(made))

    ttl_ms = 2_000 if guarded else LONG_MS
    found = violated(folder, server_binary, lose, "", "", guarded=guarded, max_ttl_ms=ttl_ms)
    assert found == (set() if guarded else {"exclusion"})


@pytest.mark.parametrize("wrong", ["", "trusts clocks"])
def test_a_clock_that_is_trusted_when_it_jumped_is_found(
    wrong: str, folder: Path, server_binary: Path
) -> None:
    build(folder)  # skips where it can't be

    async def jump(made: Scene) -> None:
        await a_bare_quorum(made)
        clock = made.ground.masters["m1"].clock
        assert clock is not None
        clock.step(3_600_000_000_000)
        await the_others_come_back(made)

    # Nobody stays out here: the clock alone is what is wrong.
    ttl_ms = LONG_MS if wrong else 2_000
    terms: dict[str, Any] = {"clocks": True, "guarded": False, "max_ttl_ms": ttl_ms}
    assert violated(folder, server_binary, jump, wrong, wrong, **terms) == ({"exclusion"} if wrong else set())


def test_what_is_left_of_a_lease_that_looks_gone_keeps_others_out(folder: Path, server_binary: Path) -> None:
    """Two clocks of five jump, and to the agent the lease is gone from all but one master, which is all that
    keeps others out. Its holder is not reading just then: it learns of that later, and still relies on it."""
    build(folder)  # skips where it can't be

    async def jump(made: Scene) -> None:
        masters = made.ground.masters
        away, jumping = ("m4", "m5"), ("m2", "m3")
        for name in away:
            await masters[name].stop()  # cleanly: it may come back at once
        await made.ground.wait_voting(3)
        first, second = await an_app(made, "a1"), await an_app(made, "a2")
        ttl_ms = made.ground.terms.max_ttl_ms
        held = await locked(first, Wish(RESOURCE, ttl_ms, wait_ms=20_000, notify=True))
        sleeping = asyncio.ensure_future(first.sleep(ttl_ms / 1_000 + 1))
        for name in away:
            await masters[name].start()
        for name in jumping:
            clock = masters[name].clock
            assert clock is not None
            clock.step(3_600_000_000_000)
        await locked(second, Wish(RESOURCE, ttl_ms, wait_ms=40_000))
        await sleeping
        await until(lambda: bool(losses(made.recorder.events)), "it is told")
        assert losses(made.recorder.events)[0].token == held.token

    found = violated(folder, server_binary, jump, "", "", clocks=True, max_ttl_ms=8_000)
    assert found == set()


# What lives with a process


async def restarts(made: Scene, resources: int = 20, wanted: int = 4) -> None:
    """Processes hold locks; their agent is killed again and again. One that is wrong until that is seen."""
    agent = made.ground.agents["a1"]
    made.hold(6, [b"r%d" % number for number in range(resources)], Random(1))
    for number in range(12):
        await until(lambda: len(made.held) >= wanted, "they hold something")
        await agent.kill()
        before = made.held
        await agent.start()
        await until(lambda before=before: not before & made.held, "each has named what it held")  # type: ignore[misc]
        if made.broken() or (number >= 2 and not any(made.ground.terms.agents)):
            return


async def restarts_in_a_crowd(made: Scene) -> None:
    """What was taken over is handed on to who waits, with fences that the next agent had reserved."""
    await restarts(made, resources=3, wanted=2)


async def deaths(made: Scene) -> None:
    """Each of them is killed while it holds something, twice."""
    made.hold(5, [b"r0", b"r1", b"r2", b"d0", b"d1", b"d2"], Random(1))
    for holder in [*made.ground.holders.values()] * 2:
        await until(lambda holder=holder: holder.held, "it holds something")  # type: ignore[misc]
        holder.kill()
    await asyncio.sleep(5)  # longer than all that may be late


async def impatience(made: Scene) -> None:
    """They give up before they are answered."""
    made.hold(6, [b"r%d" % number for number in range(40)], Random(1), "impatient")
    events = made.recorder.events
    await until(lambda: sum(isinstance(event, Abandoned) for event in events) > 12, "they give up")
    await asyncio.sleep(3)  # longer than all that may be late


@pytest.mark.parametrize(
    ("wrong", "script", "promise"),
    [
        ("", restarts, ""),
        ("", restarts_in_a_crowd, ""),
        ("no journal", restarts, "kept"),
        ("all dead", restarts, "live releases"),
        ("", deaths, ""),
        ("none dead", deaths, "freed"),
        ("no lock delay", deaths, "lock delay"),
        ("keeps untold", impatience, "abandoned"),
    ],
)
def test_what_is_wrong_with_the_locks_of_processes_is_found(
    wrong: str, script: Script, promise: str, folder: Path, server_binary: Path
) -> None:
    found = violated(folder, server_binary, script, wrong, max_ttl_ms=8_000)
    assert promise in found if promise else found == set()
