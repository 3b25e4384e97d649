r"""The agent's log: one event, one line, on stderr.

    ts=2026-01-31T12:00:00.123Z level=warning event=lease_lost resource="a b" reason="m1=down m2=down"

Under systemd there is no ts, since the journal has its own, and the line begins with `<N>`, its priority.

Apps choose resource names, byte by byte. So every value that could be read as anything but one word is quoted
and escaped: no app can begin a line, or add a field to one. A byte that is not UTF-8 is \xNN, a character
that can't be seen \uNNNN.

Every event has a bucket of 20 lines that fills at 10 a second, for each account whose user its lines name
(`uid`), so that one account's events hide no other's lines, however many uids it has. What doesn't fit is
counted, and reported as `suppressed=N` in the next line of that event and account, or by `flush`: ten
thousand leases lost at once must not cost more than the loss itself.

Nothing waits for a reader (lockd/spout.py): lines that find no room are left out, and `log_lost` says how
many.
"""

import logging
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from lockd.server.buckets import Buckets
from lockd.spout import Spout, spout_of

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
BURST = 20
INTERVAL_NS = 100_000_000
VALUE_CHARS = 4_096

_PRIORITIES = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}
_ONE_WORD = re.compile(r"[A-Za-z0-9_.:/@+,%*~\[\]-]+").fullmatch
_SHORT = {"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t"}


class _Event:
    """The lines of one event. suppressed: what was left out and not reported yet, by account ('':
    nobody's)."""

    __slots__ = ("_accounts", "level", "suppressed")

    def __init__(self) -> None:
        self._accounts = Buckets(BURST, INTERVAL_NS)
        self.suppressed: dict[str, int] = {}
        self.level = logging.INFO

    def admits(self, account: str, now_ns: int, level: int) -> bool:
        if self._accounts.admits(account, now_ns):
            return True
        self.suppressed[account] = self.suppressed.get(account, 0) + 1
        self.level = level
        return False

    def left_out(self) -> dict[str, int | str]:
        """What was left out and no line has reported yet, as fields: the account if there is only one, else
        how many."""
        accounts, total = list(self.suppressed), sum(self.suppressed.values())
        self.suppressed.clear()
        if len(accounts) > 1:
            return {"accounts": len(accounts), "suppressed": total}
        return {"account": accounts[0], "suppressed": total} if accounts[0] else {"suppressed": total}


