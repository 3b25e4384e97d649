"""What `lockctl top` shows of what an agent says. The agent is a table of answers here."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from lockd.health import LOSS_IS_NEWS_MS
from lockd.lockctl.agent import AgentClient
from lockd.lockctl.errors import Unreachable
from lockd.lockctl.failures import ExitStatus
from lockd.lockctl.main import main
from lockd.lockctl.top import LISTED_MOST, AgentReport, Screen

Answers = dict[str, Any]


def a_master(name: str, vote: int = 1, **more: Any) -> dict[str, Any]:
    known = {
        "name": name, "address": f"{name}:6379", "state": "up" if vote else "down", "vote": vote,
        "reason": "" if vote else "connection refused", "rtt_us": 900, "clock_offset_us": 10,
        "version": "Redis 7.0.15", "max_ttl_ms": 60_000,
    }  # fmt: skip
    return known | more


def a_lease(resource: str, **more: Any) -> dict[str, Any]:
    known = {
        "resource": resource, "holder": "a1b2c3d4", "class": "jobs", "pid": 42, "uid": 7, "fence": 1795,
        "ttl_ms": 9_000, "held_ms": 1_000, "masters": 3, "of": 3, "detached": 0, "bound": "process",
        "lost": 0, "kept": 0, "waiters": 0,
    }  # fmt: skip
    return known | more


def a_class(**more: int) -> dict[str, int]:
    known = {
        "leases": 1, "waiters": 0, "oldest_wait_ms": 0, "lost": 0, "on_fewer_masters": 0, "grants": 100,
        "refusals": 5, "losses": 0, "losses_meant": 0,
    }  # fmt: skip
    return known | more


def answers(**more: Any) -> Answers:
    info = {
        "leases": 2, "waiters": 1, "quorum": 2, "draining": 0, "grants_total": 7, "canary_failures": 0,
        "canary_trouble": "",
    }  # fmt: skip
    known = {
        "MASTERS": [a_master("m1"), a_master("m2"), a_master("m3")],
        "INFO": info | more.pop("info", {}),
        "INFO classes": {"class_jobs": a_class(), "class_other": a_class()},
        "LOCKS * LOCAL": [a_lease("nightly"), a_lease("hot", waiters=3)],
    }
    return known | more


def report_of(found: Answers) -> AgentReport:
    return AgentReport.by(lambda *words, **_: found[" ".join(words)])


def drawn(
    report: AgentReport | None,
    rows: int | None = None,
    width: int = 160,
    order: str = "worst",
    patterns: tuple[str, ...] = (),
) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(Screen(console, order, patterns).picture(report, None, rows))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


@pytest.fixture
def type_(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Type `lockctl top` with these words, without a terminal."""

    def run(words: str, found: Answers | Exception) -> Result:
        def ask(agent: AgentClient, *words: Any, within_s: float = 0) -> Any:
            if isinstance(found, Exception):
                raise found
            return found[" ".join(words)]

        monkeypatch.setattr(AgentClient, "ask", ask)
        return CliRunner().invoke(main, ["top", *words.split()])

    return run


@pytest.mark.parametrize(
    ("found", "texts"),
    [
        ({}, ["Locks are available: all 3 masters have a vote.\nLocks are safe"]),
        (
            {"MASTERS": [a_master("m1"), a_master("m2", 0), a_master("m3")]},
            ["WITHOUT MARGIN", "connection refused"],
        ),
        ({"INFO classes": {"class_jobs": a_class(lost=1, losses=4)}}, ["1 lease of this host was LOST"]),
        (
            {"info": {"canary_failures": 3, "canary_trouble": "NOQUORUM"}},
            ["Locks are NOT available", "the agent's own lock failed (NOQUORUM), 3 times in a row."],
        ),
    ],
    ids=["well", "a master down", "lost lease", "failing canary"],
)
def test_the_top_says_whether_locks_are_available_and_safe_and_why_not(
    found: dict[str, Any], texts: list[str]
) -> None:
    drawing = "\n".join(line.rstrip() for line in drawn(report_of(answers(**found))).splitlines())
    assert all(text in drawing for text in texts)


