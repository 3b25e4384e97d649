"""Mistakes in a configuration, in an operator's words: where they are, and what to write instead."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

Loc = tuple[str | int, ...]


class Problem(NamedTuple):
    """One mistake: where it is (`masters[2].address`), what is wrong, and what to write instead. of_host: of
    this host, not of what is written."""

    path: str
    wrong: str
    right: str
    of_host: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.wrong}; {self.right}"


class ConfigError(Exception):
    """The configuration can't be used. `problems` has every mistake that was found; str() has one a line."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(map(str, self.problems)))


class Refused(Exception):
    """Raise it where a value is read: a mistake that brings its words."""

    def __init__(self, wrong: str, right: str, of_host: bool = False) -> None:
        self.wrong = wrong
        self.right = right
        self.of_host = of_host

    def at(self, path: str) -> Problem:
        return Problem(path, self.wrong, self.right, self.of_host)


def path_of(loc: Loc) -> str:
    """`("masters", 2, "address")` as `masters[2].address`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part[:64]}" for part in loc)
    return "".join(parts).removeprefix(".") or "configuration"


def kind_of(value: object) -> str:
    """What it is, and nothing of what is in it."""
    kinds = ((str, "a text"), (int | float, "a number"), (dict, "a mapping"), (list | tuple, "a list"))
    named = next((kind for types, kind in kinds if isinstance(value, types)), "not allowed here")
    return "empty" if value is None or value == "" else named


def describe_value(value: object) -> str:
    """A value of the document; only its type if it may hold a secret."""
    if isinstance(value, str) and value and "@" not in value:  # with an @ it may be a URL with a password
        return f"the text {json.dumps(value[:64], ensure_ascii=False)}"
    if isinstance(value, bool):
        return str(value).lower()
    return f"the number {str(value)[:64]}" if isinstance(value, int | float) else kind_of(value)
