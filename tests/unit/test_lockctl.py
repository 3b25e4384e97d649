"""What `lockctl` makes of what is typed and of what the agent says. The agent is a function here."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from lockd.lockctl import locks as lockctl_locks
from lockd.lockctl.agent import AgentClient
from lockd.lockctl.change import WaitLines
from lockd.lockctl.errors import Lost, Refused, Unreachable
from lockd.lockctl.failures import ExitStatus
from lockd.lockctl.locks import Duration
from lockd.lockctl.main import main
from lockd.lockctl.printing import format_us
from lockd.lockctl.run.lease import Job
from lockd.text import format_ms, printable

Answers = dict[str, Any]


@pytest.fixture
def asked() -> list[tuple[Any, ...]]:
    """The commands that the agent was asked."""
    return []


@pytest.fixture
def type_(monkeypatch: pytest.MonkeyPatch, asked: list[tuple[Any, ...]]) -> Callable[..., Result]:
    """Type a command line; `answers` are those of the agent, by command. An exception is raised."""

    def run(line: str, answers: Answers | None = None, **options: Any) -> Result:
        def ask(agent: AgentClient, *words: Any, within_s: float = 0) -> Any:
            asked.append(words)
            answer = (answers or {})[words[0]]
            answer = answer.pop(0) if isinstance(answer, list) and words[0] in ("FORM", "ADMIT") else answer
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(AgentClient, "ask", ask)
        return CliRunner().invoke(main, line.split(), **options)

    return run


Type = Callable[..., Result]
HELD = {
    "resource": "backup", "holder": "a1b2c3d4", "host": "web1", "pid": 42, "uid": 7, "fence": 1795, "kept": 0,
    "ttl_ms": 9000, "held_ms": 61_000, "masters": 5, "of": 5, "quorum": 1,
}  # fmt: skip


# What is typed


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("10", 10_000),
        ("10s", 10_000),
        ("500ms", 500),
        ("2m", 120_000),
        ("1h", 3_600_000),
        ("1.5s", 1500),
        ("0", 0),
    ],
)
def test_durations_are_written_as_people_do(text: str, ms: int) -> None:
    assert Duration().convert(text, None, None) == ms


@pytest.mark.parametrize("text", ["", "s", "-1", "1d", "10 s", "1e3", "١", "1.2.3", "9999999999", "9999999h"])
def test_what_is_no_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"500ms|than a year"):
        Duration().convert(text, None, None)


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """What `run` was asked for; nothing runs."""
    ran: list[Job] = []
    monkeypatch.setattr(lockctl_locks, "run", lambda job: ran.append(job) or 0)
    return ran


def test_run_takes_its_options_before_the_dashes_and_the_command_after_them(
    type_: Type, jobs: list[Job]
) -> None:
    assert type_("--socket /s run r --ttl 5 --wait 1m --max-hold 2h -- ls --ttl -- x").exit_code == 0
    type_("run r -- true")
    assert jobs == [
        Job("/s", (b"r",), 5000, 60_000, 7_200_000, ("ls", "--ttl", "--", "x")),
        Job("/run/lockd/lockd.sock", (b"r",), 30_000, 0, None, ("true",)),
    ]


def test_run_without_dashes_says_where_they_go(type_: Type, jobs: list[Job]) -> None:
    done = type_("run r ls")
    assert (done.exit_code, jobs) == (ExitStatus.USAGE, [])
    assert "lockctl run RESOURCE -- COMMAND" in done.stderr


@pytest.mark.parametrize(
    "line", ["run", "run r --", "lock", "unlock r", "no-such", "lock r --ttl soon", "--no-such"]
)
def test_a_wrong_command_line_gives_64(type_: Type, line: str) -> None:
    assert type_(line).exit_code == ExitStatus.USAGE


def test_help_is_at_hand_and_lists_every_exit_status(type_: Type) -> None:
    told = [type_(line).stdout for line in ("--help", "run --help", "lock -h", "cluster init --help")]
    assert all(told)
    missing = [status for status in ExitStatus if f" {int(status)} " not in told[0] + told[1]]
    assert set(missing) <= {ExitStatus.INTERRUPTED}


# What went wrong


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("TAKEN", 75), ("TIMEOUT", 75), ("NOQUORUM", 74), ("CLOCK", 74), ("NOTHELD", 1), ("EXPIRED", 76),
        ("DENIED", 77), ("LIMIT", 77), ("DRAINING", 69), ("ERR", 65), ("SOMETHINGNEW", 65),
    ],
)  # fmt: skip
def test_each_error_has_its_status_and_says_what_is_safe_and_what_is_next(
    type_: Type, code: str, status: int
) -> None:
    done = type_("lock r", {"LOCK": Refused(code, "why it was", "LOCK")})
    assert done.exit_code == status
    assert f"lockctl: {code} why it was\n  safe: " in done.stderr
    assert "\n  next: " in done.stderr
    assert done.stdout == ""


def test_an_unlock_without_a_quorum_says_that_the_lease_ends_by_itself(type_: Type) -> None:
    done = type_("unlock r t", {"UNLOCK": Refused("NOQUORUM", "", "UNLOCK")})
    assert "safe: the lease ends by itself" in done.stderr


def test_an_unreachable_agent_gives_69_and_a_lost_lease_76(
    type_: Type, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(job: Job) -> int:
        raise Lost("nobody renewed it")

    assert type_("ping", {"PING": Unreachable("it is away")}).exit_code == ExitStatus.UNREACHABLE
    monkeypatch.setattr(lockctl_locks, "run", lose)
    done = type_("run r -- true")
    assert done.exit_code == ExitStatus.LOST
    assert "nobody renewed it" in done.stderr


@pytest.mark.parametrize("code", ["TAKEN", "TIMEOUT", "NOQUORUM", "DENIED"])
def test_a_quiet_run_says_nothing_of_contention_and_everything_of_the_rest(
    type_: Type, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    def refuse(job: Job) -> int:
        raise Refused(code, "why it was", "LOCK")

    monkeypatch.setattr(lockctl_locks, "run", refuse)
    quiet, plain = type_("run --quiet r -- true"), type_("run r -- true")
    assert quiet.exit_code == plain.exit_code
    assert plain.stderr.startswith(f"lockctl: {code} why it was")
    assert quiet.stderr == ("" if code in ("TAKEN", "TIMEOUT") else plain.stderr)


def test_errors_cannot_steer_the_terminal(type_: Type) -> None:
    assert "\x1b" not in type_("lock r", {"LOCK": Refused("ERR", "bad \x1b[2J", "LOCK")}).stderr


def test_the_agents_errors_are_told_apart_by_their_first_word() -> None:
    assert Refused.by("TAKEN retry-after=5 held", "LOCK").code == "TAKEN"
    assert Refused.by("the ttl must be", "LOCK").code == "ERR"
    assert Refused.by("ERR the ttl must be", "LOCK").text == "the ttl must be"


# What is printed


def test_a_lease_is_one_line_of_three_words(type_: Type) -> None:
    lease = {"token": "t", "fence": 5, "validity_ms": 1, "deadline_ns": 9}
    assert type_("lock r", {"LOCK": lease}).stdout == "t 5 9\n"
    assert type_("extend r t", {"EXTEND": lease | {"fence": None}}).stdout == "t - 9\n"
    assert json.loads(type_("lock r --json", {"LOCK": lease}).stdout) == {"resource": "r", **lease}


def test_lock_asks_for_a_detached_lease_and_extend_by_its_token(type_: Type, asked: list[Any]) -> None:
    lease = {"token": "t", "fence": 5, "deadline_ns": 9}
    type_("lock r --ttl 1s --wait 2s --max-hold 3s", {"LOCK": lease})
    type_("extend r t --ttl 50s", {"EXTEND": lease})
    assert asked == [
        ("LOCK", b"r", 1000, "WAIT", 2000, "DETACHED", "MAXHOLD", 3000),
        ("EXTEND", b"r", b"t", 50_000),
    ]


def test_a_lease_without_a_quorum_is_shown_as_not_held(type_: Type) -> None:
    done = type_("holder backup", {"HOLDER": HELD | {"masters": 2, "quorum": 0}})
    assert "2 of 5: no quorum, so it is not held" in done.stdout


def test_of_another_host_its_agent_alone_knows_who_has_it_now(type_: Type, asked: list[Any]) -> None:
    of_another = HELD | {"fence": None, "kept": None}
    done = type_("holder backup", {"HOLDER": of_another})
    assert "42 on web1, uid 7, or one after it there" in done.stdout
    type_("force-release backup --yes", {"HOLDER": of_another, "FORCERELEASE": 5})
    assert asked[-1] == ("FORCERELEASE", b"backup", "HOLDER", "a1b2c3d4")


def test_locks_are_sorted(type_: Type) -> None:
    rows = [HELD | {"resource": name} for name in ("b", "c", "a")]
    shown = json.loads(type_("locks --json", {"LOCKS": rows}).stdout)
    assert [row["resource"] for row in shown] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0ms"), (999, "999ms"), (1000, "1.0s"), (59_900, "59.9s"), (245_000, "4m05s"), (3_720_000, "1h02m")],
)
def test_times_are_shown_in_a_fitting_unit(ms: int, text: str) -> None:
    assert format_ms(ms) == text
    assert [format_us(-1500), format_us(-3_000_000), format_us(-3)] == ["-1.50ms", "-3.0s", "0.00ms"]


def test_control_characters_are_shown_as_bytes_and_letters_as_they_are() -> None:
    assert printable("grün:42") == "grün:42"
    assert printable("a\x1b[1m\n\udcff\u202e") == "a\\x1b[1m\\x0a\\xff\\xe2\\x80\\xae"


# Changes


def test_force_release_removes_only_what_was_shown(type_: Type, asked: list[Any]) -> None:
    done = type_("force-release backup --yes", {"HOLDER": HELD, "FORCERELEASE": 5})
    assert asked[-1] == ("FORCERELEASE", b"backup", "HOLDER", "a1b2c3d4", "FENCE", 1795)
    assert done.stdout == "released backup: a1b2c3d4 deleted on 5 of 5 masters\n"
    answers = {"HOLDER": HELD, "FORCERELEASE": Refused("NOTHELD", "held by another", "FORCERELEASE")}
    assert type_("force-release backup --yes", answers).exit_code == ExitStatus.NO
    assert type_("force-release backup --yes", {"HOLDER": None}).exit_code == ExitStatus.NO


def test_force_release_is_not_sent_when_nobody_can_be_asked(type_: Type, asked: list[Any]) -> None:
    done = type_("force-release backup", {"HOLDER": HELD}, input="y\n")
    assert done.exit_code == ExitStatus.USAGE
    assert all(word in done.stderr for word in ("--yes", "uid", "a1b2c3d4"))
    assert [words[0] for words in asked] == ["HOLDER"]


def waiting(remaining_ms: int) -> dict[str, Any]:
    return {"status": "waiting", "remaining_ms": remaining_ms, "total_ms": 100}


def test_forming_is_asked_for_again_until_the_wait_is_over_and_unused_masters_need_none(
    type_: Type, asked: list[Any]
) -> None:
    done = type_("cluster init", {"FORM": [waiting(20), waiting(10), {"status": "formed"}]})
    assert done.exit_code == 0
    assert done.stdout.startswith("the cluster is formed")
    done = type_("cluster init --unused", {"FORM": [{"status": "already"}]})
    assert done.stdout.startswith("nothing to do")
    assert asked == [("FORM",)] * 3 + [("FORM", "UNUSED")]


def test_admitting_prints_json_on_stdout_and_the_wait_on_stderr(type_: Type) -> None:
    done = type_("master admit m2 --json", {"ADMIT": [waiting(10), {"status": "admitted"}]})
    assert json.loads(done.stdout) == {"status": "admitted"}
    assert done.stderr == "admitting m2: 10ms of 100ms left to wait\n"


def test_without_a_terminal_a_wait_is_reported_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    view = WaitLines("forming")
    for remaining_ms in (9000, 8000, 7000):
        view.show(remaining_ms, 10_000)
    assert capsys.readouterr().err == "forming: 9.0s of 10.0s left to wait\n"


# Who writes identities

FORMED = {"FORM": {"status": "formed"}, "ADMIT": {"status": "admitted"}}
AS_OPERATOR = ("AUTH", "lockd_operator", b"s3cret")


def test_the_operators_password_comes_from_a_file_stdin_or_the_environment_and_is_not_needed(
    type_: Type, asked: list[tuple[Any, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "password"
    file.write_text("s3cret\nand more\n")
    type_(f"cluster init --unused --operator-password-file {file}", FORMED)
    type_("master admit m1 --operator-password-file -", FORMED, input="s3cret\n")
    monkeypatch.setenv("LOCKD_OPERATOR_PASSWORD", "s3cret")
    type_("cluster init", FORMED)
    type_("cluster init --operator-user olga", FORMED)
    monkeypatch.delenv("LOCKD_OPERATOR_PASSWORD")
    type_("cluster init", FORMED)
    type_("master admit m1", FORMED)
    assert asked == [
        ("FORM", "UNUSED", *AS_OPERATOR),
        ("ADMIT", b"m1", *AS_OPERATOR),
        ("FORM", *AS_OPERATOR),
        ("FORM", "AUTH", b"olga", b"s3cret"),
        ("FORM",),
        ("ADMIT", b"m1"),
    ]


@pytest.mark.parametrize(
    "line", ["cluster init --operator-user olga", "master admit m1 --operator-password-file -"]
)
def test_a_password_that_nobody_gives_is_a_mistake_in_the_command_line(
    type_: Type, asked: list[tuple[Any, ...]], line: str
) -> None:
    done = type_(line, FORMED)
    assert done.exit_code == ExitStatus.USAGE
    assert "password" in done.stderr
    assert asked == []


def test_what_names_something_is_the_bytes_that_were_typed() -> None:
    """Text would be another name in another locale. A path goes back to the system as it came, and names of
    classes and runbooks are ASCII."""

    def every(command: click.Command) -> Iterator[click.Command]:
        yield command
        for below in command.commands.values() if isinstance(command, click.Group) else ():
            yield from every(below)

    as_text = {
        (str(command.name), parameter.name)
        for command in every(main)
        for parameter in command.params
        if parameter.type is click.STRING
    }
    assert as_text == {("main", "socket_path"), ("top", "patterns"), ("runbook", "name")}


def test_it_is_also_a_module() -> None:
    """Where a wheel is unpacked, and its commands are not on the PATH."""
    done = subprocess.run(
        [sys.executable, "-m", "lockd.lockctl", "--version"], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.split()[0]) == (0, "lockctl,"), done.stderr
