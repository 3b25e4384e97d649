"""Writes alerts/METRICS.md from the code: every metric of agents, guards and masters' certificates, with its
labels.

    python -m alerts.metrics_page > alerts/METRICS.md   (make alerts-docs)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from lockd.build import BUILDS
from lockd.config.current import Current
from lockd.config.model import Config
from lockd.core.locks import Locks
from lockd.core.membership import Identity, MasterFacts, State
from lockd.core.values import Chance, RedlockParameters
from lockd.guard.metrics import GuardReading, metrics_text
from lockd.guard.records import GuardState
from lockd.masters.fleet import Fleet
from lockd.metrics.collector import Metrics
from lockd.server.quotas import Quotas

HEAD = """# Metrics

Made from the code by `make alerts-docs`; a test checks that it is current. Don't edit it.

Scrape the agents as `job="lockd"` and the node_exporter of the masters' hosts as `job="lockd-masters"`. Give
both the target label `cluster`, and the latter the target label `master` with the name that the master has in
lockd's configuration: rules and dashboards join by these.
Scrape Alertmanager as `job="alertmanager"` and Prometheus itself as `job="prometheus"`, so that somebody
learns when rules fail or alerts can't be delivered; and the node_exporter of the monitoring host as
`job="lockd-monitoring"`, for its disk. Where jobs have other names, build the rules for those: `make rules
ARGS=--help`.

Every series is there from the start, at 0, unless its meaning says when it is absent: `increase()` and
`rate()` do not see a step from nothing to 1, so alerts and graphs would miss the first event. An agent with
five masters and ten classes has just under 1,000 series, whatever happens to it.

No resource is ever a label: its class is (`other` when none matches). The agent's own lock has the class
`canary`, which shows only its grants and refusals, since availability is made of those; `lockd_canary_…`
tell the rest. A scraper that asks for OpenMetrics gets an exemplar with the fence of a lease on the buckets
of waits and holds. Which resource that is, `lockctl locks --local` says, and the log at `log_level: debug`.
"""
FREE = {
    "address": "host and port of a master, as configured",
    "class": "the name of a class in the configuration, `other`, or `canary`",
    "fingerprint": "12 hex digits",
    "master": "the name of a master in the configuration",
    "masters": "a number, from 0 to that of all masters",
    "name": "the name of the cluster in the configuration",
    "setting": "a setting that takes a restart, by its path, as `timeouts.dead_ms`",
    "version": "the version of the agent, or of a master's server",
}
"""Labels whose values depend on the configuration, or on what is now, and what these are."""
CLOSED: Mapping[str, tuple[str, ...]] = {
    "build": BUILDS,
    "page_on_loss": ("true", "false"),
    "state": tuple(State),
}
"""All values of labels of which only one is exposed at a time."""
LABELS = """
A list after a label is closed: it has no other values. A label without a list is free:

| label | values |
|---|---|
"""
CERTIFICATE = Path(__file__).parents[1] / "ansible/roles/node_exporter/tasks/textfiles.yml"


EXAMPLE = Config.read(
    {"cluster": "example", "masters": [{"name": f"m{i}", "address": f"10.0.0.{i}:6379"} for i in range(1, 6)]}
)


def agent_families(config: Config = EXAMPLE) -> list[Any]:
    """All families of an agent that has heard of its masters, in the order in which it exposes them."""
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
    identity = Identity(config.cluster, config.masters[0].name, config.max_ttl_ms)
    fleet.links[0].facts = MasterFacts("", "7.0.15", "master", 0, identity, {})
    parameters = RedlockParameters(len(config.masters))
    metrics.attach(fleet, Locks(parameters, fleet, metrics.leases, Chance(lambda: b"")), lambda: 0)
    metrics.agent.limits_in_use = Quotas(Current(config)).in_use
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


def closed_values(family: Any, label: str) -> tuple[str, ...]:
    """All values that a label can have in this family, in the order of the code; none if it is free."""
    if label in FREE:
        return ()
    seen = dict.fromkeys(sample.labels[label] for sample in family.samples if label in sample.labels)
    return CLOSED.get(label, tuple(seen))


def page(config: Config = EXAMPLE) -> str:
    """The same for every configuration with these timeouts."""
    of_agent = agent_families(config)
    return "\n".join(
        [
            HEAD + LABELS + "\n".join(f"| `{label}` | {values} |" for label, values in FREE.items()),
            "",
            "## The agent",
            *table(of_agent),
            "",
            "`process_*` and `python_*`, as of every Python process: CPU, memory, open files, start time.",
            "",
            "Buckets of histograms, upper bounds in seconds (where `timeouts.master_ms` is 250):",
            "",
            *bounds(of_agent),
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
        for name, found in _bounds_of(family).items():
            of_names.setdefault(found, []).append(name)
    for shown, names in of_names.items():
        text = ", ".join(f"{float(bound):g}" for bound in shown)
        yield from (f"- `{name}`: {text}" for name in names)


def _bounds_of(family: Any) -> dict[str, tuple[str, ...]]:
    """By the name of the family, or of those of its series that have their own; without the last, +Inf, which
    all have."""
    found: dict[str, dict[str, None]] = {}
    for sample in family.samples:
        if sample.labels.get("le", "+Inf") != "+Inf":
            of = {label: word for label, word in sample.labels.items() if label not in {*FREE, "le"}}
            words = ",".join(f'{label}="{word}"' for label, word in of.items())
            found.setdefault(words, {})[sample.labels["le"]] = None
    if len(found) == 1:
        return {full_name(family): tuple(bounds) for bounds in found.values()}
    return {f"{full_name(family)}{{{words}}}": tuple(bounds) for words, bounds in found.items()}


def _with_values(family: Any, label: str) -> str:
    values = closed_values(family, label)
    return f"`{label}`: {', '.join(values)}" if values else f"`{label}`"


if __name__ == "__main__":
    print(page(), end="")
