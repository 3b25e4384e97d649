"""The answers that stand on top: what dashboards say of states that can't all be had from a real cluster.

Series are made up here, promtool evaluates the very expression of the panel's JSON, and its value is put into
words by the panel's own mappings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dashboards.__main__ import FOLDER
from tests.dashboards.evaluated import MADE_UP, NOW_S, values
from tests.dashboards.variables import concrete
from tests.harness.made_up import points, prometheus_of, query_range
from tests.harness.made_up import series as named
from tests.harness.prometheus import ALL_ALERTS, get

RED, ORANGE, GREEN = "red", "orange", "green"


def panel(board: str, title: str) -> dict[str, Any]:
    panels = json.loads((FOLDER / f"{board}.json").read_text())["panels"]
    [found] = [one for one in panels if one["title"] == title]
    return dict(found)


def displayed(panel: Mapping[str, Any], value: float | None) -> tuple[str, str]:
    """The word that a value is mapped to, and its colour; a number without a word as it is."""
    config = panel["fieldConfig"]["defaults"]
    for mapping in config["mappings"]:
        result = _mapped(mapping, value)
        if result is not None:
            return result["text"], result["color"]
    assert value is not None, "there is no word for silence"
    above = [step["color"] for step in config["thresholds"]["steps"] if value >= _from(step)]
    return f"{value:g}", above[-1]


def _from(step: Mapping[str, Any]) -> float:
    return -1e9 if step["value"] is None else float(step["value"])


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
        "up": 1, "lockd_app_socket_ok": 1, "lockd_draining": 0,
        "lockd_masters": 5, "lockd_quorum": 3, "lockd_masters_voting": 5,
        "lockd_canary_interval_seconds": 10, "lockd_canary_failures": 0,
        "lockd_canary_last_success_timestamp_seconds": NOW_S - 5,
    }  # fmt: skip
    labels = f'{{cluster="shop", job="lockd", instance="web{number}:9480"}}'
    said = {f"{name}{labels}": value for name, value in (known | now).items() if value is not None}
    masters, voting = (said[f"{name}{labels}"] for name in ("lockd_masters", "lockd_masters_voting"))
    for master in range(1, int(masters) + 1):
        said[f'lockd_master_vote{labels[:-1]}, master="m{master}"}}'] = int(master <= voting)
    return {name: f"{value}x40" for name, value in said.items()}


def a_silent_agent(number: int = 1) -> dict[str, str]:
    """Its last words were long ago."""
    return {f'up{{cluster="shop", job="lockd", instance="web{number}:9480"}}': "0x40"}


EXPORTERS_DOWN = {'up{cluster="shop", job="lockd-masters", instance="m2:9100", master="m2"}': "0x40"}
FULL_MASTERS = {"lockd_canary_failures": 2, "lockd_canary_last_success_timestamp_seconds": NOW_S - 20}
NO_SOCKET = {"lockd_app_socket_ok": 0}
NO_CANARY = {"lockd_canary_interval_seconds": 0, "lockd_canary_last_success_timestamp_seconds": None}
SWITCHED_OFF = NO_CANARY | {"lockd_canary_last_success_timestamp_seconds": NOW_S - 500}
"""Just now: its last try still goes on, so that it is still known when it worked before."""


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
        # The canary does not need it.
        (agents({}, NO_SOCKET), ("NOT ON ALL HOSTS", RED)),
        (agents(NO_SOCKET, NO_SOCKET), ("NO: NO SOCKET", RED)),
        (agents(*[NO_SOCKET | FULL_MASTERS] * 2), ("NO: REFUSED", RED)),
        (agents({}, {"lockd_draining": 1}), ("NOT ON ALL HOSTS", ORANGE)),
        (agents(*[{"lockd_draining": 1} | FULL_MASTERS] * 2), ("NO: STOPPING", RED)),
        # Without a canary nothing is known of one.
        (agents(NO_CANARY), ("YES", GREEN)),
        (agents(SWITCHED_OFF), ("YES", GREEN)),
        (agents({}) | a_silent_agent(2), ("NOT ON ALL HOSTS", RED)),
        (a_silent_agent(1) | a_silent_agent(2), ("NO: AGENTS DOWN", RED)),
        ({}, ("NO AGENT KNOWN", RED)),
        # The worst is what is said.
        (agents({"lockd_masters_voting": 2}) | a_silent_agent(2), ("NO: NO QUORUM", RED)),
    ],
)
def test_whether_apps_get_locks(series: MADE_UP, answer: tuple[str, str], tmp_path: Path) -> None:
    assert said("Can apps get locks?", {**EXPORTERS_DOWN, **series} if series else {}, tmp_path) == answer


@pytest.mark.parametrize(
    ("voting", "answer"),
    [(5, ("0", GREEN)), (4, ("1", ORANGE)), (3, ("2", ORANGE)), (2, ("3", RED)), (0, ("5", RED))],
)
def test_masters_out_are_red_when_a_quorum_is_gone(
    voting: int, answer: tuple[str, str], tmp_path: Path
) -> None:
    assert said("Masters out", agents({}, {"lockd_masters_voting": voting}), tmp_path) == answer
    of_three = {"lockd_masters": 3, "lockd_quorum": 2, "lockd_masters_voting": 1}
    assert said("Masters out", agents(of_three), tmp_path) == ("2", RED)


FORTY: list[dict[str, Any]] = [{}] * 39 + [{"lockd_masters_voting": 2}]
"""Agents, of which one is cut off from three masters."""


def test_of_many_hosts_one_that_is_cut_off_is_no_news_about_masters(tmp_path: Path) -> None:
    assert said("Masters out", agents(*FORTY), tmp_path) == ("0", GREEN)
    assert said("Masters out", agents(*FORTY, *FORTY[-2:]), tmp_path) == ("0", GREEN)
    assert said("Masters out", agents(*FORTY, *FORTY[-1:] * 2), tmp_path) == ("3", RED)
    assert said("Can apps get locks?", agents(*FORTY), tmp_path) == ("NOT ON ALL HOSTS", RED)


def test_graphs_mark_a_lost_quorum_where_more_than_a_few_hosts_have_none(tmp_path: Path) -> None:
    [marked] = [
        annotation["expr"]
        for annotation in json.loads((FOLDER / "lockd-overview.json").read_text())["annotations"]["list"]
        if annotation["name"] == "No quorum"
    ]
    assert values(marked, agents(*FORTY), tmp_path) == {}
    assert values(marked, agents({}, {"lockd_masters_voting": 2}), tmp_path) == {'{cluster="shop"}': 0.5}


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
        (losses("0x30 1x10"), ("1", RED)),  # not 2, which is what rounding up makes of one
        (losses("0x30 3x10"), ("3", RED)),
        # That was before the last five minutes: what is held now is safe.
        (losses("0x10 3x30"), ("YES", GREEN)),
        (losses("0x40") | losses("0x30 7x10", "forced") | losses("0x30 7x10", "max_hold"), ("YES", GREEN)),
        (losses("0x40") | alert("LockdGuardTooShort"), ("AT RISK", RED)),
        (losses("0x40") | alert("LockdMasterEvicting"), ("AT RISK", RED)),
        (losses("0x40") | alert("LockdGuardOverridden"), ("AT RISK", ORANGE)),
        (losses("0x40") | alert("LockdGuardOverridden") | alert("LockdMasterEvicting"), ("AT RISK", RED)),
        (losses("0x30 1x10") | alert("LockdMasterEvicting"), ("1", RED)),
        (losses("0x40") | alert("LockdMasterEvicting", "pending"), ("YES", GREEN)),
        (losses("0x40") | alert("LockdMasterDown"), ("YES", GREEN)),
        ({}, ("NO AGENT KNOWN", RED)),
    ],
)
def test_whether_what_is_held_is_safe(
    series: dict[str, str], answer: tuple[str, str], tmp_path: Path
) -> None:
    assert said("Are held locks safe?", series, tmp_path) == answer


def test_an_alert_of_no_cluster_is_seen_in_every_cluster_but_the_watchdog_is_no_news(tmp_path: Path) -> None:
    [critical, _] = panel("lockd-overview", "Firing alerts")["targets"]
    expr = critical["expr"].replace("$cluster", "shop")
    for cluster, firing in (("", 1), ("shop", 1), ("bank", 0)):
        assert values(expr, alert("LockdMetricsAbsent", cluster=cluster), tmp_path) == {"{}": firing}
    for title in ("Alerts", "Firing alerts"):
        for target in panel("lockd-overview", title)["targets"]:
            found = values(target["expr"], alert("LockdWatchdog", cluster=""), tmp_path)
            assert set(found.values()) <= {0}, title


def test_the_alerts_that_put_leases_at_risk_are_there() -> None:
    [target] = panel("lockd-overview", "Are held locks safe?")["targets"]
    named = set("|".join(re.findall(r'alertname=~"([^"]+)"', target["expr"])).split("|"))
    assert named == {"LockdGuardTooShort", "LockdMasterEvicting", "LockdGuardOverridden"}
    assert named <= {one["alert"] for one in ALL_ALERTS}


def test_exporters_are_neither_counted_nor_shown_as_agents(tmp_path: Path) -> None:
    assert said("Agents down", an_agent(1) | EXPORTERS_DOWN, tmp_path) == ("0", GREEN)
    series = an_agent(1) | a_silent_agent(2) | EXPORTERS_DOWN
    assert said("Agents down", series, tmp_path) == ("1", RED)
    for title in ("Availability of locks, 10 worst hosts", "10 worst hosts now"):
        for target in panel("lockd-agents", title)["targets"][:2]:
            found = values(target["expr"], series, tmp_path)
            assert found.keys() == {f'{{instance="web{number}:9480"}}' for number in (1, 2)}


def test_what_an_agent_said_last_is_nothing_once_it_is_down(tmp_path: Path) -> None:
    """Prometheus may know it for some minutes more."""
    asked = panel("lockd-agents", "Availability of locks, 10 worst hosts")
    series = an_agent(1, lockd_masters_voting=2, **FULL_MASTERS) | a_silent_agent(1)
    [value] = values(asked["targets"][0]["expr"], series, tmp_path).values()
    assert displayed(asked, value)[0] == "no answer"


@pytest.mark.parametrize(
    ("now", "word"),
    [
        ({}, "ok"),
        ({"lockd_masters_voting": 4}, "1 more may fail"),
        ({"lockd_masters_voting": 3}, "no margin"),
        ({"lockd_masters_voting": 1}, "no quorum"),
        (FULL_MASTERS, "refused by the masters"),
        (NO_SOCKET, "no socket"),
        ({"lockd_draining": 1}, "stopping"),
    ],
)
def test_each_host_says_what_keeps_its_apps_from_locks(
    now: dict[str, float], word: str, tmp_path: Path
) -> None:
    asked = panel("lockd-agents", "Availability of locks, 10 worst hosts")
    [value] = values(asked["targets"][0]["expr"], an_agent(1, **now), tmp_path).values()
    assert displayed(asked, value)[0] == word


def test_what_an_agent_says_of_itself_is_counted_and_its_worst_hosts_are_shown(tmp_path: Path) -> None:
    """A dozen hosts could not reload, which hides none with a graver trouble, and no host that is well takes
    the place of one of theirs."""
    well = {
        "lockd_clock_slew_ppm": 1000, "lockd_journal_ok": 1, "lockd_config_last_reload_successful": 1,
    }  # fmt: skip
    trouble = {
        1: {"lockd_clock_slew_ppm": -1001}, 2: {"lockd_journal_ok": 0}, 3: NO_SOCKET,
        **{number: {"lockd_config_last_reload_successful": 0} for number in range(4, 16)},
    }  # fmt: skip
    series: dict[str, str] = {}
    for number in range(1, 21):
        series |= an_agent(number, **well | trouble.get(number, {}))
    counted = {
        target["legendFormat"]: values(target["expr"], series, tmp_path)["{}"]
        for target in panel("lockd-agents", "Hosts by failed check")["targets"]
    }
    assert counted == {"no socket": 1, "clock slewed": 1, "journal not kept": 1, "reload failed": 12}

    def shown(name: str) -> dict[str, float]:
        found = values(column("lockd-agents", "Checks, 10 worst hosts now", name), series, tmp_path)
        return {labels.split('"')[1].removesuffix(":9480"): value for labels, value in found.items()}

    worst = {"web1", "web2", "web3"}
    assert len(shown("failed")) == 10
    assert set(shown("failed").values()) == {1}
    assert worst < shown("failed").keys()
    assert [host for host, ok in shown("app socket").items() if not ok] == ["web3"]
    assert [host for host, ok in shown("journal").items() if not ok] == ["web2"]
    assert {host for host, ok in shown("reload").items() if ok} == worst
    assert shown("clock slew")["web1"] == -1001


def column(board: str, title: str, name: str) -> str:
    """What a column of a table asks for."""
    table = panel(board, title)
    [organized] = [one["options"] for one in table["transformations"] if one["id"] == "organize"]
    [value] = [value for value, heading in organized["renameByName"].items() if heading == name]
    [expr] = [one["expr"] for one in table["targets"] if f"Value #{one['refId']}" == value]
    return str(expr)


@pytest.mark.parametrize(
    ("interval_s", "worked", "late"),
    [(10, NOW_S - 15, [0]), (10, NOW_S - 100, [70]), (60, NOW_S - 100, [0]), (0, NOW_S - 100, [])],
)
def test_a_canary_is_late_by_its_interval(
    interval_s: int, worked: int, late: list[int], tmp_path: Path
) -> None:
    names = ("lockd_canary_interval_seconds", "lockd_canary_last_success_timestamp_seconds")
    series = an_agent(1, **dict(zip(names, (interval_s, worked), strict=True)))
    asked = column("lockd-agents", "10 worst hosts now", "canary late")
    assert list(values(asked, series, tmp_path).values()) == late


# Events, bar by bar, of a real Prometheus that scraped every 15 s.

BEGAN_S, SCRAPE_S, SCRAPES = 1_000_000, 15, 120
LOST_AT, LOST = 61, 3
"""Between which scrapes, and how many leases."""


def counted(scrape: int, lost: int = LOST) -> float:
    return lost if scrape >= LOST_AT else 0


def scrapes(instance: str, values: Mapping[int, float], started_s: float) -> list[tuple[str, list[Any]]]:
    of = {"cluster": "shop", "job": "lockd", "instance": instance}
    times = {scrape: BEGAN_S + SCRAPE_S * scrape for scrape in values}
    losses_of = named("lockd_losses_total", of | {"class": instance, "reason": "not_renewed"})
    starts = [(time_s, started_s) for time_s in times.values()]
    return [
        (losses_of, [(times[scrape], value) for scrape, value in values.items()]),
        (named("process_start_time_seconds", of), starts),
    ]


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Each host has a class of its name, so that one graph shows what became of each."""
    always = range(SCRAPES)
    silent = [scrape for scrape in always if not 30 <= scrape < 90]  # for longer than a sample counts
    began = BEGAN_S - 1000
    restarted = BEGAN_S + SCRAPE_S * LOST_AT - 7
    made_up = [
        *scrapes("steady", {scrape: counted(scrape) for scrape in always}, began),
        *scrapes("restarted", {scrape: 2 if scrape >= LOST_AT else 50 for scrape in always}, restarted),
        *scrapes("new", {scrape: 4 for scrape in always if scrape >= LOST_AT}, restarted),
        *scrapes("unseen", dict.fromkeys(silent, 50), began),
    ]
    with prometheus_of(tmp_path_factory.mktemp("events"), made_up) as url:
        yield url


