"""A host whose clock is slewed too fast grants nothing (rule 11e)."""

from types import SimpleNamespace
from typing import Any

import pytest

from lockd.clock import slewed_by_now_ns
from lockd.core.admission import Numbered
from lockd.core.slewing import Reading, Slewing
from lockd.masters.fleet import Fleet
from lockd.server.commands.operators import Operators
from tests.harness.clocks import S
from tests.harness.real_fleet import a_fleet


def slewed(ppm: int, seconds: int, vague_ns: int = 1_000) -> Slewing:
    """Looked at four times a second for so long."""
    slewing = Slewing()
    for quarter in range(4 * seconds + 1):
        at_ns = quarter * S // 4
        ahead_ns = at_ns * ppm // 1_000_000
        slewing.look(Reading(ahead_ns - vague_ns, ahead_ns, at_ns))
    return slewing


@pytest.mark.parametrize("ppm", [500, -500, 990, -990])
def test_what_a_time_server_slews_at_most_is_let_pass(ppm: int) -> None:
    assert abs(slewed(ppm, 30).ppm) <= 1_000


@pytest.mark.parametrize("ppm", [1_100, -1_100, 83_333, -83_333])
def test_faster_is_said(ppm: int) -> None:
    slewing = slewed(ppm, 30)
    assert slewing.ppm == pytest.approx(ppm, rel=0.01)
    at_ns = 30 * S + S // 4
    assert "ppm" in slewing.look(Reading(at_ns * ppm // 1_000_000 - 1_000, at_ns * ppm // 1_000_000, at_ns))


def test_what_a_pause_has_made_vague_or_a_second_alone_has_shown_is_no_slewing() -> None:
    slewing = slewed(0, 30)
    assert slewing.look(Reading(-S, S, 31 * S)) == ""
    slewing = Slewing()
    slewing.look(Reading(0, 0, 0))
    assert slewing.look(Reading(S // 100, S // 100, S // 2)) == ""


def test_it_is_over_ten_seconds_after_it_was() -> None:
    slewing, ahead_ns = slewed(5_000, 10), 10 * S // 200
    for quarter in range(44):
        why = slewing.look(Reading(ahead_ns, ahead_ns, 10 * S + quarter * S // 4))
    assert why == ""


def slew(fleet: Fleet, ppm: int, from_s: int, to_s: int) -> None:
    """What the agent's clock shows is what it takes for the time."""
    for at_s in range(from_s, to_s + 1):
        ahead_ns = (at_s - from_s) * S * ppm // 1_000_000
        fleet.look_at_own_clock(Reading(ahead_ns, ahead_ns, at_s * S), at_s * S)


def test_how_long_a_master_is_blank_and_its_number_known_is_measured_by_no_clock_that_is_slewed() -> None:
    """Or a max TTL seems to be over before it is, and a lease of before still held (rule 8)."""
    fleet = a_fleet()
    blank, voting, _ = fleet.links
    blank.blank_since_ns, blank.numbered = 1 * S, Numbered(2, 3 * S)
    slew(fleet, 500, 1, 50)
    assert (blank.blank_since_ns, blank.numbered) == (1 * S, Numbered(2, 3 * S))
    slew(fleet, 50_000, 50, 60)
    assert fleet.own_clock is not None
    assert (blank.blank_since_ns, blank.numbered) == (60 * S, Numbered(2, 60 * S))
    assert (voting.blank_since_ns, voting.numbered) == (None, None)


@pytest.mark.parametrize("how", [b"", b"UNUSED", b"RECOVER", b"UPGRADE", None])
async def test_nothing_is_formed_or_admitted_while_this_hosts_clock_is_slewed(how: bytes | None) -> None:
    fleet = a_fleet()
    slew(fleet, 50_000, 1, 10)
    locks, session = SimpleNamespace(known_counters=dict), SimpleNamespace(peer=None)
    asked: Any = Operators(fleet, locks, metrics=None, log=None)  # type: ignore[arg-type]
    answer = await (asked.admit(session, "m1", None) if how is None else asked.form(session, how, None))
    assert answer.startswith(b"-CLOCK this host's clock is slewed by")


def test_the_clocks_of_this_machine_are_read_within_bounds() -> None:
    low_ns, high_ns, raw_ns = slewed_by_now_ns()
    assert low_ns <= high_ns
    assert raw_ns > 0
