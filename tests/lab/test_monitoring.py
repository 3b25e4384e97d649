"""What watches over the cluster: Prometheus sees all of it, knows the rules, and reaches Alertmanager."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.lab import inventory
from tests.lab.conftest import Cluster
from tests.lab.lab import APPS, MASTERS, REPOSITORY
from tests.lab.plays import play
from tests.lab.waiting import PATIENCE_S, until

pytestmark = pytest.mark.smoke

PROMETHEUS, ALERTMANAGER = "http://127.0.0.1:9090", "http://127.0.0.1:9093"


def test_every_target_is_up(ask: Callable[[str], Any]) -> None:
    def targets() -> list[dict[str, Any]]:
        return list(ask(f"{PROMETHEUS}/api/v1/targets?state=active")["data"]["activeTargets"])

    def not_up() -> dict[str, str]:
        return {one["scrapeUrl"]: one["lastError"] for one in targets() if one["health"] != "up"}

    # Prometheus may have been started a moment ago, and has no targets at first; one that was started again
    # is up with its next scrape.
    until(lambda: targets() and not not_up(), "all are up")
    names = [target["labels"]["job"] for target in targets()]
    assert {job: names.count(job) for job in set(names)} == {
        "prometheus": 1, "alertmanager": 1, "lockd-monitoring": 1,
        "lockd": len(APPS), "lockd-masters": len(MASTERS),
    }  # fmt: skip


@pytest.mark.parametrize(
    "metric",
    ["lockd_guard_quarantined", "lockd_guard_delay_seconds", "lockd_master_memory_max_bytes"],
)
def test_each_master_tells_of_itself_and_of_its_guard(ask: Callable[[str], Any], metric: str) -> None:
    def masters() -> set[str]:
        found = ask(f"{PROMETHEUS}/api/v1/query?query={metric}")["data"]["result"]
        return {one["metric"]["master"] for one in found if one["metric"]["cluster"] == "lab"}

    until(lambda: masters() == set(MASTERS), f"{metric} of each master")


def test_the_rules_of_the_repository_are_loaded(cluster: Cluster, ask: Callable[[str], Any]) -> None:
    wanted = {path.name for path in (REPOSITORY / "alerts").glob("*.yml") if "alertmanager" not in path.name}
    groups = ask(f"{PROMETHEUS}/api/v1/rules")["data"]["groups"]
    assert {group["file"].rpartition("/")[2] for group in groups} == wanted
    ill = [rule for group in groups for rule in group["rules"] if rule["health"] == "err"]
    assert ill == []


READ_ALL = f"""
import json, sys, urllib.request
read = lambda url: urllib.request.urlopen(url, timeout={PATIENCE_S}).read().decode()
print(json.dumps({{url: read(url) for url in sys.argv[1:]}}))
"""


def pages(on: Any, urls: Sequence[str]) -> dict[str, str]:
    """What a browser gets that was let through to the monitoring host by ssh, by URL."""
    said = on("mon1").check_output("python3 -c %s " + " ".join(["%s"] * len(urls)), READ_ALL, *urls)
    found: dict[str, str] = json.loads(said)
    return found


def page(on: Any, url: str) -> str:
    return pages(on, [url])[url]


def test_alerts_link_to_what_is_there(cluster: Cluster, ask: Callable[[str], Any], on: Any) -> None:
    groups = ask(f"{PROMETHEUS}/api/v1/rules?type=alert")["data"]["groups"]
    notes = [rule["annotations"] for group in groups for rule in group["rules"]]
    assert notes
    for note in notes:
        assert note["dashboard_url"].startswith("http://localhost:3000/d/lockd-")
    runbooks = {note["runbook_url"] for note in notes}
    assert len(runbooks) > 50
    for url, text in pages(on, sorted(runbooks)).items():
        name = url.removeprefix("http://localhost:9098/").removesuffix(".md")
        assert f"{name}</h1>" in text


def test_runbooks_are_served_by_who_may_do_nothing_else(cluster: Cluster, on: Any) -> None:
    [user] = set(
        on("mon1").check_output("ps -o user= -p $(systemctl show -P MainPID lockd-runbooks)").split()
    )
    assert user != "root"
    shown = on("mon1").check_output(
        "systemctl show lockd-runbooks -p DynamicUser -p NoNewPrivileges -p ProtectSystem"
    )
    assert set(shown.split()) == {"DynamicUser=yes", "NoNewPrivileges=yes", "ProtectSystem=strict"}
    listening = on("mon1").check_output("ss --no-header -tln 'sport = :9098'").splitlines()
    assert [line.split()[3] for line in listening] == ["127.0.0.1:9098"]


@pytest.mark.thorough
def test_whom_to_call_at_this_site_is_on_the_first_page_and_nothing_is_restarted_for_it(
    cluster: Cluster, on: Any
) -> None:
    started = on("mon1").check_output("systemctl show -P InvocationID lockd-runbooks")
    inventory.write(cluster.lab, {"lockd_runbooks_contacts": "The lock team: 555-0123"}, "contacts")
    play(cluster.lab, "site.yml", "--tags", "runbooks", inventory_name="contacts").must_work()
    assert "555-0123" in page(on, "http://localhost:9098/")
    assert on("mon1").check_output("systemctl show -P InvocationID lockd-runbooks") == started
    play(cluster.lab, "site.yml", "--tags", "runbooks").must_work()
    assert "555-0123" not in page(on, "http://localhost:9098/")


@pytest.mark.thorough
def test_without_the_pages_alerts_link_to_files(cluster: Cluster, ask: Callable[[str], Any], on: Any) -> None:
    inventory.write(cluster.lab, {"lockd_runbooks_enabled": False}, "files")
    play(cluster.lab, "site.yml", "--tags", "monitoring", inventory_name="files").must_work()
    assert not on("mon1").service("lockd-runbooks").is_running
    groups = ask(f"{PROMETHEUS}/api/v1/rules?type=alert")["data"]["groups"]
    urls = {rule["annotations"]["runbook_url"] for group in groups for rule in group["rules"]}
    assert urls
    assert [url for url in urls if not on("mon1").file(url.removeprefix("file://")).exists] == []
    play(cluster.lab, "site.yml", "--tags", "monitoring").must_work()
    assert on("mon1").service("lockd-runbooks").is_running


def test_exemplars_are_kept(on: Any) -> None:
    assert "--enable-feature=exemplar-storage" in on("mon1").check_output("ps -C prometheus -o args")


def test_prometheus_reaches_alertmanager(ask: Callable[[str], Any]) -> None:
    until(
        lambda: ask(f"{PROMETHEUS}/api/v1/alertmanagers")["data"]["activeAlertmanagers"],
        "Prometheus has found Alertmanager",
    )
    config = ask(f"{ALERTMANAGER}/api/v2/status")["config"]["original"]
    assert "LockdQuorumLost" in config
    assert "webhook" not in config, "nobody has been named yet whom it could tell"


def test_on_a_master_nothing_listens_to_the_network_but_redis_and_the_exporter_of_its_host(on: Any) -> None:
    """None there has a password that it could be asked to show somewhere."""
    listening = on("m1").check_output("ss --no-header -tln").splitlines()
    ports = {line.split()[3].rpartition(":")[2] for line in listening}
    assert ports == {"22", "6379", "9100"}


@pytest.mark.thorough
def test_what_a_play_wrote_before_it_was_interrupted_is_in_force_after_the_next(
    cluster: Cluster, on: Any
) -> None:
    def runs() -> list[str]:
        return [on("mon1").check_output(f"systemctl show --value -p InvocationID {unit}") for unit in written]

    written = {
        "prometheus": "/etc/prometheus/lockd/lockd.rules.yml",
        "prometheus-alertmanager": "/etc/default/prometheus-alertmanager",
    }
    for unit, file in written.items():
        # It runs with what was there before.
        on("mon1").check_output(f"cp -p {file} {file}.kept && echo '# older' >>{file}")
        on("mon1").check_output(f"systemctl restart {unit} && mv {file}.kept {file}")
    before = runs()
    play(cluster.lab, "site.yml", "--tags", "prometheus,alertmanager").must_work()
    assert not set(before) & set(runs())


@pytest.mark.thorough
def test_metrics_are_read_over_tls_where_that_is_asked_for(
    cluster: Cluster, ask: Callable[[str], Any], on: Any
) -> None:
    """Of agents and of exporters; and in the clear no more. Then back."""
    inventory.write(cluster.lab, {"lockd_metrics_tls": True}, "tls")
    play(cluster.lab, "site.yml", inventory_name="tls").must_work()
    assert play(cluster.lab, "site.yml", inventory_name="tls").must_work().changed_hosts == []

    def urls() -> set[str]:
        targets = ask(f"{PROMETHEUS}/api/v1/targets?state=active")["data"]["activeTargets"]
        return {one["scrapeUrl"] for one in targets if one["health"] == "up"}

    wanted = {f"https://{address}:9480/metrics" for address in APPS.values()}
    wanted |= {f"https://{address}:9100/metrics" for address in MASTERS.values()}
    until(lambda: wanted <= urls(), "all are read over TLS")
    assert not in_the_clear(on)
    play(cluster.lab, "site.yml").must_work()
    assert in_the_clear(on)


def in_the_clear(on: Any) -> bool:
    """Whether metrics of an agent can be read without TLS."""
    return bool(on("mon1").run("python3 -c %s %s", READ_ALL, f"http://{APPS['a1']}:9480/metrics").rc == 0)