def bars(url: str, cls: str, *, step_s: int, phase_s: int) -> list[float]:
    """What the overview draws for a class, the bars of 0 left out."""
    [target] = panel("lockd-overview", "Lost leases by class")["targets"]
    expr = target["expr"].replace("$__interval_ms", f"{step_s}000").replace("$__interval", f"{step_s}s")
    start_s = BEGAN_S + 300 + phase_s
    asked = query_range(concrete(expr), start_s, BEGAN_S + SCRAPE_S * SCRAPES, step_s)
    found = json.loads(get(url + asked))
    found["data"]["result"] = [one for one in found["data"]["result"] if one["metric"] == {"class": cls}]
    return [value for values in points(found) for value in values if value != 0]


@pytest.mark.parametrize("step_s", [60, 120, 300])
@pytest.mark.parametrize("phase_s", [0, 1, 14, 31, 59])
def test_three_leases_lost_at_once_are_one_bar_of_three(scraped: str, step_s: int, phase_s: int) -> None:
    """Wherever scrapes fall between the points of the graph."""
    assert bars(scraped, "steady", step_s=step_s, phase_s=phase_s) == [3]


@pytest.mark.parametrize("phase_s", [0, 31])
def test_what_an_agent_lost_since_its_restart_is_drawn_and_nothing_of_before(
    scraped: str, phase_s: int
) -> None:
    assert bars(scraped, "restarted", step_s=60, phase_s=phase_s) == [2]
    assert bars(scraped, "new", step_s=60, phase_s=phase_s) == [4]


