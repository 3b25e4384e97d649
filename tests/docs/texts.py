"""Texts in Python code and in what Ansible reads, each with its line."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from tests.harness.prose import Passage, name_of

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The faster one, where PyYAML was built with it."""


class Code(NamedTuple):
    """The texts of a module: those that it may say, and its documentation."""

    literals: list[Passage]
    documentation: list[Passage]


def code(path: Path) -> Code:
    return code_of(name_of(path), path.read_text())


def code_of(name: str, source: str) -> Code:
    tree = ast.parse(source)
    documented = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    documentation = [Passage(name, str(one.value), one.lineno) for one in documented]
    return Code(
        [Passage(name, text, line) for line, text in _literals(tree, documented)],
        [*documentation, *(Passage(name, text, line) for line, text in _comments(source))],
    )


def _literals(tree: ast.AST, documented: set[ast.Constant]) -> Iterator[tuple[int, str]]:
    """In f-strings {} stands for each value."""
    parts: set[ast.AST] = set(documented)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts.update(node.values)
            text = "".join(str(one.value) if isinstance(one, ast.Constant) else "{}" for one in node.values)
            yield node.lineno, text
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in parts:
            yield node.lineno, node.value


def _comments(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def composed(text: str) -> yaml.Node | None:
    """A document of YAML in which each part knows its line; tags of Ansible's own are no matter."""
    return yaml.compose(text, Loader=LOADER)


def strings(name: str, node: yaml.Node | None, left_out: frozenset[str] = frozenset()) -> Iterator[Passage]:
    """All texts in a part of YAML but for keys, and what is below those keys that are left out."""
    if isinstance(node, yaml.ScalarNode):
        yield string(name, node)
    elif isinstance(node, yaml.SequenceNode):
        for one in node.value:
            yield from strings(name, one, left_out)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value not in left_out:
                yield from strings(name, value, left_out)


def string(name: str, node: yaml.ScalarNode) -> Passage:
    """A block begins below its mark."""
    return Passage(name, node.value, node.start_mark.line + (2 if node.style in ("|", ">") else 1))
