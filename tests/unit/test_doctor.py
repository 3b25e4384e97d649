"""Each check of `lockctl doctor` on facts of its own."""

from __future__ import annotations

import os
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
    Connected,
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
    check_dropin,
    check_fences,
    check_leases,
    check_masters,
    check_max_ttl,
    check_notices,
    check_owners,
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
from tests.harness.clocks import MS

OK, WARNING, FAILURE = Severity

WELL = MasterRow("m1", "up", 1, "", 400, 10, "Redis 7.0.15", 60_000, 1)


def masters(*changes: dict[str, Any]) -> list[MasterRow]:
    """Five masters m1 … m5 that are well, but for these changes to the first ones."""
    five = [replace(WELL, name=f"m{number}") for number in range(1, 6)]
    return [
        replace(master, **change)
        for master, change in zip(five, (*changes, {}, {}, {}, {}, {}), strict=False)
    ]


REFUSED_SCRIPT = {
    "library_redis-py": {"requests": 3},
    f"refused_script_{'0123456789' * 4}": {
        "library": "jedis",
        "why": "INCR is not a command of any known operation",
        "count": 3,
        "seconds_ago": 120,
    },
}
DOWN = {"state": "down", "vote": 0, "reason": "connection refused"}


GRANT = Grant(asked_ns=1000 * MS, answered_ns=1003 * MS, ttl_ms=5000, fence=7, deadline_ns=5948 * MS)


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
        *check_notices(masters({"notices": 0})),
        *check_clocks(masters({"clock_offset_us": -80_000})),
        *check_max_ttl(masters({"max_ttl_ms": 1000}), None),
        *check_versions(masters({"version": "Redis 6.2.14"})),
        *check_canary(CanaryRun(trouble=Unreachable("it is gone"))),
        *check_leases([LeaseRow("a", 5000, 3, 5)]),
        *check_owners(Connected({7: "socat"}, unseen=2)),
        *check_dropin(AgentAnswer(1, REFUSED_SCRIPT), [])[:1],
    ]
    assert all(finding.severity is not OK and finding.then for finding in bad)


def agent(latency_us: int = 500, **info: Any) -> list[Finding]:
    """The last that is found of it."""
    return check_agent(AgentAnswer(latency_us, {"lockd_version": __version__} | info))[-1:]


def configuration(fingerprint: str) -> list[Finding]:
    agent = AgentAnswer(1, {"config_fingerprint": "0123456789ab"})
    return check_configuration(ConfigFile("f", fingerprint=fingerprint), agent)


def ceiling(configured_ms: int) -> list[Finding]:
    return check_max_ttl(masters(), ConfigFile("f", configured_ms))


def refused_canary(trouble: Refused | Unreachable) -> list[Finding]:
    return check_canary(CanaryRun(trouble=trouble))


def deadline(at_ms: int) -> list[Finding]:
    return check_boottime([replace(GRANT, deadline_ns=at_ms * MS)])


def slewing(ppm: int) -> list[Finding]:
    return check_slewing(AgentAnswer(1, {"clock_slew_ppm": ppm}))


def proxied(program: str) -> list[Finding]:
    """By its name as the kernel has it, which is cut off."""
    return check_owners(Connected({2: program[:15]}))