def test_an_agent_that_was_not_scraped_for_a_while_has_lost_nothing_meanwhile(scraped: str) -> None:
    assert bars(scraped, "unseen", step_s=60, phase_s=0) == []


def test_bars_are_of_a_minute_at_least_so_that_each_has_a_scrape() -> None:
    boards = [json.loads(path.read_text()) for path in FOLDER.glob("*.json")]
    graphs = [one for board in boards for one in board["panels"] if one["type"] == "timeseries"]
    drawn = [one for one in graphs if one["fieldConfig"]["defaults"]["custom"]["drawStyle"] == "bars"]
    assert drawn
    for one in graphs:
        by_step = "offset $__interval" in json.dumps(one)
        assert by_step == (one in drawn), one["title"]
        assert not by_step or (one["interval"], one["maxDataPoints"]) == ("1m", 60)


def test_of_many_hosts_the_ten_worst_are_shown_and_the_others_counted(tmp_path: Path) -> None:
    """Two have no quorum, three are silent, one has no socket, and of the others the slowest follow."""
    series: dict[str, str] = {}
    for number in range(1, 31):
        series |= an_agent(number, lockd_event_loop_lag_max_seconds=number / 1000)
    for number in (4, 5):
        series |= an_agent(number, lockd_masters_voting=2)
    for number in (1, 2, 3):
        series |= dict.fromkeys(an_agent(number), "_x40") | a_silent_agent(number)
    series |= an_agent(6, **NO_SOCKET)
    slowest = range(27, 31)
    worst = {f'{{instance="web{number}:9480"}}' for number in (*range(1, 7), *slowest)}
    for target in panel("lockd-agents", "10 worst hosts now")["targets"][:2]:
        assert values(target["expr"], series, tmp_path).keys() == worst
    counted = {
        target["legendFormat"]: values(target["expr"], series, tmp_path).get("{}")
        for target in panel("lockd-agents", "Hosts by availability of locks")["targets"]
    }
    found = {name: number for name, number in counted.items() if number}
    assert found == {"ok": 24, "no answer": 3, "no quorum": 2, "no socket": 1}
    [without] = panel("lockd-agents", "Hosts without locks")["targets"]
    assert values(without["expr"], series, tmp_path) == {"{}": 3}
    [states] = panel("lockd-agents", "Availability of locks, 10 worst hosts")["targets"]
    # promtool's limit on samples is a small one.
    troubled = values(states["expr"].replace("$__interval", "5m"), series, tmp_path)
    assert len(troubled) == 10
    assert sorted(troubled.values())[:6] == [-5, -5, -3, -3, -3, -2]


