"""Every query of every dashboard, asked of a real Prometheus that watches a real cluster with real faults."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis

from dashboards.__main__ import FOLDER
from dashboards.queries import MASTER_STATES, master_state
from tests.dashboards.variables import VALUES, concrete
from tests.harness.observatory import Observatory, need_programs, running_observatory
from tests.harness.waiting import eventually
from tests.harness.wire import as_map

LEASES_ALLOWED = 20
FILES = sorted(FOLDER.glob("*.json"))


def queries() -> Iterator[Any]:
    for path in FILES:
        board = json.loads(path.read_text())
        for panel in board["panels"]:
            for target in panel["targets"]:
                yield pytest.param(target["expr"], id=f"{path.stem}: {panel['title']} {target['refId']}")
        if path.stem == "lockd-overview":
            for annotation in board["annotations"]["list"]:
                yield pytest.param(annotation["expr"], id=f"annotation: {annotation['name']}")


@pytest.fixture(scope="module")
def watched(server_binary: object) -> Iterator[Observatory]:
    """A cluster to which everything has happened that a dashboard has a graph for."""
    need_programs()
    classes = [{"name": "jobs", "match": "job:*"}, {"name": "vault", "match": "vault:*", "users": ["nobody"]}]
    limits = {"leases_per_user": LEASES_ALLOWED}
    with running_observatory(classes=classes, limits=limits) as own:
        eventually(lambda: own.value("count(up == 1)") == 8, 60, "everything is scraped")
        live_a_little(own)
        lose_a_quorum(own)
        yield own


def live_a_little(own: Observatory) -> None:
    first, second = (host.client() for host in own.agents)
    for number in range(30):
        granted = as_map(first.execute_command("LOCK", f"job:{number}", 900))
        first.execute_command("UNLOCK", f"job:{number}", granted["token"])
    with suppress(redis.ResponseError):  # it was given back
        first.execute_command("EXTEND", "job:1", granted["token"], 900)
    first.execute_command("LOCK", "job:held", 900)
    for refused in (
        ("LOCK", "job:held", 900),
        ("LOCK", "vault:1", 900),
        ("LOCK", "job:held", 900, "WAIT", 50),
    ):
        with pytest.raises(redis.ResponseError):
            second.execute_command(*refused)
    for number in range(LEASES_ALLOWED + 1):  # the last one is refused by the limit
        with suppress(redis.ResponseError):
            second.execute_command("LOCK", f"many:{number}", 900, "DETACHED")
    own.masters[4].pause()
    first.execute_command("LOCK", "job:unanswered", 900)
    own.masters[4].kill()
    eventually(lambda: own.value("sum(lockd_master_votes_not_counted_total)") > 0, 30, "that vote is seen")
    own.masters[4].start()
    eventually(
        lambda: own.value('sum(rate(lockd_grants_total{class="jobs"}[8s]))') > 0, 30, "grants are seen"
    )


def lose_a_quorum(own: Observatory) -> None:
    """Three masters crash, one of them into quarantine; what is held meanwhile is lost; then all are back."""
    holder = own.agents[0].client(protocol=3)
    holder.execute_command("LOCK", "job:lost", 900)
    entering = own.units[0].crashes()
    for one in own.units[1:3]:
        one.master.kill()
    eventually(lambda: own.value("max(redis_lock_guard_quarantined)") == 1, 30, "the quarantine is seen")
    # Two are left; after a few seconds their clocks can be compared with too few to be trusted.
    eventually(lambda: own.value("min(lockd_masters_voting)") in (0, 2), 30, "the lost quorum is seen")
    eventually(lambda: own.value("sum(lockd_losses_total)") > 0, 30, "the loss is seen")
    own.units[0].starts(entering)
    for one in own.units[1:3]:
        one.master.start()
    eventually(lambda: own.value("min(lockd_masters_voting)") == 5, 60, "all have a vote again")


@pytest.mark.parametrize("expr", list(queries()))
def test_it_returns_series(watched: Observatory, expr: str) -> None:
    """With numbers in them. Rules need some evaluations first."""

    def numbers() -> list[float]:
        found = [float(value) for series in watched.series(concrete(expr)) for _, value in series["values"]]
        return [number for number in found if not math.isnan(number)]

    assert eventually(numbers, 30, "there are series")


def test_the_number_of_a_masters_state_is_that_of_its_word(watched: Observatory) -> None:
    seen = {
        MASTER_STATES[int(float(value))]
        for series in watched.series(concrete(master_state()))
        if series["metric"]["master"] == "m1"
        for _, value in series["values"]
    }
    assert {"up", "quarantined"} <= seen
    assert {MASTER_STATES[int(float(s["value"][1]))] for s in watched.now(concrete(master_state()))} == {"up"}


@pytest.mark.parametrize("variable", ["cluster", "job", "instance", "master", "class"])
def test_all_is_asked_for_as_grafana_asks_for_it(variable: str) -> None:
    for path in FILES:
        for one in json.loads(path.read_text())["templating"]["list"]:
            if one["name"] == variable:
                assert one["allValue"] == VALUES[f"${variable}"]
                assert one["current"]["value"] == ["$__all"]


def test_what_is_shown_by_agent_is_of_agents_and_not_of_exporters(watched: Observatory) -> None:
    """Exporters have instances, processes and an `up` of their own, in the same cluster."""
    jobs = {one["metric"]["job"] for one in watched.now("count by (job) (up)")}
    assert jobs == {"lockd", "node", "alertmanager"}
    hosts = {f"web{number}:9480" for number, _ in enumerate(watched.agents, start=1)}
    for path in FILES:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                if re.search(r"by \((\w+, )*instance", target["expr"]) and "ALERTS" not in target["expr"]:
                    found = {one["metric"]["instance"] for one in watched.series(concrete(target["expr"]))}
                    assert found <= hosts, (panel["title"], found)


def test_a_slow_wait_leads_to_its_lease(watched: Observatory) -> None:
    """By an exemplar on the graph: the fence that `lockctl locks --local` and the log show."""
    board = json.loads((FOLDER / "lockd-classes.json").read_text())
    targets = [target for panel in board["panels"] for target in panel["targets"] if target["exemplar"]]
    waits = [target["expr"] for target in targets if "lockd_wait_seconds" in target["expr"]]
    assert waits
    for expr in waits:
        assert all(labels["fence"].isdigit() for labels in watched.exemplars(concrete(expr)))
        assert watched.exemplars(concrete(expr))


def test_each_state_that_agents_know_has_its_number() -> None:
    from lockd.core.membership import State

    assert set(MASTER_STATES) - {"clock", "quarantined"} == {str(state) for state in State}


def test_every_label_that_a_legend_or_a_link_uses_is_there(watched: Observatory) -> None:
    for path in FILES:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                for label in re.findall(r"\{\{([a-z]+)\}\}", target["legendFormat"]):
                    found = watched.series(concrete(target["expr"]))
                    assert all(label in series["metric"] for series in found), (panel["title"], label)