JUDGED: list[tuple[str, list[Finding], Severity, str]] = [
    (
        "a socket that we may not use",
        check_socket(SocketFile("/s", 0o140600, False, 0o40755)),
        FAILURE,
        "0600",
    ),
    ("a socket that we may use", check_socket(SocketFile("/s", 0o140660, True, 0o40755)), OK, ""),
    ("a socket in a sticky folder", check_socket(SocketFile("/s", 0o140660, True, 0o41777)), OK, ""),
    ("one that anybody may replace", check_socket(SocketFile("/s", 0o140660, True, 0o40777)), WARNING, ""),
    ("an agent of our version", agent(), OK, ""),
    ("an agent of another version", agent(lockd_version="9.9.9"), WARNING, "9.9.9"),
    ("a slow agent", agent(300_000), WARNING, ""),
    ("apps that are seen", check_owners(Connected({1: "app", 2: "python"})), OK, "2 processes"),
    ("apps behind a proxy", check_owners(Connected({1: "app", 2: "envoy"})), WARNING, "envoy (pid 2)"),
    ("apps behind systemd-socket-proxyd", proxied("systemd-socket-proxyd"), WARNING, "is a proxy"),
    ("apps behind OpenSSH since 9.8", proxied("sshd-session"), WARNING, "sshd-session (pid 2)"),
    ("apps that can't be seen", check_owners(Connected({}, unseen=3)), WARNING, "3 connections"),
    ("an agent that is stopping", agent(draining=1), WARNING, ""),
    ("the configuration that was read", configuration("0123456789ab"), OK, ""),
    ("another configuration", configuration("ffffffffffff"), WARNING, ""),
    ("five votes", check_quorum(masters()), OK, "2 may fail"),
    ("four votes", check_quorum(masters(DOWN)), WARNING, "1 more may fail"),
    ("no margin", check_quorum(masters(DOWN, DOWN)), WARNING, "none may fail"),
    ("no quorum", check_quorum(masters(DOWN, DOWN, DOWN)), FAILURE, "2 of 5"),
    ("a single master that votes", check_quorum([WELL]), OK, ""),
    ("a slow master", check_round_trips(masters({"rtt_us": 90_000})), WARNING, "m1 takes 90 ms"),
    ("one that tells nothing", check_notices(masters({"notices": 0})), WARNING, "m1 can't tell this host"),
    ("one that tells nothing and has no vote", check_notices(masters({"notices": 0, "vote": 0})), OK, ""),
    ("a slow one without a vote", check_round_trips(masters({"rtt_us": 90_000, "vote": 0})), OK, ""),
    ("a clock that is off", check_clocks(masters({"clock_offset_us": -80_000})), WARNING, "m1 by -80 ms"),
    ("a clock not known", check_clocks(masters({"clock_offset_us": None})), OK, ""),
    ("another version", check_versions(masters({"version": "Redis 6.2.14"})), WARNING, "Redis 6.2.14: m1"),
    ("a version not known", check_versions(masters({"version": ""})), OK, ""),
    ("another ceiling", check_max_ttl(masters({"max_ttl_ms": 30_000}), None), WARNING, "m1 30000 ms"),
    ("a max ttl that is the ceiling", ceiling(60_000), OK, ""),
    ("a max ttl below the ceiling", ceiling(50_000), WARNING, ""),
    ("a max ttl above the ceiling", ceiling(70_000), FAILURE, "60000 ms"),
    ("a canary that comes back", check_canary(CanaryRun((GRANT, GRANT))), OK, "3.0 ms"),
    ("no quorum for the canary", refused_canary(Refused("NOQUORUM", "m1=down", "LOCK")), FAILURE, ""),
    ("no clock for the canary", refused_canary(Refused("CLOCK", "", "LOCK")), FAILURE, ""),
    ("no agent for the canary", refused_canary(Unreachable("gone")), FAILURE, ""),
    ("a policy against the canary", refused_canary(Refused("DENIED", "uid 5 may not", "LOCK")), WARNING, ""),
    ("a limit against the canary", refused_canary(Refused("LIMIT", "leases", "LOCK")), WARNING, ""),
    ("fences that grow", check_fences([GRANT, replace(GRANT, fence=8)]), OK, ""),
    ("fences that stay", check_fences([GRANT, GRANT]), FAILURE, ""),
    ("a deadline on our clock", deadline(5948), OK, ""),
    ("a deadline that has passed", deadline(999), FAILURE, ""),
    ("a deadline beyond the ttl", deadline(6004), FAILURE, ""),
    ("a clock slewed as a time server does", slewing(-1_000), OK, ""),
    ("a clock slewed faster", slewing(1_001), FAILURE, "slewed by 1001 ppm, 1000 at most"),
    ("a clock slewed back faster", slewing(-83_333), FAILURE, "slewed by -83333 ppm, 1000 at most"),
]


