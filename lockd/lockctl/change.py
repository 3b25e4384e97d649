"""The commands of `lockctl` with which operators change things: force-release, cluster init, recover
and upgrade, master admit, reload."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import IO, Any, Protocol

import click

from lockd.lockctl.agent import AgentClient, Row
from lockd.lockctl.failures import ExitStatus
from lockd.lockctl.printing import json_option, print_holder, print_json
from lockd.text import format_ms, printable

OPERATOR_USER = "lockd_operator"
PASSWORD_VARIABLE = "LOCKD_OPERATOR_PASSWORD"

# Without a terminal, how often to say that a wait goes on.
REPORT_EVERY_S = 10.0


@click.command("force-release", short_help="Take a resource from whoever holds it.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
@click.argument("resource")
@click.pass_obj
def force_release(agent: AgentClient, yes: bool, as_json: bool, resource: str) -> int:
    """Take RESOURCE from whoever holds it; shows who that is, and asks first. For operators.

    Its holder isn't stopped: it is told, on another host as soon as the agent there hears of it. Make sure
    that it is dead, or that what it writes to checks fences. Only the lease that was shown is removed: when
    another has the resource by then, nothing happens. Of another host it is taken from whoever has it there
    by then: leases follow each other on a host, and its agent alone knows which one it is.
    """
    held = agent.ask("HOLDER", resource)
    if held is None:
        click.echo(f"lockctl: {printable(resource)} is free: there is nothing to release", err=True)
        return ExitStatus.NO
    if not yes:
        print_holder(held, err=True)
        if not sys.stdin.isatty():
            raise click.UsageError(
                "nobody is there to ask: look at the holder above, and repeat this with --yes"
            )
        if not click.confirm("Release it by force?", err=True):
            return ExitStatus.NO
    which = ["FENCE", held["fence"]] if held["fence"] is not None else []
    deleted = agent.ask("FORCERELEASE", resource, "HOLDER", held["holder"], *which)
    if as_json:
        print_json({"resource": resource, "holder": held["holder"], "deleted_on": deleted, "of": held["of"]})
    else:
        click.echo(
            f"released {printable(resource)}: {held['holder']} deleted on {deleted} of {held['of']} masters"
        )
    return ExitStatus.DONE


class Writer:
    """The user of the masters who may write identities, as words of FORM and ADMIT."""

    def __init__(self, name: str | None, file: IO[str] | None) -> None:
        self._name = name
        self._file = file

    def words(self) -> list[str]:
        """None of them when no user and no password are given: then the agent's own user is tried."""
        password = self._password()
        return [] if password is None else ["AUTH", self._name or OPERATOR_USER, password]

    def _password(self) -> str | None:
        if self._file is not None:
            password = self._file.readline().rstrip("\r\n")
            if not password:
                raise click.UsageError(f"{self._file.name} has no password in its first line")
            return password
        if from_environment := os.environ.get(PASSWORD_VARIABLE):
            return from_environment
        if self._name is None:
            return None
        if not sys.stdin.isatty():
            raise click.UsageError(
                f"nobody is there to ask for the password of {self._name}: "
                f"give --operator-password-file, or {PASSWORD_VARIABLE}"
            )
        password = click.prompt(f"Password of {self._name} on the masters", hide_input=True, err=True)
        return str(password)


