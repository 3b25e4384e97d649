"""What there is to ask for: each metric with its labels, as the code exposes it, rules record it, and others'
exporters are known for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import yaml

from alerts.metrics_page import (
    agent_families,
    certificate_families,
    closed_values,
    full_name,
    guard_families,
    labels_of,
)
from tests.harness.prometheus import ALL_ALERTS, ROOT

OF_AGENTS = frozenset({"cluster", "site", "job", "instance"})
"""Labels that Prometheus gives each series of a target."""
OF_MASTERS = OF_AGENTS | {"master"}
"""The same of the exporters on the masters' hosts."""
OTHERS = {
    "up": OF_MASTERS,
    "process_cpu_seconds_total": OF_AGENTS,
    "process_resident_memory_bytes": OF_AGENTS,
    "process_start_time_seconds": OF_AGENTS,
    "node_timex_sync_status": OF_MASTERS,
    "node_timex_offset_seconds": OF_MASTERS,
    "node_filesystem_avail_bytes": OF_MASTERS | {"mountpoint"},
    "node_filesystem_size_bytes": OF_MASTERS | {"mountpoint"},
}
"""Of Python's client library, of node_exporter, and of Prometheus itself."""


@dataclass(frozen=True)
class Exposed:
    """A metric's labels: those of its target, and its own with all values that they can have (none: any)."""

    of_target: frozenset[str]
    own: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def labels(self) -> frozenset[str]:
        return self.of_target | self.own.keys()


@cache
def exposed() -> dict[str, Exposed]:
    found = dict(_ours())
    found |= {name: Exposed(labels) for name, labels in OTHERS.items()}
    found |= {name: Exposed(frozenset({"cluster"})) for name in _recorded()}
    return found | {"ALERTS": Exposed(frozenset({"alertname", "alertstate"}) | _of_alerts())}


def _ours() -> Iterator[tuple[str, Exposed]]:
    for family in agent_families():
        yield from _named(family, OF_AGENTS)
    for family in (*guard_families(), *certificate_families()):
        yield from _named(family, OF_MASTERS)


def _named(family: Any, of_target: frozenset[str]) -> Iterator[tuple[str, Exposed]]:
    own = {label: frozenset(closed_values(family, label)) for label in labels_of(family)}
    if family.type not in ("histogram", "summary"):
        yield full_name(family), Exposed(of_target, own)
        return
    if family.type == "histogram":
        yield f"{full_name(family)}_bucket", Exposed(of_target, own | {"le": frozenset()})
    for part in ("count", "sum"):
        yield f"{full_name(family)}_{part}", Exposed(of_target, own)


def _recorded() -> Iterator[str]:
    """Rules by cluster alone: the others' labels are in their names."""
    groups = yaml.safe_load((ROOT / "alerts" / "lockd.rules.yml").read_text())["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        if rule["record"].startswith("cluster:"):
            yield rule["record"]


def _of_alerts() -> frozenset[str]:
    """What an alert says of itself, and the series that it is about."""
    said = {label for alert in ALL_ALERTS for label in alert["labels"]}
    return frozenset(said | OF_MASTERS | {"class"})