@pytest.mark.parametrize(
    ("found", "severity", "words"), [row[1:] for row in JUDGED], ids=[row[0] for row in JUDGED]
)
def test_what_is_found_is_judged(found: list[Finding], severity: Severity, words: str) -> None:
    finding = the(found)
    assert finding.severity is severity
    assert words in finding.what


def test_what_is_not_known_is_not_judged() -> None:
    assert check_configuration(None, AgentAnswer(1, {"config_fingerprint": "0123456789ab"})) == []
    assert check_max_ttl([replace(WELL, max_ttl_ms=None)], None) == [], "masters without an identity"
    assert check_fences([GRANT]) == []
    assert check_slewing(AgentAnswer(1, {})) == []


def test_what_to_do_next_is_as_far_as_is_known() -> None:
    assert "LockdClockSlewed.md" in the(slewing(1_001)).then
    # Nothing is known of other hosts.
    hosts = ["on this host" in the(check_quorum(masters(*[DOWN] * down))).then for down in range(4)]
    assert hosts == [False, False, False, True]


# The socket


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


def test_a_socket_is_there_and_a_socket(tmp_path: Path) -> None:
    a_socket(tmp_path / "s")
    assert the(check_socket(SocketFile.at(str(tmp_path / "s")))).severity is OK
    assert "is not there" in the(check_socket(SocketFile.at(str(tmp_path / "none")))).what
    (tmp_path / "file").touch()
    assert "is not a socket" in the(check_socket(SocketFile.at(str(tmp_path / "file")))).what


# The agent


# The masters


def test_each_master_without_a_vote_gets_a_finding_with_its_reason() -> None:
    found = check_masters(masters(DOWN, {"vote": 0, "reason": "its clock jumped"}))
    whys = ["m1 has no vote: down, connection refused", "m2 has no vote: up, its clock jumped"]
    assert [finding.what for finding in found] == whys
    assert check_masters(masters()) == []


BLANK = {"state": "blank", "vote": 0}


@pytest.mark.parametrize(
    ("changes", "then"),
    [
        ([BLANK], ["master admit m1"]),
        ([BLANK] * 2, ["master admit m1", "master admit m2"]),
        # Neither can the blank ones be admitted, nor a cluster be formed of them.
        ([BLANK] * 3, ["cluster recover"] * 3),
        ([BLANK] * 4, ["cluster recover"] * 4),
        ([BLANK] * 5, ["cluster init"] * 5),
        ([{}, {"state": "outdated", "vote": 0}], ["master admit m2"]),
    ],
)
def test_blank_masters_are_admitted_or_formed_or_what_is_left_of_a_cluster_recovered(
    changes: list[dict[str, Any]], then: list[str]
) -> None:
    found = check_masters(masters(*changes))
    ways = [finding.then.partition(" (")[0] for finding in found]
    assert ways == [f"sudo lockctl {words} --operator-user lockd_operator" for words in then]


def test_what_is_typed_as_an_operator_says_that_lockd_dev_has_none() -> None:
    found = check_masters(masters(BLANK, {"state": "other_format", "vote": 0}))
    assert all("(in lockd dev without sudo and --operator-user)" in finding.then for finding in found)


def test_a_copy_is_to_be_wiped_and_never_put_into_another_entry() -> None:
    then = the(check_masters(masters({"state": "copied", "vote": 0}))).then
    assert then.startswith("wipe it and admit it")
    assert "entry" not in then


# Locks on trial


def test_the_canary_locks_a_resource_of_its_own_and_gives_it_back() -> None:
    asked: list[tuple[Any, ...]] = []

    def ask(*words: Any) -> Any:
        asked.append(words)
        return {"token": "t", "fence": len(asked), "deadline_ns": 1} if words[0] == "LOCK" else 1

    canary = fly_canary(ask)
    assert [words[0] for words in asked] == ["LOCK", "EXTEND", "UNLOCK"] * 2
    assert len({words[1] for words in asked}) == 1
    assert [grant.fence for grant in canary.grants] == [1, 4]


def test_leases_on_fewer_than_all_masters_are_listed_once_they_had_time() -> None:
    assert the(check_leases([LeaseRow("a", 5000, 5, 5), LeaseRow("b", 10, 3, 5)])).severity is OK
    finding = the(check_leases([LeaseRow(f"r{number}", 5000, 4, 5) for number in range(7)]))
    assert finding.severity is WARNING
    assert "r0 (4 of 5)" in finding.what
    assert "and 2 more" in finding.what


