"""`lockctl run`: a command that lives no longer than its lease.

    LOCK … NOTIFY ─▶ granted ─▶ fork, exec ─▶ watch ── it ended ──▶ UNLOCK ─▶ its exit status
                                               │
                                               └── the lease is lost ─▶ SIGTERM ─▶ SIGKILL ─▶ Lost

One loop, and a keeper between it and the command (keeper.py). The supervisor polls the agent's socket, the
wake-up pipe of the signals and the keeper's messages, and watches the deadline by itself. Whatever happens to
the agent (dead, frozen, cut off), everything that the command has started has been killed when the deadline
comes. Nothing is done that could hold up the loop: a message to the user is written by a thread (spout.py).
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from lockd.lockctl.errors import CannotExecute, Lost
from lockd.lockctl.run.asking import release, take
from lockd.lockctl.run.keeper import CommandProcess, Start
from lockd.lockctl.run.lease import Job, JobLease
from lockd.lockctl.run.news import LeaseNews
from lockd.lockctl.run.signals import Signals
from lockd.lockctl.run.supervisor import CtrlC, Supervisor
from lockd.lockctl.run.terminal import Terminal, controlling_terminal, in_a_pipeline


def run(job: Job, *, goes_on: bool = False) -> int:
    """Run the command while its resources are locked. Returns its exit status, 128 + n when signal n ended
    it.

    goes_on: this process goes on afterwards, so a lost lease is given back, if nothing is left that may
    believe in it.

    Raises Refused, Unreachable and CannotExecute when it was not started, Lost when it was ended with its
    lease. A Ctrl-C that ended the command ends this process too, as it would have without lockctl.
    """
    _die_of_signals()
    connection, lease = take(job)
    news = LeaseNews(connection, lease)
    terminal = controlling_terminal()
    try:
        with Signals() as signals:
            command = start(job, lease, terminal, signals)
            news.inherit = command.keep_open
            supervisor = Supervisor(news, lease.ttl_ms, command, terminal, signals)
            status = supervisor.watch()
            terminal.take_back(command.id)
    except CannotExecute:
        release(news, lease)
        raise
    command.let_go()
    if supervisor.loss is not None:
        if goes_on and command.gone:
            with suppress(Lost):
                release(news, lease)
        lost = Lost(supervisor.loss)
        lost.told_to_end = supervisor.told_to_end
        raise lost
    release(news, lease)
    if not os.WIFSIGNALED(status):
        return os.waitstatus_to_exitcode(status)
    if os.WTERMSIG(status) == signal.SIGINT:
        _follow(supervisor.interrupted)
    return 128 + os.WTERMSIG(status)


def _die_of_signals() -> None:
    """Until the command runs, ending this process is clean-up enough: the connection ends, and with it the
    place in the queue."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # If it was ignored, as it may be when lockctl is started, nobody could tell how the command ended.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _follow(interrupted: CtrlC) -> None:
    """End as the command did, and pass the signal on to the rest of the job (a script) that did not get
    it."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_DFL:
        return
    if interrupted is CtrlC.COMMAND:
        os.killpg(os.getpgrp(), signal.SIGINT)
    elif interrupted is CtrlC.JOB:
        os.kill(os.getpid(), signal.SIGINT)


def start(job: Job, lease: JobLease, terminal: Terminal, signals: Signals) -> CommandProcess:
    """Start the command. Raises CannotExecute."""
    # In a pipeline it gets the terminal when it tries to use it, not before.
    foreground = terminal.ours() and not in_a_pipeline()

    def prepare() -> None:
        signals.restore()
        if foreground:
            terminal.lend(os.getpid())

    try:
        command = CommandProcess(Start(job.command, lease.environment(os.environb), prepare))
    except CannotExecute as failure:
        terminal.take_back(failure.id)
        raise
    terminal.lent = foreground
    return command
