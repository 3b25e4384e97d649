"""Mistakes between the fields of a configuration.

It looks at the document as it was written: whether each field is valid by itself or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lockd.config.addresses import endpoint
from lockd.config.problems import Loc, Problem, describe_value, path_of
from lockd.config.sections import Schema, Section


def _at(document: Any, *loc: str | int) -> Any:
    """The value at a path of the document (or of sections, when made in Python); None if there is none."""
    for part in loc:
        if isinstance(document, Section):
            document = getattr(document, str(part), None)
        elif isinstance(document, dict):
            document = document.get(part)
        elif isinstance(document, list | tuple) and isinstance(part, int):
            document = document[part]
        else:
            return None
    return document


def _items(document: Any, section: str) -> Sequence[Any]:
    items = _at(document, section)
    return items if isinstance(items, list | tuple) else ()


_TAKEN_NAMES = {
    "other": (
        "is other, which is the class of all resources that no class matches",
        "write another name, or set its policy under defaults",
    ),
    "canary": ("is canary, which is the class of the agent's own lock (canary_ms)", "write another name"),
}


def contradictions(document: Any, schema: Schema) -> Iterator[Problem]:
    """Mistakes between fields; each field may be valid by itself, or not."""
    yield from _wrong_number_of_masters(document)
    yield from _repeated(document, "masters", "name", str)
    yield from _repeated(document, "masters", "address", endpoint)
    yield from _repeated(document, "classes", "name", str)
    for index, one in enumerate(_items(document, "classes")):
        if isinstance(name := _at(one, "name"), str) and name in _TAKEN_NAMES:
            yield Problem(f"classes[{index}].name", *_TAKEN_NAMES[name])
    yield from _wrong_pairs(document)
    for low, high in _orders(document):
        yield from _out_of_order(document, low, high, schema)


def _wrong_number_of_masters(document: Any) -> Iterator[Problem]:
    masters = _at(document, "masters")
    if isinstance(masters, list | tuple) and len(masters) not in (1, 3, 5, 7, 9):
        count = len(masters)
        even = f", which survive no more failures than {count - 1}" if count in (4, 6, 8) else ""
        yield Problem("masters", f"has {count} masters{even}", "write 3, 5, 7 or 9 (or 1, to try things out)")


def _repeated(document: Any, section: str, key: str, same: Callable[[str], object]) -> Iterator[Problem]:
    seen: dict[object, str] = {}
    for index, item in enumerate(_items(document, section)):
        value, path = _at(item, key), f"{section}[{index}].{key}"
        identity = same(value) if isinstance(value, str) else None
        if identity is not None and seen.setdefault(identity, path) != path:
            yield Problem(
                path, f"is {describe_value(value)}, the same as {seen[identity]}", f"write another {key}"
            )


def _wrong_pairs(document: Any) -> Iterator[Problem]:
    password, file = _at(document, "auth", "password"), _at(document, "auth", "password_file")
    if password is not None and file is not None:
        yield Problem("auth", "has both password and password_file", "keep one, preferably password_file")
    if _at(document, "auth", "username") is not None and password is None and file is None:
        yield Problem("auth", "has a username but no password", "add password_file")
    if (_at(document, "tls", "cert_file") is None) != (_at(document, "tls", "key_file") is None):
        yield Problem("tls", "has only one of cert_file and key_file", "write both or neither")


def _orders(document: Any) -> Iterator[tuple[Loc, Loc]]:
    """Pairs of paths; the first number must not be above the second."""
    yield ("min_ttl_ms",), ("max_ttl_ms",)
    classes = [("classes", index, "max_ttl_ms") for index, _ in enumerate(_items(document, "classes"))]
    for ceiling in (("defaults", "max_ttl_ms"), *classes):
        yield ceiling, ("max_ttl_ms",)
        yield ("min_ttl_ms",), ceiling
    yield ("limits", "resource_bytes"), ("limits", "request_bytes")
    yield ("limits", "request_bytes"), ("limits", "pipeline_bytes")


def _out_of_order(document: Any, low: Loc, high: Loc, schema: Schema) -> Iterator[Problem]:
    least, most = _number(document, low, schema), _number(document, high, schema)
    written = [loc for loc in (low, high) if _at(document, *loc) is not None]
    if least is None or most is None or least <= most or not written:
        return
    if max(written, key=len) == low:  # report the more specific one
        yield Problem(
            path_of(low),
            f"is {least}, above {path_of(high)} ({most})",
            f"write at most {most}, or raise {path_of(high)}",
        )
    elif not str(low[-1]).endswith("_per_user"):  # a default per user above the total does no harm
        yield Problem(
            path_of(high),
            f"is {most}, below {path_of(low)} ({least})",
            f"write at least {least}, or lower {path_of(low)}",
        )


def _number(document: Any, loc: Loc, schema: Schema) -> int | None:
    """The number at a path, or its default; None when it is inherited, or is not a number, as its key will
    report."""
    value, key = _at(document, *loc), schema.key(loc)
    if value is None and key and loc[0] != "classes":
        value = key.default
    return value if isinstance(value, int) and not isinstance(value, bool) else None
