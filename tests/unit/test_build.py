"""The build that runs is the one that was asked for: `make test-compiled` asks for the compiled one, and no
other run finds any of that beside the sources."""

from __future__ import annotations

import os
import runpy
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
