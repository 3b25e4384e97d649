"""The rules are built, for sites whose labels, addresses or scrape interval are others than ours."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts.build import ALERTS, LONGEST_INTERVAL_S, RULES, Site, main, rendered, service_monitors
from tests.harness.prometheus import ALERTS as FOLDER
from tests.harness.prometheus import output_of, program

ELSEWHERE = Site(
    selector='job="locks", env="prod"',
    masters_selector='job="locks-nodes", env="prod"',
    alertmanager_selector='job="am"',
    prometheus_selector='job="prom"',
    monitoring_selector='job="watchers"',
    cluster_label="lock_cluster",
    runbook_url="https://wiki.test/runbooks",
    grafana_url="https://grafana.test",
    scrape_interval_s=60,
)
OPTIONS = [
    "--selector", ELSEWHERE.selector, "--masters-selector", ELSEWHERE.masters_selector,
    "--alertmanager-selector", ELSEWHERE.alertmanager_selector, "--cluster-label", ELSEWHERE.cluster_label,
    "--prometheus-selector", ELSEWHERE.prometheus_selector,
    "--monitoring-selector", ELSEWHERE.monitoring_selector,
    "--runbook-url", ELSEWHERE.runbook_url, "--grafana-url", ELSEWHERE.grafana_url,
    "--scrape-interval", str(ELSEWHERE.scrape_interval_s),
]  # fmt: skip
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def rules_of(text: str) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("name", [RULES, ALERTS])
def test_what_lies_beside_the_templates_is_what_they_make(name: str) -> None:
    assert (FOLDER / name).read_text() == rendered(name, Site()), "python -m alerts.build"


@pytest.mark.parametrize("name", [RULES, ALERTS])
def test_nothing_of_ours_is_left_in_the_rules_of_another_site(name: str) -> None:
    text = rendered(name, ELSEWHERE)
    assert (
        re.findall(
            r'"lockd(-masters|-monitoring)?"|"(alertmanager|prometheus)"|example\.com|\$labels\.cluster\b',
            text,
        )
        == []
    )
    for rule in rules_of(text):
        assert re.findall(r"\bcluster\b[,)]", rule["expr"]) == []
        assert "cluster" not in rule.get("labels", {})
    ours, theirs = rules_of(rendered(name, Site())), rules_of(text)
    assert [rule["expr"].count("{") for rule in theirs] == [rule["expr"].count("{") for rule in ours]


def test_prometheus_takes_the_rules_of_another_site(tmp_path: Path) -> None:
    assert main([*OPTIONS, "--out", str(tmp_path)]) == 0
    for name in (RULES, ALERTS):
        assert "SUCCESS" in output_of(
            program("promtool"), "check", "rules", "--lint=all", str(tmp_path / name)
        )


def test_no_range_is_shorter_than_four_scrapes() -> None:
    ranges = [
        int(number) * SECONDS[unit]
        for name in (RULES, ALERTS)
        for number, unit in re.findall(r"\[(\d+)([smhd])(?::\w+)?\]", rendered(name, ELSEWHERE))
    ]
    assert len(ranges) > 50
    assert min(ranges) >= 4 * ELSEWHERE.scrape_interval_s
    assert min(ranges) < 5 * 60


def test_an_interval_that_leaves_a_rate_of_five_minutes_too_few_samples_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--scrape-interval", str(LONGEST_INTERVAL_S + 1)])
    assert ended.value.code == 2
    assert f"at most {LONGEST_INTERVAL_S}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        ["--selector", ""],
        ["--masters-selector", "node"],
        ["--selector", "job=lockd"],
        ["--selector", 'job="lockd"}) or vector(1'],
        ["--cluster-label", "my-cluster"],
        ["--cluster-label", ""],
    ],
    ids=" ".join,
)
def test_what_would_make_rules_that_prometheus_refuses_is_refused(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*options, "--out", str(tmp_path)])
    assert ended.value.code == 2
    assert f"argument {options[0]}: {options[1]!r} is no " in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("typed", ['{job="locks"}', 'job="locks",', ' job="locks" ', '{job="locks",}'])
def test_a_selector_may_be_typed_as_prometheus_takes_it(typed: str, tmp_path: Path) -> None:
    main(["--selector", typed, "--out", str(tmp_path)])
    assert (tmp_path / ALERTS).read_text() == rendered(ALERTS, Site(selector='job="locks"'))


def test_an_address_may_end_with_a_slash(tmp_path: Path) -> None:
    main(
        ["--runbook-url", "https://wiki.test/r/", "--grafana-url", "https://g.test/", "--out", str(tmp_path)]
    )
    for name in (RULES, ALERTS):
        there = Site(runbook_url="https://wiki.test/r", grafana_url="https://g.test")
        assert (tmp_path / name).read_text() == rendered(name, there)


def test_for_kubernetes_it_makes_the_same_rules_and_monitors(tmp_path: Path) -> None:
    assert main([*OPTIONS, "--format", "kubernetes", "--out", str(tmp_path)]) == 0
    rule, agents, masters = (
        yaml.safe_load((tmp_path / f"{name}.yml").read_text())
        for name in ("prometheusrule", "servicemonitor", "servicemonitor-masters")
    )
    assert rule["kind"] == "PrometheusRule"
    assert rule["spec"]["groups"] == [
        group for name in (RULES, ALERTS) for group in yaml.safe_load(rendered(name, ELSEWHERE))["groups"]
    ]
    for monitor in (agents, masters):
        assert monitor["kind"] == "ServiceMonitor"
        assert monitor["spec"]["endpoints"][0]["interval"] == "60s"
    (tmp_path / "spec.yml").write_text(yaml.safe_dump(rule["spec"]))
    assert "SUCCESS" in output_of(program("promtool"), "check", "rules", str(tmp_path / "spec.yml"))


def test_what_monitors_scrape_has_the_labels_that_its_rules_ask_for() -> None:
    """The job is the value of the label that jobLabel names, the others are copied from the Service."""
    for site in (Site(), ELSEWHERE):
        for monitor, selector, label in zip(
            service_monitors(site).values(),
            (site.selector, site.masters_selector),
            ("site", "master"),
            strict=True,
        ):
            spec = monitor["spec"]
            job = spec["selector"]["matchLabels"][spec["jobLabel"]]
            assert f'job="{job}"' in selector
            assert spec["targetLabels"] == [site.cluster_label, label]


def test_what_is_read_over_half_an_hour_and_more_of_all_agents_was_recorded_before() -> None:
    """Three days of raw counters of 500 agents, every few seconds, is what a Prometheus dies of."""
    raw = {
        metric
        for name in (RULES, ALERTS)
        for rule in rules_of(rendered(name, Site()))
        for metric, number, unit in re.findall(
            r"([\w:]+)(?:\{[^}]*\})?\[(\d+)([smhd])(?::\w+)?\]", rule["expr"]
        )
        if int(number) * SECONDS[unit] >= 1800 and ":" not in metric
    }
    of_masters = {metric for metric in raw if metric.startswith(("lockd_guard_", "node_filesystem_"))}
    assert raw - of_masters == {"lockd_grants_total"}


def test_the_command_of_the_page_on_kubernetes_asks_for_the_jobs_that_it_names(tmp_path: Path) -> None:
    page = (FOLDER.parent / "docs/how-to/containers-and-kubernetes.md").read_text()
    [command] = re.findall(r"^```sh\n(make rules .*?)^```", page, re.M | re.S)
    arguments = output_of("bash", "-c", f'make() {{ printf "%s" "${{2#ARGS=}}"; }}; {command}')
    assert main(shlex.split(arguments.replace("FOLDER", str(tmp_path)))) == 0
    groups = yaml.safe_load((tmp_path / "prometheusrule.yml").read_text())["spec"]["groups"]
    asked = " ".join(rule["expr"] for group in groups for rule in group["rules"])
    jobs = set(re.findall(r'job="([^"]+)"', asked))
    assert jobs == {"lockd", "lockd-masters", "lockd-monitoring", "alertmanager-main", "prometheus-k8s"}
