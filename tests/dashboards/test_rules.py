"""The rules of Grafana's dashboard-linter, and the house's own, over the JSON as it is committed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboards.__main__ import BOARDS, FOLDER, rendered
from dashboards.board import RUNBOOKS

Board = dict[str, Any]
Panel = dict[str, Any]
FILES = sorted(FOLDER.glob("*.json"))
ROOT = Path(__file__).parents[2]
UIDS = {"lockd-overview", "lockd-classes", "lockd-masters", "lockd-agents"}

_SELECTOR = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\{([^}]*)\}")
_COUNTER_CALL = re.compile(r"\b(?:rate|increase|irate)\(([a-zA-Z_:][a-zA-Z0-9_:]*)\{[^}]*\}\[([^\]]+)\]\)")
_COUNTER = re.compile(r"\b[a-z_]+_(?:total|bucket|count|sum)\b")


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def board(request: pytest.FixtureRequest) -> Board:
    return dict(json.loads(request.param.read_text()))


def panels(board: Board) -> Iterator[Panel]:
    yield from board["panels"]


def exprs(board: Board) -> Iterator[str]:
    for panel in panels(board):
        for target in panel["targets"]:
            yield target["expr"]
    for annotation in board["annotations"]["list"]:
        yield annotation["expr"]


def variables(board: Board) -> dict[str, dict[str, Any]]:
    return {variable["name"]: variable for variable in board["templating"]["list"]}


def of_agents(metric: str) -> bool:
    """Whether a metric comes from an agent itself: not from the exporters, nor from a rule."""
    return ":" not in metric and metric != "ALERTS" and not metric.startswith("redis_")


def test_the_files_are_what_the_builder_writes() -> None:
    assert {path: path.read_text() for path in FILES} == rendered()


def test_the_four_dashboards_are_there_by_their_lasting_names() -> None:
    assert {board["uid"] for board in BOARDS} == UIDS


# dashboard-linter


def test_the_data_source_is_chosen_by_a_variable(board: Board) -> None:
    """template-datasource-rule, panel-datasource-rule"""
    chosen = variables(board)["datasource"]
    assert (chosen["type"], chosen["query"], chosen["label"]) == ("datasource", "prometheus", "Data source")
    targets = [target for panel in panels(board) for target in panel["targets"]]
    for place in (*panels(board), *board["annotations"]["list"], *targets):
        assert place["datasource"] == {"type": "prometheus", "uid": "$datasource"}


@pytest.mark.parametrize("name", ["job", "instance"])
def test_job_and_instance_can_be_chosen(board: Board, name: str) -> None:
    """template-job-rule, template-instance-rule"""
    chosen = variables(board)[name]
    assert chosen["type"] == "query"
    assert chosen["label"] == name.capitalize()
    assert chosen["datasource"]["uid"] == "$datasource"
    assert (chosen["multi"], chosen["includeAll"], chosen["allValue"]) == (True, True, ".+")


def test_choices_are_looked_up_again_when_the_time_changes(board: Board) -> None:
    """template-on-time-change-reload-rule, template-label-promql-rule"""
    for chosen in variables(board).values():
        if chosen["type"] == "query":
            assert chosen["refresh"] == 2
            assert re.fullmatch(r"label_values\([a-z_]+(\{.*\})?, [a-z]+\)", chosen["query"]["query"])


def test_each_panel_has_a_title_a_description_a_unit_and_a_query(board: Board) -> None:
    """panel-title-description-rule, panel-units-rule, panel-no-targets-rule"""
    titles = [panel["title"] for panel in panels(board)]
    assert len(titles) == len(set(titles))
    for panel in panels(board):
        assert panel["title"]
        assert len(panel["description"]) > 20
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["targets"]


def test_queries_follow_what_the_reader_has_chosen(board: Board) -> None:
    """target-job-rule, target-instance-rule; what is not the agents' follows the cluster and the master.
    `All` jobs are also those of the exporters; a lost master's host is no silent agent."""
    for expr in exprs(board):
        for metric, matchers in _SELECTOR.findall(expr):
            wanted = ['cluster=~"$cluster|"' if metric == "ALERTS" else 'cluster=~"$cluster"']
            if of_agents(metric):
                wanted += ['job=~"$job"', 'instance=~"$instance"']
            if metric == "up" or metric.startswith("process_"):
                wanted.append('job="lockd"')
            assert all(matcher in matchers for matcher in wanted), expr


def test_quantiles_over_time_come_with_exemplars(board: Board) -> None:
    asked = [target for panel in panels(board) for target in panel["targets"] if target["range"]]
    assert asked
    for target in asked:
        assert target["exemplar"] == ("histogram_quantile(" in target["expr"]), target["expr"]