@pytest.mark.parametrize(
    ("unavailable", "left"), [("0", ("1", GREEN)), ("0.07", ("0.3", "yellow")), ("0.2", ("-1", RED))]
)
def test_the_budget_that_is_left_is_of_a_month(
    unavailable: str, left: tuple[str, str], tmp_path: Path
) -> None:
    series = {
        'cluster:lockd_unavailable:rate5m{cluster="shop"}': f"{unavailable}x40",
        'cluster:lockd_answers:rate5m{cluster="shop"}': "100x40",
    }
    word, color = said("Error budget left", series, tmp_path)
    assert (float(word), color) == (pytest.approx(float(left[0])), left[1])
    assert said("Error budget left", {}, tmp_path) == ("?", RED)


def test_how_fast_the_budget_burns_is_drawn_with_the_canary_and_as_apps_alone_had_it(tmp_path: Path) -> None:
    windows = ("1h", "6h", "3d")
    series = {
        f'cluster:lockd_unavailable{of}:ratio_rate{window}{{cluster="shop"}}': f"{share}x40"
        for of, share in (("", 0.002), ("_without_canary", 0.02))
        for window in windows
    }
    graph = panel("lockd-overview", "Error budget burn rate, with and without the canary")
    drawn = {one["legendFormat"]: values(one["expr"], series, tmp_path)["{}"] for one in graph["targets"]}
    alone = {f"over {window}, apps alone": pytest.approx(20) for window in windows}
    assert drawn == {f"over {window}": pytest.approx(2) for window in windows} | alone
    dashed = [
        one["matcher"]["options"].strip("/")
        for one in graph["fieldConfig"]["overrides"]
        if any(setting["id"] == "custom.lineStyle" for setting in one["properties"])
    ]
    assert {name for name in drawn for pattern in dashed if re.search(pattern, name)} == alone.keys()