class EventLog:
    """Where events are logged. Make one, and pass it on; event names are constants of the code, never data.

    `debug_on` says whether `debug` would write: check it before composing costly fields. Call `flush` every
    few seconds.
    """

    def __init__(
        self,
        name: str = "lockd",
        level: str = "info",
        *,
        stream: TextIO | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        stream = stream if stream is not None else sys.stderr
        handler = _Stream(stream)
        handler.setFormatter(_Lines(journal=_is_journal(stream, environ)))
        self._logger = logging.getLogger(name)
        self._logger.handlers = [handler]
        self._logger.propagate = False
        self.set_level(level)
        self._clock_ns = clock_ns
        self.account_of: Callable[[int], str] = "uid {}".format
        """Who pays for the lines of that user."""
        self._events: dict[str, _Event] = {}

    def set_level(self, level: str) -> None:
        """From now on; one of LEVELS."""
        self._logger.setLevel(LEVELS[level])
        self._threshold = LEVELS[level]
        self.debug_on = level == "debug"

    def debug(self, event: str, /, **fields: Any) -> None:
        self._log(event, logging.DEBUG, fields)

    def info(self, event: str, /, **fields: Any) -> None:
        self._log(event, logging.INFO, fields)

    def warning(self, event: str, /, **fields: Any) -> None:
        self._log(event, logging.WARNING, fields)

    def error(self, event: str, /, **fields: Any) -> None:
        self._log(event, logging.ERROR, fields)

    def always(self, event: str, /, **fields: Any) -> None:
        """A warning that is never suppressed and that no level hides: what an operator did, and to whom."""
        self._write(event, logging.WARNING, fields)

    def log(self, event: str, level: str = "info", /, **fields: Any) -> None:
        """For a level that is only known when it happens."""
        self._log(event, LEVELS[level], fields)

    def _log(self, event: str, level: int, fields: dict[str, Any]) -> None:
        if level < self._threshold:
            return
        lines = self._events.get(event)
        if lines is None:
            lines = self._events[event] = _Event()
        uid = fields.get("uid")
        account = "" if uid is None else self.account_of(uid)
        if lines.admits(account, self._clock_ns(), level):
            left_out = lines.suppressed.pop(account, 0)
            self._write(event, level, {**fields, "suppressed": left_out} if left_out else fields)

    def _write(self, event: str, level: int, fields: Mapping[str, Any]) -> None:
        # Made by hand: Logger.log would look through the stack for a file name that no line shows.
        record = logging.LogRecord(self._logger.name, level, "", 0, event, None, None)
        record.fields = fields
        self._logger.handle(record)

    def flush(self) -> None:
        """Report what was left out and no line has reported since: one line for each event, whether or not
        its bucket has room."""
        for event, lines in list(self._events.items()):
            if lines.suppressed:
                self._write(event, lines.level, lines.left_out())

    def adopt_libraries(self) -> None:
        """Everything that would bypass this log becomes an event of it: what libraries log the standard way
        (asyncio does) from warnings up, Python's own warnings, and exceptions that nobody could catch."""
        root = logging.getLogger()
        root.handlers = [_Adopted(self)]
        root.setLevel(logging.WARNING)
        logging.captureWarnings(True)
        sys.unraisablehook = self._uncaught_in_passing
        threading.excepthook = self._uncaught_in_thread

    def _uncaught_in_passing(self, what: "sys.UnraisableHookArgs", /) -> None:
        """In a finalizer or a callback from C: Python goes on."""
        where = what.err_msg or "ignored"
        self.error("uncaught", where=f"{where}: {what.object!r}", **_told(what.exc_value))

    def _uncaught_in_thread(self, what: threading.ExceptHookArgs, /) -> None:
        """The end of that thread."""
        name = "?" if what.thread is None else what.thread.name
        self.error("uncaught", where=f"thread {name}", **_told(what.exc_value))


class _Stream(logging.StreamHandler[TextIO]):
    """Where the lines go. A line that can't be written is lost: there is nowhere else to report that."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._spout = spout_of(stream)
        self._lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        if self._spout is None:
            super().emit(record)
            return
        try:
            if not self._spout.write(self._line(record)):
                self._lost += 1
            elif self._lost:
                self._tell_lost(self._spout)
        except Exception:
            self.handleError(record)

    def _line(self, record: logging.LogRecord) -> bytes:
        return (self.format(record) + self.terminator).encode(errors="backslashreplace")

    def _tell_lost(self, spout: Spout) -> None:
        record = logging.LogRecord("lockd", logging.WARNING, "", 0, "log_lost", None, None)
        record.fields = {"lines": self._lost}
        if spout.write(self._line(record)):
            self._lost = 0

    def handleError(self, record: logging.LogRecord) -> None:
        pass


class _Adopted(logging.Handler):
    """The handler at the root: others' records, as events."""

    def __init__(self, log: EventLog) -> None:
        super().__init__()
        self._events = log

    def emit(self, record: logging.LogRecord) -> None:
        try:
            fields: dict[str, Any] = {"logger": record.name, "message": record.getMessage()}
            if record.exc_info:
                fields |= _told(record.exc_info[1])
        except Exception:  # a library's mistake in its format string must not take the agent down
            self.handleError(record)
            return
        tell = self._events.error if record.levelno >= logging.ERROR else self._events.warning
        tell("library_log", **fields)


def _told(failure: BaseException | None) -> dict[str, str]:
    """What is known of a failure, as fields. The end of a traceback says what happened."""
    if failure is None:
        return {}
    return {"traceback": "".join(traceback.format_exception(failure))[-VALUE_CHARS:]}


class _Lines(logging.Formatter):
    """A record as one line."""

    def __init__(self, *, journal: bool) -> None:
        super().__init__()
        self._journal = journal

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = getattr(record, "fields", {})
        pairs = "".join(f" {key}={logfmt_value(value)}" for key, value in fields.items())
        line = f"level={record.levelname.lower()} event={logfmt_value(record.msg)}{pairs}"
        if self._journal:
            return f"<{_PRIORITIES.get(record.levelno, 5)}>{line}"
        return f"ts={_timestamp(record.created)} {line}"


def _timestamp(seconds: float) -> str:
    whole = int(seconds)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{int((seconds - whole) * 1000):03d}Z"


def _is_journal(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether this very stream goes to the journal: a terminal may have inherited the variable."""
    expected = environ.get("JOURNAL_STREAM")
    if not expected:
        return False
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return expected == f"{found.st_dev}:{found.st_ino}"


def logfmt_value(value: object) -> str:
    """A value as one logfmt word, or as a quoted text that can't be mistaken for anything else."""
    text = _text_of(value)
    if len(text) > VALUE_CHARS:
        text = text[:VALUE_CHARS] + "…"
    if _ONE_WORD(text):
        return text
    return '"' + "".join(map(_escaped, text)) + '"'


def _text_of(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) or (type(value).__name__ if isinstance(value, BaseException) else "")


def _escaped(char: str) -> str:
    if char in _SHORT:
        return _SHORT[char]
    if char.isprintable():
        return char
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
