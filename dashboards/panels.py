"""Panels: what each kind looks like here.

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


ONLY_GREEN = steps((None, GREEN))
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
    }
    if decimals is not None:
        defaults["decimals"] = decimals
    return _panel(
        "stat",
        title,
        description,
        targets,
        {"defaults": defaults, "overrides": list(overrides)},
        {
            "colorMode": "background_solid",
            "graphMode": "none",
            "justifyMode": "center",
            "textMode": "value_and_name" if len(targets) > 1 else "value",
            "orientation": "auto",
            "wideLayout": True,
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        },
    )


def lines(
    title: str,
    description: str,
    targets: Sequence[Target],
    *,
    unit: str,
    thresholds: Mapping[str, Any] | None = None,
    stacked: bool = False,
    bars: bool = False,
    least: float | None = 0,
    most: float | None = None,
    seen: float | None = None,
    silence: str | None = None,
    log: bool = False,
    colors: Mapping[str, str] | None = None,
    dashed: Sequence[str] = (),
    decimals: int | None = None,
) -> Panel:
    """A graph over time. `thresholds` are drawn as lines; `dashed`: series that are limits.

    seen: the axis reaches at least up to there, so that nothing much does not fill the graph. silence: what
    it means that there is no series at all, where that is the rule.
    """
    custom: dict[str, Any] = {
        "drawStyle": "bars" if bars else "line",
        # Stacked, the line of what is nothing would lie on top of what is much.
        "lineWidth": 0 if bars or stacked else 1,
        "fillOpacity": 80 if bars else 60 if stacked else 8,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if stacked or bars else "none", "group": "A"},
        "scaleDistribution": {"type": "log", "log": 10} if log else {"type": "linear"},
        "thresholdsStyle": {"mode": "line+area" if thresholds else "off"},
    }
    if seen is not None:
        custom["axisSoftMax"] = seen
    defaults: dict[str, Any] = {
        "unit": unit,
        "color": {"mode": "palette-classic"},
        "custom": custom,
        "thresholds": thresholds or ONLY_GREEN,
    }
    if silence is not None:
        defaults["noValue"] = silence
    if least is not None and not log:
        defaults["min"] = least
    if most is not None:
        defaults["max"] = most
    if decimals is not None:
        defaults["decimals"] = decimals
    overrides = [
        _override("byRegexp", f"/^{name}/", color=_fixed(color)) for name, color in (colors or {}).items()
    ]
    overrides += [_limit(name) for name in dashed]
    return _panel(
        "timeseries",
        title,
        description,
        targets,
        {"defaults": defaults, "overrides": overrides},
        {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    )


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
    return _panel(
        "state-timeline",
        title,
        description,
        targets,
        {"defaults": defaults, "overrides": []},
        {
            "mergeValues": True,
            "showValue": "auto",
            "alignValue": "left",
            "rowHeight": 0.85,
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False},
            "tooltip": {"mode": "single", "sort": "none"},
        },
    )


class Column:
    """A column of a table: what its heading is, and how its values are shown.

    It holds the values of `expr`; or the label of its name that `brings` has.
    """

    def __init__(
        self,
        name: str,
        expr: str | None = None,
        *,
        brings: str | None = None,
        unit: str = "short",
        thresholds: Mapping[str, Any] | None = None,
        mappings: Sequence[Mapping[str, Any]] = (),
        link: tuple[str, str] | None = None,
        width: int | None = None,
        decimals: int | None = None,
    ) -> None:
        self.name, self.expr, self.brings = name, expr, brings
        self.properties: list[dict[str, Any]] = [{"id": "unit", "value": unit}]
        if decimals is not None:
            self.properties.append({"id": "decimals", "value": decimals})
        if mappings:
            self.properties.append({"id": "mappings", "value": list(mappings)})
        if thresholds is not None or mappings:
            colored = {"type": "color-background", "mode": "basic"}
            self.properties += [
                {"id": "custom.cellOptions", "value": colored},
                {"id": "thresholds", "value": thresholds or steps((None, "transparent"))},
                {"id": "color", "value": {"mode": "thresholds"}},
            ]
        if link is not None:
            title, url = link
            self.properties.append({"id": "links", "value": [{"title": title, "url": url}]})
        if width is not None:
            self.properties.append({"id": "custom.width", "value": width})


_EMPTY_CELL = {"id": "noValue", "value": "-"}


def table(
    title: str,
    description: str,
    key: Column,
    columns: Sequence[Column],
    *,
    sort: str = "",
    falling: bool = True,
    silence: str = "No data",
) -> Panel:
    """One row for each value of the label `key`; the other columns are queries by that label.

    silence: what it means that there is no row at all.
    """
    asked = [column for column in columns if column.expr or column.brings]
    targets = [ask(column.expr or column.brings or "", table=True) for column in asked]
    source = {
        (f"Value #{_letter(i)}" if len(asked) > 1 else "Value"): column.name
        for i, column in enumerate(asked)
        if column.expr
    }
    of_name = {name: field for field, name in source.items()}
    fields = [key.name, *(of_name.get(column.name, column.name) for column in columns)]
    organized = {
        "renameByName": source,
        "indexByName": {field: i for i, field in enumerate(fields)},
        "excludeByName": {},
    }
    transformations = [
        *([{"id": "merge", "options": {}}] if len(asked) > 1 else []),
        {"id": "filterFieldsByName", "options": {"include": {"names": fields}}},
        {"id": "organize", "options": organized},
    ]
    overrides = [
        {"matcher": {"id": "byName", "options": column.name}, "properties": [*column.properties, _EMPTY_CELL]}
        for column in (key, *columns)
    ]
    panel = _panel(
        "table",
        title,
        description,
        targets,
        {
            "defaults": {
                "unit": "short",
                "thresholds": PLAIN,
                "color": {"mode": "thresholds"},
                "custom": {"align": "auto", "cellOptions": {"type": "auto"}, "minWidth": 60},
                "mappings": [],
                "noValue": silence,
            },
            "overrides": overrides,
        },
        {
            "showHeader": True,
            "cellHeight": "sm",
            "sortBy": [{"displayName": sort, "desc": falling}] if sort else [],
            "footer": {"show": False},
        },
    )
    panel["transformations"] = transformations
    return panel


def text(title: str, description: str, markdown: str) -> Panel:
    return {
        "type": "text", "title": title, "description": description, "targets": [], "transparent": True,
        "options": {"mode": "markdown", "content": markdown},
    }  # fmt: skip


def _panel(
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
        "targets": [target | {"refId": _letter(i)} for i, target in enumerate(targets)],
        "fieldConfig": field_config,
        "options": options,
    }


def _letter(number: int) -> str:
    return chr(ord("A") + number)


def _fixed(color: str) -> dict[str, str]:
    return {"mode": "fixed", "fixedColor": color}


def _override(matcher: str, options: str, **properties: Any) -> dict[str, Any]:
    return {
        "matcher": {"id": matcher, "options": options},
        "properties": [{"id": name, "value": value} for name, value in properties.items()],
    }


def _limit(name: str) -> dict[str, Any]:
    return {
        "matcher": {"id": "byRegexp", "options": f"/^{name}/"},
        "properties": [
            {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 6]}},
            {"id": "custom.fillOpacity", "value": 0},
            {"id": "color", "value": _fixed(RED)},
        ],
    }
