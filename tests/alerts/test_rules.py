"""The rules, the routes and what they point to, checked by the tools of Prometheus; and none is forgotten."""

from __future__ import annotations

import json
import re
import urllib.request
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts.metrics_page import agent_families, certificate_families, full_name, guard_families
from lockd.dev.processes import LOOPBACK, free_ports
from tests.alerts.monitoring import SECONDS
from tests.harness import prometheus
from tests.harness.masters import short_folder
from tests.harness.prometheus import ALERTS, ALL_ALERTS, ROOT, RULES, get, output_of, program, rules
from tests.harness.waiting import eventually

UNIT_TESTS = sorted((ALERTS / "tests").glob("*.test.yml"))
ROUTES = ALERTS / "alertmanager.yml"
DASHBOARDS = {
    board["uid"]: board
    for board in (json.loads(path.read_text()) for path in (ROOT / "dashboards").glob("*.json"))
}
ALWAYS = "LockWatchdog"
"""Fires all the time: that is its use."""
SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]


def named(alert: dict[str, Any]) -> str:
    return "-".join([alert["alert"], *alert["labels"].values()])


def test_prometheus_takes_the_rules_without_a_complaint() -> None:
    assert "SUCCESS" in output_of(program("promtool"), "check", "rules", "--lint=all", *map(str, RULES))


@pytest.mark.parametrize("path", UNIT_TESTS, ids=lambda path: path.stem)
def test_what_fires_when_is_as_the_unit_tests_say(path: Path) -> None:
    assert "SUCCESS" in output_of(program("promtool"), "test", "rules", str(path))


def test_every_alert_is_tested_before_while_it_fires_and_after() -> None:
    """By its labels that tell apart the rules of one name, too."""
    fires: set[tuple[str, ...]] = set()
    for path in UNIT_TESTS:
        for test in yaml.safe_load(path.read_text())["tests"]:
            checks = test.get("alert_rule_test", [])
            firing = [check for check in checks if check["exp_alerts"]]
            for check in firing:
                labels = check["exp_alerts"][0]["exp_labels"]
                fires.add((check["alertname"], labels["severity"], labels.get("window", "")))
                own = [one for one in checks if one["alertname"] == check["alertname"]]
                if check["alertname"] != ALWAYS:
                    assert not own[0]["exp_alerts"], f"{check['alertname']} is not silent before"
                    assert not own[-1]["exp_alerts"], f"{check['alertname']} is not silent after"
                assert set(check["exp_alerts"][0]["exp_annotations"]) == {
                    "summary", "description", "runbook_url", "dashboard_url",
                }  # fmt: skip
    assert fires == {
        (one["alert"], one["labels"]["severity"], one["labels"].get("window", "")) for one in ALL_ALERTS
    }


@pytest.mark.parametrize("alert", ALL_ALERTS, ids=named)
def test_every_alert_says_how_grave_it_is_what_it_is_and_where_to_look(alert: dict[str, Any]) -> None:
    notes = alert["annotations"]
    assert alert["alert"].startswith("Lock")
    assert alert["labels"]["severity"] in ("critical", "warning", "info")
    assert notes["summary"].endswith(".")
    assert "{{" not in notes["summary"]
    assert notes["description"].endswith(".")
    runbook = re.fullmatch(
        r"https://docs\.example\.com/lockd/(alerts/runbooks/(\w+)\.md)", notes["runbook_url"]
    )
    assert runbook is not None
    assert runbook[2] == alert["alert"]
    assert (ROOT / runbook[1]).is_file()
    dashboard = re.fullmatch(r"https://grafana\.example\.com/d/(lockd-\w+)(.*)", notes["dashboard_url"])
    assert dashboard is not None
    assert dashboard[1] in DASHBOARDS
    if "lockd.alerting.alerts" not in alert["group"]:  # these are of no cluster
        assert "?var-cluster=" in dashboard[2]


def test_the_variables_in_links_are_those_of_the_dashboards() -> None:
    for alert in ALL_ALERTS:
        url = alert["annotations"]["dashboard_url"]
        [name] = re.findall(r"/d/(lockd-\w+)", url)
        known = {variable["name"] for variable in DASHBOARDS[name]["templating"]["list"]}
        assert set(re.findall(r"var-(\w+)=", url)) <= known


