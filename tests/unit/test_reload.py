"""Which settings a running agent takes from its file anew, and what is
counted for classes that come and go."""

from __future__ import annotations

import asyncio
import os
import threading
from itertools import count
from typing import Any

import pytest
from prometheus_client import generate_latest

from lockd.config.current import Current
from lockd.config.model import Config
from lockd.config.problems import ConfigError
from lockd.config.reload import RELOADED, RESTARTED, SETTINGS, Changes, changes
from lockd.core.validity import NS_PER_S
from lockd.metrics.collector import Metrics
from lockd.server.peer import Peer, Permissions
from lockd.server.reload import in_time
from tests.harness.clocks import MS
from tests.harness.configs import a_config
from tests.harness.leases import a_lease


def test_each_setting_can_be_reloaded_or_takes_a_restart_and_a_new_one_takes_a_restart() -> None:
    assert sorted(RELOADED + RESTARTED) == sorted(SETTINGS)
    assert {one.partition(".")[0] for one in SETTINGS} == set(Config.keys)
    assert {one.partition(".")[0] for one in RELOADED} == {
        "min_ttl_ms", "admin_group", "canary_ms", "defaults", "classes", "limits", "log_level",
    }  # fmt: skip
    assert [one for one in RESTARTED if one.startswith("limits")] == ["limits.resource_bytes"]


@pytest.mark.parametrize(
    ("settings", "reloaded", "restarted"),
    [
        ({}, (), ()),
        ({"classes": [{"name": "a", "match": "a*"}], "log_level": "debug"}, ("classes", "log_level"), ()),
        ({"defaults": {"max_wait_ms": 1}, "canary_ms": 0}, ("canary_ms", "defaults.max_wait_ms"), ()),
        ({"limits": {"files": 50_001, "resource_bytes": 9}}, ("limits.files",), ("limits.resource_bytes",)),
        ({"masters": 5, "timeouts": {"dead_ms": 1}}, (), ("masters", "timeouts.dead_ms")),
        ({"auth": {"password": "another"}, "metrics": None}, (), ("auth.password", "metrics")),
    ],
)
def test_what_differs_is_named(
    settings: dict[str, Any], reloaded: tuple[str, ...], restarted: tuple[str, ...]
) -> None:
    before = {"auth": {"password": "one"}}
    assert changes(a_config(**before), a_config(**(before | settings))) == Changes(reloaded, restarted)


def lines_of(metrics: Metrics, name: str) -> dict[str, float]:
    """Of each class."""
    text = generate_latest(metrics.registry).decode()
    lines = [line for line in text.splitlines() if line.startswith(f"{name}{{")]
    return {line.split('class="')[1].split('"')[0]: float(line.split()[-1]) for line in lines}


def test_a_new_class_counts_from_0_and_one_that_was_removed_goes_on_where_it_was() -> None:
    old = [{"name": "old", "match": "old*", "wait_objective_ms": 10}]
    new = [{"name": "new", "match": "new*", "wait_objective_ms": 30}]
    current = Current(a_config(classes=old))
    # What is held is counted anew for each scrape.
    metrics = Metrics(current, now_ns=count(0, 2 * NS_PER_S).__next__)

    def reload(classes: list[dict[str, Any]]) -> None:
        metrics.configure(config := a_config(classes=classes))
        current.config = config

    metrics.leases.granted(a_lease("old"), 20 * MS)
    reload(new)
    metrics.leases.granted(a_lease("new"), 20 * MS)
    metrics.leases.released(a_lease("old"), "released", 0)
    assert lines_of(metrics, "lockd_grants_total") == {"old": 1, "new": 1, "other": 0, "canary": 0}
    assert lines_of(metrics, "lockd_slow_waits_total") == {"old": 1, "new": 0, "other": 0}
    assert lines_of(metrics, "lockd_class_wait_objective_seconds")["old"] == 0.01
    assert set(lines_of(metrics, "lockd_waiters")) == {"old", "new", "other"}
    reload(old)
    metrics.leases.granted(a_lease("old"), 20 * MS)
    assert lines_of(metrics, "lockd_grants_total")["old"] == 2


def test_leases_of_a_class_that_was_removed_are_shown_to_operators_only() -> None:
    """Until then it may have been for few."""
    permissions = Permissions(a_config())
    nobody_known = os.geteuid() + 1_000  # the agent's own user is an operator as well
    somebody, root = (Peer(1, uid, frozenset()) for uid in (nobody_known, 0))
    assert permissions.may_see(somebody, "other")
    assert [permissions.may_see(peer, "gone") for peer in (somebody, root)] == [False, True]


def test_what_takes_too_long_to_look_up_is_no_reload_and_keeps_nobody_from_ending() -> None:
    go_on = threading.Event()
    with pytest.raises(ConfigError, match=r"within 0\.01 s"):
        asyncio.run(in_time(go_on.wait, within_s=0.01))
    go_on.set()
    assert asyncio.run(in_time(lambda: "read")) == "read"
    with pytest.raises(ZeroDivisionError):
        asyncio.run(in_time(lambda: 1 // 0))
