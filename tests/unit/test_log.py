"""The lines of the log: one an event, and nobody but the agent begins one."""

from __future__ import annotations

import io
import itertools
import logging
import os
import pty
import re
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockd.core.membership import State
from lockd.server.agent import serve
from lockd.server.log import BURST, INTERVAL_NS, VALUE_CHARS, EventLog, logfmt_value
from tests.harness.any_text import any_text
from tests.harness.clocks import Clock
from tests.harness.configs import a_config
from tests.harness.terminal import Terminal
from tests.harness.waiting import eventually


@pytest.fixture
def clock() -> Clock:
    return Clock(10**18)


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def log(out: io.StringIO, clock: Clock) -> EventLog:
    return EventLog("lockd.test", stream=out, clock_ns=clock, environ={})


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[logging.Logger]:
    """The root logger, which gets its own handlers back, as does all else that a log adopts."""
    logger = logging.getLogger()
    handlers, level = logger.handlers, logger.level
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    yield logger
    logging.captureWarnings(False)
    logger.handlers = handlers
    logger.setLevel(level)


def without_ts(out: io.StringIO) -> list[str]:
    return [line.partition(" ")[2] for line in out.getvalue().splitlines()]


def test_an_event_is_one_line_with_its_time_its_level_and_its_fields(log: EventLog, out: io.StringIO) -> None:
    log.info("master_state", master="m1", state=State.DOWN, reason="no answer for 2000 ms", votes=3)
    assert re.fullmatch(
        r"ts=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z level=info event=master_state "
        r'master=m1 state=down reason="no answer for 2000 ms" votes=3\n',
        out.getvalue(),
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"billing:42", "billing:42"),
        ("m1=down", '"m1=down"'),
        ("", '""'),
        (b"", '""'),
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        ('say "no"', r'"say \"no\""'),
        (r"C:\temp", r'"C:\\temp"'),
        (b"a\nlevel=error event=fake", r'"a\nlevel=error event=fake"'),
        (b"\xff\x00\x1b[31m", r'"\xff\u0000\u001b[31m"'),
        ("\u2028\u202e\x85", r'"\u2028\u202e\u0085"'),
        ("\ud800", r'"\ud800"'),
        ("\U000e0001", r'"\U000e0001"'),
        ("Schlüssel", '"Schlüssel"'),
        (TimeoutError(), "TimeoutError"),
        (OSError(2, "no such file"), '"[Errno 2] no such file"'),
    ],
)
def test_a_value_reads_as_one_word_or_is_quoted(value: object, text: str) -> None:
    assert logfmt_value(value) == text


@given(st.one_of(st.binary(max_size=64), any_text(64)))
def test_no_value_begins_a_line_or_a_field(value: bytes | str) -> None:
    line = logfmt_value(value)
    assert line.isprintable()
    assert re.fullmatch(r'[^\s="]+|"(?:[^"\\]|\\.)*"', line)


@given(st.binary(max_size=32), st.binary(max_size=32))
def test_two_resources_never_look_the_same(one: bytes, other: bytes) -> None:
    assert (logfmt_value(one) == logfmt_value(other)) == (one == other)


def test_a_value_without_end_is_cut() -> None:
    assert logfmt_value("x" * 100_000) == '"' + "x" * VALUE_CHARS + '…"'


LEVELS = ["debug", "info", "warning", "error"]


@pytest.mark.parametrize("level", LEVELS)
def test_only_the_configured_level_and_above_is_written(out: io.StringIO, level: str) -> None:
    log = EventLog("lockd.test", level, stream=out, environ={})
    for each in LEVELS:
        log.log("something", each)
    seen = LEVELS[LEVELS.index(level) :]
    assert without_ts(out) == [f"level={each} event=something" for each in seen]
    assert log.debug_on == (level == "debug")


def test_a_burst_is_cut_off_and_the_next_line_says_how_many_were_left_out(
    log: EventLog, out: io.StringIO, clock: Clock
) -> None:
    for n in range(BURST + 5):
        log.warning("lease_lost", n=n)
    assert len(without_ts(out)) == BURST
    clock.now_ns += INTERVAL_NS
    log.warning("lease_lost", n="last")
    assert without_ts(out)[BURST:] == ["level=warning event=lease_lost n=last suppressed=5"]


def test_after_the_burst_ten_lines_a_second_get_through(
    log: EventLog, out: io.StringIO, clock: Clock
) -> None:
    for _ in range(BURST):
        log.info("e")
    for _ in range(1_000):
        clock.now_ns += 1_000_000
        log.info("e")
    assert len(without_ts(out)) == BURST + 10


