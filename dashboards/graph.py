"""Graphs over time: their axis, how their series are drawn, and which of them are limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboards.panels import (
    BY_NAME,
    GREEN,
    RED,
    Panel,
    Target,
    coloured,
    fixed,
    given,
    of_series,
    panel,
    steps,
)


@dataclass(frozen=True)
class Axis:
    """What the values are, and which of them are in sight.

    seen: it reaches at least up to there, so that nothing much does not fill the graph.
    """

    unit: str
    least: float | None = 0
    most: float | None = None
    seen: float | None = None
    log: bool = False
    decimals: int | None = None

    @property
    def scale(self) -> dict[str, Any]:
        return {"type": "log", "log": 10} if self.log else {"type": "linear"}

    @property
    def range(self) -> dict[str, Any]:
        least = None if self.log else self.least
        return given(min=least, max=self.most, decimals=self.decimals)


@dataclass(frozen=True)
class Drawn:
    """How the series of a graph are drawn."""

    style: str
    line: int
    fill: int
    stacking: str


LINES = Drawn("line", 1, 8, "none")
BARS = Drawn("bars", 0, 80, "normal")
# Stacked, the line of what is nothing would lie on top of what is much.
STACKED = Drawn("line", 0, 60, "normal")


def lines(
    title: str,
    description: str,
    targets: Sequence[Target],
    *,
    axis: Axis,
    drawn: Drawn = LINES,
    thresholds: Mapping[str, Any] | None = None,
    silence: str | None = None,
    colors: Mapping[str, str] | None = None,
    limits: Sequence[str] = (),
    dashed: Sequence[str] = (),
) -> Panel:
    """A graph over time. `thresholds` are drawn as lines; `limits`: series that are limits, dashed and red;
    `dashed`: other dashed series.

    silence: what it means that there is no series at all, where that is the rule.
    """
    defaults = {
        "unit": axis.unit,
        "color": {"mode": "palette-classic-by-name"},
        "custom": _custom(axis, drawn, "line+area" if thresholds else "off"),
        "thresholds": thresholds or steps((None, GREEN)),
        **given(noValue=silence),
        **axis.range,
    }
    overrides = [*BY_NAME, *(coloured(f"^{name}$", color) for name, color in (colors or {}).items())]
    overrides += [of_series(f"^{name}", [*_DASHED, {"id": "color", "value": fixed(RED)}]) for name in limits]
    overrides += [of_series(f"^{name}$", _DASHED) for name in dashed]
    config = {"defaults": defaults, "overrides": overrides}
    graph = panel("timeseries", title, description, targets, config, _OPTIONS)
    return graph | (_A_BAR_A_STEP if drawn is BARS else {})


# Wide enough to be seen and counted; and never shorter than it takes from one scrape to the next.
_A_BAR_A_STEP = {"maxDataPoints": 60, "interval": "1m"}


def _custom(axis: Axis, drawn: Drawn, thresholds: str) -> dict[str, Any]:
    return {
        "drawStyle": drawn.style,
        "lineWidth": drawn.line,
        "fillOpacity": drawn.fill,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": drawn.stacking, "group": "A"},
        "scaleDistribution": axis.scale,
        "thresholdsStyle": {"mode": thresholds},
        **given(axisSoftMax=axis.seen),
    }


_OPTIONS = {
    "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
    "tooltip": {"mode": "multi", "sort": "desc"},
}

_DASHED = [
    {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 6]}},
    {"id": "custom.fillOpacity", "value": 0},
]