def test_every_metric_is_filtered_and_whole_events_are_rounded_to_the_nearest(board: Board) -> None:
    """`increase` makes 1.004 of one event: rounded up that would be two."""
    for expr in exprs(board):
        left = _SELECTOR.sub("", expr)
        assert not re.search(r"\b(lockd_\w+|redis_\w+|process_\w+|ALERTS|up)\b|ceil\(", left), expr


def test_counters_are_only_shown_as_rates(board: Board) -> None:
    """target-counter-agg-rule"""
    for expr in exprs(board):
        left = _COUNTER_CALL.sub("", expr)
        counters = {metric for metric, _ in _SELECTOR.findall(left) if _COUNTER.fullmatch(metric)}
        assert counters == set(), expr


def test_rates_are_over_the_interval_that_grafana_finds_right(board: Board) -> None:
    """target-rate-interval-rule; `$__range` is for what happened in all the time that is shown."""
    for expr in exprs(board):
        intervals = [interval for _, interval in _COUNTER_CALL.findall(expr)]
        assert set(intervals) <= {"$__rate_interval", "$__range"}, expr
        assert expr.count("[") == len(intervals), expr


def test_a_dashboard_is_changed_in_its_builder_and_not_in_grafana(board: Board) -> None:
    """uneditable-dashboard"""
    assert board["editable"] is False


# The house's own


def test_links_lead_to_all_four_dashboards_with_what_was_chosen(board: Board) -> None:
    assert {link["url"].removeprefix("/d/") for link in board["links"]} == UIDS
    assert all(link["includeVars"] and link["keepTime"] for link in board["links"])


def test_links_in_tables_lead_to_dashboards_and_to_choices_that_are_there(board: Board) -> None:
    chosen = {one["uid"]: variables(one).keys() for one in BOARDS}
    for url in re.findall(r'"url": "(/d/[^"]+)"', json.dumps(board)):
        uid, _, query = url.removeprefix("/d/").partition("?")
        for name in re.findall(r"var-([a-z]+)=", query):
            assert name in chosen[uid], url


def test_runbooks_are_where_alerts_say_they_are() -> None:
    alerts = (ROOT / "alerts" / "lockd.alerts.yml").read_text()
    bases = {url.rpartition("/")[0] for url in re.findall(r"runbook_url: (\S+)", alerts)}
    assert bases == {RUNBOOKS}


def test_ansible_finds_the_link_to_runbooks_that_it_puts_right(board: Board) -> None:
    """The role replaces this text, wherever it stands in a dashboard, and nothing else."""
    variables = (ROOT / "ansible" / "roles" / "grafana" / "vars" / "main.yml").read_text()
    assert re.findall(r"^__grafana_runbooks_written: (\S+)$", variables, re.MULTILINE) == [RUNBOOKS]
    assert RUNBOOKS in json.dumps(board)
    assert "docs.example.com" not in json.dumps(board).replace(RUNBOOKS, "")


def test_quarantines_and_losses_are_marked_in_every_graph(board: Board) -> None:
    marked = {annotation["name"]: annotation["expr"] for annotation in board["annotations"]["list"]}
    assert "redis_lock_guard_quarantined" in marked["Quarantines"]
    assert "lockd_losses_total" in marked["Lost leases"]


def test_panels_fill_the_width_and_do_not_overlap(board: Board) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels(board):
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
    assert {x for x, _ in taken} == set(range(24))
    assert len(taken) == 24 * (max(y for _, y in taken) + 1)


def test_what_is_answered_in_words_has_a_word_for_silence(board: Board) -> None:
    """No data where a verdict should be is the worst of all, and must not look like good news."""
    for panel in panels(board):
        mappings = panel["fieldConfig"]["defaults"].get("mappings", [])
        if panel["type"] in ("stat", "state-timeline") and mappings:
            silent = [one for one in mappings if one["type"] == "special"]
            assert silent, panel["title"]


def test_no_alert_at_all_is_said_in_words() -> None:
    """An empty table may as well be a broken one."""
    overview = json.loads((FOLDER / "lockd-overview.json").read_text())
    [alerts] = [panel for panel in overview["panels"] if panel["title"] == "Alerts"]
    assert alerts["fieldConfig"]["defaults"]["noValue"] == "No alert fires, and none is pending."
    for column in alerts["fieldConfig"]["overrides"]:
        assert {"id": "noValue", "value": "-"} in column["properties"]  # an alert has not all of the labels


def test_on_the_overview_the_answers_stand_on_top() -> None:
    overview = json.loads((FOLDER / "lockd-overview.json").read_text())
    top = [panel["title"] for panel in overview["panels"] if panel["gridPos"]["y"] == 0]
    assert top[:2] == ["Can locks be had?", "Is what is held safe?"]