def test_one_user_who_floods_hides_no_line_about_another_nor_of_another_event(
    log: EventLog, out: io.StringIO
) -> None:
    for _ in range(BURST * 3):
        log.warning("limit", uid=1000)
    log.warning("limit", uid=7)
    log.warning("limit", master="m1")
    log.warning("other", uid=1000)
    assert without_ts(out)[BURST:] == [
        "level=warning event=limit uid=7",
        "level=warning event=limit master=m1",
        "level=warning event=other uid=1000",
    ]
    log.flush()
    log.flush()
    told = f'level=warning event=limit account="uid 1000" suppressed={BURST * 2}'
    assert without_ts(out)[BURST + 3 :] == [told], "what was left out at the end is told once"


def test_a_flood_under_ten_thousand_names_of_one_account_hides_nobodys_line(
    log: EventLog, out: io.StringIO
) -> None:
    log.account_of = lambda uid: "greedy" if uid >= 100_000 else f"uid {uid}"
    for uid in range(100_000, 110_000):
        log.warning("limit", uid=uid)
    assert len(without_ts(out)) == BURST
    log.warning("limit", uid=7)
    assert without_ts(out)[-1] == "level=warning event=limit uid=7"
    log.flush()
    told = f"level=warning event=limit account=greedy suppressed={10_000 - BURST}"
    assert without_ts(out)[-1] == told


def test_what_is_remembered_of_a_flood_is_forgotten_when_it_is_over_and_was_told(
    log: EventLog, out: io.StringIO, clock: Clock
) -> None:
    for _ in range(10):
        for uid in range(300):
            for _ in range(BURST + 5):
                log.warning("limit", uid=uid)
        log.flush()
        clock.now_ns += BURST * INTERVAL_NS
    log.warning("limit", uid=1)
    assert log._events["limit"].suppressed == {}
    assert without_ts(out)[-2] == f"level=warning event=limit accounts=300 suppressed={300 * 5}"


def test_lines_below_the_level_use_up_nothing(log: EventLog, out: io.StringIO) -> None:
    for _ in range(BURST * 2):
        log.debug("e")
    log.info("e")
    assert without_ts(out) == ["level=info event=e"]


def test_under_systemd_a_line_begins_with_its_priority_and_has_no_time(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with path.open("w") as stream:
        log = EventLog("lockd.test", "debug", stream=stream, environ=journal_is(stream.fileno()))
        for level in LEVELS:
            log.log("e", level, resource=b"a\nb")
    assert path.read_text().splitlines() == [
        f'<{priority}>level={level} event=e resource="a\\nb"'
        for priority, level in zip((7, 6, 4, 3), LEVELS, strict=True)
    ]


def journal_is(fd: int) -> dict[str, str]:
    found = os.fstat(fd)
    return {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}


def test_a_variable_inherited_by_a_terminal_does_not_make_it_a_journal(tmp_path: Path) -> None:
    with (tmp_path / "terminal").open("w+") as stream:
        EventLog("lockd.test", stream=stream, environ={"JOURNAL_STREAM": "8:12345"}).info("e")
        stream.seek(0)
        assert stream.read().startswith("ts=")


def test_what_libraries_log_is_an_event_too_with_its_traceback_on_its_line_and_ours_are_told_once(
    log: EventLog, out: io.StringIO, root: logging.Logger
) -> None:
    log.adopt_libraries()
    asyncios = logging.getLogger("asyncio")
    asyncios.warning("slow callback: %s\nevent=fake", "f()")
    asyncios.info("not this")
    try:
        raise RuntimeError("told\nyou")
    except RuntimeError:
        asyncios.exception("a task failed")
    log.warning("once")
    slow, failed, once = without_ts(out)
    said = "event=library_log logger=asyncio message="
    assert slow == rf'level=warning {said}"slow callback: f()\nevent=fake"'
    assert failed.startswith(f'level=error {said}"a task failed" traceback="Trace')
    assert failed.endswith(r'RuntimeError: told\nyou\n"')
    assert once == "level=warning event=once"


class Breaks:
    def __del__(self) -> None:
        raise RuntimeError("in passing")


def thread_that_breaks() -> None:
    thread = threading.Thread(target=int, args=("none",), name="metrics")
    thread.start()
    thread.join()


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    ("happens", "said", "end"),
    [
        (
            lambda: warnings.warn("this is\nold", RuntimeWarning, stacklevel=1),
            "level=warning event=library_log logger=py.warnings message=",
            r"RuntimeWarning: this is\nold\n",
        ),
        (Breaks, "level=error event=uncaught where=", r"RuntimeError: in passing\n"),
        (thread_that_breaks, 'level=error event=uncaught where="thread metrics" traceback=', "'none'\\n"),
    ],
)
def test_what_python_says_by_itself_is_an_event_too(
    log: EventLog, out: io.StringIO, happens: Callable[[], object], said: str, end: str
) -> None:
    log.adopt_libraries()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        happens()
    (line,) = without_ts(out)
    assert line.startswith(said)
    assert end in line


