"""dashboard-linter has nothing to say about the dashboards but for what `.lint` gives a reason for."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.__main__ import BOARDS, FOLDER
from tests.dashboards.linter import OF_DASHBOARDS, OF_PANELS, OF_QUERIES, objections
from tests.dashboards.variables import concrete
from tests.harness.prometheus import program

EXCEPTIONS = yaml.safe_load((FOLDER / ".lint").read_text())
OBJECTIONS = [one for board in BOARDS for one in objections(board)]
FOUND = {(one.rule, one.dashboard, one.panel) for one in OBJECTIONS}
EXCEPTED = [
    (rule, entry["dashboard"], entry["panel"])
    for rule, said in EXCEPTIONS["exclusions"].items()
    for entry in said["entries"]
]


def test_each_objection_is_an_exception_and_each_exception_is_needed() -> None:
    assert set(EXCEPTED) - FOUND == set(), "not needed any more"
    assert [one for one in OBJECTIONS if (one.rule, one.dashboard, one.panel) not in EXCEPTED] == []
    assert len(set(EXCEPTED)) == len(EXCEPTED)


def test_each_exception_has_its_reason_and_is_of_a_known_rule() -> None:
    assert EXCEPTIONS.keys() == {"exclusions"}
    for rule, said in EXCEPTIONS["exclusions"].items():
        assert rule in (*OF_PANELS, *OF_QUERIES)
        assert said.keys() == {"reason", "entries"}
        assert len(said["reason"]) > 40
        # An entry that named no panel would except them all.
        assert all(entry.keys() == {"dashboard", "panel"} for entry in said["entries"])


def test_every_query_is_promql(tmp_path: Path) -> None:
    """target-promql-rule"""
    exprs = [
        concrete(target["expr"])
        for board in BOARDS
        for panel in board["panels"]
        for target in panel["targets"]
    ]
    rules = [{"record": "asked", "expr": expr, "labels": {"at": str(at)}} for at, expr in enumerate(exprs)]
    path = tmp_path / "asked.yml"
    path.write_text(json.dumps({"groups": [{"name": "asked", "rules": rules}]}))
    done = subprocess.run(
        [program("promtool"), "check", "rules", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"{len(exprs)} rules found" in done.stdout


def _without(*names: str) -> Callable[[Any], None]:
    def edit(board: Any) -> None:
        kept = [one for one in board["templating"]["list"] if one["name"] not in names]
        board["templating"]["list"] = kept

    return edit


def _variables(**settings: Any) -> Callable[[Any], None]:
    def edit(board: Any) -> None:
        for one in board["templating"]["list"]:
            one.update(settings)

    return edit


def _panels(**settings: Any) -> Callable[[Any], None]:
    def edit(board: Any) -> None:
        for one in board["panels"]:
            one.update(settings)

    return edit


def _ask(expr: str) -> Callable[[Any], None]:
    return _panels(targets=[{"expr": expr}])


BREAKS: dict[str, Callable[[Any], None]] = {
    "template-datasource-rule": _without("datasource"),
    "template-job-rule": _without("job"),
    "template-instance-rule": _variables(allValue=".*"),
    "template-label-promql-rule": _variables(definition="label_value(up, job)"),
    "template-on-time-change-reload-rule": _variables(refresh=1),
    "uneditable-dashboard-rule": lambda board: board.update(editable=True),
    "panel-datasource-rule": _panels(datasource={"uid": "mine"}),
    "panel-title-description-rule": _panels(description=""),
    "panel-units-rule": _panels(fieldConfig={"defaults": {"unit": "horses"}, "overrides": []}),
    "panel-no-targets-rule": _panels(targets=[]),
    "target-job-rule": _ask('up{instance=~"$instance"}'),
    "target-instance-rule": _ask('up{job=~"$job", instance="$instance"}'),
    "target-counter-agg-rule": _ask("sum(lockd_grants_total{})"),
    "target-rate-interval-rule": _ask("rate(lockd_grants_total{}[5m])"),
}


@pytest.mark.parametrize("rule", [*OF_DASHBOARDS, *OF_PANELS, *OF_QUERIES])
def test_what_breaks_a_rule_is_found(rule: str) -> None:
    board = copy.deepcopy(BOARDS[0])
    before = {one for one in objections(board) if one.rule == rule}
    BREAKS[rule](board)
    assert {one for one in objections(board) if one.rule == rule} - before