def test_one_alert_on_many_hosts_is_one_row(tmp_path: Path) -> None:
    of = 'alertname="LockdDown", alertstate="firing", cluster="shop", severity="critical"'
    series = {f'ALERTS{{{of}, instance="web{number}:9480"}}': "1x40" for number in range(400)}
    state, many = panel("lockd-overview", "Alerts")["targets"]
    assert list(values(state["expr"], series, tmp_path).values()) == [4]
    assert list(values(many["expr"], series, tmp_path).values()) == [400]


MASTER_1 = 'cluster="shop", job="lockd", instance="web{}:9480", master="m1"'


def test_what_alerts_on_a_master_are_about_is_shown_by_master(tmp_path: Path) -> None:
    """As the agent sees it that sees the worst."""
    ends = NOW_S + 86_400
    host = 'cluster="shop", job="lockd-masters", instance="m1:9100", master="m1"'
    series = {
        f"lockd_master_certificate_expiry_timestamp_seconds{{{MASTER_1.format(1)}}}": f"{ends}x40",
        f"lockd_master_certificate_expiry_timestamp_seconds{{{MASTER_1.format(2)}}}": f"{ends * 2}x40",
        f"lockd_master_aof_rewrite_ok{{{MASTER_1.format(1)}}}": "1x40",
        f"lockd_master_aof_rewrite_ok{{{MASTER_1.format(2)}}}": "0x40",
        f"node_timex_sync_status{{{host}}}": "0x40",
        f'node_filesystem_avail_bytes{{{host}, mountpoint="/var"}}': "2x40",
        f'node_filesystem_size_bytes{{{host}, mountpoint="/var"}}': "100x40",
        f'node_filesystem_avail_bytes{{{host}, mountpoint="/boot"}}': "0x40",
        f'node_filesystem_size_bytes{{{host}, mountpoint="/boot"}}': "100x40",
    }
    for title, value in (
        ("Days until the certificate expires", 1),
        ("Last AOF rewrite", 0),
        ("Clock synchronisation", 0),
        ("Free disk space", 0.02),
    ):
        [target] = panel("lockd-masters", title)["targets"]
        assert list(values(target["expr"], series, tmp_path).values()) == [value], title
    assert displayed(panel("lockd-masters", "Last AOF rewrite"), 0) == ("FAILED", RED)


