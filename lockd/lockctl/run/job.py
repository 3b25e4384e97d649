"""`lockctl run`: a command that lives no longer than its lease.

    LOCK … NOTIFY ─▶ granted ─▶ fork, exec ─▶ watch ── it ended ──▶ UNLOCK ─▶ its exit status
                                               │
                                               └── the lease is lost ─▶ SIGTERM ─▶ SIGKILL ─▶ Lost

One loop, no threads, and a keeper between it and the command (lockctl/run/keeper.py). It polls the agent's
socket, the wake-up pipe of the signals and what the keeper says, and keeps the deadline in mind by itself:
whatever becomes of the agent (dead, frozen, cut off), everything that the command has started has been killed
when the deadline comes. What could hold the loop up, as a message to a full pipe, is left out.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from types import FrameType
from typing import Any

import hiredis

from lockd.client.deadlines import AgentClock
from lockd.clock import boottime_ns
from lockd.lockctl.run.descendants import Sent
from lockd.lockctl.run.keeper import CannotExecute, Command, Start, cannot_be_ended

ANSWER_WITHIN_S = 5.0
NS_PER_MS = 1_000_000

# poll() waits by a clock that stands still while the machine is suspended, CLOCK_BOOTTIME doesn't: look up
# now and then.
_LOOK_UP_MS = 500
# How often to look at those that are to end, and how often to kill them who may fork meanwhile.
_ENDING_MS = 20
_KILL_AGAIN_MS = 2

_FORWARDED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGTSTP,
    signal.SIGCONT,
)
_JOB_STOPS = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


class Unreachable(Exception):
    """The agent can't be reached, or doesn't answer; the text says which."""


class Refused(Exception):
    """The agent said no to `command`. `code` is the first word of its error, as TAKEN; `text` is the rest."""

    def __init__(self, code: str, text: str, command: str) -> None:
        super().__init__(f"{code} {text}".strip())
        self.code = code
        self.text = text
        self.command = command

    @classmethod
    def by(cls, error: str, command: str) -> Refused:
        """From the text of the agent's error. redis-py takes a leading ERR away."""
        code, _, text = error.partition(" ")
        is_code = code.isascii() and code.isalpha() and code.isupper()
        return cls(code, text, command) if is_code else cls("ERR", error, command)


class Lost(Exception):
    """The lease was lost; the text says why. What was started under it has been ended."""


class NotStarted(Lost):
    """It was over, or nearly, when it was granted: nothing was started under it."""


@dataclass(frozen=True, slots=True)
class Job:
    """What `lockctl run` was asked for. max_hold_ms None: as long as the resource's class allows."""

    socket_path: str
    resource: bytes
    ttl_ms: int
    wait_ms: int
    max_hold_ms: int | None
    command: Sequence[str]


@dataclass(frozen=True, slots=True)
class Lease:
    """What the agent granted. `deadline_ns` is the one at the start, as our clock has it; `clock` says what
    later ones are."""

    resource: bytes
    token: bytes
    fence: int
    deadline_ns: int
    ttl_ms: int
    clock: AgentClock

    def environment(self) -> dict[bytes, bytes]:
        """What the command is told."""
        return {
            b"LOCKD_RESOURCE": self.resource,
            b"LOCKD_TOKEN": self.token,
            b"LOCKD_FENCE": b"%d" % self.fence,
            b"LOCKD_DEADLINE_NS": b"%d" % self.deadline_ns,
        }


