"""Every query of every dashboard, asked of a real Prometheus that watches a real cluster with real faults."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from dashboards.__main__ import FOLDER
from dashboards.queries import MASTER_STATES, master_state
from lockd.core.membership import State
from tests.dashboards.variables import concrete
from tests.harness.observatory import Observatory, need_programs, running_observatory
from tests.harness.prose import expect_none
from tests.harness.waiting import eventually
from tests.harness.wire import as_map

Target = dict[str, Any]
Series = list[dict[str, Any]]


NOT_HERE = (
    "lockd_master_certificate_expiry_timestamp_seconds",  # those masters speak no TLS
    "lockd_master_aof_rewrite_ok",
    "!= bool process_start_time_seconds",  # nor is one of its agents started again
)
"""Panels of these are asked of made-up series, in test_answers.py."""


def queries() -> dict[str, Target]:
    """By the panel that asks."""
    found: dict[str, Target] = {}
    for path in sorted(FOLDER.glob("*.json")):
        board = json.loads(path.read_text())
        for panel in board["panels"]:
            found |= {
                f"{path.stem}: {panel['title']} {target['refId']}": target for target in panel["targets"]
            }
        if path.stem == "lockd-overview":
            found |= {f"annotation: {one['name']}": one for one in board["annotations"]["list"]}
    return found


def asked() -> dict[str, Target]:
    """Those that can have an answer here."""
    left_out = NOT_HERE if has_root_file_system() else (*NOT_HERE, "node_filesystem")
    return {of: one for of, one in queries().items() if not any(name in one["expr"] for name in left_out)}


@pytest.fixture(scope="module")
def watched(server_binary: object) -> Iterator[Observatory]:
    """A cluster to which everything has happened that a dashboard has a graph for."""
    need_programs()
    classes = [{"name": "jobs", "match": "job:*"}, {"name": "vault", "match": "vault:*", "users": ["nobody"]}]
    with running_observatory(classes=classes) as own:
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
    for refused in (("job:held", 900), ("vault:1", 900), ("job:held", 900, "WAIT", 50)):
        with pytest.raises(redis.ResponseError):
            second.execute_command("LOCK", *refused)
    with pytest.raises(redis.ResponseError, match="LIMIT resource_bytes"):
        second.execute_command("LOCK", "x" * 1_000, 900)
    own.masters[4].pause()
    first.execute_command("LOCK", "job:unanswered", 900)
    own.masters[4].kill()
    eventually(lambda: own.value("sum(lockd_master_votes_not_counted_total)") > 0, "that vote is seen")
    own.masters[4].start()
    granting = 'sum(rate(lockd_grants_total{class="jobs"}[8s]))'
    eventually(lambda: own.value(granting) > 0, "grants are seen")


def lose_a_quorum(own: Observatory) -> None:
    """Three masters crash, one of them into quarantine; what is held meanwhile is lost; then all are back."""
    holder = own.agents[0].client(protocol=3)
    holder.execute_command("LOCK", "job:lost", 900)
    entering = own.units[0].crashes()
    for one in own.units[1:3]:
        one.master.kill()
    eventually(lambda: own.value("max(lockd_guard_quarantined)") == 1, "the quarantine is seen")
    # Two are left; after a few seconds their clocks can be compared with too few to be trusted.
    eventually(lambda: own.value("min(lockd_masters_voting)") in (0, 2), "the lost quorum is seen")
    eventually(lambda: own.value("sum(lockd_losses_total)") > 0, "the loss is seen")
    own.units[0].starts(entering)
    for one in own.units[1:3]:
        one.master.start()
    eventually(lambda: own.value("min(lockd_masters_voting)") == 5, "all have a vote again")


def has_root_file_system() -> bool:
    """Nothing is mounted at / in a chroot: there node_exporter tells of no disk."""
    return any(line.split()[1] == "/" for line in Path("/proc/self/mounts").read_text().splitlines())


def numbers(series: Series) -> Series:
    """Empty when no number is in them."""
    found = [float(value) for one in series for _, value in one["values"]]
    return [] if all(math.isnan(number) for number in found) else series


def answers(own: Observatory) -> dict[str, Series]:
    """What each query returned. Rules need some evaluations first, those of long windows a minute: all wait
    together."""
    waiting = asked()
    found: dict[str, Series] = {}

    def none_waits() -> bool:
        for of, target in list(waiting.items()):
            if series := numbers(own.series(concrete(target["expr"]))):
                found[of] = series
                del waiting[of]
        assert not waiting, f"no series with numbers: {sorted(waiting)}"
        return True

    eventually(none_waits, "every query has an answer", every_s=0.5)
    return found


def lacks_a_label(of: str, target: Target, series: Series) -> Iterator[str]:
    """One that its legend uses. Exporters have instances, processes and an `up`, too, in the same cluster:
    what is shown by agent is not of them."""
    labels = [one["metric"] for one in series]
    for label in re.findall(r"\{\{([a-z]+)\}\}", target.get("legendFormat", "")):
        if not all(label in one for one in labels):
            yield f"{of}: {label}"
    if "ALERTS" not in target["expr"]:
        others = {one["instance"] for one in labels if "instance" in one} - {"web1:9480", "web2:9480"}
        yield from (f"{of}: {instance}" for instance in sorted(others))


def test_every_query_returns_series_with_the_labels_that_its_legend_uses(watched: Observatory) -> None:
    targets = asked()
    assert len(targets) > 100
    found = answers(watched).items()
    expect_none([lacking for of, series in found for lacking in lacks_a_label(of, targets[of], series)])


def test_a_legend_without_its_label_and_an_exporter_among_agents_are_named() -> None:
    target = {"expr": "up", "legendFormat": "{{instance}} {{class}}"}
    series: Series = [
        {"metric": {"instance": "web1:9480", "class": "a"}},
        {"metric": {"instance": "m1:9100"}},
    ]
    assert list(lacks_a_label("a panel A", target, series)) == ["a panel A: class", "a panel A: m1:9100"]


def test_an_answer_without_a_number_is_none() -> None:
    assert numbers([{"values": [(1, "NaN")]}]) == []
    assert numbers([{"values": [(1, "NaN"), (2, "0")]}])


def test_the_number_of_a_masters_state_is_that_of_its_word(watched: Observatory) -> None:
    assert set(MASTER_STATES) - {"clock", "quarantined"} == {str(state) for state in State}
    ours = [one for one in watched.series(concrete(master_state())) if one["metric"]["master"] == "m1"]
    seen = [MASTER_STATES[int(float(value))] for series in ours for _, value in series["values"]]
    assert {"up", "quarantined"} <= set(seen)


def test_a_slow_wait_leads_to_its_lease(watched: Observatory) -> None:
    """By an exemplar on the graph: the fence that `lockctl locks --local` and the log show."""
    board = json.loads((FOLDER / "lockd-classes.json").read_text())
    targets = [target for panel in board["panels"] for target in panel["targets"] if target["exemplar"]]
    waits = [target["expr"] for target in targets if "lockd_wait_seconds" in target["expr"]]
    assert waits
    for expr in waits:
        labels = watched.exemplars(concrete(expr))
        assert labels
        assert all(one["fence"].isdigit() for one in labels)