def test_an_agent_of_before_that_says_less_is_shown_all_the_same() -> None:
    found = answers(
        **{"INFO classes": {"class_jobs": {k: v for k, v in a_class().items() if "meant" not in k}}}
    )
    del found["INFO"]["canary_failures"], found["INFO"]["canary_trouble"]
    assert "Locks are available" in drawn(report_of(found))


@pytest.mark.parametrize(
    ("numbers", "text", "red"),
    [
        ({"losses": 3, "losses_meant": 1, "last_loss_ms": 2_000}, "2, 2.0s ago", True),
        ({"losses": 2, "last_loss_ms": LOSS_IS_NEWS_MS}, "2, 1h00m ago", False),
        ({"losses": 4, "losses_meant": 4}, "0", False),
    ],
)
def test_only_what_nobody_meant_to_lose_is_red_and_only_while_it_is_news(
    numbers: dict[str, int], text: str, red: bool
) -> None:
    console = Console(file=io.StringIO(), width=160, force_terminal=True, color_system="standard")
    report = report_of(answers(**{"INFO classes": {"class_jobs": a_class(**numbers)}}))
    console.print(Screen(console).picture(report, None, None))
    [line] = [line for line in console.file.getvalue().splitlines() if line.startswith("jobs ")]  # type: ignore[attr-defined]
    assert (f"\x1b[1;31m{text}\x1b[0m" in line) == red
    assert text in line


def test_what_is_waited_for_comes_before_what_is_held_long() -> None:
    text = drawn(report_of(answers()))
    assert text.index("hot") < text.index("nightly")


def test_the_hot_class_comes_first_with_its_longest_wait() -> None:
    classes = {"class_idle": a_class(), "class_hot": a_class(waiters=9, oldest_wait_ms=12_300)}
    lines = drawn(report_of(answers(**{"INFO classes": classes}))).splitlines()
    [hot] = [line for line in lines if line.startswith("hot  ") and "12.3s" in line]
    assert lines.index(hot) < next(i for i, line in enumerate(lines) if line.startswith("idle"))


LEASES, CLASSES = 500, 200


def a_busy_host(**more: Any) -> AgentReport:
    """So many leases and classes; classes and their resources are named class-007, class-007:1."""
    classes = {f"class_class-{n:03}": a_class(leases=2 + n % 3, grants=n) for n in range(CLASSES)}
    leases = [
        a_lease(f"class-{n % CLASSES:03}:{n}", **{"class": f"class-{n % CLASSES:03}", "held_ms": n})
        for n in range(LEASES)
    ]
    info = {"leases": LEASES, "waiters": 3}
    return report_of(answers(**{"INFO classes": classes, "LOCKS * LOCAL": leases, "info": info}, **more))


FIVE_MASTERS = {"MASTERS": [a_master(f"m{n}") for n in range(1, 6)]}


@pytest.mark.parametrize(("width", "rows"), [(80, 24), (120, 30), (200, 50)])
@pytest.mark.parametrize(
    "masters", [FIVE_MASTERS, {"MASTERS": [a_master("m1", 0), *FIVE_MASTERS["MASTERS"]]}]
)
def test_hundreds_of_leases_and_classes_are_cut_at_the_height_of_the_terminal(
    width: int, rows: int, masters: dict[str, Any]
) -> None:
    lines = drawn(a_busy_host(**masters), rows=rows, width=width).splitlines()
    shown = [sum(line.startswith(start) for line in lines) for start in ("class-", "class-")]
    assert len(lines) <= rows
    assert all(len(line) <= width for line in lines)
    assert min(shown) >= 3
    more = [int(line.split()[2]) for line in lines if line.startswith("… and ")]
    names = [line.split()[0] for line in lines if line.startswith("class-")]
    of_leases = [name for name in names if ":" in name]
    assert more == [CLASSES - (len(names) - len(of_leases)), LEASES - len(of_leases)]


def test_one_table_leaves_its_lines_to_the_other() -> None:
    found = answers(**{"LOCKS * LOCAL": [a_lease(f"job:{n}") for n in range(200)]})
    lines = drawn(report_of(found), rows=30).splitlines()
    assert len(lines) == 30
    assert any(line.startswith("other ") for line in lines)


