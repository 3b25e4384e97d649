"""Watches over a command and its lease: whatever happens to the agent, everything has ended at the
deadline."""

from __future__ import annotations

import os
import select
import signal
from enum import Enum

from lockd.clock import boottime_ns
from lockd.core.validity import NS_PER_MS
from lockd.lockctl.run.descendants import Sent
from lockd.lockctl.run.keeper import CommandProcess, cannot_be_ended
from lockd.lockctl.run.lease import kill_margin_ns, term_margin_ns
from lockd.lockctl.run.news import LeaseNews
from lockd.lockctl.run.signals import ENDS, FORWARDED, Signals
from lockd.lockctl.run.terminal import Terminal, say

# poll() waits by a clock that stands still while the machine is suspended, and CLOCK_BOOTTIME doesn't: look
# at the time now and then.
_LOOK_UP_MS = 500
# How often to look at processes that have to end, and how often to kill processes that may fork meanwhile.
_ENDING_MS = 20
_KILL_AGAIN_MS = 2
# Within which a signal that is for all comes to each.
_TO_ALL_NS = 50 * NS_PER_MS
_JOB_STOPS = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


class CtrlC(Enum):
    """Which processes a SIGINT has reached that ended the command."""

    COMMAND = "the command only: the terminal is its"
    JOB = "all of the job: our process group, and the command through us"
    US = "us: somebody sent it"


