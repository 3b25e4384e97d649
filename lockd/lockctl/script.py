"""The command `lockctl script`: what an app's script is recognised as."""

from __future__ import annotations

from typing import Any, BinaryIO

import click

from lockd.core.scripts.descriptions import condition, details
from lockd.core.scripts.operations import Case, Kind, NotRecognised, Recognised
from lockd.core.scripts.recognition import recognise
from lockd.core.scripts.tokens import MOST_BYTES
from lockd.lockctl.failures import ExitStatus
from lockd.lockctl.printing import json_option, print_json
from lockd.text import printable


@click.command
@click.argument("file", type=click.File("rb"))
@json_option
def script(file: BinaryIO, as_json: bool) -> int:
    """Show which lock operation a Lua script is recognised as. FILE can be - for standard input.

    Scripts are recognised as one of a few lock operations, or refused. They are never run. For a refused
    script this prints the reason, its normal form and the known operations; the exit status is 1. This needs
    no agent.
    """
    taken = recognise(file.read(MOST_BYTES + 1))
    if isinstance(taken, Recognised):
        print_json(_as_json(taken)) if as_json else _print_cases(taken)
        return ExitStatus.DONE
    print_json(_refusal_as_json(taken)) if as_json else _print_refusal(taken)
    return ExitStatus.NO


def _print_cases(taken: Recognised) -> None:
    for number, case in enumerate(taken.cases):
        if number:
            click.echo()
        for name, text in _told(case).items():
            click.echo(f"{name:10}{printable(text)}")


def _told(case: Case) -> dict[str, str]:
    when = {"when": condition(case)} if case.when else {}
    return when | details(case.operation)


def _print_refusal(taken: NotRecognised) -> None:
    click.echo(f"not recognised: {printable(taken.why)}")
    if taken.normal_form:
        click.echo(f"normal form: {printable(taken.normal_form)}")
    click.echo("operations:")
    for kind in Kind:
        click.echo(f"  {kind.value:18}{kind.meaning}")


def _as_json(taken: Recognised) -> dict[str, Any]:
    return {"recognised": True, "cases": [_told(case) for case in taken.cases]}


def _refusal_as_json(taken: NotRecognised) -> dict[str, Any]:
    return {
        "recognised": False,
        "why": taken.why,
        "normal_form": taken.normal_form,
        "operations": {kind.value: kind.meaning for kind in Kind},
    }
