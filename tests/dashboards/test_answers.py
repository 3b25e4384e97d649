"""The answers that stand on top: what dashboards say of states that can't all be had from a real cluster.

Series are made up here, promtool evaluates the very expression of the panel's JSON, and its value is put into
words by the panel's own mappings.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dashboards.__main__ import FOLDER
from tests.dashboards.variables import concrete
from tests.harness.prometheus import ALL_ALERTS, program

RED, ORANGE, GREEN = "red", "orange", "green"
NOW_S = 607
"""Between two scrapes, as nearly always: there `increase` makes a little more of 1 than 1."""
MADE_UP = Mapping[str, str]
"""Names of series with their values, as promtool writes them: '1x40' is 1 all the time."""


def panel(board: str, title: str) -> dict[str, Any]:
    panels = json.loads((FOLDER / f"{board}.json").read_text())["panels"]
    [found] = [one for one in panels if one["title"] == title]
    return dict(found)


def values(expr: str, series: MADE_UP, folder: Path) -> dict[str, float]:
    """What an expression is at NOW_S, by the labels of what it returns."""
    test = {
        "interval": "15s",
        "input_series": [{"series": name, "values": numbers} for name, numbers in series.items()],
        "promql_expr_test": [{"expr": concrete(expr), "eval_time": f"{NOW_S}s", "exp_samples": []}],
    }
    path = folder / "made-up.yml"
    path.write_text(json.dumps({"evaluation_interval": "15s", "tests": [test]}))  # JSON is YAML
    # It expects nothing, so that promtool complains about all that there is.
    done = subprocess.run(
        [program("promtool"), "test", "rules", str(path)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    told = done.stdout + done.stderr
    if done.returncode == 0:
        return {}
    got = re.search(r"\n\s*got: (.*)", told)
    assert got, told
    return {labels: float(value) for labels, value in re.findall(r"(\{.*?\}) (\S+?)(?:,|$)", got[1])}


def displayed(panel: Mapping[str, Any], value: float | None) -> tuple[str, str]:
    """The word that a value is mapped to, and its colour; a number without a word as it is."""
    config = panel["fieldConfig"]["defaults"]
    for mapping in config["mappings"]:
        result = _mapped(mapping, value)
        if result is not None:
            return result["text"], result["color"]
    assert value is not None, "there is no word for silence"
    above = [step["color"] for step in config["thresholds"]["steps"] if value >= (step["value"] or -1e9)]
    return f"{value:g}", above[-1]


def _mapped(mapping: Mapping[str, Any], value: float | None) -> Mapping[str, str] | None:
    options = mapping["options"]
    if mapping["type"] == "special":
        return options["result"] if value is None else None
    if value is None:
        return None
    if mapping["type"] == "value":
        return options.get(f"{value:g}")
    low, high = options["from"], options["to"]
    return options["result"] if (low is None or value >= low) and (high is None or value <= high) else None


def said(title: str, series: MADE_UP, folder: Path) -> tuple[str, str]:
    """What a panel of the overview with one number says."""
    asked = panel("lockd-overview", title)
    [target] = asked["targets"]
    found = values(target["expr"], series, folder)
    assert len(found) <= 1
    return displayed(asked, next(iter(found.values()), None))


def an_agent(number: int = 1, **now: float | None) -> dict[str, str]:
    """All that an agent says that is well, and what of it is otherwise `now` (None: not said)."""
    known = {
        "up": 1, "lockd_masters": 5, "lockd_quorum": 3, "lockd_masters_voting": 5, "lockd_draining": 0,
        "lockd_canary_interval_seconds": 10, "lockd_canary_failures": 0,
        "lockd_canary_last_success_timestamp_seconds": NOW_S - 5,
    }  # fmt: skip
    labels = f'{{cluster="shop", job="lockd", instance="web{number}:9480"}}'
    return {f"{name}{labels}": f"{value}x40" for name, value in (known | now).items() if value is not None}


def a_silent_agent(number: int = 1) -> dict[str, str]:
    """Its last words were long ago."""
    return {f'up{{cluster="shop", job="lockd", instance="web{number}:9480"}}': "0x40"}


EXPORTERS_DOWN = {'up{cluster="shop", job="lockd-masters", instance="m2:9100", master="m2"}': "0x40"}
FULL_MASTERS = {"lockd_canary_failures": 2, "lockd_canary_last_success_timestamp_seconds": NOW_S - 20}
NO_CANARY = {"lockd_canary_interval_seconds": 0, "lockd_canary_last_success_timestamp_seconds": None}


def agents(*those: dict[str, Any]) -> dict[str, str]:
    series: dict[str, str] = {}
    for number, now in enumerate(those, start=1):
        series |= an_agent(number, **now)
    return series


@pytest.mark.parametrize(
    ("series", "answer"),
    [
        (agents({}, {}), ("YES", GREEN)),
        (agents({}, {"lockd_masters_voting": 4}), ("YES", GREEN)),
        (agents({}, {"lockd_masters_voting": 3}), ("YES, NO MARGIN", RED)),
        (agents({}, {"lockd_masters_voting": 2}), ("NOT ON ALL HOSTS", RED)),
        (agents({"lockd_masters_voting": 0}, {"lockd_masters_voting": 2}), ("NO: NO QUORUM", RED)),
        # Masters that vote, and refuse every LOCK: a full disk or memory.
        (agents({}, FULL_MASTERS), ("NOT ON ALL HOSTS", RED)),
        (agents(FULL_MASTERS, FULL_MASTERS), ("NO: REFUSED", RED)),
        (agents({}, {"lockd_canary_failures": 1}), ("YES", GREEN)),
        # The event loop hangs, so that not even failures are counted.
        (agents({}, {"lockd_canary_last_success_timestamp_seconds": NOW_S - 100}), ("NOT ON ALL HOSTS", RED)),
        (agents({}, {"lockd_draining": 1}), ("NOT ON ALL HOSTS", ORANGE)),
        (agents(*[{"lockd_draining": 1} | FULL_MASTERS] * 2), ("NO: STOPPING", RED)),
        # Without a canary nothing is known of one.
        (agents(NO_CANARY), ("YES", GREEN)),
        (agents({}) | a_silent_agent(2), ("NOT ON ALL HOSTS", RED)),
        (a_silent_agent(1) | a_silent_agent(2), ("NO: AGENTS SILENT", RED)),
        ({}, ("NO AGENT IS KNOWN", RED)),
        # The worst is what is said.
        (agents({"lockd_masters_voting": 2}) | a_silent_agent(2), ("NO: NO QUORUM", RED)),
    ],
)
def test_whether_locks_can_be_had(series: MADE_UP, answer: tuple[str, str], tmp_path: Path) -> None:
    assert said("Can locks be had?", {**EXPORTERS_DOWN, **series} if series else {}, tmp_path) == answer


def losses(numbers: str, reason: str = "not_renewed") -> dict[str, str]:
    labels = f'cluster="shop", job="lockd", instance="web1:9480", class="jobs", reason="{reason}"'
    return {f"lockd_losses_total{{{labels}}}": numbers}


def alert(name: str, state: str = "firing", cluster: str = "shop") -> dict[str, str]:
    """A critical one. cluster: an empty one is none."""
    of_cluster = f'cluster="{cluster}", ' if cluster else ""
    labels = f'alertname="{name}", alertstate="{state}", {of_cluster}severity="critical"'
    return {f"ALERTS{{{labels}}}": "1x40"}


@pytest.mark.parametrize(
    ("series", "answer"),
    [
        (losses("0x40"), ("YES", GREEN)),
        (losses("0x20 1x20"), ("1", RED)),  # not 2, which is what rounding up makes of one
        (losses("0x20 3x20"), ("3", RED)),
        (losses("0x40") | losses("0x20 7x20", "forced") | losses("0x20 7x20", "max_hold"), ("YES", GREEN)),
        (losses("0x40") | alert("LockGuardTooShort"), ("AT RISK", RED)),
        (losses("0x40") | alert("LockMasterEvicting"), ("AT RISK", RED)),
        (losses("0x40") | alert("LockGuardOverridden"), ("AT RISK", ORANGE)),
        (losses("0x40") | alert("LockGuardOverridden") | alert("LockMasterEvicting"), ("AT RISK", RED)),
        (losses("0x20 1x20") | alert("LockMasterEvicting"), ("1", RED)),
        (losses("0x40") | alert("LockMasterEvicting", "pending"), ("YES", GREEN)),
        (losses("0x40") | alert("LockMasterDown"), ("YES", GREEN)),
        ({}, ("NO AGENT ANSWERS", RED)),
    ],
)
def test_whether_what_is_held_is_safe(
    series: dict[str, str], answer: tuple[str, str], tmp_path: Path
) -> None:
    assert said("Is what is held safe?", series, tmp_path) == answer


def test_an_alert_of_no_cluster_is_seen_in_every_cluster_but_the_watchdog_is_no_news(tmp_path: Path) -> None:
    [critical, _] = panel("lockd-overview", "Alerts firing")["targets"]
    expr = critical["expr"].replace("$cluster", "shop")
    for cluster, firing in (("", 1), ("shop", 1), ("bank", 0)):
        assert values(expr, alert("LockMetricsAbsent", cluster=cluster), tmp_path) == {"{}": firing}
    for title in ("Alerts", "Alerts firing"):
        for target in panel("lockd-overview", title)["targets"]:
            found = values(target["expr"], alert("LockWatchdog", cluster=""), tmp_path)
            assert set(found.values()) <= {0}, title


def test_the_alerts_that_put_leases_at_risk_are_there() -> None:
    [target] = panel("lockd-overview", "Is what is held safe?")["targets"]
    named = set("|".join(re.findall(r'alertname=~"([^"]+)"', target["expr"])).split("|"))
    assert named == {"LockGuardTooShort", "LockMasterEvicting", "LockGuardOverridden"}
    assert named <= {one["alert"] for one in ALL_ALERTS}


def test_exporters_are_neither_counted_nor_shown_as_agents(tmp_path: Path) -> None:
    assert said("Agents silent", an_agent(1) | EXPORTERS_DOWN, tmp_path) == ("0", GREEN)
    series = an_agent(1) | a_silent_agent(2) | EXPORTERS_DOWN
    assert said("Agents silent", series, tmp_path) == ("1", RED)
    for title in ("Can apps of each host have locks?", "Agents"):
        for target in panel("lockd-agents", title)["targets"][:2]:
            found = values(target["expr"], series, tmp_path)
            assert found.keys() == {f'{{instance="web{number}:9480"}}' for number in (1, 2)}


@pytest.mark.parametrize(
    ("now", "word"),
    [
        ({}, "well"),
        ({"lockd_masters_voting": 4}, "1 more may fail"),
        ({"lockd_masters_voting": 3}, "no margin"),
        ({"lockd_masters_voting": 1}, "no quorum"),
        (FULL_MASTERS, "refused by the masters"),
        ({"lockd_draining": 1}, "stopping"),
    ],
)
def test_each_host_says_what_keeps_its_apps_from_locks(
    now: dict[str, float], word: str, tmp_path: Path
) -> None:
    asked = panel("lockd-agents", "Can apps of each host have locks?")
    [value] = values(asked["targets"][0]["expr"], an_agent(1, **now), tmp_path).values()
    assert displayed(asked, value)[0] == word


def test_a_class_counts_what_it_lost_and_no_more(tmp_path: Path) -> None:
    columns = panel("lockd-classes", "Classes")["targets"]
    [lost] = [target["expr"] for target in columns if "lockd_losses_total" in target["expr"]]
    assert values(lost, losses("0x20 1x20"), tmp_path) == {'{class="jobs"}': 1}


def test_slow_waits_are_a_share_of_waits(tmp_path: Path) -> None:
    [target] = panel("lockd-classes", "Slow waits")["targets"]
    labels = 'cluster="shop", job="lockd", instance="web1:9480", class="jobs"'
    series = {
        f"lockd_slow_waits_total{{{labels}}}": "0+1x40",
        f"lockd_grants_total{{{labels}}}": "0+1x40",
        f'lockd_refusals_total{{{labels}, reason="timeout"}}': "0+3x40",
        f'lockd_refusals_total{{{labels}, reason="taken"}}': "0+50x40",
    }
    expr = target["expr"].replace("$__rate_interval", "1m")
    assert values(expr, series, tmp_path) == {'{class="jobs"}': 0.25}
