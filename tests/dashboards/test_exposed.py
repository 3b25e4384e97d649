"""Dashboards ask for what there is, and what the preview invents is what the code would say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import chain

import pytest

from dashboards.__main__ import FOLDER
from tests.dashboards.exposed import exposed
from tests.harness.fleet import Fleet
from tests.harness.prometheus import ALL_ALERTS

SELECTOR = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\{([^}]*)\}")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
GROUPED = re.compile(r"\b(?:by|on|ignoring|group_left|group_right) ?\(([^)]*)\)")
NOW_S = 1_800_000_000


def exprs() -> list[str]:
    """Of panels, annotations and variables."""
    found: list[str] = []
    for path in sorted(FOLDER.glob("lockd-*.json")):
        board = json.loads(path.read_text())
        found += [target["expr"] for panel in board["panels"] for target in panel["targets"]]
        found += [annotation["expr"] for annotation in board["annotations"]["list"]]
        found += [one["definition"] for one in board["templating"]["list"] if one["type"] == "query"]
    return found


@pytest.mark.parametrize("expr", exprs())
def test_a_query_asks_for_metrics_labels_and_values_that_there_are(expr: str) -> None:
    labels: set[str] = {"le"}
    for metric, matchers in SELECTOR.findall(expr):
        assert metric in exposed(), metric
        labels |= exposed()[metric].labels
        for label, operator, value in MATCHER.findall(matchers):
            assert label in exposed()[metric].labels, (metric, label)
            possible = exposed()[metric].own.get(label)
            if possible and not value.startswith("$"):
                asked = value.split("|") if "~" in operator else [value]
                assert set(asked) <= possible, (metric, label, asked)
    for grouping in GROUPED.findall(expr):
        assert {label.strip() for label in grouping.split(",")} <= labels, (grouping, expr)


def made_up() -> Iterator[tuple[str, dict[str, str]]]:
    """Series of a fleet by name and labels, but for alerts."""
    for name, _ in Fleet(5, NOW_S):
        [(metric, matchers)] = SELECTOR.findall(name)
        yield metric, {label: value for label, _, value in MATCHER.findall(matchers)}


def test_what_the_preview_makes_up_is_what_the_code_exposes() -> None:
    """With no label more or less, and no value that the code doesn't know."""
    for metric, labels in made_up():
        if metric == "ALERTS":
            continue
        assert metric in exposed(), metric
        one = exposed()[metric]
        assert labels.keys() >= one.own.keys(), (metric, labels)
        assert labels.keys() <= one.labels, (metric, labels)
        for label, possible in one.own.items():
            assert not possible or labels[label] in possible, (metric, label)


def test_each_metric_that_a_panel_shows_is_in_the_preview() -> None:
    """Else it would be empty there, and nobody would look at how it is drawn."""
    asked = {metric for expr in exprs() for metric, _ in SELECTOR.findall(expr)}
    assert asked - {metric for metric, _ in made_up()} == set()


def test_alerts_of_the_preview_are_those_of_the_rules() -> None:
    known = {(alert["alert"], alert["labels"]["severity"]) for alert in ALL_ALERTS}
    fired = [labels for metric, labels in chain(made_up()) if metric == "ALERTS"]
    assert fired
    for labels in fired:
        assert (labels["alertname"], labels["severity"]) in known
        assert labels.keys() <= exposed()["ALERTS"].labels
