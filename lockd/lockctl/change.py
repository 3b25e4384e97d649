"""The commands of `lockctl` with which operators change things: force-release, cluster init, recover
and upgrade, master admit, reload."""

from __future__ import annotations

import os
import sys
import time
from codecs import BOM_UTF8
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import IO, Any, Protocol

import click

from lockd.core.errors import ErrorWord
from lockd.lockctl.agent import AgentClient, Row
from lockd.lockctl.errors import Refused
from lockd.lockctl.failures import ExitStatus
from lockd.lockctl.printing import json_option, print_holder, print_json
from lockd.lockctl.words import Name
from lockd.text import format_ms, printable, shown

OPERATOR_USER = "lockd_operator"
PASSWORD_VARIABLE = "LOCKD_OPERATOR_PASSWORD"

# Without a terminal, how often to say that a wait goes on.
REPORT_EVERY_S = 10.0


@click.command("force-release", short_help="Release a resource by force.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
@click.argument("resource", type=Name())
@click.pass_obj
def force_release(agent: AgentClient, yes: bool, as_json: bool, resource: bytes) -> int:
    """Release RESOURCE by force. Shows the holder and asks first. For operators.

    This does not stop the holder. It is told about the loss, on another host as soon as the agent there
    hears of it. Make sure that the holder is dead, or that everything it writes to checks fences. On this
    host only the lease that was shown is removed: if the resource has a new holder by then, nothing happens.
    On another host the current holder there loses it: only the agent of that host knows the individual
    leases.

    If there is no lease, but something that somebody else than lockd has written to the masters, that is
    removed without asking.
    """
    try:
        held = agent.ask("HOLDER", resource)
    except Refused as refused:
        if refused.code != ErrorWord.NOQUORUM or not _cleared(agent, resource, as_json):
            raise
        return ExitStatus.DONE
    if held is None:
        if _cleared(agent, resource, as_json):
            return ExitStatus.DONE
        click.echo(f"lockctl: {printable(resource)} is free: there is nothing to release", err=True)
        return ExitStatus.NO
    if not yes:
        print_holder(held, err=True)
        if not sys.stdin.isatty():
            raise click.UsageError(
                "can't ask without a terminal. Check the holder above, then repeat this with --yes"
            )
        if not click.confirm("Release it by force?", err=True):
            return ExitStatus.NO
    which = ["FENCE", held["fence"]] if held["fence"] is not None else []
    deleted = agent.ask("FORCERELEASE", resource, "HOLDER", held["holder"], *which)
    if as_json:
        print_json(
            {"resource": shown(resource), "holder": held["holder"], "deleted_on": deleted, "of": held["of"]}
        )
    else:
        click.echo(
            f"released {printable(resource)}: {held['holder']} deleted on {deleted} of {held['of']} masters"
        )
    return ExitStatus.DONE


def _cleared(agent: AgentClient, resource: bytes, as_json: bool) -> bool:
    """Whether there was something else than a lease, which is gone now."""
    try:
        deleted = agent.ask("FORCERELEASE", resource, "NOLEASE")
    except Refused as refused:
        if refused.code != ErrorWord.NOTHELD:
            raise
        return False
    if as_json:
        print_json({"resource": shown(resource), "holder": None, "deleted_on": deleted})
    else:
        click.echo(f"cleared {printable(resource)} on {deleted} masters: there was no lease")
    return True


class Writer:
    """The user of the masters that may write identities, as words of FORM and ADMIT."""

    def __init__(self, name: bytes | None, file: IO[bytes] | None) -> None:
        self._name = name
        self._file = file

    def words(self) -> list[str | bytes]:
        """No words if no user and no password are given: then the agent tries it as its own user."""
        password = self._password()
        return [] if password is None else ["AUTH", self._name or OPERATOR_USER, password]

    def _password(self) -> bytes | None:
        if self._file is not None:
            password = self._file.readline().removeprefix(BOM_UTF8).rstrip(b"\r\n")
            if not password:
                raise click.UsageError("the file of the password has none in its first line")
            return password
        if from_environment := os.environb.get(PASSWORD_VARIABLE.encode()):
            return from_environment
        if self._name is None:
            return None
        if not sys.stdin.isatty():
            raise click.UsageError(
                f"can't ask for the password of {printable(self._name)} without a terminal: use "
                f"--operator-password-file, or set {PASSWORD_VARIABLE}"
            )
        question = f"Password of {printable(self._name)} on the masters"
        return os.fsencode(click.prompt(question, hide_input=True, err=True))


def writer_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say as which user identities are written, for the commands that write them. A password
    is never on the command line, where everybody on the host could read it."""

    @click.option(
        "--operator-user",
        type=Name(),
        metavar="NAME",
        help=(
            "Redis user on the masters that may write identities. Prompts for the password. "
            f"[{OPERATOR_USER}]"
        ),
    )
    @click.option(
        "--operator-password-file",
        type=click.File("rb"),
        help=f"File with the password in its first line (- for stdin). Or set {PASSWORD_VARIABLE}.",
    )
    @wraps(command)
    def with_writer(
        *args: Any, operator_user: bytes | None, operator_password_file: IO[bytes] | None, **options: Any
    ) -> Any:
        return command(*args, writer=Writer(operator_user, operator_password_file), **options)

    return with_writer


@click.group()
def cluster() -> None:
    """Form a cluster of new masters, or recover or upgrade one."""


@cluster.command("init")
@click.option("--unused", is_flag=True, help="Don't wait: no agent has ever used these masters.")
@writer_options
@json_option
@click.pass_obj
def cluster_init(agent: AgentClient, unused: bool, writer: Writer, as_json: bool) -> None:
    """Form a cluster of the masters in the configuration. All must be blank. For operators.

    Wiped masters look like new ones. So this first waits for a max TTL and a little more: until then an app
    may still rely on a lease that the masters have forgotten. You can interrupt it and run it again.
    """
    how = ["UNUSED"] if unused else []
    _change_masters(agent, ["FORM", *how, *writer.words()], "forming the cluster", as_json)


@cluster.command("recover")
@writer_options
@json_option
@click.pass_obj
def cluster_recover(agent: AgentClient, writer: Writer, as_json: bool) -> None:
    """Recover a cluster in which too many masters lost their data for a quorum. For operators.

    All masters must be up, each blank or with its data. From the start of the recovery none of them votes.
    It waits for a max TTL and a little more, because until then an app may still rely on an older lease.
    Then the masters form a new cluster of the same name. Fences continue one hour above the masters' clocks.
    That is above all earlier fences, unless a lost counter was further ahead, or the clocks were set back.
    Make sure that no old machine of a master comes back. You can interrupt it and run it again.
    """
    _change_masters(agent, ["FORM", "RECOVER", *writer.words()], "starting anew", as_json)


@cluster.command("upgrade")
@writer_options
@json_option
@click.pass_obj
def cluster_upgrade(agent: AgentClient, writer: Writer, as_json: bool) -> None:
    """Upgrade the masters' identities, written by an earlier version, to the current format. For operators.

    All masters must be up. Leases stay held. If you interrupt it, run it again: it then starts from the
    beginning, and waits until no app relies on a lease that was granted meanwhile. Fences continue one hour
    above the masters' clocks.
    """
    _change_masters(agent, ["FORM", "UPGRADE", *writer.words()], "upgrading", as_json)


@click.group()
def master() -> None:
    """Give a master its vote back."""


@master.command("admit")
@writer_options
@json_option
@click.argument("name", type=Name())
@click.pass_obj
def master_admit(agent: AgentClient, writer: Writer, as_json: bool, name: bytes) -> None:
    """Give the blank master NAME (new, wiped or replaced in place) its vote. For operators.

    First the other masters learn its new number, so that its old machine can't find a quorum any more. Then
    this waits for a max TTL and a little more, because the master may have voted for leases that it has
    forgotten. You can interrupt it and run it again. A master that still has its data, and only missed the
    admission of others, gets its vote back at once.
    """
    _change_masters(agent, ["ADMIT", name, *writer.words()], f"admitting {printable(name)}", as_json)


@click.command(short_help="Reload the agent's configuration.")
@click.option("--check", is_flag=True, help="Only show what would change. Exit status 1: something would.")
@json_option
@click.pass_obj
def reload(agent: AgentClient, check: bool, as_json: bool) -> int:
    """Reload the agent's configuration, as SIGHUP does. For operators.

    No lease is lost, and leases keep the terms they were granted with. If a changed setting needs a restart,
    or the file has errors, nothing is changed and the exit status is 65.
    """
    outcome = agent.ask("RELOAD", "CHECK") if check else agent.ask("RELOAD")
    if as_json:
        print_json(outcome)
    else:
        _print_reload(outcome)
    return _RELOAD_STATUSES[outcome["status"]]


_RELOAD_STATUSES = {
    "reloaded": ExitStatus.DONE,
    "unchanged": ExitStatus.DONE,
    "changed": ExitStatus.NO,
    "refused": ExitStatus.WRONG,
    "invalid": ExitStatus.WRONG,
}


def _print_reload(outcome: Row) -> None:
    changed, restart_needed = ", ".join(outcome["changed"]), ", ".join(outcome["restart_needed"])
    texts = {
        "reloaded": f"reloaded: {changed}",
        "changed": f"a reload would change {changed}",
        "unchanged": "the agent already uses the settings in its file",
        "refused": f"nothing is reloaded: a restart is needed for {restart_needed}",
        "invalid": "nothing is reloaded: the configuration has errors",
    }
    failed = _RELOAD_STATUSES[outcome["status"]] is ExitStatus.WRONG
    for line in (texts[outcome["status"]], *outcome["problems"]):
        click.echo(printable(line), err=failed)


_DONE_TEXTS = {
    "formed": "the cluster is formed: its masters have a vote",
    "admitted": "admitted: the master has a vote",
    "updated": "updated: the master has the current list of members, and a vote",
    "recovered": "recovered: the masters have a vote",
    "upgraded": "upgraded: the masters have identities in the current format",
    "already": "nothing to do: already done",
}


def _change_masters(agent: AgentClient, words: Sequence[str | bytes], what: str, as_json: bool) -> None:
    """Ask again and again until the wait is over, and show how it goes on."""
    with wait_view(what) as view:
        while (progress := agent.ask(*words))["status"] == "waiting":
            view.show(progress["remaining_ms"], progress["total_ms"])
            time.sleep(min(progress["remaining_ms"], 1000) / 1000)
    if as_json:
        print_json(progress)
    else:
        click.echo(_DONE_TEXTS.get(progress["status"], progress["status"]))


class WaitView(Protocol):
    """Somewhere to show how a wait goes on."""

    def show(self, remaining_ms: int, total_ms: int) -> None: ...


class WaitLines:
    """A line now and then."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._said_s: float | None = None

    def show(self, remaining_ms: int, total_ms: int) -> None:
        now_s = time.monotonic()
        if self._said_s is None or now_s - self._said_s >= REPORT_EVERY_S:
            self._said_s = now_s
            click.echo(
                f"{self._what}: {format_ms(remaining_ms)} of {format_ms(total_ms)} left to wait", err=True
            )


class WaitBar:
    """A progress bar on a terminal, shown from the first time that there is something to wait for."""

    def __init__(self, what: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]} left"))
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(what, start=False, total=None, left="")

    def __enter__(self) -> WaitBar:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, remaining_ms: int, total_ms: int) -> None:
        self._bar.start()
        done_ms = total_ms - remaining_ms
        self._bar.update(self._task, total=total_ms, completed=done_ms, left=format_ms(remaining_ms))


def wait_view(what: str) -> AbstractContextManager[WaitView]:
    return WaitBar(what) if sys.stderr.isatty() else nullcontext(WaitLines(what))
