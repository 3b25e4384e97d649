"""Tables: one row for each value of a label, and a query for each column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from dashboards.panels import PLAIN, Panel, ask, given, letter, panel, steps


@dataclass(frozen=True)
class Column:
    """A column of a table: what its heading is, and how its values are shown.

    It holds the values of `expr`; or the label of its name that `brings` has.
    """

    name: str
    expr: str | None = None
    _: KW_ONLY
    brings: str | None = None
    unit: str = "short"
    thresholds: Mapping[str, Any] | None = None
    mappings: Sequence[Mapping[str, Any]] = ()
    link: tuple[str, str] | None = None
    width: int | None = None
    decimals: int | None = None

    @property
    def query(self) -> str:
        return self.expr or self.brings or ""

    @property
    def override(self) -> dict[str, Any]:
        properties = [*self._values(), *self._colours(), *self._looks(), {"id": "noValue", "value": "-"}]
        return {"matcher": {"id": "byName", "options": self.name}, "properties": properties}

    def _values(self) -> list[dict[str, Any]]:
        return _properties(unit=self.unit, decimals=self.decimals, mappings=list(self.mappings) or None)

    def _colours(self) -> list[dict[str, Any]]:
        if self.thresholds is None and not self.mappings:
            return []
        return [
            {"id": "custom.cellOptions", "value": {"type": "color-background", "mode": "basic"}},
            {"id": "thresholds", "value": self.thresholds or steps((None, "transparent"))},
            {"id": "color", "value": {"mode": "thresholds"}},
        ]

    def _looks(self) -> list[dict[str, Any]]:
        links = [{"title": self.link[0], "url": self.link[1]}] if self.link else None
        return _properties(**{"links": links, "custom.width": self.width})


def _properties(**settings: Any) -> list[dict[str, Any]]:
    return [{"id": name, "value": value} for name, value in given(**settings).items()]


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
    targets = [ask(column.query, table=True) for column in _asked(columns)]
    config = {
        "defaults": _DEFAULTS | {"noValue": silence},
        "overrides": [column.override for column in (key, *columns)],
    }
    options = {
        "showHeader": True,
        "cellHeight": "sm",
        "sortBy": [{"displayName": sort, "desc": falling}] if sort else [],
        "footer": {"show": False},
    }
    table = panel("table", title, description, targets, config, options)
    return table | {"transformations": _transformations(key, columns)}


def matrix(
    title: str,
    description: str,
    expr: str,
    *,
    rows: str,
    columns: str,
    unit: str,
    thresholds: Mapping[str, Any],
) -> Panel:
    """One cell for each value of two labels, coloured by the value of `expr`."""
    cells = {"align": "auto", "cellOptions": {"type": "color-background", "mode": "basic"}, "minWidth": 60}
    defaults = _DEFAULTS | {"unit": unit, "thresholds": thresholds, "custom": cells, "noValue": "-"}
    corner = {"id": "displayName", "value": rows}
    uncoloured = {"id": "custom.cellOptions", "value": {"type": "auto"}}
    names = {"matcher": {"id": "byName", "options": f"{rows}\\{columns}"}, "properties": [corner, uncoloured]}
    options = {"showHeader": True, "cellHeight": "sm", "footer": {"show": False}}
    made = panel(
        "table",
        title,
        description,
        [ask(expr, table=True)],
        {"defaults": defaults, "overrides": [names]},
        options,
    )
    grouped = {"columnField": columns, "rowField": rows, "valueField": "Value", "emptyValue": "null"}
    return made | {"transformations": [{"id": "groupingToMatrix", "options": grouped}]}


_DEFAULTS = {
    "unit": "short",
    "thresholds": PLAIN,
    "color": {"mode": "thresholds"},
    "custom": {"align": "auto", "cellOptions": {"type": "auto"}, "minWidth": 60},
    "mappings": [],
}


def _transformations(key: Column, columns: Sequence[Column]) -> list[dict[str, Any]]:
    """The answers as one table, its columns in order and under their headings."""
    headings = _headings(columns)
    field_of = {heading: field for field, heading in headings.items()}
    fields = [field_of.get(column.name, column.name) for column in (key, *columns)]
    order = {field: i for i, field in enumerate(fields)}
    organized = {"renameByName": headings, "indexByName": order, "excludeByName": {}}
    return [
        *([{"id": "merge", "options": {}}] if len(_asked(columns)) > 1 else []),
        {"id": "filterFieldsByName", "options": {"include": {"names": fields}}},
        {"id": "organize", "options": organized},
    ]


def _headings(columns: Sequence[Column]) -> dict[str, str]:
    """By Grafana's name for the values of a query, that of their column."""
    asked = _asked(columns)
    return {
        f"Value #{letter(i)}" if len(asked) > 1 else "Value": column.name
        for i, column in enumerate(asked)
        if column.expr
    }


def _asked(columns: Sequence[Column]) -> list[Column]:
    return [column for column in columns if column.query]
