"""The rules of Grafana's dashboard-linter, and the house's own, over the JSON as it is committed."""

from __future__ import annotations

import colorsys
import json
import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from dashboards.__main__ import BOARDS, FOLDER, rendered
from dashboards.board import RUNBOOKS
from dashboards.panels import BY_NAME, CALM
from dashboards.queries import LATELY
from tests.dashboards.variables import VALUES
from tests.harness.prometheus import ALL_ALERTS, ROOT

Board = dict[str, Any]
FILES = sorted(FOLDER.glob("*.json"))
UIDS = {"lockd-overview", "lockd-classes", "lockd-masters", "lockd-agents"}
DATASOURCE = {"type": "prometheus", "uid": "$datasource"}

_SELECTOR = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\{([^}]*)\}")
_COUNTER_CALL = re.compile(r"\b(?:rate|increase|irate)\(([a-zA-Z_:][a-zA-Z0-9_:]*)\{[^}]*\}\[([^\]]+)\]\)")
_EVENTS = re.compile(
    r"(?P<counter>[a-z_]+\{[^}]*\}) - (?P=counter) offset \$__interval >= 0"
    r" or (?P=counter) and (?P=counter) offset \$__interval"
    r"( or (?P=counter) and on \(cluster, job, instance\))?"
)
# The worst of all the time that is shown, and what rules have recorded over a month.
_OTHER_RANGES = re.compile(r"\[\$__range:\$__interval\] @ end\(\)|(?<=\})\[30d\]")
_COUNTER = re.compile(r"\b[a-z_]+_(?:total|bucket|count|sum)\b")


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def board(request: pytest.FixtureRequest) -> Board:
    return dict(json.loads(request.param.read_text()))


def targets(board: Board) -> list[dict[str, Any]]:
    return [target for panel in board["panels"] for target in panel["targets"]]


def exprs(board: Board) -> Iterator[str]:
    for asked in (*targets(board), *board["annotations"]["list"]):
        yield asked["expr"]


def variables(board: Board) -> dict[str, dict[str, Any]]:
    return {variable["name"]: variable for variable in board["templating"]["list"]}


_OF_EXPORTERS = ("redis_", "node_", "lockd_guard_", "lockd_master_certificate_")


def of_agents(metric: str) -> bool:
    """Whether a metric comes from an agent itself: not from the exporters, nor from a rule."""
    return ":" not in metric and metric != "ALERTS" and not metric.startswith(_OF_EXPORTERS)


def test_the_four_files_are_what_the_builder_writes() -> None:
    assert {path: path.read_text() for path in FILES} == rendered()
    assert {board["uid"] for board in BOARDS} == UIDS


# dashboard-linter


def test_the_data_source_is_chosen_by_a_variable(board: Board) -> None:
    """template-datasource-rule, panel-datasource-rule"""
    chosen = variables(board)["datasource"]
    assert (chosen["type"], chosen["query"], chosen["label"]) == ("datasource", "prometheus", "Data source")
    for place in (*board["panels"], *board["annotations"]["list"], *targets(board)):
        assert place["datasource"] == DATASOURCE


def test_any_number_of_each_label_can_be_chosen_and_all_is_asked_for_as_grafana_asks(board: Board) -> None:
    """template-job-rule, template-instance-rule, template-on-time-change-reload-rule,
    template-label-promql-rule"""
    chosen = {name: one for name, one in variables(board).items() if one["type"] == "query"}
    assert chosen.keys() >= {"cluster", "job", "instance"}
    for name, one in chosen.items():
        assert (one["label"], one["datasource"]) == (name.capitalize(), DATASOURCE)
        assert (one["multi"], one["includeAll"], one["allValue"]) == (True, True, VALUES[f"${name}"])
        assert one["current"]["value"] == ["$__all"]
        assert one["refresh"] == 2
        assert re.fullmatch(r"label_values\([a-z_]+(\{.*\})?, [a-z]+\)", one["query"]["query"])


def test_each_panel_has_a_title_a_description_a_unit_and_a_query(board: Board) -> None:
    """panel-title-description-rule, panel-units-rule, panel-no-targets-rule"""
    assert len({panel["title"] for panel in board["panels"]} - {""}) == len(board["panels"])
    for panel in board["panels"]:
        assert len(panel["description"]) > 20
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["targets"]


def test_queries_follow_what_the_reader_has_chosen(board: Board) -> None:
    """target-job-rule, target-instance-rule; what is not the agents' follows the cluster and the master.
    `All` jobs are also those of the exporters; a lost master's host is no silent agent."""
    for expr in exprs(board):
        for metric, matchers in _SELECTOR.findall(expr):
            wanted = ['cluster=~"$cluster|"' if metric == "ALERTS" else 'cluster=~"$cluster"']
            if 'job="lockd-masters"' in matchers:
                wanted.append('master=~"$master"')
            elif of_agents(metric):
                wanted += ['job=~"$job"', 'instance=~"$instance"']
                if metric == "up" or metric.startswith("process_"):
                    wanted.append('job="lockd"')
            assert all(matcher in matchers for matcher in wanted), expr


def test_quantiles_over_time_come_with_exemplars(board: Board) -> None:
    asked = [target for target in targets(board) if target["range"]]
    assert asked
    for target in asked:
        assert target["exemplar"] == ("histogram_quantile(" in target["expr"]), target["expr"]


