"""What rules cost Prometheus: long windows read little, and what measures it makes what it says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.alerts.cost import CLASSES, Agent, Side, measure, side, table
from tests.alerts.monitoring import SECONDS
from tests.harness.agent_series import AgentSeries
from tests.harness.prometheus import ALL_ALERTS, ROOT, RULES, program, rules

HOUR_S = SECONDS["h"]
EXPORTERS = ("lockd_guard_", "node_")
"""Of the few masters, not of all agents."""


@pytest.fixture(scope="module")
def agent() -> Agent:
    return Agent(ROOT)


def windows(expr: str) -> Iterator[tuple[str, int]]:
    """What is read over a range, and over how many seconds."""
    for name, number, unit in re.findall(r"([a-z_:][\w:]*)(?:\{[^{}]*\})?\[(\d+)([smhd])(?::\w+)?\]", expr):
        yield name, int(number) * SECONDS[unit]


def queries_of_dashboards() -> Iterator[str]:
    for path in (ROOT / "dashboards").glob("*.json"):
        for panel in json.loads(path.read_text())["panels"]:
            yield from (target["expr"] for target in panel["targets"])


def test_nothing_reads_the_counters_of_agents_over_more_than_an_hour() -> None:
    """Longer windows are averages of what was recorded: three days of 500 agents' counters are gigabytes."""
    asked = [*(rule["expr"] for rule in (*rules("record"), *ALL_ALERTS)), *queries_of_dashboards()]
    long = {name for expr in asked for name, seconds in windows(expr) if seconds > HOUR_S}
    assert "cluster:lockd_answers:rate5m" in long
    assert {name for name in long if ":" not in name and not name.startswith(EXPORTERS)} == set()


def test_what_reads_long_windows_is_evaluated_once_a_minute() -> None:
    intervals = {
        rule["expr"]: group.get("interval")
        for path in RULES
        for group in yaml.safe_load(path.read_text())["groups"]
        for rule in group["rules"]
        if "record" in rule
    }
    long = {expr for expr in intervals if any(seconds >= HOUR_S for _, seconds in windows(expr))}
    assert len(long) >= 10
    assert {intervals[expr] for expr in long} == {"1m"}


def test_a_made_up_agent_counts_on_where_all_is_well_and_counts_no_trouble(agent: Agent) -> None:
    grows = {one.text for one in agent.series if one.per_second}
    assert 'lockd_grants_total{class="class0"}' in grows
    assert not [text for text in grows if "losses" in text or "noquorum" in text or '"failed"' in text]
    begun, later = (dict(_lines(agent.page(seconds))) for seconds in (0, 60))
    assert {text for text in later if later[text] > begun[text]} == grows
    buckets = [
        value for text, value in later.items() if text.startswith('lockd_hold_seconds_bucket{class="class0"')
    ]
    assert buckets == sorted(buckets)
    assert buckets[-1] == later['lockd_hold_seconds_count{class="class0"}']


def _lines(page: bytes) -> Iterator[tuple[str, float]]:
    for line in page.decode().splitlines():
        text, _, value = line.rpartition(" ")
        yield text, float(value)


def test_history_is_written_for_what_rules_read_over_half_an_hour_or_more(
    tmp_path: Path, agent: Agent
) -> None:
    path = tmp_path / "lockd.rules.yml"
    path.write_text(
        'rate(lockd_grants_total{job="lockd"}[30m]) + rate(lockd_leases[5m]) + avg_over_time(a:b:c[3d])'
    )
    assert Side("", (path,), agent).long_windows() == {"lockd_grants_total", "a:b:c"}


def test_the_page_on_sizing_says_how_many_series_an_agent_has() -> None:
    page = (ROOT / "docs/how-to/own-prometheus-and-grafana.md").read_text()
    none, one = (AgentSeries(classes).count for classes in (0, 1))
    assert f"With no class of yours there are {none}, and each class adds {one - none}." in page


@pytest.mark.thorough
def test_a_real_prometheus_scrapes_all_agents_and_evaluates_every_group() -> None:
    program("promtool")
    cost = measure(side("now", ROOT), hosts=2, seconds=20, hours=1, step_s=300)
    groups = [group for path in RULES for group in yaml.safe_load(path.read_text())["groups"]]
    assert set(cost.groups) == {group["name"] for group in groups}
    assert all(group.took_s for group in cost.groups.values())
    of_agents = 2 * len(Agent(ROOT).series)
    assert of_agents <= cost.series <= of_agents + 500
    assert cost.history >= 2 * CLASSES
    assert cost.memory_bytes > 0
    assert "now, 2 agents" in table("now", cost)
