"""A dashboard around its panels: what a reader may choose, where links lead, what is marked in all graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alerts.build import Site
from dashboards.panels import DATASOURCE, ORANGE, PURPLE, RED, Panel
from dashboards.queries import CLUSTER, LOST, NO_QUORUM_FOR, events

WIDTH = 24
RUNBOOKS = Site().runbook_url
"""Where runbooks can be read: the same place as in alerts/lockd.alerts.yml."""

Row = tuple[int, Sequence[tuple[int, Panel]]]
"""Its height, and its panels with their widths, from left to right."""


def dashboard(
    uid: str, title: str, question: str, rows: Sequence[Row], *, also: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """`also`: more variables than all dashboards have."""
    return {
        "uid": uid,
        "title": title,
        "description": question,
        "tags": ["lockd"],
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "schemaVersion": 39,
        "style": "dark",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "version": 1,
        "links": LINKS,
        "annotations": {"list": ANNOTATIONS},
        "templating": {"list": [*VARIABLES, *also, CONSTANT_RUNBOOKS]},
        "panels": _placed(rows),
    }


def _placed(rows: Sequence[Row]) -> list[Panel]:
    placed: list[Panel] = []
    y = 0
    for height, panels in rows:
        x = 0
        for width, panel in panels:
            placed.append(
                {"id": len(placed) + 1, **panel, "gridPos": {"x": x, "y": y, "w": width, "h": height}}
            )
            x += width
        if x != WIDTH:
            raise ValueError(f"the row at {y} is {x} wide, not {WIDTH}")
        y += height
    return placed


def variable(name: str, label: str, query: str, *, everything: str = ".+", hint: str = "") -> dict[str, Any]:
    """A choice of values of a label, any number of them. everything: what `All` stands for, as a regex."""
    return {
        "type": "query",
        "name": name,
        "label": label,
        "description": hint,
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": everything,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "sort": 1,
        "hide": 0,
        "options": [],
        "regex": "",
    }


VARIABLES: list[dict[str, Any]] = [
    {
        "type": "datasource",
        "name": "datasource",
        "label": "Data source",
        "query": "prometheus",
        "current": {},
        "refresh": 1,
        "hide": 0,
        "multi": False,
        "includeAll": False,
        "options": [],
        "regex": "",
    },
    # `.*`: where there is one cluster only, targets need not carry the label.
    variable(
        "cluster",
        "Cluster",
        "label_values(lockd_masters, cluster)",
        everything=".*",
        hint="Choose one, if there are several: else masters of the same name are shown as one.",
    ),
    variable(
        "site",
        "Site",
        f"label_values(lockd_masters{{{CLUSTER}}}, site)",
        everything=".*",
        hint="Where targets carry the label `site`: a data centre, a region.",
    ),
    variable("job", "Job", f"label_values(lockd_masters{{{CLUSTER}}}, job)"),
    variable(
        "instance",
        "Instance",
        f'label_values(lockd_masters{{{CLUSTER}, site=~"$site", job=~"$job"}}, instance)',
    ),
]

MASTER_VARIABLE = variable(
    "master", "Master", f'label_values(lockd_master_vote{{{CLUSTER}, job=~"$job"}}, master)'
)
CLASS_VARIABLE = variable(
    "class", "Class", f'label_values(lockd_class_info{{{CLUSTER}, job=~"$job"}}, class)'
)

CONSTANT_RUNBOOKS = {
    "type": "constant",
    "name": "runbooks",
    "label": "Runbooks",
    "query": RUNBOOKS,
    "current": {"selected": True, "text": RUNBOOKS, "value": RUNBOOKS},
    "options": [{"selected": True, "text": RUNBOOKS, "value": RUNBOOKS}],
    "hide": 2,
    "skipUrlSync": True,
}


def link_to(uid: str, parameter: str = "", value: str = "") -> str:
    """The address of a dashboard, at the same time and for the same cluster."""
    more = f"&var-{parameter}={value}" if parameter else ""
    return f"/d/{uid}?${{cluster:queryparam}}&${{__url_time_range}}{more}"


LINKS = [
    {
        "type": "link",
        "title": title,
        "tooltip": tooltip,
        "url": f"/d/{uid}",
        "icon": "dashboard",
        "asDropdown": False,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "tags": [],
    }
    for uid, title, tooltip in (
        ("lockd-overview", "Overview", "Can apps get locks?"),
        ("lockd-classes", "Classes", "Who waits?"),
        ("lockd-masters", "Masters", "Which master has a problem?"),
        ("lockd-agents", "Agents", "Which host has a problem?"),
    )
]


def _annotation(name: str, color: str, expr: str, title: str, text: str) -> dict[str, Any]:
    return {
        "name": name,
        "enable": True,
        "hide": False,
        "iconColor": color,
        "datasource": DATASOURCE,
        "expr": expr,
        "step": "15s",
        "titleFormat": title,
        "textFormat": text,
        "tagKeys": "",
        "useValueForTime": False,
    }


ANNOTATIONS = [
    _annotation(
        "Quarantines",
        PURPLE,
        f"max by (cluster, master) (lockd_guard_quarantined{{{CLUSTER}}}) == 1",
        "{{master}} is in quarantine",
        "Its guard keeps it out until all leases that it may have voted for have ended.",
    ),
    _annotation(
        "Lost leases",
        RED,
        f"sum by (cluster, class, reason) ({events('lockd_losses_total', LOST)}) > 0",
        "leases of {{class}} were lost",
        "{{reason}}",
    ),
    _annotation(
        "No quorum",
        ORANGE,
        NO_QUORUM_FOR,
        "no quorum",
        "More than 5 % of agents have too few masters with a vote.",
    ),
]