class Supervisor:
    """Watches over a command and its lease until the command has ended, at the latest with its lease.

    loss: why the lease was lost, None while it is valid. interrupted: which processes the last SIGINT has
    reached. told_to_end: a signal has come that ends commands.
    """

    def __init__(
        self,
        news: LeaseNews,
        ttl_ms: int,
        command: CommandProcess,
        terminal: Terminal,
        signals: Signals,
    ) -> None:
        self.loss: str | None = None
        self.interrupted = CtrlC.COMMAND if terminal.lent else CtrlC.US
        self._news = news
        self._ttl_ms = ttl_ms
        self._command = command
        self._terminal = terminal
        self._signals = signals
        self.told_to_end = False
        self._killing = False
        self._killed = Sent(reached=1)
        self._given_up = False
        self._spared: set[int] = set()
        self._status: int | None = None
        self._kept_back: dict[int, int] = {}
        """Signals that may have come to all, and until when that is waited for."""

    def watch(self) -> int:
        """The wait status of the command's first process. After a loss, it returns when everything that it
        has started is gone, except processes that lockctl may not end."""
        self._collect()
        while self._status is None or self._stragglers():
            self._sleep()
            self._listen()
            self._collect()
            self._enforce(boottime_ns())
            self._forward(self._signals.arrived())
            self._pass_on_what_was_kept_back(boottime_ns())
        return self._status

    def _stragglers(self) -> bool:
        """After a loss, all other processes have time to end after the first one, until SIGKILL."""
        return self.loss is not None and not (self._command.gone or self._given_up)

    def _sleep(self) -> None:
        poll = select.poll()
        poll.register(self._signals, select.POLLIN)
        if self._command.kept:
            poll.register(self._command, select.POLLIN)
        if self._news.connection.open:
            poll.register(self._news.connection, select.POLLIN)
        poll.poll(self._patience_ms())

    def _patience_ms(self) -> int:
        """For how long nothing has to be done if nothing happens."""
        if self._killing:
            is_due = boottime_ns() < self._news.deadline_ns and not self._given_up
            return _KILL_AGAIN_MS if is_due else _ENDING_MS
        most_ms = _LOOK_UP_MS if self._status is None else _ENDING_MS
        next_ns = min(self._due_ns(), self._news.due_ns, *self._kept_back.values())
        due_ms = -((boottime_ns() - next_ns) // NS_PER_MS)
        return max(0, min(most_ms, due_ms))

    def _due_ns(self) -> int:
        """When something has to be done if nothing happens."""
        margin_ns = term_margin_ns if self.loss is None else kill_margin_ns
        return self._news.deadline_ns - margin_ns(self._ttl_ms)

    def _listen(self) -> None:
        """React to what the agent says about our lease."""
        self._news.look()
        if self._news.loss is not None:
            self._lose(self._news.loss)

    def _enforce(self, now_ns: int) -> None:
        """Do what is due because of the deadline alone."""
        if self.loss is None and now_ns >= self._due_ns():
            why = (
                ""
                if self._news.connection.open
                else ": it was stopped or killed, and no other agent took over"
            )
            self._lose(f"the agent did not renew it in time{why}")
        if self.loss is not None and (self._killing or now_ns >= self._due_ns()):
            self._kill()

    def _kill(self) -> None:
        """Kill all that are left. Again and again: they may fork meanwhile."""
        self._killing = True
        if self._command.gone:
            return
        sent = self._command.send_all(signal.SIGKILL)
        if news := [process for process in sent.spared if process.pid not in self._spared]:
            self._spared.update(process.pid for process in news)
            say(cannot_be_ended(news))
        # A process that a walk missed, because its parent ended meanwhile, is found by the next one.
        if not (self._killed.reached or sent.reached or self._given_up):
            self._given_up = bool(sent.spared) or self._out_of_sight()
        self._killed = sent

    def _out_of_sight(self) -> bool:
        """Something is left, but nothing that could be killed is found."""
        if self._command.gone or boottime_ns() < self._news.deadline_ns:
            return False
        say("a process that the command started can't be seen from here, and goes on without the lock")
        return True

    def _lose(self, reason: str) -> None:
        """The lease won't be valid beyond its deadline: the command has to end before that, if it still
        runs."""
        if self.loss is not None or self._status is not None:
            return
        self.loss = reason
        left_ms = (self._due_ns() - boottime_ns()) // NS_PER_MS
        if left_ms <= 0:
            # We were stopped, and so was the command. It gets no SIGTERM: to handle that it would have to go
            # on for a while.
            say(f"the lease was lost: {reason}. Everything the command started is killed")
            return
        self._command.send_all(signal.SIGTERM)
        self._command.send_all(signal.SIGCONT)
        say(f"the lease was lost: {reason}. The command was sent SIGTERM, SIGKILL follows in {left_ms} ms")

    def _collect(self) -> None:
        for status in self._command.changes():
            if os.WIFSTOPPED(status):
                self._stopped(os.WSTOPSIG(status))
                continue
            self._status = status
            if self.loss is None and boottime_ns() >= self._news.deadline_ns:
                self.loss = "the command was still running at the deadline"
        if not (self._command.kept or self._command.gone or self.loss):
            # The processes that should be kept within reach are not any more.
            self.loss = "the process that supervises the command was killed"
            self._killing = True

    def _forward(self, numbers: bytes) -> None:
        for number in numbers:
            if number == signal.SIGINT:
                self.interrupted = CtrlC.JOB if self._terminal.ours() else CtrlC.US
            if number in ENDS:
                self.told_to_end = True
                self._kept_back.setdefault(number, boottime_ns() + _TO_ALL_NS)
            elif number in FORWARDED:
                self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        if self._status is None or self.loss is not None:
            self._command.send_group(number)

    def _pass_on_what_was_kept_back(self, now_ns: int) -> None:
        """The command has a signal already that came to all. Some programs take a second one for an order to
        hurry."""
        for number, until_ns in list(self._kept_back.items()):
            if number in self._command.keeper_got or now_ns >= until_ns:
                del self._kept_back[number]
                if number not in self._command.keeper_got:
                    self._pass_on(number)
        self._command.keeper_got.intersection_update(self._kept_back)

    # Job control: for a shell, lockctl and the command are one job.

    def _stopped(self, number: int) -> None:
        """The command was stopped. If its terminal did it, we stop too, so that the shell notices."""
        if number not in _JOB_STOPS or not self._terminal.there:
            return
        wants_terminal = self._terminal.lent or number != signal.SIGTSTP
        # If the command needs the terminal and we have it, it need not wait: it was `fg`, or we are in a
        # pipeline.
        if number == signal.SIGTSTP or not self._terminal.ours():
            self._stop_too(number)
        # The lease may be over by now. Read the agent's news first: it has renewed the lease while we were
        # stopped.
        self._listen()
        self._enforce(boottime_ns())
        if wants_terminal and self._terminal.ours():
            self._terminal.lend(self._command.id)
            self.interrupted = CtrlC.COMMAND
        self._command.send_group(signal.SIGCONT)

    def _stop_too(self, number: int) -> None:
        """Stop our job. Returns when it is continued; at once if nobody is there that could continue it."""
        before = signal.signal(number, signal.SIG_DFL)
        os.killpg(os.getpgrp(), number)
        signal.signal(number, before)
        woken_by = self._signals.arrived()
        # It goes on once it is known that it still may.
        self._forward(woken_by.replace(bytes([signal.SIGCONT]), b""))
        if signal.SIGCONT not in woken_by and number != signal.SIGTSTP:
            # Nobody can give us the terminal that the command needs: this is how the kernel ends such groups.
            self._command.send_group(signal.SIGHUP)