@pytest.mark.usefixtures("root")
def test_the_agent_adopts_what_would_go_past_its_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def asyncio_complains(main: Coroutine[Any, Any, None]) -> None:
        main.close()
        logging.getLogger("asyncio").warning("a task took long")

    monkeypatch.setattr("uvloop.run", asyncio_complains)
    monkeypatch.setattr(sys, "setswitchinterval", lambda _s: None)
    assert serve(a_config()) == 0
    assert capsys.readouterr().err.endswith(
        ' level=warning event=library_log logger=asyncio message="a task took long"\n'
    )


def test_a_broken_stderr_does_not_break_the_agent(
    log: EventLog, out: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    out.close()
    log.error("nobody_hears_this")
    assert capsys.readouterr().err == ""


def test_no_flood_swallows_what_an_operator_did_and_no_level_hides_it(out: io.StringIO) -> None:
    log = EventLog("audit", "error", stream=out, clock_ns=lambda: 0, environ={})
    for number in range(100):
        log.always("forced_release", number=number)
    assert without_ts(out) == [f"level=warning event=forced_release number={n}" for n in range(100)]


# Nobody reads it


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    read, write = os.pipe()
    with os.fdopen(write, "w") as stream:
        yield read, stream
    os.close(read)


@pytest.fixture
def sockets() -> Iterator[tuple[int, TextIO]]:
    ours, its = socket.socketpair()
    with its, ours, os.fdopen(os.dup(ours.fileno()), "w") as stream:
        yield its.fileno(), stream


@pytest.fixture
def terminal() -> Iterator[tuple[int, TextIO]]:
    """Like a real one, it is writable as long as it has room for a byte, and takes a part of a line."""
    shown, its = pty.openpty()
    with os.fdopen(its, "w") as stream:
        yield shown, stream
    os.close(shown)


@pytest.mark.parametrize("kind", ["pipe", "sockets", "terminal"])
def test_an_agent_whose_log_nobody_reads_goes_on_and_says_later_what_is_missing(
    kind: str, clock: Clock, request: pytest.FixtureRequest
) -> None:
    """It would wait for ever here."""
    read, stream = request.getfixturevalue(kind)
    os.set_blocking(read, False)
    log, said = EventLog("unread", stream=stream, clock_ns=clock), [b""]
    for number in range(5_000):
        log.always("number", n=number, text="x" * 1_000)
    laters = itertools.count(1)

    def is_told() -> bool:
        said[0] += _all_of(read)
        if said[0].endswith(b"\n") and b" event=log_lost " in said[0]:
            return True
        log.always("later", n=next(laters))
        return False

    eventually(is_told, "it says what is missing")
    lines = said[0].decode().splitlines()
    assert all(re.match(r"ts=\S+ level=\w+ event=\w+( |$)", line) for line in lines), "no line is cut"
    numbers = [int(found[1]) for line in lines if (found := re.search(r" event=number n=(\d+) ", line))]
    assert numbers == list(range(len(numbers)))
    assert 2 < len(numbers) < 5_000
    lost = sum(int(found[1]) for line in lines if (found := re.search(r" event=log_lost lines=(\d+)", line)))
    written = [line for line in lines if " event=log_lost " not in line]
    assert len(written) + lost == 5_000 + next(laters) - 1


def _all_of(file: int) -> bytes:
    said = b""
    with suppress(BlockingIOError):
        while more := os.read(file, 1 << 20):
            said += more
    return said


def test_a_line_that_was_begun_is_ended_before_the_next(clock: Clock, sockets: tuple[int, TextIO]) -> None:
    read, stream = sockets
    log = EventLog("cut", stream=stream, clock_ns=clock)
    for number in range(2_000):
        log.always("number", n=number, text="y" * 3_000)
    os.set_blocking(read, False)
    said = b""
    for number in range(200):
        with suppress(BlockingIOError):
            said += os.read(read, 1_000)
        log.always("again", n=number, text="z" * 3_000)

    def last_is_there() -> bytes | None:
        nonlocal said
        log.always("last")
        said += _all_of(read)
        return said if b" event=last\n" in said else None

    whole = eventually(last_is_there).decode().splitlines(keepends=True)
    assert all(re.match(r"ts=\S+ level=\w+ event=\w+( |$)", line) for line in whole)


def test_a_line_is_there_when_it_was_logged(pipe: tuple[int, TextIO]) -> None:
    """Who has an answer of the agent finds in its log what it did before."""
    read, stream = pipe
    os.set_blocking(read, False)
    log = EventLog("there", stream=stream)
    for number in range(20):
        log.always("number", n=number)
        assert _all_of(read).decode().endswith(f"n={number}\n")


IN_BACKGROUND = f"""stty tostop; {sys.executable} -c '
from lockd.spout import Spout
Spout(2).write(b"it goes on\\n")
' & wait $!; echo "ended with $?" """


def test_a_terminal_that_stops_who_writes_from_its_background_does_not_stop_us() -> None:
    with Terminal("bash", "-mc", IN_BACKGROUND) as terminal:
        terminal.wait_for("ended with 0")
        assert "it goes on" in terminal.screen