@pytest.mark.parametrize("name", sorted({one["alert"] for one in ALL_ALERTS}))
def test_every_runbook_has_its_four_parts_and_commands_to_type(name: str) -> None:
    text = (ALERTS / "runbooks" / f"{name}.md").read_text()
    assert text.startswith(f"# {name}\n")
    assert re.findall(r"^## (.+)$", text, re.M) == SECTIONS
    parts = dict(zip(SECTIONS, re.split(r"^## .+$", text, flags=re.M)[1:], strict=True))
    for part in parts.values():
        assert len(part.split()) >= 8
    assert "```" in parts["Diagnosis"]


def test_there_is_no_runbook_without_its_alert() -> None:
    files = {path.stem for path in (ALERTS / "runbooks").glob("*.md")}
    assert files == {one["alert"] for one in ALL_ALERTS}


def test_rules_ask_only_for_metrics_that_are_made() -> None:
    made = {full_name(family) for family in (*agent_families(), *guard_families(), *certificate_families())}
    made |= {f"{family.name}_{part}" for family in agent_families() for part in ("bucket", "count", "sum")}
    records = {rule["record"] for rule in rules("record")}
    for rule in (*rules("record"), *ALL_ALERTS):
        asked = set(re.findall(r"\b(?:lockd|redis_lock)_\w+(?=[{\[ |)\"])", rule["expr"]))
        of_rules = set(re.findall(r"\b\w+:\w+:\w+\b", rule["expr"]))
        plain = {name for name in asked if not any(name in record for record in of_rules)}
        assert plain <= made, rule
        assert of_rules <= records, rule


def test_alertmanager_takes_its_configuration() -> None:
    assert "SUCCESS" in output_of(program("amtool"), "check-config", str(ROUTES))


@pytest.mark.parametrize(
    ("severity", "receiver"), [("critical", "pager"), ("warning", "tickets"), ("info", "nobody")]
)
def test_only_what_is_critical_wakes_somebody_up(severity: str, receiver: str) -> None:
    for alert in {one["alert"] for one in ALL_ALERTS if one["labels"]["severity"] == severity} - ELSEWHERE:
        assert who_hears_of(alert, severity) == receiver


def test_that_alerts_come_through_is_told_where_its_silence_is_heard() -> None:
    assert who_hears_of("LockWatchdog", "info") == "watchdog"


def test_that_one_way_fails_is_told_both_ways() -> None:
    assert who_hears_of("LockAlertsNotDelivered", "critical") == "tickets,pager"


ELSEWHERE = {"LockWatchdog", "LockAlertsNotDelivered"}


def who_hears_of(alert: str, severity: str) -> str:
    command = (program("amtool"), "config", "routes", "test", f"--config.file={ROUTES}")
    return output_of(*command, f"severity={severity}", f"alertname={alert}").strip()


def labelled(alertname: str, severity: str, **more: str) -> dict[str, str]:
    return {"alertname": alertname, "severity": severity, "cluster": "shop", **more}


HOST, OTHER_HOST = {"instance": "web1:9480"}, {"instance": "web2:9480"}
QUARANTINED = labelled("LockMasterQuarantined", "info", master="m3")
DOWN = labelled("LockMasterDown", "warning", master="m3")
LOST = labelled("LockQuorumLost", "critical", **HOST)
ALL_LOST = labelled("LockQuorumLostEverywhere", "critical")
CANARY = labelled("LockCanaryFailing", "critical", **HOST)
FULL = labelled("LockMasterDiskFull", "critical", master="m3", mountpoint="/")
FILLING = labelled("LockMasterDiskFilling", "warning", master="m3", mountpoint="/")
SLOW = labelled("LockMasterSlow", "warning", master="m3")
FEWER = labelled("LockUnderReplicated", "warning", **HOST)
BURN = labelled("LockErrorBudgetBurn", "critical", window="1h")
LEASES = labelled("LockLost", "critical", **{"class": "billing"})