def test_without_a_terminal_nothing_is_cut() -> None:
    text = drawn(a_busy_host())
    assert "more" not in text
    assert all(f"class-{n:03}:{n + CLASSES}" in text for n in range(CLASSES))


def test_sums_stand_at_the_top() -> None:
    top = drawn(a_busy_host(**FIVE_MASTERS), rows=24).splitlines()[:3]
    assert "5 of 5 masters vote · 500 held, 200 classes · 3 waiting" in top[2]


def first(order: str, classes: dict[str, dict[str, int]], leases: list[dict[str, Any]]) -> list[str]:
    """Names of classes and resources, in the order in which they are drawn."""
    found = {"INFO classes": {f"class_{name}": now for name, now in classes.items()}, "LOCKS * LOCAL": leases}
    lines = drawn(report_of(answers(**found)), order=order).splitlines()
    return [line.split()[0] for line in lines if line.startswith(("c-", "r-"))]


ALL_KINDS = {
    "c-quiet": a_class(leases=9, grants=1),
    "c-busy": a_class(grants=9_000),
    "c-waiting": a_class(waiters=9, oldest_wait_ms=10),
    "c-waiting-longer": a_class(waiters=9, oldest_wait_ms=99_000),
    "c-on-fewer": a_class(on_fewer_masters=2),
    "c-lost": a_class(losses=1, last_loss_ms=5_000),
}
ALL_LEASES = [
    a_lease("r-old", held_ms=90_000),
    a_lease("r-new", held_ms=1),
    a_lease("r-hot", waiters=9),
    a_lease("r-on-fewer", masters=2),
    a_lease("r-lost", lost=1),
]


@pytest.mark.parametrize(
    ("order", "classes", "leases"),
    [
        ("worst", "lost on-fewer waiting-longer waiting busy quiet", "lost hot on-fewer old new"),
        ("waiting", "waiting-longer waiting busy lost on-fewer quiet", "hot old lost on-fewer new"),
        ("held", "quiet busy lost on-fewer waiting waiting-longer", "old hot lost on-fewer new"),
        ("busy", "busy lost on-fewer waiting waiting-longer quiet", "new hot lost on-fewer old"),
        ("name", "busy lost on-fewer quiet waiting waiting-longer", "hot lost new old on-fewer"),
    ],
)
def test_what_comes_first_can_be_chosen(order: str, classes: str, leases: str) -> None:
    expected = [f"c-{name}" for name in classes.split()] + [f"r-{name}" for name in leases.split()]
    assert first(order, ALL_KINDS, ALL_LEASES) == expected


def test_a_lost_lease_says_so_in_its_line_even_in_a_narrow_terminal() -> None:
    found = answers(**{"LOCKS * LOCAL": [a_lease("nightly", lost=1)]})
    [line] = [line for line in drawn(report_of(found), width=80).splitlines() if line.startswith("nightly")]
    assert line.split()[-1] == "LOST"


def test_only_classes_of_these_globs_are_shown_with_their_leases_and_their_sums() -> None:
    lines = drawn(a_busy_host(), patterns=("class-00[1-3]", "class-199")).splitlines()
    names = [line.split()[0] for line in lines[4:] if line.startswith("class-")]
    chosen = ["class-001", "class-002", "class-003", "class-199"]
    assert sorted(name for name in names if ":" not in name) == chosen
    assert sorted({name.partition(":")[0] for name in names if ":" in name}) == chosen
    assert "500 held, 200 classes" in lines[2]
    assert lines[3] == "class-00[1-3], class-199: 4 classes · 12 held · 0 waiting"


def test_a_glob_that_matches_no_class_says_so() -> None:
    text = drawn(a_busy_host(), patterns=("nonsense",))
    assert "no class matches" in text
    assert "no lease of these classes is held" in text


def test_columns_line_up() -> None:
    lines = drawn(a_busy_host(), rows=50).splitlines()
    numbers = [line for line in lines if line.startswith(("class ", "class-")) and ":" not in line]
    assert len({len(line.rstrip()) for line in numbers}) == 1


