"""Each check of `lockctl doctor` on facts of its own."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lockd import __version__
from lockd.lockctl.doctor import (
    AgentAnswer,
    CanaryRun,
    ConfigFile,
    Finding,
    Grant,
    LeaseRow,
    MasterRow,
    Severity,
    SocketFile,
    check_agent,
    check_boottime,
    check_canary,
    check_clocks,
    check_configuration,
    check_fences,
    check_leases,
    check_masters,
    check_max_ttl,
    check_quorum,
    check_round_trips,
    check_slewing,
    check_socket,
    check_versions,
    examine,
    fly_canary,
    worst_of,
)
from lockd.lockctl.errors import Refused, Unreachable

OK, WARNING, FAILURE = Severity

WELL = MasterRow("m1", "up", 1, "", 400, 10, "Redis 7.0.15", 60_000)
MS = 1_000_000


def masters(*changes: dict[str, Any]) -> list[MasterRow]:
    """Five masters m1 … m5 that are well, but for these changes to the first ones."""
    five = [replace(WELL, name=f"m{number}") for number in range(1, 6)]
    return [
        replace(master, **change)
        for master, change in zip(five, (*changes, {}, {}, {}, {}, {}), strict=False)
    ]


DOWN = {"state": "down", "vote": 0, "reason": "connection refused"}


def the(findings: list[Finding]) -> Finding:
    [finding] = findings
    return finding


def test_the_worst_finding_is_the_verdict() -> None:
    assert worst_of([]) is OK
    assert worst_of([Finding("a", OK, ""), Finding("b", WARNING, "")]) is WARNING
    assert worst_of([Finding("a", FAILURE, ""), Finding("b", WARNING, "")]) is FAILURE


def test_everything_that_is_not_well_says_what_to_do_next(tmp_path: Path) -> None:
    bad = [
        *check_socket(SocketFile.at(str(tmp_path / "none"))),
        *check_agent(AgentAnswer(200_000, {"lockd_version": "0", "draining": 1})),
        *check_slewing(AgentAnswer(1, {"clock_slew_ppm": 1_200})),
        *check_configuration(ConfigFile("f", problems="cluster: missing"), AgentAnswer(1, {})),
        *check_configuration(ConfigFile("f", fingerprint="a"), AgentAnswer(1, {"config_fingerprint": "b"})),
        *check_quorum(masters(DOWN)),
        *check_masters([replace(WELL, vote=0, state=state) for state in ("up", "down", "blank", "new")]),
        *check_round_trips(masters({"rtt_us": 90_000})),
        *check_clocks(masters({"clock_offset_us": -80_000})),
        *check_max_ttl(masters({"max_ttl_ms": 1000}), None),
        *check_versions(masters({"version": "Redis 6.2.14"})),
        *check_canary(CanaryRun(trouble=Unreachable("it is gone"))),
        *check_leases([LeaseRow("a", 5000, 3, 5)]),
    ]
    assert all(finding.severity is not OK and finding.then for finding in bad)


# The socket


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


def test_a_socket_that_we_may_use_is_well(tmp_path: Path) -> None:
    a_socket(tmp_path / "s")
    assert the(check_socket(SocketFile.at(str(tmp_path / "s")))).severity is OK


def test_a_missing_socket_and_a_file_in_its_place_are_failures(tmp_path: Path) -> None:
    assert "is not there" in the(check_socket(SocketFile.at(str(tmp_path / "s")))).what
    (tmp_path / "s").touch()
    assert "is no socket" in the(check_socket(SocketFile.at(str(tmp_path / "s")))).what


def test_a_socket_that_we_may_not_use_shows_its_mode() -> None:
    finding = the(check_socket(SocketFile("/s", 0o140600, writable=False, folder_mode=0o40755)))
    assert finding.severity is FAILURE
    assert "0600" in finding.what


@pytest.mark.parametrize(("folder_mode", "severity"), [(0o40755, OK), (0o41777, OK), (0o40777, WARNING)])
def test_a_folder_where_anybody_could_put_another_socket_is_a_warning(
    folder_mode: int, severity: Severity
) -> None:
    assert the(check_socket(SocketFile("/s", 0o140660, True, folder_mode))).severity is severity


# The agent


def test_an_agent_of_another_version_is_a_warning() -> None:
    assert the(check_agent(AgentAnswer(500, {"lockd_version": __version__}))).severity is OK
    finding = the(check_agent(AgentAnswer(500, {"lockd_version": "9.9.9"})))
    assert finding.severity is WARNING
    assert "9.9.9" in finding.what


def test_a_slow_agent_and_one_that_is_stopping_are_warnings() -> None:
    found = check_agent(AgentAnswer(300_000, {"lockd_version": __version__, "draining": 1}))
    assert [finding.severity for finding in found] == [WARNING, WARNING]


def test_the_configuration_is_compared_only_when_it_is_given() -> None:
    agent = AgentAnswer(1, {"config_fingerprint": "0123456789ab"})
    assert check_configuration(None, agent) == []
    assert the(check_configuration(ConfigFile("f", fingerprint="0123456789ab"), agent)).severity is OK
    assert the(check_configuration(ConfigFile("f", fingerprint="ffffffffffff"), agent)).severity is WARNING


# The masters


@pytest.mark.parametrize(
    ("down", "severity", "words"),
    [
        (0, OK, "2 may fail"),
        (1, WARNING, "1 more may fail"),
        (2, WARNING, "not one more"),
        (3, FAILURE, "2 of 5"),
    ],
)
def test_the_quorum_and_its_margin(down: int, severity: Severity, words: str) -> None:
    finding = the(check_quorum(masters(*[DOWN] * down)))
    assert finding.severity is severity
    assert words in finding.what


def test_a_lost_quorum_is_that_of_this_host_since_nothing_is_known_of_others() -> None:
    assert "on this host" in the(check_quorum(masters(*[DOWN] * 3))).then


def test_a_single_master_that_votes_is_well() -> None:
    assert the(check_quorum([WELL])).severity is OK


def test_each_master_without_a_vote_gets_a_finding_with_its_reason() -> None:
    found = check_masters(masters(DOWN, {"vote": 0, "reason": "its clock jumped"}))
    assert [finding.what for finding in found] == [
        "m1 has no vote: down, connection refused",
        "m2 has no vote: up, its clock jumped",
    ]
    assert check_masters(masters()) == []


def test_blank_masters_are_admitted_and_all_blank_ones_are_formed() -> None:
    blank = {"state": "blank", "vote": 0}
    assert the(check_masters(masters(blank))).then == "lockctl master admit m1"
    assert {finding.then for finding in check_masters(masters(*[blank] * 2))} == {
        "lockctl master admit m1",
        "lockctl master admit m2",
    }
    assert {finding.then for finding in check_masters(masters(*[blank] * 5))} == {"lockctl cluster init"}


@pytest.mark.parametrize("wiped", [3, 4])
def test_a_wiped_majority_starts_anew_with_what_is_left(wiped: int) -> None:
    """Neither can the blank ones be admitted, nor a cluster be formed of them."""
    found = check_masters(masters(*[{"state": "blank", "vote": 0}] * wiped))
    assert len(found) == wiped
    assert all(finding.then.startswith("lockctl cluster recover") for finding in found)


def test_a_copy_is_to_be_wiped_and_never_put_into_another_entry() -> None:
    then = the(check_masters(masters({"state": "copied", "vote": 0}))).then
    assert then.startswith("wipe it and admit it")
    assert "entry" not in then


def test_one_that_was_away_is_admitted_by_its_name() -> None:
    then = the(check_masters(masters({}, {"state": "outdated", "vote": 0}))).then
    assert then == "lockctl master admit m2"


def test_a_slow_master_is_named_unless_it_has_no_vote_anyway() -> None:
    assert "m1 takes 90 ms" in the(check_round_trips(masters({"rtt_us": 90_000}))).what
    assert the(check_round_trips(masters({"rtt_us": 90_000, "vote": 0}))).severity is OK


def test_a_clock_that_is_off_is_named_and_an_unknown_one_is_not() -> None:
    assert "m1 by -80 ms" in the(check_clocks(masters({"clock_offset_us": -80_000}))).what
    assert the(check_clocks(masters({"clock_offset_us": None}))).severity is OK


def test_masters_that_differ_in_their_ceiling_are_a_warning() -> None:
    assert "m1 30000 ms" in the(check_max_ttl(masters({"max_ttl_ms": 30_000}), None)).what


@pytest.mark.parametrize(("configured_ms", "severity"), [(60_000, OK), (50_000, WARNING), (70_000, FAILURE)])
def test_a_configuration_above_the_ceiling_is_a_failure(configured_ms: int, severity: Severity) -> None:
    assert the(check_max_ttl(masters(), ConfigFile("f", configured_ms))).severity is severity


def test_masters_without_an_identity_have_no_ceiling_to_compare() -> None:
    assert check_max_ttl([replace(WELL, max_ttl_ms=None)], None) == []


def test_versions_that_differ_are_listed() -> None:
    assert "Redis 6.2.14: m1" in the(check_versions(masters({"version": "Redis 6.2.14"}))).what
    assert the(check_versions(masters({"version": ""}))).severity is OK


# Locks on trial

GRANT = Grant(asked_ns=1000 * MS, answered_ns=1003 * MS, ttl_ms=5000, fence=7, deadline_ns=5948 * MS)


def test_a_canary_that_comes_back_is_well() -> None:
    assert "3.0 ms" in the(check_canary(CanaryRun((GRANT, GRANT)))).what


@pytest.mark.parametrize(
    ("trouble", "severity"),
    [
        (Refused("NOQUORUM", "m1=down", "LOCK"), FAILURE),
        (Refused("CLOCK", "", "LOCK"), FAILURE),
        (Unreachable("gone"), FAILURE),
        (Refused("DENIED", "uid 5 may not", "LOCK"), WARNING),
        (Refused("LIMIT", "leases", "LOCK"), WARNING),
    ],
)
def test_a_canary_that_is_refused_by_policy_is_no_failure(
    trouble: Refused | Unreachable, severity: Severity
) -> None:
    assert the(check_canary(CanaryRun(trouble=trouble))).severity is severity


def test_fences_must_grow() -> None:
    assert the(check_fences([GRANT, replace(GRANT, fence=8)])).severity is OK
    assert the(check_fences([GRANT, GRANT])).severity is FAILURE
    assert check_fences([GRANT]) == []


@pytest.mark.parametrize(("deadline_ms", "severity"), [(5948, OK), (999, FAILURE), (6004, FAILURE)])
def test_a_deadline_that_is_not_on_our_clock_is_a_failure(deadline_ms: int, severity: Severity) -> None:
    assert the(check_boottime([replace(GRANT, deadline_ns=deadline_ms * MS)])).severity is severity


def test_the_canary_locks_a_resource_of_its_own_and_gives_it_back() -> None:
    asked: list[tuple[Any, ...]] = []

    def ask(*words: Any) -> Any:
        asked.append(words)
        return {"token": "t", "fence": len(asked), "deadline_ns": 1} if words[0] == "LOCK" else 1

    canary = fly_canary(ask)
    assert [words[0] for words in asked] == ["LOCK", "UNLOCK"] * 2
    assert len({words[1] for words in asked}) == 1
    assert [grant.fence for grant in canary.grants] == [1, 3]


def test_leases_on_fewer_than_all_masters_are_listed_once_they_had_time() -> None:
    assert the(check_leases([LeaseRow("a", 5000, 5, 5), LeaseRow("b", 10, 3, 5)])).severity is OK
    finding = the(check_leases([LeaseRow(f"r{number}", 5000, 4, 5) for number in range(7)]))
    assert finding.severity is WARNING
    assert "r0 (4 of 5)" in finding.what
    assert "and 2 more" in finding.what


@pytest.mark.parametrize("ppm", [1_001, -83_333])
def test_a_host_whose_clock_is_slewed_too_fast_is_named_as_such(ppm: int) -> None:
    finding = the(check_slewing(AgentAnswer(1, {"clock_slew_ppm": ppm})))
    assert finding.severity is FAILURE
    assert f"slewed by {ppm} ppm, 1000 at most" in finding.what
    assert "LockClockSlewed.md" in finding.then


def test_what_a_time_server_slews_is_well_and_an_agent_that_does_not_say_is_not_judged() -> None:
    assert the(check_slewing(AgentAnswer(1, {"clock_slew_ppm": -1_000}))).severity is OK
    assert check_slewing(AgentAnswer(1, {})) == []


# All of it


def an_agent(**answers: Any) -> Callable[..., Any]:
    """Asks an agent that is well, but for these answers; one that is an exception is raised."""
    row = {field: getattr(WELL, field) for field in MasterRow.__dataclass_fields__}
    well: dict[str, Any] = {
        "PING": True,
        "INFO": {"lockd_version": __version__},
        "MASTERS": [row | {"name": name, "address": "h:1"} for name in ("m1", "m2", "m3")],
        "LOCKS": [],
        "LOCK": Refused("DENIED", "", "LOCK"),
    }

    def ask(*words: Any) -> Any:
        answer = (well | answers)[words[0]]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


def test_an_agent_that_does_not_answer_ends_the_examination() -> None:
    found = examine(an_agent(PING=Unreachable("can't reach it")), "/none/s")
    assert [(finding.check, finding.severity) for finding in found] == [
        ("socket", FAILURE),
        ("agent", FAILURE),
    ]


def test_the_slewing_of_the_agents_host_is_among_what_is_looked_at() -> None:
    info = {"lockd_version": __version__, "clock_slew_ppm": 5_000}
    found = {finding.check: finding for finding in examine(an_agent(INFO=info), "/none/s")}
    assert found["slewing"].severity is FAILURE


def test_leases_that_were_lost_are_left_out() -> None:
    lost = {"resource": "a", "held_ms": 9000, "masters": 1, "of": 3, "lost": 1}
    found = {finding.check: finding for finding in examine(an_agent(LOCKS=[lost]), "/none/s")}
    assert found["leases"].severity is OK
