"""Prometheus rules of lockd, for your labels, addresses and scrape interval.

Without options it writes what lies beside this file, and what `site.yml` brings to the monitoring host. The
rules are in templates/. In `<<…>>` stands what differs from site to site; `{{…}}` is Prometheus's own.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import yaml

HERE = Path(__file__).parent
RULES, ALERTS = "lockd.rules.yml", "lockd.alerts.yml"
LONGEST_INTERVAL_S = 75
"""Rates are of five minutes, which need four samples."""
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_NAMED = "app.kubernetes.io/name"
_LABEL = r"[a-zA-Z_][a-zA-Z0-9_]*"
_MATCHER = rf'{_LABEL}\s*(?:=~|!~|!=|=)\s*"(?:[^"\\]|\\.)*"'


@dataclass(frozen=True)
class Site:
    """What differs from site to site. The selectors are PromQL: label matchers, without braces."""

    selector: str = 'job="lockd"'
    masters_selector: str = 'job="lockd-masters"'
    alertmanager_selector: str = 'job="alertmanager"'
    prometheus_selector: str = 'job="prometheus"'
    monitoring_selector: str = 'job="lockd-monitoring"'
    cluster_label: str = "cluster"
    runbook_url: str = "https://docs.example.com/lockd/alerts/runbooks"
    grafana_url: str = "https://grafana.example.com"
    scrape_interval_s: int = 15

    def window(self, words: str) -> str:
        """A range of PromQL: four samples, at least, or one that is missed would make it empty."""
        length_s = int(words[:-1]) * _SECONDS[words[-1]]
        least_s = 4 * self.scrape_interval_s
        return words if length_s >= least_s else f"{least_s}s"

    @property
    def agents_job(self) -> str:
        return _job(self.selector)

    @property
    def masters_job(self) -> str:
        """As a label of series that are made up."""
        return _job(self.masters_selector)


def _job(selector: str) -> str:
    """The one job that a selector names, or nothing."""
    found = re.search(r'\bjob="([^"]+)"', selector)
    return found.group(1) if found else ""


def rendered(name: str, site: Site) -> str:
    """One of the files, as Prometheus reads it."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        undefined=jinja2.StrictUndefined,
        variable_start_string="<<",
        variable_end_string=">>",
        block_start_string="<%",
        block_end_string="%>",
        comment_start_string="<#",
        comment_end_string="#>",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    return environment.get_template(f"{name}.j2").render(
        agents=site.selector,
        masters=site.masters_selector,
        masters_job=site.masters_job,
        alertmanager=site.alertmanager_selector,
        prometheus=site.prometheus_selector,
        monitoring=site.monitoring_selector,
        cluster=site.cluster_label,
        runbook_url=site.runbook_url,
        grafana_url=site.grafana_url,
        window=site.window,
    )


def prometheus_rule(site: Site) -> dict[str, Any]:
    """The same as one PrometheusRule of the Prometheus Operator."""
    groups = [group for name in (RULES, ALERTS) for group in yaml.safe_load(rendered(name, site))["groups"]]
    return _resource("monitoring.coreos.com/v1", "PrometheusRule", {"groups": groups})


def service_monitors(site: Site) -> dict[str, dict[str, Any]]:
    """What scrapes the agents and the node_exporter of the masters' hosts, by the names of its files.

    Each is behind a Service whose label app.kubernetes.io/name is the job, and whose other labels are those
    that rules join by."""
    return {
        "servicemonitor.yml": _monitor(site, site.agents_job or "lockd", site.cluster_label, "site"),
        "servicemonitor-masters.yml": _monitor(
            site, site.masters_job or "lockd-masters", site.cluster_label, "master"
        ),
    }


def _monitor(site: Site, job: str, *labels: str) -> dict[str, Any]:
    endpoint = {"port": "metrics", "interval": f"{site.scrape_interval_s}s"}
    spec = {
        "jobLabel": _NAMED,
        "targetLabels": list(labels),
        "selector": {"matchLabels": {_NAMED: job}},
        "endpoints": [endpoint],
    }
    return _resource("monitoring.coreos.com/v1", "ServiceMonitor", spec, job)


def _resource(version: str, kind: str, spec: dict[str, Any], name: str = "lockd") -> dict[str, Any]:
    metadata = {"name": name, "labels": {_NAMED: name}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if not 0 < chosen.scrape_interval_s <= LONGEST_INTERVAL_S:
        parser.error(
            f"--scrape-interval: at most {LONGEST_INTERVAL_S} s, as rates of five minutes need four samples"
        )
    site = site_of(chosen)
    chosen.out.mkdir(parents=True, exist_ok=True)
    if chosen.format == "prometheus":
        written = {name: rendered(name, site) for name in (RULES, ALERTS)}
    else:
        resources = {"prometheusrule.yml": prometheus_rule(site), **service_monitors(site)}
        written = {name: yaml.safe_dump(one, sort_keys=False) for name, one in resources.items()}
    for name, text in written.items():
        (chosen.out / name).write_text(text)
        print(chosen.out / name)
    return 0


def matchers(text: str) -> str:
    """A selector as the rules take it: they add more matchers behind it."""
    bare = text.strip().removeprefix("{").removesuffix("}").strip().removesuffix(",")
    if not re.fullmatch(rf"{_MATCHER}(?:\s*,\s*{_MATCHER})*", bare):
        raise argparse.ArgumentTypeError(f'{text!r} is no list of label matchers, as job="lockd", env="prod"')
    return bare


def label(text: str) -> str:
    if not re.fullmatch(_LABEL, text):
        raise argparse.ArgumentTypeError(f"{text!r} is no name of a label")
    return text


def address(text: str) -> str:
    """Names of pages follow after a slash."""
    return text.rstrip("/")


SITE_OPTIONS: Mapping[str, tuple[Callable[[str], Any], str]] = {
    "selector": (matchers, "label matchers of the agents' series"),
    "masters_selector": (matchers, "of node_exporter's on the masters' hosts"),
    "alertmanager_selector": (matchers, "of Alertmanager's own"),
    "prometheus_selector": (matchers, "of Prometheus's own"),
    "monitoring_selector": (matchers, "of node_exporter's on the monitoring host"),
    "cluster_label": (label, "the label that tells clusters apart"),
    "runbook_url": (address, "where the runbooks can be read"),
    "grafana_url": (address, "where Grafana is"),
    "scrape_interval_s": (int, "how often Prometheus scrapes, in seconds"),
}
"""How each field of a Site is read, and what it is."""


def add_site_options(parser: argparse.ArgumentParser, names: Iterable[str] = SITE_OPTIONS) -> None:
    default = Site()
    for name in names:
        kind, what = SITE_OPTIONS[name]
        option = "--" + name.removesuffix("_s").replace("_", "-")
        parser.add_argument(
            option, dest=name, type=kind, default=getattr(default, name), help=f"{what} (%(default)s)"
        )


def site_of(chosen: argparse.Namespace) -> Site:
    """What is no option of the program is as by default."""
    return Site(**{name: value for name, value in vars(chosen).items() if name in SITE_OPTIONS})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m alerts.build",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_site_options(parser)
    formats = ("prometheus", "kubernetes")
    parser.add_argument(
        "--format", choices=formats, default=formats[0],
        help="rule files, or a PrometheusRule and ServiceMonitors (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, default=HERE, metavar="FOLDER", help="(%(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
