"""The rules, the routes and what they point to, checked by the tools of Prometheus; and none is forgotten."""

from __future__ import annotations

import json
import re
import urllib.request
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts.metrics_page import agent_families, certificate_families, full_name, guard_families
from lockd.core.validity import NS_PER_S, settle_ns
from lockd.dev.processes import LOOPBACK, free_ports
from tests.alerts.monitoring import SECONDS
from tests.harness import prometheus
from tests.harness.masters import short_folder
from tests.harness.prometheus import ALERTS, ALL_ALERTS, ROOT, RULES, get, output_of, program, rules
from tests.harness.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.timeout(600)
"""promtool takes half a minute of processor for some files, and other tests want it, too."""

UNIT_TESTS = sorted((ALERTS / "tests").glob("*.test.yml"))
ROUTES = ALERTS / "alertmanager.yml"
DASHBOARDS = {
    board["uid"]: board
    for board in (json.loads(path.read_text()) for path in (ROOT / "dashboards").glob("*.json"))
}
ALWAYS = "LockdWatchdog"
"""Fires all the time: that is its use."""


def named(alert: dict[str, Any]) -> str:
    return "-".join([alert["alert"], *alert["labels"].values()])


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("promtool", "check", "rules", "--lint=all", *RULES), id="the rules"),
        pytest.param(("amtool", "check-config", ROUTES), id="the routes"),
    ],
)
def test_the_tools_of_prometheus_take_it_without_a_complaint(command: tuple[object, ...]) -> None:
    name, *arguments = map(str, command)
    assert "SUCCESS" in output_of(program(name), *arguments)


@pytest.mark.parametrize("path", UNIT_TESTS, ids=lambda path: path.stem)
def test_alerts_fire_when_their_tests_say_so(path: Path, tmp_path: Path) -> None:
    """With the few rules that its file asks for: promtool evaluates each rule for each minute
    of each test."""
    text = path.read_text()
    tests = yaml.safe_load(text)
    files = {name: yaml.safe_load((path.parent / name).read_text()) for name in tests["rule_files"]}
    asked = KNOWN if "ALERTS{" in text else {name for name in KNOWN if name in text}
    wanted = asked | needed_records(asked, text)
    for name, file in files.items():
        (tmp_path / Path(name).name).write_text(json.dumps(only(wanted, file)))  # JSON is YAML
    tests["rule_files"] = [Path(name).name for name in files]
    (tmp_path / path.name).write_text(json.dumps(tests))
    assert "SUCCESS" in output_of(program("promtool"), "test", "rules", str(tmp_path / path.name))


KNOWN = {alert["alert"] for alert in ALL_ALERTS}


def needed_records(alerts: set[str], text: str) -> set[str]:
    """What these alerts and the queries of a test are made of, and what that is made of."""
    made_of = {rule["record"]: rule["expr"] for rule in rules("record")}
    ahead = [text, *(alert["expr"] for alert in ALL_ALERTS if alert["alert"] in alerts)]
    found: set[str] = set()
    while ahead:
        expr = ahead.pop()
        new = {name for name in made_of if name in expr} - found
        found |= new
        ahead += [made_of[name] for name in new]
    return found


def only(wanted: set[str], file: dict[str, Any]) -> dict[str, Any]:
    """The rules of a file that are wanted."""
    groups = [
        group
        | {"rules": [rule for rule in group["rules"] if {rule.get("alert"), rule.get("record")} & wanted]}
        for group in file["groups"]
    ]
    return {"groups": [group for group in groups if group["rules"]]}


def test_each_alert_has_the_rules_that_it_is_made_of() -> None:
    """Else those tests would pass without them."""
    needed = needed_records({"LockdErrorBudgetBurn"}, "")
    assert "cluster:lockd_unavailable:ratio_rate1h" in needed
    assert "cluster:lockd_answers:rate5m" in needed
    assert len(needed) < len(rules("record")) / 2
    assert needed_records(set(), "") == set()


def test_no_rule_asks_for_alerts() -> None:
    """So that no alert depends on another one, and tests may leave out those that they don't ask for."""
    assert [rule for rule in (*rules("record"), *ALL_ALERTS) if "ALERTS" in rule["expr"]] == []


