"""`lockctl runbook`: what to do about an alert, from the files that come with lockd.

It asks no agent and fetches nothing, so it works when everything else is down.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import click

from lockd.lockctl.printing import Column, json_option, print_json, print_table

FIRST_PAGE = "README"
_LINK = re.compile(r"\[([^\]]+)\]\((\w+)\.md(?:#[\w-]+)?\)")
_COLUMNS: tuple[Column, ...] = (
    ("NAME", lambda row: row["name"]),
    ("MEANING", lambda row: row["meaning"]),
)


def folder() -> Path:
    """Beside this file in an installation (setup.py), else at their place in the repository."""
    installed = Path(__file__).with_name("runbooks")
    return installed if installed.is_dir() else Path(__file__).parents[2] / "alerts" / "runbooks"


@click.command(short_help="Show what to do about an alert.")
@json_option
@click.argument("name", required=False)
def runbook(as_json: bool, name: str | None) -> None:
    """Show the runbook of the alert NAME, as LockdQuorumLost. Without NAME list all of them.

    Upper and lower case don't matter, and Lockd at the beginning may be left out. README says how to use
    them, where passwords are and whom to call. It needs no agent and no network.
    """
    texts = {path.stem: path.read_text("utf-8") for path in sorted(folder().glob("*.md"))}
    if not texts:
        raise click.ClickException(f"there are no runbooks in {folder()}")
    if name is not None:
        found = _found(name, texts)
        if as_json:
            print_json({"name": found, "text": texts[found]})
        else:
            click.echo(_for_terminals(texts[found]), nl=False)
        return
    rows = [{"name": one, "meaning": _meaning(text)} for one, text in texts.items() if one != FIRST_PAGE]
    if as_json:
        print_json(rows)
    else:
        print_table(_COLUMNS, rows)


def _found(name: str, texts: dict[str, str]) -> str:
    """The name in full. Raises UsageError, with similar names."""
    by_plain = {one.lower(): one for one in texts}
    plain = name.lower().removesuffix(".md")
    for wanted in (plain, f"lockd{plain}"):
        if wanted in by_plain:
            return by_plain[wanted]
    within = sorted(one for one in by_plain if plain in one)
    # All of them contain Lockd, which would make all of them similar.
    tails = {one.removeprefix("lockd"): one for one in by_plain}
    alike = difflib.get_close_matches(plain.removeprefix("lockd"), tails, n=3, cutoff=0.7)
    near = [*within, *(tails[one] for one in alike if tails[one] not in within)]
    meant = f" Did you mean {', '.join(by_plain[one] for one in near[:5])}?" if near else ""
    raise click.UsageError(f"There is no runbook {name!r}.{meant} `lockctl runbook` lists them.")


def _meaning(text: str) -> str:
    """Its first sentence."""
    first = text.partition("\n## Meaning\n\n")[2].partition("\n")[0]
    return re.sub(r"[`*]", "", _LINK.sub(r"\1", re.split(r"(?<=[.:]) ", first)[0])).rstrip(":.")


def _for_terminals(text: str) -> str:
    """Markdown as it is written, without links, which can't be followed there."""
    return _LINK.sub(
        lambda link: link[1] if link[1] == link[2] else f"{link[1]} (lockctl runbook {link[2]})", text
    )
