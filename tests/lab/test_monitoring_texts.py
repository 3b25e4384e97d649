"""What the roles of the monitoring host write and link to, by their templates alone: no host is needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts.build import LONGEST_INTERVAL_S
from alerts.build import main as build
from tests.harness.prometheus import RULES, output_of, program
from tests.lab.local_ansible import needs_ansible
from tests.lab.nowhere import APPS, MASTERS, inventory, judged, rendered
from tests.lab.waiting import until

pytestmark = needs_ansible
TARGETS = {
    "agents": "{{ lookup('ansible.builtin.template', 'agents.json.j2') }}",
    "masters": "{{ lookup('ansible.builtin.template', 'masters.json.j2') }}",
}


@pytest.mark.parametrize(
    ("variables", "url"),
    [
        ({"lockd_grafana_listen_port": 3001}, "http://localhost:3001"),
        (
            {"lockd_grafana_listen_host": "0.0.0.0", "lockd_grafana_cert_file": "/cert.pem"},
            "https://127.0.3.1:3000",
        ),
    ],
)
def test_alerts_link_to_where_grafana_says_that_it_is(
    tmp_path: Path, variables: dict[str, Any], url: str
) -> None:
    hosts = inventory(tmp_path, **variables)
    assert rendered(hosts, "prometheus", url="{{ lockd_prometheus_grafana_url }}") == {"url": url}
    assert rendered(hosts, "grafana", url="{{ grafana_ini.server.root_url }}") == {"url": url}


def interval(folder: Path, interval_s: int, **variables: Any) -> str:
    """What the role says to it."""
    check = folder / "check.yml"
    check.write_text("- ansible.builtin.include_role: {name: prometheus, tasks_from: preflight}\n")
    return judged(folder, str(check), {"m1": {}}, lockd_prometheus_scrape_interval_s=interval_s, **variables)


def test_prometheus_scrapes_as_often_as_the_rules_need_it(tmp_path: Path) -> None:
    assert interval(tmp_path, 30).startswith("status 0")
    said = interval(tmp_path, 31)
    assert "lockd_prometheus_scrape_interval_s is 31, and may be 1 to 30" in said
    assert "make rules ARGS='--scrape-interval SECONDS" in said
    assert "Nothing was changed." in said


def test_rules_that_were_built_for_a_longer_interval_allow_it(tmp_path: Path) -> None:
    built = tmp_path / "built"
    assert build(["--scrape-interval", str(LONGEST_INTERVAL_S), "--out", str(built)]) == 0
    rules = [str(path) for path in sorted(built.iterdir())]
    said = interval(tmp_path, LONGEST_INTERVAL_S, lockd_prometheus_rules=rules)
    assert said.startswith("status 0"), said
    assert "may be 1 to 75" in interval(tmp_path, LONGEST_INTERVAL_S + 1, lockd_prometheus_rules=rules)


def test_targets_have_the_site_and_the_name_of_their_host(tmp_path: Path) -> None:
    """Hosts without a site have no such label. That of the name is for relabelling, and no series has it."""
    a, b = {"lockd_site": "a"}, {"lockd_site": "b"}
    apps = {"a1": APPS["a1"] | a, "a2": APPS["a2"], "a3": APPS["a3"] | b, "a4": {"lockd_metrics": "x:1"} | a}
    masters = {"m1": MASTERS["m1"] | b, "m2": MASTERS["m2"], "m3": MASTERS["m3"]}
    written = rendered(inventory(tmp_path, masters, apps), "prometheus", **TARGETS)
    agents, nodes = (json.loads(written[name]) for name in TARGETS)
    assert agents == [
        {"targets": ["127.0.2.1:9480"], "labels": {"cluster": "shop", "__lockd_host": "a1", "site": "a"}},
        {"targets": ["127.0.2.2:9480"], "labels": {"cluster": "shop", "__lockd_host": "a2"}},
        {"targets": ["127.0.2.3:9480"], "labels": {"cluster": "shop", "__lockd_host": "a3", "site": "b"}},
        {"targets": ["x:1"], "labels": {"cluster": "shop", "__lockd_host": "a4", "site": "a"}},
    ]
    assert [one["labels"] for one in nodes] == [
        {"cluster": "shop", "master": "m1", "__lockd_host": "m1", "site": "b"},
        {"cluster": "shop", "master": "m2", "__lockd_host": "m2"},
        {"cluster": "shop", "master": "m3", "__lockd_host": "m3"},
    ]


def printed(folder: Path, cluster: str, **variables: Any) -> dict[str, Any]:
    """What a play prints to add to a Prometheus of one's own, once it has written targets and rules there."""
    there = folder / cluster
    (there / "targets").mkdir(parents=True)
    hosts = inventory(folder, lockd_cluster=cluster, lockd_prometheus_folder=str(there), **variables)
    asked = {
        **TARGETS,
        "said": "{{ lookup('ansible.builtin.template', 'theirs.txt.j2') }}",
        "rules": "{{ lockd_prometheus_rules_files }}",
    }
    written = rendered(hosts, "prometheus", **asked)
    for name in TARGETS:
        (there / f"targets/{name}.json").write_text(written[name])
    for file in json.loads(written["rules"]):
        Path(file["path"]).write_text(file["content"])
    lines = written["said"].partition("Add:\n")[2].partition("\nThen reload it.")[0]
    found: dict[str, Any] = yaml.safe_load(lines)
    return found