@pytest.mark.parametrize(
    ("source", "target", "hidden"),
    [
        (QUARANTINED, DOWN, True),
        (QUARANTINED, DOWN | {"master": "m4"}, False),
        (QUARANTINED, DOWN | {"cluster": "other"}, False),
        (DOWN, DOWN | {"alertname": "LockMasterSlow"}, True),
        (SLOW, FEWER, True),
        (SLOW, FEWER | {"cluster": "other"}, False),
        (LOST, CANARY, True),
        (LOST, CANARY | OTHER_HOST, False),
        (LOST, CANARY | {"alertname": "LockQuorumNoMargin"} | OTHER_HOST, False),
        (LOST, CANARY | {"alertname": "LockWaiterStuck", "severity": "warning"} | OTHER_HOST, False),
        (LOST, LOST | OTHER_HOST, False),
        (LOST, BURN, False),
        (LOST, BURN | {"alertname": "LockExtendFailing", "severity": "warning"}, False),
        (LOST, LEASES, False),
        (ALL_LOST, LOST, True),
        (ALL_LOST, CANARY | OTHER_HOST, True),
        (ALL_LOST, BURN, True),
        (ALL_LOST, BURN | {"cluster": "other"}, False),
        (ALL_LOST, LEASES, False),
        (FULL, FILLING, True),
        (FULL, FILLING | {"mountpoint": "/var"}, False),
        (BURN, BURN | {"severity": "warning", "window": "3d"}, True),
        (LEASES, LEASES | {"severity": "warning"}, True),
        (LEASES, LEASES | {"severity": "warning", "class": "jobs"}, False),
    ],
)
def test_what_follows_from_another_alert_is_inhibited_and_nothing_else(
    alertmanager: str, source: dict[str, str], target: dict[str, str], hidden: bool
) -> None:
    """Each pair in a cluster of its own: one Alertmanager takes them all."""
    mark = f"-{len(inhibited_by(alertmanager))}"
    pair = [one | {"cluster": one["cluster"] + mark} for one in (source, target)]
    body = json.dumps([{"labels": one} for one in pair]).encode()
    request = urllib.request.Request(
        f"http://{alertmanager}/api/v2/alerts", body, {"Content-Type": "application/json"}
    )
    urllib.request.urlopen(request, timeout=5).close()
    key = tuple(sorted(pair[1].items()))
    eventually(lambda: key in inhibited_by(alertmanager))
    assert inhibited_by(alertmanager)[key] == hidden


def test_what_hides_another_alert_fires_before_it() -> None:
    """Else somebody has been told of both. What is read from several targets is seen a scrape (15 s) apart,
    and evaluated as far apart again."""
    for rule in yaml.safe_load(ROUTES.read_text())["inhibit_rules"]:
        sources, targets = (
            re.findall(r"\bLock\w+", " ".join(rule[matchers]))
            for matchers in ("source_matchers", "target_matchers")
        )
        apart_s = 0 if "instance" in rule["equal"] else 30
        for source, target in product(sources, targets):
            assert max(waits_s(source)) + apart_s <= min(waits_s(target)), f"{source} hides {target}"


def waits_s(alert: str) -> list[int]:
    """The `for` of each rule of that name."""
    texts = [one.get("for", "0s") for one in ALL_ALERTS if one["alert"] == alert]
    return [int(text[:-1]) * SECONDS[text[-1]] for text in texts]


def inhibited_by(alertmanager: str) -> dict[tuple[tuple[str, str], ...], bool]:
    found = json.loads(get(f"http://{alertmanager}/api/v2/alerts"))
    return {tuple(sorted(one["labels"].items())): bool(one["status"]["inhibitedBy"]) for one in found}


@pytest.fixture(scope="module")
def alertmanager() -> Any:
    """The address of a real one with our configuration."""
    [port] = free_ports(1)
    address = f"{LOOPBACK}:{port}"
    with short_folder() as folder:
        process = prometheus.alertmanager(folder, address, ROUTES)
        process.start()
        try:
            eventually(lambda: get(f"http://{address}/-/ready"), 30)
            yield address
        finally:
            process.kill()
