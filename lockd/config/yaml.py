"""YAML to plain values, read more strictly than PyYAML does it.

`no` and `12:30` are text, `0660` is not octal, and duplicate keys, aliases and tags are refused: each of
these has made a file mean something else than its author thought.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import yaml

from lockd.config.problems import ConfigError, Loc, Problem, path_of


class RefusedValue:
    """Stands for a value that was refused and reported before its key was looked at."""


def document_in(data: bytes) -> tuple[Any, list[Problem]]:
    """The document as plain values, and what was refused in it; ConfigError when it can't be read at all."""
    problems: list[Problem] = []
    return _plain(_parsed(data), (), problems), problems


class _Yaml(yaml.SafeLoader):
    """Resolves null, true, false and decimal numbers; everything else is text."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.current_event.start_mark
            raise yaml.MarkedYAMLError(problem="an alias (*) is not allowed", problem_mark=mark)
        return super().compose_node(parent, index)


_TAG = "tag:yaml.org,2002:"
_SCALARS: dict[str, Callable[[str], Any]] = {
    f"{_TAG}null": lambda text: None,
    f"{_TAG}bool": lambda text: text.lower() == "true",
    f"{_TAG}int": int,
    f"{_TAG}float": float,
    f"{_TAG}str": str,
}
_Yaml.yaml_implicit_resolvers = {}
for _kind, _pattern in (
    ("null", r"(~|null|Null|NULL|)\Z"),
    ("bool", r"(true|True|TRUE|false|False|FALSE)\Z"),
    ("int", r"[-+]?(0|[1-9][0-9]*(_[0-9]+)*)\Z"),
    ("float", r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?\Z"),
):
    _Yaml.add_implicit_resolver(_TAG + _kind, re.compile(_pattern), None)


def _parsed(data: bytes) -> yaml.Node:
    where, wrong, text = "configuration", "is empty", data.decode("utf-8", "replace")
    try:
        data.decode("utf-8")
        if node := yaml.compose(text, _Yaml):
            return node
    except UnicodeDecodeError as error:
        where, wrong = f"line {data[: error.start].count(10) + 1}", "is not UTF-8"
    except yaml.reader.ReaderError as error:
        where, wrong = f"line {text[: error.position].count(chr(10)) + 1}", "has a control character"
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else where
        wrong = f"is not valid YAML for lockd: {error.problem or error.context}"
    except RecursionError:
        wrong = "is nested too deeply"
    except (ValueError, OverflowError):  # PyYAML lets these out, as on the escape \UFFFFFFFF
        wrong = "is not valid YAML: it has an invalid escape or directive"
    right = 'write "key: value" lines, with quotes around text that contains : # [ { & * ! % or @'
    raise ConfigError([Problem(where, wrong, right)])


def _plain(node: yaml.Node, loc: Loc, problems: list[Problem]) -> Any:
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*loc, index), problems) for index, item in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, loc, problems)
    wrong, right = "has a line break or an unprintable character in it", "write printable text on one line"
    try:
        if node.value.isprintable():
            return _SCALARS[node.tag](node.value)
    except (KeyError, ValueError):
        wrong, right = (
            "has a tag (!) or a number that is not understood",
            ("write it without a tag, or in quotes"),
        )
    problems.append(Problem(path_of(loc), wrong, right))
    return RefusedValue()


def _mapping(node: yaml.MappingNode, loc: Loc, problems: list[Problem]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key, line = key_node.value, key_node.start_mark.line + 1
        if not isinstance(key, str) or not key.isprintable():
            problems.append(Problem(path_of(loc), f"has no key on line {line}", "write a name and a colon"))
            continue
        if key in found:
            problems.append(Problem(path_of((*loc, key)), f"is repeated on line {line}", "keep one of them"))
        found[key] = _plain(value_node, (*loc, key), problems)
    return found
