"""The build that runs is the one that was asked for: `make test-compiled` asks for the compiled one, and no
other run finds any of that beside the sources."""

from __future__ import annotations

import ast
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from lockd.build import build

ROOT = Path(__file__).parents[2]
ASKED_FOR = "compiled" if os.environ.get("LOCKD_COMPILED") == "1" else "interpreted"


def test_the_build_that_runs_is_the_one_that_was_asked_for() -> None:
    assert build() == ASKED_FOR


def test_all_that_each_lock_passes_through_is_built_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    paths = runpy.run_path("setup.py")["hot"]()
    assert "lockd/core/ballots/ballot.py" in paths
    for path in paths:
        spec = find_spec(path.removesuffix(".py").replace("/", "."))
        assert spec is not None, path
        assert str(spec.origin).endswith(".so") == (ASKED_FOR == "compiled"), path


MAKES_ITS_C = """
import runpy, sys
made = runpy.run_path("setup.py")["compiled"]("--cache-dir", sys.argv[1], into=sys.argv[1])
print(len(made))
"""


def test_all_of_it_can_be_compiled(tmp_path: Path) -> None:
    """As far as C: that takes seconds. What doesn't become C would be missed by whoever installs lockd, since
    the other tests run what is interpreted."""
    pytest.importorskip("mypyc")
    done = subprocess.run(
        [sys.executable, "-c", MAKES_ITS_C, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len([*tmp_path.rglob("*.c")]) >= int(done.stdout.split()[-1]) > 50


def hot_functions(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, ast.AST]]:
    """Of what is compiled, with where they stand."""
    monkeypatch.chdir(ROOT)
    for path in runpy.run_path("setup.py")["hot"]():
        for node in ast.walk(ast.parse(Path(path).read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{path}: {node.name}", node


def test_what_was_set_to_none_is_not_asked_whether_it_is_in_the_same_function(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a call between has set it to would be a TypeError: mypyc takes it for None still."""
    found = [where for where, function in hot_functions(monkeypatch) if any(asked_again(function))]
    assert found == []


def asked_again(function: ast.AST) -> Iterator[str]:
    cleared = {
        ast.unparse(target): node.lineno
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        for target, value in assigned(node)
        if isinstance(target, ast.Attribute) and is_none(value) and not_in_a_branch(function, node)
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Compare) and is_none(node.comparators[0]):
            asked = ast.unparse(node.left)
            if node.lineno > cleared.get(asked, node.lineno):
                yield asked


def assigned(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=True)
        else:
            yield target, node.value


def is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def not_in_a_branch(function: ast.AST, node: ast.Assign) -> bool:
    """What other branches find is what was there before."""
    return not any(node in ast.walk(one) for one in ast.walk(function) if isinstance(one, ast.If))


def test_what_is_gathered_is_unpacked_from_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one, and by its type a tuple where each is named: mypyc would take it for that."""
    for where, function in hot_functions(monkeypatch):
        for call in ast.walk(function):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "asyncio.gather":
                assert all(isinstance(one, ast.Starred) for one in call.args), where
