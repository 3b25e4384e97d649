"""What a document is made of: sections, the keys of each, and how what is written there becomes a value.

Every mistake is noted with its place, and reading goes on. (A library for this, pydantic, was a third of an
agent's start and 13 MiB of its memory.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, NamedTuple, Self

from lockd.config.problems import ConfigError, Loc, Problem, Refused, describe_value, kind_of, path_of

REQUIRED: Any = object()
"""The default of a key that must be there."""


class Wrong(Exception):
    """It is not what the description of its key asks for."""


class NotText(Wrong):
    """It should be text. A number becomes that in quotes."""


class Mistake(NamedTuple):
    """What is wrong at a place of the document, and the value there."""

    loc: Loc
    kind: Literal["unknown", "missing", "wrong", "not text"] | Refused
    value: object


Mistakes = list[Mistake]
Reader = Callable[[object, Loc, Mistakes], Any]
"""It gets what is written at a place, and gives the value, or notes mistakes."""


def single(value_of: Callable[[object], Any]) -> Reader:
    """For a key with one value. `value_of` raises Wrong or Refused."""

    def read(written: object, at: Loc, mistakes: Mistakes) -> Any:
        kind: Literal["wrong", "not text"] | Refused
        try:
            return value_of(written)
        except Refused as refused:
            kind = refused
        except Wrong as wrong:
            kind = "not text" if isinstance(wrong, NotText) else "wrong"
        mistakes.append(Mistake(at, kind, written))
        return None

    return read


def listed(item: Reader) -> Reader:
    """For a key with a list."""

    def read(written: object, at: Loc, mistakes: Mistakes) -> Any:
        if not isinstance(written, list | tuple):
            mistakes.append(Mistake(at, "wrong", written))
            return ()
        return tuple(item(one, (*at, index), mistakes) for index, one in enumerate(written))

    return read


class Key:
    """A key of a section. description: it completes the sentence "write ...". nullable: null may be written.
    section: what it holds, or holds a list of."""

    __slots__ = ("default", "description", "nullable", "read", "section")

    def __init__(
        self,
        read: Reader,
        description: str = "",
        default: Any = REQUIRED,
        nullable: bool = False,
        section: type[Section] | None = None,
    ) -> None:
        self.read = read
        self.description = description
        self.default = default
        self.nullable = nullable
        self.section = section

    def value_in(self, document: Mapping[Any, object], at: Loc, mistakes: Mistakes) -> Any:
        name = at[-1]
        if name not in document:
            if self.default is REQUIRED:
                mistakes.append(Mistake(at, "missing", None))
            return self.default
        written = document[name]
        return None if written is None and self.nullable else self.read(written, at, mistakes)


class Section:
    """A mapping of the document, as a frozen value. Made in Python, it is checked as well."""

    keys: ClassVar[Mapping[str, Key]] = {}

    def __init_subclass__(cls) -> None:
        own = {name: one for name, one in vars(cls).items() if isinstance(one, Key)}
        cls.keys = {**cls.keys, **own}
        for name in own:
            delattr(cls, name)

    def __init__(self, **document: object) -> None:
        self.__dict__.update(self._checked(document))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a {type(self).__name__} is never changed")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.values() == other.values()

    def __hash__(self) -> int:
        return hash(tuple(self.values().values()))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.values().items())
        return f"{type(self).__name__}({shown})"

    def values(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in self.keys}

    @classmethod
    def read(cls, document: object) -> Self:
        """It, from plain values; raises ConfigError with every mistake in them."""
        return cls._made(cls._checked(document))

    @classmethod
    def read_at(cls, document: object, at: Loc, mistakes: Mistakes) -> Self | None:
        """Reader of a key that holds this section."""
        if isinstance(document, cls):
            return document
        before = len(mistakes)
        values = cls._values_in(document, at, mistakes)
        return cls._made(values) if len(mistakes) == before else None

    @classmethod
    def _made(cls, values: dict[str, Any]) -> Self:
        made = cls.__new__(cls)
        made.__dict__.update(values)
        return made

    @classmethod
    def _checked(cls, document: object) -> dict[str, Any]:
        mistakes = Mistakes()
        values = cls._values_in(document, (), mistakes)
        if mistakes:
            raise ConfigError([Schema({(): cls}).problem(one) for one in mistakes])
        return values

    @classmethod
    def _values_in(cls, document: object, at: Loc, mistakes: Mistakes) -> dict[str, Any]:
        if not isinstance(document, dict):
            mistakes.append(Mistake(at, "wrong", document))
            return {}
        values = {name: key.value_in(document, (*at, name), mistakes) for name, key in cls.keys.items()}
        unknown = (name for name in document if name not in cls.keys)
        mistakes += (Mistake((*at, name), "unknown", document[name]) for name in unknown)
        return values


class Schema:
    """The sections of the document by their places, and the words for mistakes in them."""

    def __init__(self, sections: Mapping[tuple[str, ...], type[Section]]) -> None:
        self._sections = sections

    def key(self, loc: Loc) -> Key | None:
        """The key at a path of the document; None if there is none."""
        *section, name = _names(loc) or ("",)
        here = self._sections.get(tuple(section))
        return here.keys.get(name) if here else None

    def problem(self, mistake: Mistake) -> Problem:
        """A mistake in an operator's words."""
        loc, kind, value = mistake
        path = path_of(loc)
        if isinstance(kind, Refused):
            return kind.at(path)
        if kind == "unknown":
            return Problem(path, "is not a known key", self._nearest_key(loc))
        if kind == "missing":
            return Problem(path, "is missing", self._right(loc))
        # Secrets stay out of logs.
        is_now = kind_of(value) if loc[:1] == ("auth",) else describe_value(value)
        quotes = ", in quotes" if kind == "not text" and isinstance(value, int | float) else ""
        return Problem(path, f"is {is_now}", self._right(loc) + quotes)

    def _right(self, loc: Loc) -> str:
        key = self.key(loc)
        if key and key.description:
            return f"write {key.description}"
        keys = ", ".join(self._sections.get(_names(loc), self._sections[()]).keys)
        return f'write "key: value" lines of {keys}' + (", or leave it out" if loc else "")

    def _nearest_key(self, loc: Loc) -> str:
        from difflib import get_close_matches  # by the first mistake

        *section, key = _names(loc)
        here = self._sections[tuple(section)].keys
        if homes := [home for home, one in self._sections.items() if key in one.keys]:
            return f"write it under {path_of(homes[0])}" if homes[0] else "write it at the top level"
        near = get_close_matches(key[:64], here, 1)
        return f"did you mean {near[0]}?" if near else f"remove it; known here: {', '.join(here)}"


def _names(loc: Loc) -> tuple[str, ...]:
    return tuple(part for part in loc if isinstance(part, str))