def test_one_prometheus_takes_two_clusters_and_the_rules_once(tmp_path: Path) -> None:
    promtool = program("promtool")
    first = printed(tmp_path, "shop")
    second = printed(tmp_path, "bank", lockd_prometheus_rules=[])
    assert second.keys() == {"scrape_configs"}
    both = {**first, "scrape_configs": first["scrape_configs"] + second["scrape_configs"]}
    assert [one["job_name"] for one in both["scrape_configs"]] == [
        "lockd-agents-shop", "lockd-masters-shop", "alertmanager", "prometheus",
        "lockd-agents-bank", "lockd-masters-bank",
    ]  # fmt: skip
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(both))
    said = output_of(promtool, "check", "config", str(tmp_path / "prometheus.yml"))
    assert said.count("rules found") == len(RULES)
    for name, job in (("lockd-agents-bank", "lockd"), ("lockd-masters-bank", "lockd-masters")):
        found = until(lambda name=name: jobs(promtool, tmp_path, name), f"promtool has found {name}")
        assert found == {job}


def test_over_tls_each_host_is_known_by_its_own_certificate(tmp_path: Path) -> None:
    """What one host has the key of passes for no other."""
    variables = {"lockd_metrics_tls": True, "lockd_prometheus_rules": []}
    configs = printed(tmp_path, "shop", **variables)["scrape_configs"]
    names = {one["job_name"]: one["tls_config"]["server_name"] for one in configs}
    ends = ".metrics.agents.lockd.internal"
    wanted = {f"lockd-agents-shop-{host}": host + ends for host in APPS}
    assert names == wanted | {f"lockd-masters-shop-{host}": host + ends for host in MASTERS}
    for one in configs:
        del one["tls_config"]["ca_file"]  # promtool would look for it
    file = tmp_path / "prometheus.yml"
    file.write_text(yaml.safe_dump({"scrape_configs": configs}))
    asks = ("check", "service-discovery", "--timeout=5s", str(file), "lockd-agents-shop-a1")

    def kept() -> list[str]:
        found = json.loads(output_of(program("promtool"), *asks))
        return [one["labels"]["instance"] for one in found if one["labels"]]

    assert until(kept, "promtool has found it") == ["127.0.2.1:9480"]


def jobs(promtool: str, folder: Path, name: str) -> set[str]:
    """The label job of all that Prometheus scrapes by the job of that name. promtool waits to the end."""
    asks = ("check", "service-discovery", "--timeout=5s", str(folder / "prometheus.yml"), name)
    return {one["labels"]["job"] for one in json.loads(output_of(promtool, *asks))}
