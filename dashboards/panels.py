"""Panels: what is asked, how values are shown, and the kinds but for graphs and tables.

A panel answers one question. Red means: somebody has to act now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Panel = dict[str, Any]
Target = dict[str, Any]

GREEN, YELLOW, ORANGE, RED, BLUE, PURPLE, GREY = "green", "yellow", "orange", "red", "blue", "purple", "text"
DATASOURCE = {"type": "prometheus", "uid": "$datasource"}


# What is asked


def ask(expr: str, legend: str = "", *, now: bool = False, table: bool = False) -> Target:
    """A query. now: only its present value; table: with all labels as columns. Points of a quantile over time
    come with the exemplars of its buckets: the fences of single leases."""
    over_time = not (now or table)
    return {
        "datasource": DATASOURCE,
        "expr": expr,
        "legendFormat": legend or "__auto",
        "instant": now or table,
        "range": over_time,
        "exemplar": over_time and "histogram_quantile(" in expr,
        "format": "table" if table else "time_series",
    }


# How values are shown


def steps(*above: tuple[float | None, str]) -> dict[str, Any]:
    """Colours from a value on: steps((None, GREEN), (1, RED))."""
    return {"mode": "absolute", "steps": [{"value": value, "color": color} for value, color in above]}


def words(*meant: tuple[float, str, str]) -> list[dict[str, Any]]:
    """Values as words in colours: words((0, "no", RED))."""
    options = {
        f"{value:g}": {"text": text, "color": color, "index": i}
        for i, (value, text, color) in enumerate(meant)
    }
    return [{"type": "value", "options": options}]


def span(low: float | None, high: float | None, text: str, color: str) -> dict[str, Any]:
    """The same for all values from `low` to `high`, both included; None: without an end."""
    return {
        "type": "range",
        "options": {"from": low, "to": high, "result": {"text": text, "color": color, "index": 9}},
    }


def missing(text: str, color: str = RED) -> dict[str, Any]:
    """What is said when there is no value: silence is no good news."""
    return {
        "type": "special",
        "options": {"match": "null+nan", "result": {"text": text, "color": color, "index": 10}},
    }


PLAIN = steps((None, GREY))


# The kinds of panels


def stat(
    title: str,
    description: str,
    targets: Sequence[Target],
    *,
    unit: str = "short",
    thresholds: Mapping[str, Any] = PLAIN,
    mappings: Sequence[Mapping[str, Any]] = (),
    decimals: int | None = None,
    overrides: Sequence[Mapping[str, Any]] = (),
) -> Panel:
    """One number or word, large, on its colour."""
    defaults = {
        "unit": unit,
        "thresholds": thresholds,
        "mappings": list(mappings),
        "color": {"mode": "thresholds"},
        **given(decimals=decimals),
    }
    several = {"textMode": "value_and_name" if len(targets) > 1 else "value"}
    config = {"defaults": defaults, "overrides": list(overrides)}
    return panel("stat", title, description, targets, config, _LARGE | several)


_LARGE = {
    "colorMode": "background_solid",
    "graphMode": "none",
    "justifyMode": "center",
    "textMode": "value",
    "orientation": "auto",
    "wideLayout": True,
    "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
}


def timeline(
    title: str, description: str, targets: Sequence[Target], *, mappings: Sequence[Mapping[str, Any]]
) -> Panel:
    """One bar for each series, coloured by what it was when."""
    defaults = {
        "unit": "short",
        "mappings": list(mappings),
        "thresholds": PLAIN,
        "color": {"mode": "thresholds"},
        "custom": {"fillOpacity": 85, "lineWidth": 0, "spanNulls": False},
    }
    config = {"defaults": defaults, "overrides": []}
    return panel("state-timeline", title, description, targets, config, _BARS_OF_STATES)


_BARS_OF_STATES = {
    "mergeValues": True,
    "showValue": "auto",
    "alignValue": "left",
    "rowHeight": 0.85,
    "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False},
    "tooltip": {"mode": "single", "sort": "none"},
}


def panel(
    kind: str,
    title: str,
    description: str,
    targets: Sequence[Target],
    field_config: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Panel:
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "targets": [target | {"refId": letter(i)} for i, target in enumerate(targets)],
        "fieldConfig": field_config,
        "options": options,
    }


def letter(number: int) -> str:
    """What Grafana calls the queries of a panel, from the first one on."""
    return chr(ord("A") + number)


def fixed(color: str) -> dict[str, str]:
    return {"mode": "fixed", "fixedColor": color}


def given(**settings: Any) -> dict[str, Any]:
    """Those that are said; what is None is left to Grafana."""
    return {name: value for name, value in settings.items() if value is not None}