def term_margin_ns(ttl_ms: int) -> int:
    """How long before the deadline SIGTERM is due: 18 % of the TTL, 4.9 s at most.

    A living agent tells of a loss a little earlier, a fifth of the TTL or 5 s before the deadline, and knows
    why: one that has said nothing by now is dead or frozen.
    """
    return min(ttl_ms * NS_PER_MS * 18 // 100, 4900 * NS_PER_MS)


def kill_margin_ns(ttl_ms: int) -> int:
    """How long before the deadline SIGKILL is due: a tenth of the TTL, 500 ms at most."""
    return min(ttl_ms * NS_PER_MS // 10, 500 * NS_PER_MS)


def run(job: Job) -> int:
    """Run the command while its resource is locked. Returns its exit status, 128 + n when signal n ended it.

    Raises Refused, Unreachable and CannotExecute when it was not started, Lost when it was ended with its
    lease. A Ctrl-C that ended the command ends this process too, as it would have without lockctl.
    """
    _die_of_signals()
    link = Link(job.socket_path)
    lease = take(link, job)
    terminal = controlling_terminal()
    try:
        with Signals() as signals:
            command = start(job, lease, terminal, signals)
            supervisor = Supervisor(link, lease, command, terminal, signals)
            status = supervisor.watch()
            terminal.take_back(command.id)
    except CannotExecute:
        release(link, lease)
        raise
    command.let_go()
    if supervisor.loss is not None:
        raise Lost(supervisor.loss)
    release(link, lease)
    if not os.WIFSIGNALED(status):
        return os.waitstatus_to_exitcode(status)
    if os.WTERMSIG(status) == signal.SIGINT:
        _follow(supervisor.interrupted)
    return 128 + os.WTERMSIG(status)


def _die_of_signals() -> None:
    """Until the command runs, our end is clean-up enough: with the connection goes our place in the queue."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Were it ignored, as it may be when we are started, nobody could tell how the command ended.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def take(link: Link, job: Job) -> Lease:
    """Lock the resource. Raises Refused or Unreachable; NotStarted when the answer came too late."""
    words = [b"LOCK", job.resource, b"%d" % job.ttl_ms, b"NOTIFY"]
    if job.wait_ms:
        words += [b"WAIT", b"%d" % job.wait_ms]
    if job.max_hold_ms is not None:
        words += [b"MAXHOLD", b"%d" % job.max_hold_ms]
    link.send([b"HELLO", b"3"], words)
    link.reply(ANSWER_WITHIN_S)
    granted = link.reply(job.wait_ms / 1000 + ANSWER_WITHIN_S)
    clock, now_ns = AgentClock(), boottime_ns()
    deadline_ns = clock.deadline_ns(granted, now_ns)
    lease = Lease(job.resource, granted[b"token"], granted[b"fence"], deadline_ns, job.ttl_ms, clock)
    if now_ns >= lease.deadline_ns - term_margin_ns(lease.ttl_ms):
        raise NotStarted("it was granted so late that its deadline is near, and the command was not started")
    return lease


def release(link: Link, lease: Lease) -> None:
    """Give the lease back. Raises Lost when it was over before the command was."""
    try:
        link.send([b"UNLOCK", lease.resource, lease.token])
        link.reply(ANSWER_WITHIN_S)
    except Refused as refused:
        if refused.code in ("EXPIRED", "NOTHELD"):
            raise Lost(f"the command had ended, but its lease perhaps before it: {refused.text}") from refused
        _say(f"the command has ended, its lock was not released ({refused}): it ends at its deadline")
    except Unreachable as why:
        _say(f"the command has ended, its lock was not released ({why}): it ends at its deadline")


class CtrlC(Enum):
    """Whom a SIGINT that ended the command has reached."""

    COMMAND = "the command only: the terminal is its"
    JOB = "all of the job: our process group, and the command through us"
    US = "us: somebody sent it"


def _follow(interrupted: CtrlC) -> None:
    """End as the command did, and pass it on to the rest of the job (a script) that did not get it."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_DFL:
        return
    if interrupted is CtrlC.COMMAND:
        os.killpg(os.getpgrp(), signal.SIGINT)
    elif interrupted is CtrlC.JOB:
        os.kill(os.getpid(), signal.SIGINT)


def _say(text: str) -> None:
    """A line on stderr, unless nobody reads it: to wait for a reader could mean to miss the deadline."""
    writable = select.poll()
    writable.register(2, select.POLLOUT)
    with suppress(OSError):
        if writable.poll(0):
            os.write(2, f"lockctl: {text}\n".encode(errors="backslashreplace")[:4096])


class Link:
    """A connection to the agent: replies are waited for, pushes are kept until they are asked for."""

    _NOTHING: Any = object()

    def __init__(self, path: str) -> None:
        self.open = True
        self._reader: Any = hiredis.Reader(notEnoughData=self._NOTHING)
        self._pushes: list[list[Any]] = []
        self._asked = ""
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(ANSWER_WITHIN_S)
        try:
            self._socket.connect(path)
        except OSError as error:
            raise Unreachable(f"can't connect to {path}: {_reason(error)}") from error

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, *commands: list[bytes]) -> None:
        """Send commands, all at once."""
        self._asked = commands[-1][0].decode()
        self._socket.settimeout(ANSWER_WITHIN_S)
        try:
            self._socket.sendall(b"".join(map(_packed, commands)))
        except OSError as error:
            raise Unreachable(f"the connection to the agent broke: {_reason(error)}") from error

    def reply(self, within_s: float) -> Any:
        """The next reply. Raises Refused when it is an error, Unreachable when it doesn't come."""
        self._socket.settimeout(within_s)
        while (answer := self._next()) is self._NOTHING:
            self._receive()
        if isinstance(answer, hiredis.ReplyError):
            raise Refused.by(str(answer), self._asked)
        return answer

    def pushes(self) -> list[list[Any]]:
        """What was pushed since the last time, without waiting. `open` is False once the agent has closed."""
        self._socket.setblocking(False)
        with suppress(Unreachable):
            while self.open:
                self._receive()
        while self._next() is not self._NOTHING:
            """Nothing was asked, so this is no reply to anything."""
        arrived, self._pushes = self._pushes, []
        return arrived

    def _next(self) -> Any:
        """The next reply that has arrived, or _NOTHING."""
        while isinstance(message := self._reader.gets(), hiredis.PushNotification):
            self._pushes.append(message)
        return message

    def _receive(self) -> None:
        try:
            data = self._socket.recv(65_536)
        except (BlockingIOError, TimeoutError) as error:
            raise Unreachable("the agent doesn't answer") from error
        except OSError as error:
            self.open = False
            raise Unreachable(f"the connection to the agent broke: {_reason(error)}") from error
        if not data:
            self.open = False
            raise Unreachable("the agent closed the connection: it was stopped or killed")
        self._reader.feed(data)


def _packed(words: list[bytes]) -> bytes:
    packed: bytes = hiredis.pack_command(tuple(words))  # type: ignore[arg-type]  # its stub says one word
    return packed


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


class Terminal:
    """The terminal that controls our session, or none (file -1).

    Its foreground is lent to the command, so that what is typed, Ctrl-C and Ctrl-Z reach the command.
    """

    def __init__(self, file: int) -> None:
        self._file = file
        self.lent = False

    @property
    def there(self) -> bool:
        return self._file >= 0

    def ours(self) -> bool:
        """Are we its foreground?"""
        return self._foreground() == os.getpgrp()

    def lend(self, group_id: int) -> None:
        """Make the command's group its foreground."""
        self.lent = True
        self._give(group_id)

    def take_back(self, group_id: int) -> None:
        """Be its foreground again, if that group is."""
        if self._foreground() == group_id:
            self._give(os.getpgrp())
        self.lent = False

    def _foreground(self) -> int:
        with suppress(OSError):
            return os.tcgetpgrp(self._file)
        return -1

    def _give(self, group_id: int) -> None:
        """The kernel stops those who do this from the background, unless they block SIGTTOU."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        with suppress(OSError):
            os.tcsetpgrp(self._file, group_id)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def controlling_terminal() -> Terminal:
    """The terminal of this session, wherever stdin comes from; one without a file when there is none."""
    try:
        return Terminal(os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return Terminal(-1)


def _in_a_pipeline() -> bool:
    """Others of our job may need the terminal: in `lockctl run … | less` it is less that reads the keys."""
    for file in (0, 1):
        with suppress(OSError):
            if stat.S_ISFIFO(os.fstat(file).st_mode):
                return True
    return False


def start(job: Job, lease: Lease, terminal: Terminal, signals: Signals) -> Command:
    """Start the command. Raises CannotExecute."""
    # In a pipeline it gets the terminal when it reaches for it, not before.
    foreground = terminal.ours() and not _in_a_pipeline()

    def prepare() -> None:
        signals.restore()
        if foreground:
            terminal.lend(os.getpid())

    try:
        command = Command(Start(job.command, lease.environment(), prepare))
    except CannotExecute as failure:
        terminal.take_back(failure.id)
        raise
    terminal.lent = foreground
    return command


class Signals:
    """While entered, the signals that concern the command wake the loop instead of doing anything to us.

    Those that were ignored when we were started (nohup, a shell's `&`) stay so, for the command too.
    """

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in _FORWARDED:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, _just_wake_up)
        # A message of ours to a terminal that is lent must not stop us.
        self._before[signal.SIGTTOU] = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        return self

    def restore(self) -> None:
        """Have signals do what they did before: at the end, and in the child that will be the command."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(-1)

    def __exit__(self, *_: object) -> None:
        self.restore()
        self._reader.close()
        self._writer.close()

    def fileno(self) -> int:
        return self._reader.fileno()

    def arrived(self) -> bytes:
        """The numbers of those that have come since the last time, without waiting."""
        try:
            return self._reader.recv(4096)
        except BlockingIOError:
            return b""


def _just_wake_up(number: int, frame: FrameType | None) -> None:
    """Python has written the number to the wake-up pipe: that is all that is wanted."""


class Supervisor:
    """Watches over a command and its lease until the command has ended, with its lease at the latest.

    loss: why the lease was lost, None while it is good. interrupted: whom the last SIGINT has reached.
    """

    def __init__(
        self, link: Link, lease: Lease, command: Command, terminal: Terminal, signals: Signals
    ) -> None:
        self.loss: str | None = None
        self.interrupted = CtrlC.COMMAND if terminal.lent else CtrlC.US
        self._link = link
        self._lease = lease
        self._command = command
        self._terminal = terminal
        self._signals = signals
        self._deadline_ns = lease.deadline_ns
        self._killing = False
        self._killed = Sent(reached=1)
        self._given_up = False
        self._spared: set[int] = set()
        self._status: int | None = None

    def watch(self) -> int:
        """The wait status of the command's first process; after a loss, when all that it has started is gone,
        but for what we may not end."""
        self._collect()
        while self._status is None or self._stragglers():
            self._sleep()
            self._listen()
            self._collect()
            self._enforce(boottime_ns())
            self._forward(self._signals.arrived())
        return self._status

    def _stragglers(self) -> bool:
        """After a loss everything has until its SIGKILL to follow the first process."""
        return self.loss is not None and not (self._command.gone or self._given_up)

    def _sleep(self) -> None:
        poll = select.poll()
        poll.register(self._signals, select.POLLIN)
        if self._command.kept:
            poll.register(self._command, select.POLLIN)
        if self._link.open:
            poll.register(self._link, select.POLLIN)
        poll.poll(self._patience_ms())

    def _patience_ms(self) -> int:
        """For how long nothing has to be done if nothing happens."""
        if self._killing:
            return _KILL_AGAIN_MS if boottime_ns() < self._deadline_ns and not self._given_up else _ENDING_MS
        most_ms = _LOOK_UP_MS if self._status is None else _ENDING_MS
        due_ms = -((boottime_ns() - self._due_ns()) // NS_PER_MS)
        return max(0, min(most_ms, due_ms))

    def _due_ns(self) -> int:
        """When something has to be done if nothing happens."""
        margin_ns = term_margin_ns if self.loss is None else kill_margin_ns
        return self._deadline_ns - margin_ns(self._lease.ttl_ms)

    def _listen(self) -> None:
        """To what the agent says of our lease."""
        for push in self._link.pushes():
            if push[2] != self._lease.token:
                continue
            if push[0] == b"renewed":
                self._deadline_ns = self._lease.clock.here_ns(push[3])
            elif push[0] == b"lost":
                self._deadline_ns = min(self._deadline_ns, self._lease.clock.here_ns(push[4]))
                self._lose(push[3].decode(errors="replace"))
        if not self._link.open:
            self._lose("the connection to the agent broke, so nobody renews it any more")

    def _enforce(self, now_ns: int) -> None:
        """What is due by the deadline alone."""
        if self.loss is None and now_ns >= self._due_ns():
            self._lose("the agent has not renewed it in time")
        if self.loss is not None and (self._killing or now_ns >= self._due_ns()):
            self._kill()

    def _kill(self) -> None:
        """Whoever is left. Again and again: they may fork meanwhile."""
        self._killing = True
        if self._command.gone:
            return
        sent = self._command.send_all(signal.SIGKILL)
        if news := [process for process in sent.spared if process.pid not in self._spared]:
            self._spared.update(process.pid for process in news)
            _say(cannot_be_ended(news))
        # Whom a walk missed, as his parent ended meanwhile, the next one finds.
        if not (self._killed.reached or sent.reached or self._given_up):
            self._given_up = bool(sent.spared) or self._out_of_sight()
        self._killed = sent

    def _out_of_sight(self) -> bool:
        """Something is left, and nobody who could be killed is found."""
        if self._command.gone or boottime_ns() < self._deadline_ns:
            return False
        _say("something that the command has started is hidden from us, and goes on without the lock")
        return True

    def _lose(self, reason: str) -> None:
        """The lease won't be good beyond its deadline: the command has to end before, if it still runs."""
        if self.loss is not None or self._status is not None:
            return
        self.loss = reason
        left_ms = (self._due_ns() - boottime_ns()) // NS_PER_MS
        if left_ms <= 0:
            # We were stopped, and so was the command: not a word to it, it would go on for as long as that
            # takes.
            _say(f"the lease was lost: {reason}. What the command has started is killed")
            return
        self._command.send_all(signal.SIGTERM)
        self._command.send_all(signal.SIGCONT)
        _say(f"the lease was lost: {reason}. The command was sent SIGTERM, SIGKILL follows in {left_ms} ms")

    def _collect(self) -> None:
        for status in self._command.changes():
            if os.WIFSTOPPED(status):
                self._stopped(os.WSTOPSIG(status))
                continue
            self._status = status
            if self.loss is None and boottime_ns() >= self._deadline_ns:
                self.loss = "the command was still running at its deadline, and nobody was there to end it"
        if not (self._command.kept or self._command.gone or self.loss):
            # Those that were to be kept within reach are not any more.
            self.loss = "the process that keeps the command was killed"
            self._killing = True

    def _forward(self, numbers: bytes) -> None:
        for number in numbers:
            if number == signal.SIGINT:
                self.interrupted = CtrlC.JOB if self._terminal.ours() else CtrlC.US
            if number in _FORWARDED and (self._status is None or self.loss is not None):
                self._command.send_group(number)

    # Job control: to a shell, we and the command are one job.

    def _stopped(self, number: int) -> None:
        """The command was stopped. By its terminal: then we stop too, so that the shell notices."""
        if number not in _JOB_STOPS or not self._terminal.there:
            return
        wants_terminal = self._terminal.lent or number != signal.SIGTSTP
        # One that reaches for a terminal that we have need not wait: it was `fg`, or we are in a pipeline.
        if number == signal.SIGTSTP or not self._terminal.ours():
            self._stop_too(number)
        # The lease may be over by now. The agent's news first: it has renewed it while we were stopped.
        self._listen()
        self._enforce(boottime_ns())
        if wants_terminal and self._terminal.ours():
            self._terminal.lend(self._command.id)
            self.interrupted = CtrlC.COMMAND
        self._command.send_group(signal.SIGCONT)

    def _stop_too(self, number: int) -> None:
        """Stop our job. Returns when it is continued; at once when nobody is there who could continue it."""
        before = signal.signal(number, signal.SIG_DFL)
        os.killpg(os.getpgrp(), number)
        signal.signal(number, before)
        woken_by = self._signals.arrived()
        # It goes on when it is known that it still may.
        self._forward(woken_by.replace(bytes([signal.SIGCONT]), b""))
        if signal.SIGCONT not in woken_by and number != signal.SIGTSTP:
            # Nobody can give us the terminal that the command wants: the kernel ends such groups in this way.
            self._command.send_group(signal.SIGHUP)