def test_a_certificate_is_orange_and_red_from_the_days_on_which_its_alert_warns_and_pages() -> None:
    days = {
        alert["labels"]["severity"]: int(re.findall(r"< (\d+) \* 86400", alert["expr"])[0])
        for alert in ALL_ALERTS
        if alert["alert"] == "LockdCertificateEnding"
    }
    drawn = panel("lockd-masters", "Days until the certificate expires")
    steps = drawn["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert {step["color"]: step["value"] for step in steps} == {
        RED: None, ORANGE: days["critical"], "transparent": days["warning"],
    }  # fmt: skip
    assert f"Orange below {days['warning']} days, red below {days['critical']}." in drawn["description"]


def test_a_site_can_be_chosen_and_need_not_be_there(tmp_path: Path) -> None:
    """Targets without the label are of all sites."""
    series = an_agent(1) | {
        name.replace("}", ', site="north"}'): value
        for name, value in an_agent(2, lockd_masters_voting=2).items()
    }
    [target] = panel("lockd-overview", "Masters out")["targets"]
    for site, out in (("north", 103), (".*", 103), ("south", None)):
        expr = target["expr"].replace("$site", site)
        assert values(expr, series, tmp_path).get("{}") == out


def test_a_class_counts_what_it_lost_and_no_more(tmp_path: Path) -> None:
    columns = panel("lockd-classes", "Classes")["targets"]
    [lost] = [target["expr"] for target in columns if "lockd_losses_total" in target["expr"]]
    assert values(lost, losses("0x20 1x20"), tmp_path) == {'{class="jobs"}': 1}


