"""alerts.md: every alert with its severity, how long it has to last, what it says, and its runbook."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from docs.made.markdown import NOTE, REFERENCE, REPOSITORY, table

PAGE = REFERENCE / "alerts.md"
ALERTS = REPOSITORY / "alerts"
HEAD = f"""# Alerts

{NOTE}
`critical` pages somebody, `warning` is a ticket for the day, `info` is read beside another alert. One outage
is one page: what is critical in a cluster comes as one incident, and what follows from another alert is
hidden by it. Each alert has a runbook: what it means, what to look at, what to do, when it is over and whom
to call ([how to use them](../../alerts/runbooks/README.md)). `lockctl runbook NAME` shows it in a terminal.
The rules are in `alerts/`, with unit tests for `promtool`; [metrics](../../alerts/METRICS.md) has what they
read. How to bring them into your own Prometheus:
[own Prometheus and Grafana](../how-to/own-prometheus-and-grafana.md).
"""


def page() -> str:
    return HEAD + "".join(
        f"\n## {name}\n\n" + table(["alert", "severity", "for", "summary"], rows) for name, rows in groups()
    )


def groups() -> Iterator[tuple[str, list[list[str]]]]:
    for path in sorted(ALERTS.glob("*.alerts.yml")):
        for group in yaml.safe_load(path.read_text())["groups"]:
            yield group["name"], [_row(rule) for rule in group["rules"] if "alert" in rule]


def _row(rule: dict[str, Any]) -> list[str]:
    name, labels = rule["alert"], rule.get("labels", {})
    window = f" ({labels['window']})" if "window" in labels else ""
    link = f"[{name}](../../alerts/runbooks/{name}.md){window}"
    summary = rule["annotations"]["summary"]
    return [link, labels.get("severity", ""), rule.get("for", "at once"), summary]