def writer_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Who writes identities, for the commands that do. A password is never a word of the command line, where
    everybody on the host could read it."""

    @click.option(
        "--operator-user",
        metavar="NAME",
        help=f"The user of the masters who may write identities; asks for the password. [{OPERATOR_USER}]",
    )
    @click.option(
        "--operator-password-file",
        type=click.File(),
        help=f"Its password, as the first line of this file (- for stdin); or {PASSWORD_VARIABLE}.",
    )
    @wraps(command)
    def with_writer(
        *args: Any, operator_user: str | None, operator_password_file: IO[str] | None, **options: Any
    ) -> Any:
        return command(*args, writer=Writer(operator_user, operator_password_file), **options)

    return with_writer


@click.group()
def cluster() -> None:
    """Form a cluster of new masters, or what is left of one."""


@cluster.command("init")
@click.option("--unused", is_flag=True, help="No agent has ever used these masters: don't wait.")
@writer_options
@json_option
@click.pass_obj
def cluster_init(agent: AgentClient, unused: bool, writer: Writer, as_json: bool) -> None:
    """Make the masters of the configuration, all of them blank, a cluster. For operators.

    Masters that were wiped look like new ones, so a max TTL and a little more is waited out first: until then
    somebody may rely on a lease that they have forgotten. It may be interrupted and done again.
    """
    words = ["FORM", "UNUSED"] if unused else ["FORM"]
    _change_masters(agent, [*words, *writer.words()], "forming the cluster", as_json)


@cluster.command("recover")
@writer_options
@json_option
@click.pass_obj
def cluster_recover(agent: AgentClient, writer: Writer, as_json: bool) -> None:
    """Start anew with the masters that have their data, when so many lost theirs that no quorum is left. For
    operators.

    All masters must be there, each blank or with its data; those that have theirs vote no more from then on.
    A max TTL and a little more has to pass: until then somebody may rely on a lease of before. Then they are
    a new cluster of the same name. Fences go on an hour above the masters' clocks, so above all that were
    given before, unless a counter was further ahead than that and is lost, or those clocks were set back.
    Make sure that no old machine of a master comes back. It may be interrupted and done again.
    """
    _change_masters(agent, ["FORM", "RECOVER", *writer.words()], "starting anew", as_json)


@cluster.command("upgrade")
@writer_options
@json_option
@click.pass_obj
def cluster_upgrade(agent: AgentClient, writer: Writer, as_json: bool) -> None:
    """Bring identities of masters that an earlier version has written to the present format. For operators.

    All masters must be there. What is held stays held. It may be interrupted and done again: it is begun anew
    then, and waits until nobody relies any more on what was locked meanwhile. Fences go on an hour above the
    masters' clocks.
    """
    _change_masters(agent, ["FORM", "UPGRADE", *writer.words()], "upgrading", as_json)


@click.group()
def master() -> None:
    """Let a master back in."""


@master.command("admit")
@writer_options
@json_option
@click.argument("name")
@click.pass_obj
def master_admit(agent: AgentClient, writer: Writer, as_json: bool, name: str) -> None:
    """Give the blank master NAME (new, wiped or replaced in place) its vote. For operators.

    First the others are told its new number, so that its old machine finds no quorum any more. Then a max TTL
    and a little more has to pass, as it may have voted for leases that it has forgotten. It may be
    interrupted and done again. A master that has its data and was away while others were admitted is told of
    that, and has its vote back at once.
    """
    _change_masters(agent, ["ADMIT", name, *writer.words()], f"admitting {printable(name)}", as_json)


@click.command(short_help="Have the agent read its configuration anew.")
@click.option("--check", is_flag=True, help="Only say what that would do; exit status 1: a change.")
@json_option
@click.pass_obj
def reload(agent: AgentClient, check: bool, as_json: bool) -> int:
    """Have the agent read its configuration anew, as SIGHUP does. For operators.

    Nobody loses anything: what is held keeps its terms. Where a setting differs that takes a restart, or the
    file has mistakes, nothing is changed, and the exit status is 65.
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
        "unchanged": "the agent runs with what is in its file",
        "refused": f"nothing is reloaded: a restart is needed for {restart_needed}",
        "invalid": "nothing is reloaded: the configuration has mistakes",
    }
    failed = _RELOAD_STATUSES[outcome["status"]] is ExitStatus.WRONG
    for line in (texts[outcome["status"]], *outcome["problems"]):
        click.echo(printable(line), err=failed)


_DONE_TEXTS = {
    "formed": "the cluster is formed: its masters have their votes",
    "admitted": "admitted: the master has its vote",
    "updated": "updated: the master knows who was admitted meanwhile, and has its vote",
    "recovered": "started anew: the masters have their votes",
    "upgraded": "upgraded: the masters have identities of the present format",
    "already": "nothing to do: that was done before",
}


def _change_masters(agent: AgentClient, words: Sequence[str], what: str, as_json: bool) -> None:
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
