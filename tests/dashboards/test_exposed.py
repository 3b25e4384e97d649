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
from tests.harness.prose import Passage, expect_none, mistakes

SELECTOR = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\{([^}]*)\}")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
GROUPED = re.compile(r"\b(?:by|on|ignoring|group_left|group_right) ?\(([^)]*)\)")
NOW_S = 1_800_000_000


def asked() -> Iterator[Passage]:
    """The queries of panels, annotations and variables."""
    for path in sorted(FOLDER.glob("lockd-*.json")):
        board = json.loads(path.read_text())
        for panel in board["panels"]:
            of = f"{path.stem}: {panel['title']}"
            yield from (Passage(of, target["expr"], 0) for target in panel["targets"])
        for note in board["annotations"]["list"]:
            yield Passage(f"{path.stem}: annotation {note['name']}", note["expr"], 0)
        for one in board["templating"]["list"]:
            if one["type"] == "query":
                yield Passage(f"{path.stem}: variable {one['name']}", one["definition"], 0)


def asks_for_what_there_is_not(query: Passage) -> Iterator[str]:
    """Metrics, labels and values."""
    labels: set[str] = {"le"}
    for metric, matchers in SELECTOR.findall(query.text):
        if metric not in exposed():
            yield query.mistake(metric)
            continue
        labels |= exposed()[metric].labels
        for label, operator, value in MATCHER.findall(matchers):
            if label not in exposed()[metric].labels:
                yield query.mistake(f"{label} of {metric}")
            possible = exposed()[metric].own.get(label)
            if possible and not value.startswith("$"):
                words = value.split("|") if "~" in operator else [value]
                unknown = sorted(set(words) - possible)
                yield from (query.mistake(f"{metric}{{{label}={word}}}") for word in unknown)
    for grouping in GROUPED.findall(query.text):
        unknown = sorted({label.strip() for label in grouping.split(",")} - labels)
        yield from (query.mistake(f"by {label}") for label in unknown)


def test_queries_ask_for_metrics_labels_and_values_that_there_are() -> None:
    expect_none(mistakes(asks_for_what_there_is_not, asked()))


@pytest.mark.parametrize(
    ("expr", "named"),
    [
        ('lockd_moods{job="lockd"}', "lockd_moods"),
        ('lockd_grants_total{mood="good"}', "mood of lockd_grants_total"),
        ('lockd_refusals_total{reason="whim"}', "lockd_refusals_total{reason=whim}"),
        ('lockd_refusals_total{reason=~"noquorum|whim"}', "lockd_refusals_total{reason=whim}"),
        ('sum by (mood) (lockd_grants_total{job="lockd"})', "by mood"),
    ],
)
def test_what_there_is_not_is_found_and_named_with_its_panel(expr: str, named: str) -> None:
    assert list(asks_for_what_there_is_not(Passage("a board: a panel", expr, 0))) == [
        f"a board: a panel: {named}"
    ]


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
    shown = {metric for query in asked() for metric, _ in SELECTOR.findall(query.text)}
    assert shown - {metric for metric, _ in made_up()} == set()


def test_alerts_of_the_preview_are_those_of_the_rules() -> None:
    known = {(alert["alert"], alert["labels"]["severity"]) for alert in ALL_ALERTS}
    fired = [labels for metric, labels in chain(made_up()) if metric == "ALERTS"]
    assert fired
    for labels in fired:
        assert (labels["alertname"], labels["severity"]) in known
        assert labels.keys() <= exposed()["ALERTS"].labels