def test_every_alert_is_tested_before_while_it_fires_and_after() -> None:
    """By its labels that tell apart the rules of one name, too."""
    fires: set[tuple[str, ...]] = set()
    for path in UNIT_TESTS:
        for test in yaml.safe_load(path.read_text())["tests"]:
            checks = test.get("alert_rule_test", [])
            for check in (one for one in checks if one["exp_alerts"]):
                name, alerts = check["alertname"], check["exp_alerts"]
                labels = [one["exp_labels"] for one in alerts]
                fires |= {(name, one["severity"], one.get("window", "")) for one in labels}
                own = [one["exp_alerts"] for one in checks if one["alertname"] == name]
                assert name == ALWAYS or not own[0], f"{name} is not silent before"
                assert name == ALWAYS or not own[-1], f"{name} is not silent after"
                assert set(alerts[0]["exp_annotations"]) == {
                    "summary", "description", "runbook_url", "dashboard_url",
                }  # fmt: skip
    assert fires == {
        (one["alert"], one["labels"]["severity"], one["labels"].get("window", "")) for one in ALL_ALERTS
    }


@pytest.mark.parametrize("alert", ALL_ALERTS, ids=named)
def test_every_alert_says_how_grave_it_is_what_it_is_and_where_to_look(alert: dict[str, Any]) -> None:
    notes = alert["annotations"]
    assert alert["alert"].startswith("Lockd")
    assert alert["labels"]["severity"] in ("critical", "warning", "info")
    assert notes["summary"].endswith(".")
    assert "{{" not in notes["summary"]
    assert "{{" in notes["description"] or alert["alert"] == ALWAYS
    assert notes["description"].endswith(".")
    assert notes["runbook_url"] == f"https://docs.example.com/lockd/alerts/runbooks/{alert['alert']}.md"
    dashboard = re.fullmatch(r"https://grafana\.example\.com/d/(lockd-\w+)(.*)", notes["dashboard_url"])
    assert dashboard is not None
    chosen = set(re.findall(r"var-(\w+)=", dashboard[2]))
    assert chosen <= {one["name"] for one in DASHBOARDS[dashboard[1]]["templating"]["list"]}
    if "lockd.alerting.alerts" not in alert["group"]:  # these are of no cluster
        assert "?var-cluster=" in dashboard[2]


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


def test_a_guard_waits_too_short_when_it_does_by_the_formula_of_the_agents() -> None:
    [asked] = [alert["expr"] for alert in ALL_ALERTS if alert["alert"] == "LockdGuardTooShort"]
    [(factor, rest_s)] = re.findall(r"([0-9.]+) \* max by .* \+ ([0-9.]+)$", asked.strip())
    assert settle_ns(60_000) == round((float(factor) * 60 + float(rest_s)) * NS_PER_S)


def test_only_what_is_critical_wakes_somebody_up_and_each_way_tells_that_another_fails() -> None:
    """That alerts come through is told where its silence is heard."""
    receivers = {"critical": "pager", "warning": "tickets", "info": "nobody"}
    elsewhere = {ALWAYS: "watchdog", "LockdAlertsNotDelivered": "tickets,pager"}
    command = (program("amtool"), "config", "routes", "test", f"--config.file={ROUTES}")
    for name, severity in {(one["alert"], one["labels"]["severity"]) for one in ALL_ALERTS}:
        heard_by = output_of(*command, f"severity={severity}", f"alertname={name}").strip()
        assert heard_by == elsewhere.get(name, receivers[severity]), name


def labelled(alertname: str, severity: str, **more: str) -> dict[str, str]:
    return {"alertname": alertname, "severity": severity, "cluster": "shop", **more}