def test_more_leases_than_can_be_listed_are_not_asked_for() -> None:
    found = answers(info={"leases": LISTED_MOST + 1})
    del found["LOCKS * LOCAL"]
    text = drawn(report_of(found))
    assert f"{LISTED_MOST + 1} leases are too many to list" in text
    assert f"{LISTED_MOST + 1} held" in text


@pytest.mark.parametrize(("words", "names"), [("--class job*", ["jobs"]), ("", ["jobs", "other"])])
def test_json_has_the_chosen_classes(type_: Callable[..., Result], words: str, names: list[str]) -> None:
    document = json.loads(type_(f"--json {words}", answers()).stdout)
    assert sorted(document["classes"]) == names
    assert len(document["leases"]) == 2


def test_an_order_that_does_not_exist_is_a_wrong_command_line(type_: Callable[..., Result]) -> None:
    done = type_("--sort size", answers())
    assert done.exit_code == ExitStatus.USAGE
    assert "'worst', 'waiting', 'held', 'busy', 'name'" in done.stderr


@pytest.mark.parametrize("width", [80, 200])
def test_names_that_would_steer_the_terminal_are_shown_escaped(width: int) -> None:
    found = answers(**{"LOCKS * LOCAL": [a_lease("evil\x1b[2J\udcff")]})
    text = drawn(report_of(found), width=width)
    assert "\x1b" not in text
    assert "evil\\x1b[2J" in text


def test_an_agent_that_is_away_is_said_and_the_last_picture_kept() -> None:
    console = Console(file=io.StringIO(), width=160)
    screen = Screen(console)
    report = report_of(answers())
    console.print(screen.picture(report, None, None))
    console.print(screen.picture(report, "can't reach the agent", None))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "can't reach the agent; looking again. What follows is" in text
    assert text.count("nightly") == 2
    # What was green is not said again: nobody knows whether it still is.
    assert text.count("Locks are available") == 1


def test_rates_are_what_was_counted_between_two_looks_and_not_negative_when_the_agent_began_anew() -> None:
    assert rates(a_class(grants=150, refusals=15)).split() == ["jobs", "1", "0", "25.0", "5.0", "0"]
    assert "-" not in rates(a_class(grants=1, refusals=0))


def rates(later: dict[str, int]) -> str:
    """The line of a class in the second picture, two seconds after the first one."""
    console = Console(file=io.StringIO(), width=160)
    screen, report = Screen(console), report_of(answers())
    screen.picture(replace(report, at_s=10.0), None, None)
    second = report_of(answers(**{"INFO classes": {"class_jobs": later}}))
    console.print(screen.picture(replace(second, at_s=12.0), None, None))
    [line] = [line for line in console.file.getvalue().splitlines() if line.startswith("jobs")]  # type: ignore[attr-defined]
    return str(line)


def test_json_has_everything_and_both_assessments(type_: Callable[..., Result]) -> None:
    done = type_("--json", answers())
    assert done.exit_code == 0
    document = json.loads(done.stdout)
    assert document["available"]["level"] == "good"
    assert document["available"]["text"].startswith("Locks are available: all 3")
    assert document["safe"]["level"] == "good"
    assert [row["name"] for row in document["masters"]] == ["m1", "m2", "m3"]
    assert document["classes"]["jobs"]["grants"] == 100
    assert document["leases"][1]["waiters"] == 3
    assert (document["leases_held"], document["waiters"]) == (2, 1)


@pytest.mark.parametrize("words", ["--once", ""])
def test_without_a_terminal_it_prints_once_and_uncoloured(type_: Callable[..., Result], words: str) -> None:
    done = type_(words, answers())
    assert done.exit_code == 0
    assert "Locks are available" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("words", ["--once", "--json"])
def test_for_scripts_an_agent_that_is_away_is_an_error(type_: Callable[..., Result], words: str) -> None:
    done = type_(words, Unreachable("it is away"))
    assert done.exit_code == ExitStatus.UNREACHABLE
    assert done.stdout == ""
