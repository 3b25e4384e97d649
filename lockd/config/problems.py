"""Mistakes in a configuration, in an operator's words: where they are, and what to write instead."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

Loc = tuple[str | int, ...]


class Problem(NamedTuple):
    """One mistake: where it is (`masters[2].address`), what is wrong, and what to write instead."""

    path: str
    wrong: str
    right: str

    def __str__(self) -> str:
        return f"{self.path}: {self.wrong}; {self.right}"


class ConfigError(Exception):
    """The configuration can't be used. `problems` has every mistake that was found; str() has one a line."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(map(str, self.problems)))


def refuse(wrong: str, right: str) -> PydanticCustomError:
    """Raise it where a field is read: a mistake for which pydantic has no words."""
    return PydanticCustomError("lockd", "{wrong}", {"wrong": wrong, "right": right})


class Schema:
    """The sections of the document and what may be in them; a field's description completes "write ..."."""

    def __init__(self, sections: Mapping[tuple[str, ...], type[BaseModel]]) -> None:
        self._sections = sections

    def field(self, loc: Loc) -> FieldInfo | None:
        """The field at a path of the document; None if there is none, as for an unknown key."""
        *section, name = _names(loc) or ("",)
        here = self._sections.get(tuple(section))
        return here.model_fields.get(name) if here else None

    def problem(self, error: ErrorDetails) -> Problem:
        """A pydantic error in an operator's words."""
        loc, kind, value = error["loc"], error["type"], error["input"]
        path = path_of(loc)
        if kind == "lockd":
            return refused_at(path, error["ctx"])
        if kind == "extra_forbidden":
            return Problem(path, "is not a known key", self._nearest_key(loc))
        if kind == "missing":
            return Problem(path, "is missing", self._right(loc))
        # Secrets stay out of logs.
        is_now = _kind_of(value) if loc[:1] == ("auth",) else describe_value(value)
        quotes = ", in quotes" if kind == "string_type" and isinstance(value, int | float) else ""
        return Problem(path, f"is {is_now}", self._right(loc) + quotes)

    def _right(self, loc: Loc) -> str:
        field = self.field(loc)
        if field and field.description:
            return f"write {field.description}"
        keys = ", ".join(self._sections.get(_names(loc), self._sections[()]).model_fields)
        return f'write "key: value" lines of {keys}' + (", or leave it out" if loc else "")

    def _nearest_key(self, loc: Loc) -> str:
        *section, key = _names(loc)
        here = self._sections[tuple(section)].model_fields
        if homes := [home for home, model in self._sections.items() if key in model.model_fields]:
            return f"write it under {path_of(homes[0])}" if homes[0] else "write it at the top level"
        near = difflib.get_close_matches(key[:64], here, 1)
        return f"did you mean {near[0]}?" if near else f"remove it; known here: {', '.join(here)}"


def refused_at(path: str, context: dict[str, Any] | None) -> Problem:
    """What `refuse` said, which pydantic passes on as the context of its error."""
    return Problem(path, (context or {})["wrong"], (context or {})["right"])


def path_of(loc: Loc) -> str:
    """`("masters", 2, "address")` as `masters[2].address`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part[:64]}" for part in loc)
    return "".join(parts).removeprefix(".") or "configuration"


def _names(loc: Loc) -> tuple[str, ...]:
    return tuple(part for part in loc if isinstance(part, str))


def _kind_of(value: object) -> str:
    kinds = ((str, "a text"), (int | float, "a number"), (dict, "a mapping"), (list | tuple, "a list"))
    named = next((kind for types, kind in kinds if isinstance(value, types)), "not allowed here")
    return "empty" if value is None or value == "" else named


def describe_value(value: object) -> str:
    """A value of the document; only its type if it may hold a secret."""
    if isinstance(value, str) and value and "@" not in value:  # with an @ it may be a URL with a password
        return f"the text {json.dumps(value[:64], ensure_ascii=False)}"
    if isinstance(value, bool):
        return str(value).lower()
    return f"the number {str(value)[:64]}" if isinstance(value, int | float) else _kind_of(value)