def test_every_metric_is_filtered_and_whole_events_are_rounded_to_the_nearest(board: Board) -> None:
    """`increase` makes 1.004 of one event: rounded up that would be two."""
    for expr in exprs(board):
        left = _SELECTOR.sub("", expr)
        assert not re.search(r"\b(lockd_\w+|redis_\w+|process_\w+|ALERTS|up)\b|ceil\(", left), expr


def test_counters_are_only_shown_as_rates_over_the_interval_that_grafana_finds_right(board: Board) -> None:
    """target-counter-agg-rule, target-rate-interval-rule; `$__range` is for what happened in all the time
    that is shown, `LATELY` for what is said of now. Events are counted from one point to the next."""
    for expr in exprs(board):
        expr = _OTHER_RANGES.sub("", expr)
        left = _COUNTER_CALL.sub("", _EVENTS.sub("", expr))
        assert not [metric for metric, _ in _SELECTOR.findall(left) if _COUNTER.fullmatch(metric)], expr
        intervals = [interval for _, interval in _COUNTER_CALL.findall(expr)]
        assert set(intervals) <= {"$__rate_interval", "$__range", LATELY}, expr
        assert expr.count("[") == len(intervals), expr


def test_a_dashboard_is_changed_in_its_builder_and_not_in_grafana(board: Board) -> None:
    """uneditable-dashboard"""
    assert board["editable"] is False


# The house's own


def test_links_lead_to_dashboards_and_to_choices_that_are_there(board: Board) -> None:
    assert {link["url"].removeprefix("/d/") for link in board["links"]} == UIDS
    assert all(link["includeVars"] and link["keepTime"] for link in board["links"])
    chosen = {one["uid"]: variables(one).keys() for one in BOARDS}
    for uid, query in re.findall(r'"url": "/d/([^"?]+)\??([^"]*)"', json.dumps(board)):
        assert set(re.findall(r"var-([a-z]+)=", query)) <= chosen[uid]


def test_runbooks_are_where_alerts_say_they_are_and_ansible_puts_that_right(board: Board) -> None:
    """The role replaces this text, wherever it stands in a dashboard, and nothing else."""
    assert {alert["annotations"]["runbook_url"].rpartition("/")[0] for alert in ALL_ALERTS} == {RUNBOOKS}
    variables = (ROOT / "ansible" / "roles" / "grafana" / "vars" / "main.yml").read_text()
    assert re.findall(r"^__lockd_grafana_runbooks_written: (\S+)$", variables, re.MULTILINE) == [RUNBOOKS]
    assert RUNBOOKS in json.dumps(board)
    assert "docs.example.com" not in json.dumps(board).replace(RUNBOOKS, "")


def test_quarantines_and_losses_are_marked_in_every_graph(board: Board) -> None:
    marked = {annotation["name"]: annotation["expr"] for annotation in board["annotations"]["list"]}
    assert "lockd_guard_quarantined" in marked["Quarantines"]
    assert "lockd_losses_total" in marked["Lost leases"]


def test_what_has_only_a_name_has_one_colour_everywhere_and_that_is_not_red() -> None:
    for color in CALM:
        red, green, blue = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
        assert 45 < colorsys.rgb_to_hsv(red, green, blue)[0] * 360 < 300, color
    names = ["m1", "m2", "m5", "web1:9480", "jobs", "other", "m3 jumped", "Billing"]
    for name in names:
        [color] = _by_name(name)
        assert _by_name(name.split()[0]) == [color]
    assert len({_by_name(f"m{number}")[0] for number in range(1, 6)}) == 5


def _by_name(legend: str) -> list[str]:
    """The colours that match, of which there has to be one."""
    return [
        one["properties"][0]["value"]["fixedColor"]
        for one in BY_NAME
        if re.search(one["matcher"]["options"].strip("/"), legend)
    ]


def test_titles_are_not_cut_off(board: Board) -> None:
    """As Grafana draws them where a dashboard is 1,500 pixels wide."""
    for panel in board["panels"]:
        assert len(panel["title"]) <= 6.5 * panel["gridPos"]["w"], panel["title"]


def test_panels_fill_the_width_and_do_not_overlap(board: Board) -> None:
    taken: list[tuple[int, int]] = []
    for at in (panel["gridPos"] for panel in board["panels"]):
        taken += product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"]))
    assert sorted(taken) == list(product(range(24), range(max(y for _, y in taken) + 1)))


def test_what_is_answered_in_words_has_a_word_for_silence(board: Board) -> None:
    """No data where a verdict should be is the worst of all, and must not look like good news."""
    for panel in board["panels"]:
        kinds = {one["type"] for one in panel["fieldConfig"]["defaults"].get("mappings", [])}
        if panel["type"] in ("stat", "state-timeline") and kinds:
            assert "special" in kinds, panel["title"]


def test_on_the_overview_the_answers_stand_on_top_and_no_alert_at_all_is_said_in_words() -> None:
    """An empty table may as well be a broken one."""
    panels = json.loads((FOLDER / "lockd-overview.json").read_text())["panels"]
    top = [panel["title"] for panel in panels if panel["gridPos"]["y"] == 0]
    assert top[:2] == ["Can apps get locks?", "Are held locks safe?"]
    [alerts] = [panel["fieldConfig"] for panel in panels if panel["title"] == "Alerts"]
    assert alerts["defaults"]["noValue"] == "No alert is firing or pending."
    for column in alerts["overrides"]:
        assert {"id": "noValue", "value": "-"} in column["properties"]  # an alert has not all of the labels
