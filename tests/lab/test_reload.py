"""Another configuration comes to agents that work: by a reload, which nobody notices, or by a restart where
it takes one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab import inventory
from tests.lab.conftest import Cluster
from tests.lab.holders import holding
from tests.lab.lab import APPS
from tests.lab.load import at_work
from tests.lab.plays import Played, play
from tests.lab.waiting import until

HOLDER = "lab-holder"
HELD = "reloaded:held"
FILE = "/etc/lockd/lockd.yml"
RELOADED = {
    **inventory.PATIENT,
    "classes": [{"name": "reloaded", "match": "reloaded:*", "max_ttl_ms": 1_000}],
    "limits": {"renewals_per_second": 4_000},
}
MORE_MEMORY_MIB = 1_500
"""Than by default."""
RESTARTED = {**RELOADED, "timeouts": {**inventory.PATIENT["timeouts"], "dead_ms": 25_000}}


@pytest.fixture
def restored(cluster: Cluster) -> Iterator[None]:
    yield
    play(cluster.lab, "site.yml", "--tags", "lockd").must_work()


@pytest.fixture
def holder(cluster: Cluster, on: Any) -> Iterator[str]:
    """Of a lease that is renewed again and again; the token's begin."""
    run = f"lockctl run --ttl {inventory.TTL} {HELD} -- sleep infinity"
    on("a1").check_output(f"systemd-run --collect --unit={HOLDER} {run}")
    yield until(lambda: held_by(on), "the lease")
    on("a1").run(f"systemctl stop {HOLDER}")


def held_by(on: Any) -> str:
    said = on("a1").run(f"lockctl holder {HELD} --json").stdout
    return str((json.loads(said or "null") or {}).get("holder", ""))


def pids(on: Any) -> list[str]:
    return [on(name).check_output("systemctl show --value -p MainPID lockd") for name in APPS]


def configured(cluster: Cluster, settings: dict[str, Any], *words: str) -> Played:
    inventory.write(
        cluster.lab, {"lockd_settings": settings, "lockd_memory_mib": MORE_MEMORY_MIB}, "configured"
    )
    with at_work(cluster.lab, " ".join(["site.yml", *words, "(configured)"])) as work:
        played = play(cluster.lab, "site.yml", *words, inventory_name="configured").must_work()
    work.must_be_flawless()
    return played


def memory_high(on: Any) -> int:
    return int(on("a1").check_output("systemctl show --value -p MemoryHigh lockd"))


def test_another_class_is_reloaded_and_no_holder_notices(
    cluster: Cluster, on: Any, holder: str, restored: None
) -> None:
    before, memory = pids(on), memory_high(on)
    # As a play that was interrupted when all was written.
    configured(cluster, RELOADED, "--tags", "lockd", "--skip-tags", "run")
    assert on("a1").run(f"lockctl lock reloaded:new --ttl {inventory.TTL}").rc == 0
    with holding(cluster.lab, "site.yml with another class, which is reloaded") as held:
        played = configured(cluster, RELOADED, "--tags", "lockd")
    held.must_have_been_kept()
    assert set(played.changed_hosts) == set(APPS)
    assert pids(on) == before
    assert held_by(on) == holder
    for name in APPS:
        refused = on(name).run(f"lockctl lock reloaded:newer --ttl {inventory.TTL}")
        assert "class 'reloaded'" in refused.stderr, refused
        checks = json.loads(on(name).run(f"lockctl doctor --json --config {FILE}").stdout)["checks"]
        assert [one["verdict"] for one in checks if one["check"] in ("configuration", "reload")] == ["ok"]
    assert memory_high(on) > memory
    assert play(cluster.lab, "site.yml", "--tags", "lockd", inventory_name="configured").changed_hosts == []
    with holding(cluster.lab, "site.yml with another time-out, which takes a restart") as held:
        configured(cluster, RESTARTED, "--tags", "lockd")
    held.must_have_been_kept()
    assert set(before).isdisjoint(pids(on))
    assert on("a1").run("lockctl reload --check").rc == 0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("s/^log_level: .*/log_level: loud/", "the file has errors"),
        ("s/^cluster: .*/cluster: another/", "a restart is needed for cluster"),
    ],
)
def test_a_reload_that_was_refused_fails_says_why_and_changes_nothing(
    cluster: Cluster, on: Any, change: str, why: str
) -> None:
    host, before = on("a1"), pids(on)
    host.check_output(f"cp -p {FILE} {FILE}.kept && sed -i '{change}' {FILE}")
    try:
        assert host.run("systemctl reload lockd").rc != 0
        assert why in (status := host.run("systemctl status lockd").stdout), status
        assert host.check_output("systemctl is-active lockd") == "active"
    finally:
        host.check_output(f"mv {FILE}.kept {FILE}")
    host.check_output("systemctl reload lockd && systemctl is-active lockd")
    assert "serving with configuration" in host.run("systemctl status lockd").stdout
    assert pids(on) == before
    host.check_output("systemctl kill --signal=HUP --kill-whom=main lockd")
    until(lambda: "by=SIGHUP" in host.run("journalctl -u lockd -o cat --lines=20").stdout, "its reload")
    assert host.check_output("systemctl is-active lockd") == "active"
