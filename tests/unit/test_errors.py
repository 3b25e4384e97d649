"""Each error word is one line of an enum, and whatever names one agrees with it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from dashboards import queries
from lockd.core.errors import ErrorWord, Of

ROOT = Path(__file__).parents[2]
OF_REDIS = {"NOPROTO", "EXECABORT"}
"""The words of Redis in a reply, which no app of ours has to know."""


def said_by(tree: ast.Module) -> Iterator[str]:
    """The texts of errors, from their beginning."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not call.args:
            continue
        if ast.unparse(call.func) in ("replies.error", "BadRequest", "Misused", "self._end_with"):
            text = call.args[0]
            first = text.values[0] if isinstance(text, ast.JoinedStr) else text
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield first.value


def test_every_error_that_the_server_writes_out_begins_with_one_of_them() -> None:
    for path in (ROOT / "lockd" / "server").rglob("*.py"):
        for text in said_by(ast.parse(path.read_text())):
            assert text.partition(" ")[0] in {*ErrorWord, *OF_REDIS}, f"{path}: {text}"


def test_dashboards_ask_for_each_word_that_a_lock_may_get_once() -> None:
    asked = [queries.CONTENDED, queries.UNAVAILABLE, queries.REJECTED]
    words = [word for one in asked for word in one.removeprefix('reason=~"').removesuffix('"').split("|")]
    assert sorted(words) == sorted(word.lower() for word in ErrorWord.answering(Of.LOCK))


def test_the_rules_of_alerts_ask_for_whole_kinds_of_refusals_and_for_losses_that_nobody_meant() -> None:
    kinds = {queries.CONTENDED, queries.UNAVAILABLE, queries.ANSWERED}
    for file, metric, expected in (("rules", "refusals", kinds), ("alerts", "losses", {queries.LOST})):
        text = (ROOT / f"alerts/lockd.{file}.yml").read_text()
        assert set(re.findall(rf'lockd_{metric}_total\{{[^}}]*(reason=~"[^"]*")', text)) == expected
