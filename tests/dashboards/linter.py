"""The rules of Grafana's dashboard-linter, which is a Go program that CI would have to build.

Its names and what it objects to, so that `dashboards/.lint`, its file of exceptions, serves both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Board = Mapping[str, Any]
Found = Iterator["Objection"]
SELECTOR = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\{([^}]*)\}")
_AGGREGATED = re.compile(r"\b(?:rate|irate|increase)\([a-z_]+_total\{[^}]*\}\[[^\]]+\]\)")
_COUNTER = re.compile(r"\b([a-z_]+_total)\b")
_RATE_RANGE = re.compile(r"\bi?rate\([^\[\]]*\[([^\]]+)\]")
_CHECKED = {"stat", "singlestat", "graph", "table", "timeseries", "gauge"}
"""Kinds of panels. Of others it checks only the queries."""
UNITS = {"none", "short", "percentunit", "bytes", "s", "ops", "reqps"}
"""Those of its long list that dashboards use."""
DATASOURCES = {"$datasource", "${datasource}"}


@dataclass(frozen=True)
class Objection:
    rule: str
    dashboard: str
    panel: str = ""
    why: str = ""


def objections(board: Board) -> Found:
    for rule, check in OF_DASHBOARDS.items():
        yield from (Objection(rule, board["title"], why=why) for why in check(board))
    for panel in board["panels"]:
        where = (board["title"], panel["title"])
        for rule, check in OF_PANELS.items():
            if panel["type"] in _CHECKED:
                yield from (Objection(rule, *where, why) for why in check(panel))
        for target in panel.get("targets") or ():
            for rule, on in OF_QUERIES.items():
                yield from (Objection(rule, *where, why) for why in on(target["expr"]))


# Of a whole dashboard


def _data_source(board: Board) -> Iterator[str]:
    chosen = [one for one in board["templating"]["list"] if one["type"] == "datasource"]
    if [(one["name"], one["label"]) for one in chosen] != [("datasource", "Data source")]:
        yield "no variable `datasource` with the label `Data source`"


def _choice_of(name: str) -> Callable[[Board], Iterator[str]]:
    def check(board: Board) -> Iterator[str]:
        one = next((one for one in board["templating"]["list"] if one["name"] == name), None)
        if one is None:
            yield f"no variable `{name}`"
        elif (one["type"], one["label"], one["multi"], one["allValue"]) != (
            "query", name.capitalize(), True, ".+",
        ):  # fmt: skip
            yield f"`{name}` is no choice of several, or `All` is not .+"
        elif one["datasource"]["uid"] not in DATASOURCES:
            yield f"`{name}` does not use the chosen data source"

    return check


def _asked_variables(board: Board) -> Iterator[dict[str, Any]]:
    return (one for one in board["templating"]["list"] if one["type"] == "query")


def _variables_ask_prometheus(board: Board) -> Iterator[str]:
    for one in _asked_variables(board):
        if not re.fullmatch(r"(label_values|label_names|metrics|query_result)\(.+\)", one["definition"]):
            yield one["definition"]


def _variables_are_refreshed(board: Board) -> Iterator[str]:
    return (f"`{one['name']}` is not asked again" for one in _asked_variables(board) if one["refresh"] != 2)


def _is_not_editable(board: Board) -> Iterator[str]:
    if board["editable"]:
        yield "it can be edited in Grafana"


OF_DASHBOARDS: dict[str, Callable[[Board], Iterator[str]]] = {
    "template-datasource-rule": _data_source,
    "template-job-rule": _choice_of("job"),
    "template-instance-rule": _choice_of("instance"),
    "template-label-promql-rule": _variables_ask_prometheus,
    "template-on-time-change-reload-rule": _variables_are_refreshed,
    "uneditable-dashboard-rule": _is_not_editable,
}

# Of each panel


def _uses_the_data_source(panel: Board) -> Iterator[str]:
    if panel["datasource"]["uid"] not in DATASOURCES:
        yield "it does not use the chosen data source"


def _is_named_and_described(panel: Board) -> Iterator[str]:
    if not (panel["title"] and panel["description"]):
        yield "no title or no description"


def _has_a_unit(panel: Board) -> Iterator[str]:
    """What has mappings is shown as words."""
    of_series = [one for override in panel["fieldConfig"]["overrides"] for one in override["properties"]]
    defaults = panel["fieldConfig"]["defaults"]
    if defaults.get("mappings") or any(one["id"] == "mappings" for one in of_series):
        return
    units = [defaults.get("unit", ""), *(one["value"] for one in of_series if one["id"] == "unit")]
    yield from (f"unit {unit!r}" for unit in units if unit not in UNITS)


def _asks_something(panel: Board) -> Iterator[str]:
    if not panel["targets"]:
        yield "no query"


OF_PANELS: dict[str, Callable[[Board], Iterator[str]]] = {
    "panel-datasource-rule": _uses_the_data_source,
    "panel-title-description-rule": _is_named_and_described,
    "panel-units-rule": _has_a_unit,
    "panel-no-targets-rule": _asks_something,
}

# Of each query. That it is PromQL, promtool says, of all at once.


def _follows(label: str) -> Callable[[str], Iterator[str]]:
    def check(expr: str) -> Iterator[str]:
        for metric, matchers in SELECTOR.findall(expr):
            if f'{label}=~"${label}"' not in matchers:
                yield f"{metric} does not follow ${label}"

    return check


def _aggregates_counters(expr: str) -> Iterator[str]:
    yield from dict.fromkeys(_COUNTER.findall(_AGGREGATED.sub("", expr)))


def _rates_by_the_interval(expr: str) -> Iterator[str]:
    yield from (range for range in _RATE_RANGE.findall(expr) if range != "$__rate_interval")


OF_QUERIES: dict[str, Callable[[str], Iterator[str]]] = {
    "target-job-rule": _follows("job"),
    "target-instance-rule": _follows("instance"),
    "target-counter-agg-rule": _aggregates_counters,
    "target-rate-interval-rule": _rates_by_the_interval,
}