def test_who_locks_with_redis_own_commands_is_named_and_what_with() -> None:
    info = {"library_redis-py": {"requests": 3}, "library_unnamed": {"requests": 1}, "leases": 2}
    held = [
        LeaseRow("a", 0, 5, 5, "set"),
        LeaseRow("b", 0, 5, 5),
        *(LeaseRow(f"c{number}", 0, 5, 5, "script") for number in range(6)),
    ]
    finding = the(check_dropin(AgentAnswer(1, info), held))
    assert finding.severity is OK
    assert "used by redis-py, unnamed: 7 leases now (a, c0, c1, c2, c3 and 2 more)" in finding.what
    assert the(check_dropin(AgentAnswer(1, info), [])).what.endswith("0 leases now")


def test_a_script_that_was_refused_is_named_with_why_and_by_whom() -> None:
    refused, used = check_dropin(AgentAnswer(1, REFUSED_SCRIPT), [])
    assert (refused.severity, used.severity) == (WARNING, OK)
    assert refused.what == (
        "script 012345678901 of jedis is not recognised: INCR is not a command of any known operation (3 "
        "times, last 2 minutes ago)"
    )
    assert "script_not_recognised" in refused.then
    assert "run `lockctl script` on it; see docs/reference/scripts.md" in refused.then


def test_nothing_is_said_where_nobody_uses_redis_own_commands() -> None:
    assert check_dropin(AgentAnswer(1, {"leases": 1, "lockd_version": "1"}), [LeaseRow("a", 0, 5, 5)]) == []


# All of it


def an_agent(**answers: Any) -> Callable[..., Any]:
    """Asks an agent that is well, but for these answers; one that is an exception is raised."""
    row = {field: getattr(WELL, field) for field in MasterRow.__dataclass_fields__}
    well: dict[str, Any] = {
        "PING": True,
        "INFO": {"lockd_version": __version__},
        "MASTERS": [row | {"name": name, "address": "h:1"} for name in ("m1", "m2", "m3")],
        "LOCKS": [],
        "NOLEASE": [],
        "LOCK": Refused("DENIED", "", "LOCK"),
    }

    def ask(*words: Any, within_s: float = 0) -> Any:
        answer = (well | answers)[words[-1] if words[-1] == "NOLEASE" else words[0]]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


def test_who_is_connected_is_named_as_proc_has_it() -> None:
    info = {"unseen_connections": 3, f"process_{os.getpid()}": {}, "process_4194305": {}}
    names = {os.getpid(): Path("/proc/self/comm").read_text().strip(), 4194305: ""}
    assert Connected.from_info(info) == Connected(names, 3)


def test_an_agent_that_does_not_answer_ends_the_examination() -> None:
    found = examine(an_agent(PING=Unreachable("can't reach it")), "/none/s")
    assert [(one.check, one.severity) for one in found] == [("socket", FAILURE), ("agent", FAILURE)]


def test_what_somebody_else_has_written_under_a_leases_name_is_named() -> None:
    written = [{"resource": f"r{number}", "masters": 5, "of": 5} for number in range(7)]
    found = {finding.check: finding for finding in examine(an_agent(NOLEASE=written), "/none/s")}
    assert found["keys"].severity is FAILURE
    assert "r0, r1, r2, r3, r4 and 2 more can't be locked" in found["keys"].what
    assert "keys" not in {finding.check for finding in examine(an_agent(), "/none/s")}
    too_few = Refused("NOQUORUM", "too few masters answered", "LOCKS")
    assert "keys" not in {finding.check for finding in examine(an_agent(NOLEASE=too_few), "/none/s")}


def test_leases_that_were_lost_are_left_out() -> None:
    lost = {"resource": "a", "held_ms": 9000, "masters": 1, "of": 3, "lost": 1}
    found = {finding.check: finding for finding in examine(an_agent(LOCKS=[lost]), "/none/s")}
    assert found["leases"].severity is OK
