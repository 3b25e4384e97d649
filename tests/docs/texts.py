"""Texts in Python code, and what stands in texts to be typed."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def literals(source: str) -> Iterator[str]:
    """The texts of a module that are not documentation. In f-strings {} stands for each value."""
    tree = ast.parse(source)
    parts: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            parts.add(node.value)
        if isinstance(node, ast.JoinedStr):
            parts.update(node.values)
            yield "".join(str(one.value) if isinstance(one, ast.Constant) else "{}" for one in node.values)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in parts:
            yield node.value
