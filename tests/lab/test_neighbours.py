"""What others have on a host is left alone: ports that they listen on, programs that lockd would configure,
and a monitoring that is there already."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.lab import inventory
from tests.lab.conftest import Cluster
from tests.lab.plays import play
from tests.lab.waiting import until

THEIRS = "theirs.service"
FOLDER = "/srv/rules/lockd"
FEWER = {
    "lockd_prometheus_enabled": False,
    "lockd_alertmanager_enabled": False,
    "lockd_node_exporter_enabled": False,
}


@pytest.fixture
def listener(on: Any) -> Iterator[Callable[[str, int], None]]:
    """Something of somebody else's that listens on that host's port."""
    began: list[str] = []

    def listens(host: str, port: int) -> None:
        on(host).check_output(f"systemd-run --unit={THEIRS} /usr/bin/python3 -m http.server {port}")
        began.append(host)
        opens = f"bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}'"
        until(lambda: on(host).run(opens).rc == 0, "somebody listens")

    yield listens
    for host in began:
        on(host).check_output(f"systemctl stop {THEIRS}")


def test_a_port_that_somebody_else_has_is_found_before_anything_is_changed(
    cluster: Cluster, on: Any, listener: Callable[[str, int], None]
) -> None:
    listener("mon1", 9187)
    inventory.write(cluster.lab, {"lockd_prometheus_listen": "127.0.0.1:9187"}, "taken")
    refused = play(cluster.lab, "site.yml", inventory_name="taken")
    refused.must_stop_with(
        "On mon1: port 9187, which prometheus.service needs,", f"in use by {THEIRS}",
        "lockd_prometheus_listen",
        "nothing was changed",
    )  # fmt: skip


def test_a_program_that_was_there_before_is_not_configured_anew(cluster: Cluster, on: Any) -> None:
    """What says that they are lockd's is taken away: so it would look if lockd had never installed them."""
    mark = "/etc/systemd/system/prometheus.service.d/lockd.conf"
    on("mon1").check_output(f"mv {mark} {mark}.away")
    try:
        refused = play(cluster.lab, "site.yml")
        refused.must_stop_with(
            "prometheus.service was not installed by lockd",
            "lockd_prometheus_enabled: false",
            "nothing was changed",
        )
    finally:
        on("mon1").check_output(f"mv {mark}.away {mark}")


def test_a_monitoring_that_is_there_gets_files_and_is_told_how_to_read_them(
    cluster: Cluster, on: Any
) -> None:
    inventory.write(cluster.lab, {**FEWER, "lockd_prometheus_folder": FOLDER}, "theirs")
    written = (
        "/etc/prometheus/prometheus.yml",
        "/etc/default/prometheus",
        "/etc/default/prometheus-node-exporter",
    )
    before = {path: on("mon1").file(path).content for path in written if on("mon1").file(path).exists}
    beside = play(cluster.lab, "site.yml", "--tags", "monitoring", inventory_name="theirs").must_work()
    assert "The Prometheus of mon1 was not installed by lockd" in beside.said
    assert f"{FOLDER}/*.yml" in beside.said
    assert {path: on("mon1").file(path).content for path in before} == before
    on("mon1").check_output(f"promtool check rules {FOLDER}/*.yml")
    agents = json.loads(on("mon1").file(f"{FOLDER}/targets/agents.json").content_string)
    assert [one["targets"] for one in agents] == [["10.77.0.21:9480"], ["10.77.0.22:9480"]]
    # With the lines that the play said.
    on("mon1").check_output(
        "printf '%s\\n' 'rule_files: [/srv/rules/lockd/*.yml]' 'scrape_configs:' '- job_name: lockd' "
        "'  file_sd_configs: [{files: [/srv/rules/lockd/targets/agents.json]}]' > /srv/theirs.yml"
    )
    on("mon1").check_output("promtool check config /srv/theirs.yml")
    inventory.write(
        cluster.lab,
        {
            **FEWER, "lockd_prometheus_folder": FOLDER, "lockd_prometheus_config": "/srv/theirs.yml",
            "lockd_prometheus_reload": "touch /srv/reloaded", "lockd_prometheus_grafana_url": "https://graphs.example",
        },
        "theirs",
    )  # fmt: skip
    changed = play(cluster.lab, "site.yml", "--tags", "monitoring", inventory_name="theirs").must_work()
    assert "was not installed by lockd" not in changed.said
    assert on("mon1").file("/srv/reloaded").exists
    again = play(cluster.lab, "site.yml", "--tags", "monitoring", inventory_name="theirs").must_work()
    assert again.changed_hosts == []
    on("mon1").check_output("rm -r /srv/rules /srv/theirs.yml /srv/reloaded")


def test_nothing_of_it_was_left_changed(cluster: Cluster) -> None:
    assert play(cluster.lab, "site.yml").must_work().changed_hosts == []