HOST, OTHER_HOST = {"instance": "web1:9480"}, {"instance": "web2:9480"}
QUARANTINED = labelled("LockdMasterQuarantined", "info", master="m3")
DOWN = labelled("LockdMasterDown", "warning", master="m3")
LOST = labelled("LockdQuorumLost", "critical", **HOST)
ALL_LOST = labelled("LockdQuorumLostEverywhere", "critical")
CANARY = labelled("LockdCanaryFailing", "critical", **HOST)
FULL = labelled("LockdMasterDiskFull", "warning", instance="m3:9100", master="m3", mountpoint="/")
SEVERAL_FULL = FULL | {"severity": "critical"}
MISCONFIGURED = labelled("LockdMasterMisconfigured", "warning", master="m3")
SEVERAL_MISCONFIGURED = MISCONFIGURED | {"severity": "critical"}
NO_MARGIN = labelled("LockdQuorumNoMargin", "warning", **HOST)
NEAR = labelled("LockdLimitNear", "warning", limit="leases", **HOST)
REACHED = NEAR | {"alertname": "LockdLimitReached"}
FILLING = labelled("LockdMasterDiskFilling", "warning", master="m3", mountpoint="/")
SLOW = labelled("LockdMasterSlow", "warning", master="m3")
FEWER = labelled("LockdUnderReplicated", "warning", **HOST)
ONE_DOWN = labelled("LockdDown", "warning", **HOST)
MANY_DOWN = labelled("LockdManyDown", "critical")
BURN = labelled("LockdErrorBudgetBurn", "critical", window="1h")
LEASES = labelled("LockdLeaseLost", "critical", **{"class": "billing"})


@pytest.mark.parametrize(
    ("source", "target", "hidden"),
    [
        (QUARANTINED, DOWN, True),
        (QUARANTINED, DOWN | {"master": "m4"}, False),
        (QUARANTINED, DOWN | {"cluster": "other"}, False),
        (DOWN, DOWN | {"alertname": "LockdMasterSlow"}, True),
        (SLOW, FEWER, True),
        (SLOW, FEWER | {"cluster": "other"}, False),
        (LOST, CANARY, True),
        (LOST, CANARY | OTHER_HOST, False),
        (LOST, CANARY | {"alertname": "LockdQuorumNoMargin"} | OTHER_HOST, False),
        (LOST, CANARY | {"alertname": "LockdWaiterStuck", "severity": "warning"} | OTHER_HOST, False),
        (LOST, LOST | OTHER_HOST, False),
        (LOST, BURN, False),
        (LOST, BURN | {"alertname": "LockdExtendFailing", "severity": "warning"}, False),
        (LOST, LEASES, False),
        (ALL_LOST, LOST, True),
        (ALL_LOST, CANARY | OTHER_HOST, True),
        (ALL_LOST, BURN, True),
        (ALL_LOST, BURN | {"cluster": "other"}, False),
        (ALL_LOST, LEASES, False),
        (MANY_DOWN, ONE_DOWN, True),
        (MANY_DOWN, ONE_DOWN | {"cluster": "other"}, False),
        (MANY_DOWN, LOST, False),
        (FULL, FILLING, True),
        (FULL, FILLING | {"mountpoint": "/var"}, False),
        (SEVERAL_FULL, FULL, True),
        (SEVERAL_FULL, FULL | {"instance": "m4:9100", "master": "m4"}, False),
        (SEVERAL_FULL, FULL | {"mountpoint": "/var"}, False),
        (SEVERAL_FULL, FILLING, True),
        (SEVERAL_MISCONFIGURED, MISCONFIGURED, True),
        (SEVERAL_MISCONFIGURED, MISCONFIGURED | {"master": "m4"}, False),
        (SEVERAL_MISCONFIGURED, FULL, False),
        (NO_MARGIN | {"severity": "critical"}, NO_MARGIN, True),
        (NO_MARGIN | {"severity": "critical"}, NO_MARGIN | OTHER_HOST, False),
        (REACHED, NEAR, True),
        (REACHED, NEAR | {"limit": "connections"}, False),
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
    urllib.request.urlopen(request, timeout=PATIENCE_S).close()
    key = tuple(sorted(pair[1].items()))
    eventually(lambda: key in inhibited_by(alertmanager))
    assert inhibited_by(alertmanager)[key] == hidden


def test_what_hides_another_alert_fires_before_it() -> None:
    """Else somebody has been told of both. What is read from several targets is seen a scrape (15 s) apart,
    and evaluated as far apart again."""
    for rule in yaml.safe_load(ROUTES.read_text())["inhibit_rules"]:
        names = [re.findall(r"\bLock\w+", " ".join(rule[f"{end}_matchers"])) for end in ("source", "target")]
        apart_s = 0 if "instance" in rule["equal"] else 30
        for source, target in product(*names):
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
    address = f"{LOOPBACK}:{free_ports(1)[0]}"
    with short_folder() as folder, ExitStack() as stack:
        process = prometheus.alertmanager(folder, address, ROUTES)
        stack.callback(process.kill)
        process.start()
        prometheus.wait_ready(f"http://{address}")
        yield address