def test_slow_waits_are_a_share_of_waits(tmp_path: Path) -> None:
    [target] = panel("lockd-classes", "Share of slow waits")["targets"]
    labels = 'cluster="shop", job="lockd", instance="web1:9480", class="jobs"'
    series = {
        f"lockd_slow_waits_total{{{labels}}}": "0+1x40",
        f"lockd_grants_total{{{labels}}}": "0+1x40",
        f'lockd_refusals_total{{{labels}, reason="timeout"}}': "0+3x40",
        f'lockd_refusals_total{{{labels}, reason="taken"}}': "0+50x40",
    }
    expr = target["expr"].replace("$__rate_interval", "1m")
    assert values(expr, series, tmp_path) == {'{class="jobs"}': 0.25}


def test_what_an_agent_failed_to_answer_is_unavailable_as_in_the_rules(tmp_path: Path) -> None:
    of = 'cluster="shop", job="lockd", instance="web1:9480"'
    series = {
        f'lockd_grants_total{{class="jobs", {of}}}': "0+90x60",
        f'lockd_refusals_total{{class="jobs", reason="noquorum", {of}}}': "0+5x60",
        f"lockd_internal_errors_total{{{of}}}": "0+5x60",
    }
    [target] = panel("lockd-overview", "Share of answers unavailable")["targets"]
    longer = target["expr"].replace("$__rate_interval", "2m")
    assert list(values(longer, series, tmp_path).values()) == [pytest.approx(0.1)]


def test_an_agent_that_was_started_is_shown_at_that_time_alone(tmp_path: Path) -> None:
    starts = {"web1": "100x39 600x5", "web2": "100x60", "web3": "100x10 300x50"}
    series = {
        f'process_start_time_seconds{{cluster="shop", job="lockd", instance="{host}:9480"}}': at
        for host, at in starts.items()
    }
    [target] = panel("lockd-agents", "Agent starts, 10 hosts with most")["targets"]
    shown = values(target["expr"].replace("$__interval", "15s"), series, tmp_path)
    assert shown == {'{instance="web1:9480"}': 1}
