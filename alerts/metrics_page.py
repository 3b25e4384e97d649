"""Writes alerts/METRICS.md from the code: every metric of agents, guards and masters' certificates, with its
labels.

    python -m alerts.metrics_page > alerts/METRICS.md   (make alerts-docs)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from lockd.config.current import Current
from lockd.config.model import Config
from lockd.core.locks import Locks
from lockd.core.membership import Identity, MasterFacts
from lockd.core.values import Chance, RedlockParameters
from lockd.guard.metrics import GuardReading, metrics_text
from lockd.guard.records import GuardState
from lockd.masters.fleet import Fleet
from lockd.metrics.collector import Metrics

HEAD = """# Metrics

Made from the code by `make alerts-docs`; a test checks that it is current. Don't edit it.

Scrape the agents as `job="lockd"` and the node_exporter of the masters' hosts as `job="lockd-masters"`. Give
both the target label `cluster`, and the latter the target label `master` with the name that the master has in
lockd's configuration: rules and dashboards join by these.
Scrape Alertmanager as `job="alertmanager"`, so that somebody learns when it can't deliver.

Every series is there from the start, at 0, unless its meaning says when it is absent. No resource is ever a
label: its class is (`other` when none matches, `canary` for the agent's own lock). A scraper that asks for
OpenMetrics gets an exemplar with the fence of a lease on the buckets of waits and holds. Which resource that
is, `lockctl locks --local` says, and the log at `log_level: debug`.
"""
FREE = {"class", "master", "version", "fingerprint", "cluster", "address", "limit", "masters", "page_on_loss"}
"""Labels whose values depend on the configuration: they are not listed."""
CERTIFICATE = Path(__file__).parents[1] / "ansible/roles/node_exporter/tasks/textfiles.yml"


def agent_families() -> list[Any]:
    """All families of an agent that has heard of its masters, in the order in which it exposes them."""
    masters = [{"name": f"m{i}", "address": f"10.0.0.{i}:6379"} for i in range(1, 6)]
    config = Config.model_validate({"cluster": "example", "masters": masters})
    metrics = Metrics(Current(config))
    fleet = Fleet(
        config,
        metrics.masters,
        lambda _link: None,
        lambda *_: None,
        lambda _now_ns: None,
        lambda *_: None,
        b"",
    )
    identity = Identity(config.cluster, "m1", config.max_ttl_ms)
    fleet.links[0].facts = MasterFacts("", "7.0.15", "master", 0, identity, {})
    parameters = RedlockParameters(len(config.masters))
    metrics.attach(fleet, Locks(parameters, fleet, metrics.leases, Chance(lambda: b"")), lambda: 0)
    return list(metrics.collect())


def guard_families() -> list[Any]:
    return list(text_string_to_metric_families(metrics_text(GuardReading(GuardState()))))


def certificate_families() -> list[Any]:
    """What `site.yml` writes down beside the guard's, by the task that does so."""
    [text] = [task["vars"]["lockd_node_exporter_told"] for task in yaml.safe_load(CERTIFICATE.read_text())]
    return list(text_string_to_metric_families(text.replace("{{ lockd_node_exporter_end_s }}", "0")))


def full_name(family: Any) -> str:
    """As it is asked for: prometheus_client keeps these endings apart."""
    return str(family.name) + {"counter": "_total", "info": "_info"}.get(family.type, "")


def labels_of(family: Any) -> list[str]:
    """Those declared, or else those seen: an info's are in its value."""
    seen = [label for sample in family.samples for label in sample.labels if label != "le"]
    return list(dict.fromkeys([*getattr(family, "_labelnames", ()), *seen]))


def page() -> str:
    return "\n".join(
        [
            HEAD,
            "## The agent",
            *table(agent_families()),
            "",
            "`process_*` and `python_*`, as of every Python process: CPU, memory, open files, start time.",
            "",
            "Buckets of histograms, upper bounds in seconds:",
            "",
            *bounds(agent_families()),
            "",
            "## The guard of a master (node_exporter's textfile collector)",
            *table(guard_families()),
            "",
            "## The certificate of a master (as above; only where masters speak TLS)",
            *table(certificate_families()),
            "",
        ]
    )


def table(families: Iterable[Any]) -> Iterator[str]:
    yield from ("", "| name | type | labels | meaning |", "|---|---|---|---|")
    for family in families:
        labels = "; ".join(_with_values(family, label) for label in labels_of(family))
        yield f"| `{full_name(family)}` | {family.type} | {labels} | {family.documentation} |"


def bounds(families: Iterable[Any]) -> Iterator[str]:
    """Of all histograms; those with the same ones together."""
    of_names: dict[tuple[str, ...], list[str]] = {}
    for family in families:
        if found := tuple(dict.fromkeys(s.labels["le"] for s in family.samples if "le" in s.labels)):
            of_names.setdefault(found, []).append(full_name(family))
    for (*shown, _), names in of_names.items():
        text = ", ".join(f"{float(bound):g}" for bound in shown)
        yield from (f"- `{name}`: {text}" for name in names)


def _with_values(family: Any, label: str) -> str:
    if label in FREE:
        return f"`{label}`"
    values = dict.fromkeys(sample.labels[label] for sample in family.samples if label in sample.labels)
    return f"`{label}`: " + ", ".join(values)


if __name__ == "__main__":
    print(page(), end="")
