"""Panels: what is asked, how values are shown, and the kinds but for graphs and tables.

A panel answers one question. Red means: somebody has to act now.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import Any

Panel = dict[str, Any]
Target = dict[str, Any]

GREEN, YELLOW, ORANGE, RED, BLUE, PURPLE, GREY = "green", "yellow", "orange", "red", "blue", "purple", "text"
# Without red and orange, which say that somebody has to act. Eight are as many as an eye tells apart.
# Those of m1 to m5, and of names that are met often, are well apart.
CALM = ("#6ED0E0", "#5794F2", "#B877D9", "#DEB6F2", "#C8F2C2", "#1F60C4", "#73BF69", "#FADE2A")
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


def fixed(color: str) -> dict[str, str]:
    return {"mode": "fixed", "fixedColor": color}


def coloured(pattern: str, color: str) -> dict[str, Any]:
    """The colour of series whose legend matches."""
    return of_series(pattern, [{"id": "color", "value": fixed(color)}])


def of_series(pattern: str, properties: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What holds only for series whose legend matches."""
    return {"matcher": {"id": "byRegexp", "options": f"/{pattern}/"}, "properties": properties}


_MANY = len(CALM)


def _letters(number: int, before: bool = False) -> str:
    """Those that count as `number`, last in a name or the one before, as a class of a regex."""
    named = string.digits + string.ascii_letters + "_."
    return "".join(one for one in named if (ord(one) // 4 * 7 if before else ord(one)) % _MANY == number)


def _ending(number: int) -> str:
    """A regex of names whose last two letters come to `number`; also of those that are one letter."""
    pairs = "|".join(f"[{_letters(i, before=True)}][{_letters((number - i) % _MANY)}]" for i in range(_MANY))
    return f"^([^\\s:]*({pairs})|[{_letters(number)}])(:\\d+)?( |$)"


BY_NAME = [coloured(_ending(number), color) for number, color in enumerate(CALM)]
"""m1 has one colour in all graphs, whichever others are shown: that of the last two letters of its name,
before a port. Grafana gives colours in the order of series, or by their names, and then some are red."""


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


def heatmap(title: str, description: str, buckets: str, *, unit: str = "s", silence: str = "none") -> Panel:
    """How many were how long, over time: of however many hosts. `buckets`: of a histogram, by `le`."""
    target = ask(buckets, "{{le}}") | {"format": "heatmap"}
    custom = {
        "scaleDistribution": {"type": "linear"},
        "hideFrom": {"legend": False, "tooltip": False, "viz": False},
    }
    defaults = {"unit": "ops", "custom": custom, "noValue": silence, "thresholds": PLAIN}
    options = _HEAT | {"yAxis": {"axisPlacement": "left", "unit": unit, "reverse": False}}
    return panel("heatmap", title, description, [target], {"defaults": defaults, "overrides": []}, options)


# Exponential, so that the one slow of a thousand is seen beside them.
_HEAT = {
    "calculate": False,
    "color": {
        "mode": "scheme", "scheme": "Blues", "fill": "dark-blue", "scale": "exponential", "exponent": 0.4,
        "steps": 64, "reverse": True,
    },
    "cellGap": 1,
    "filterValues": {"le": 1e-9},
    "rowsFrame": {"layout": "auto"},
    "exemplars": {"color": "rgba(255,0,255,0.7)"},
    "legend": {"show": True},
    "tooltip": {"mode": "single", "yHistogram": False, "showColorScale": False},
}  # fmt: skip


_BARS_OF_STATES = {
    "mergeValues": True,
    "showValue": "auto",
    "alignValue": "left",
    "rowHeight": 0.85,
    "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False},
    "tooltip": {"mode": "single", "sort": "none"},
}


POINTS_LOOKED_BACK = 120
"""Of a graph that asks first which hosts were the worst, at each point, of all hosts: what costs most."""


def panel(
    kind: str,
    title: str,
    description: str,
    targets: Sequence[Target],
    field_config: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Panel:
    looks_back = any("[$__range:$__interval]" in target["expr"] for target in targets)
    return {
        **({"maxDataPoints": POINTS_LOOKED_BACK} if looks_back else {}),
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


def given(**settings: Any) -> dict[str, Any]:
    """Those that are said; what is None is left to Grafana."""
    return {name: value for name, value in settings.items() if value is not None}
