"""One outage is one page. A real Alertmanager with our routes is given the alerts that an outage fires, and a
receiver in place of the pager counts."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from lockd.dev.processes import LOOPBACK, free_ports
from tests.alerts.monitoring import Receiver, shortened
from tests.harness import prometheus
from tests.harness.masters import short_folder
from tests.harness.prometheus import ALERTS, ALL_ALERTS
from tests.harness.waiting import PATIENCE_S, eventually

HOSTS = [{"instance": f"web{number}:9480"} for number in range(1, 4)]
MASTERS = [{"master": f"m{number}"} for number in range(1, 6)]
PROMETHEUS = {"cluster": "", "instance": "mon1:9090"}
Labels = dict[str, str]


def fires(name: str, severity: str, *places: Labels, **more: str) -> list[Labels]:
    """One alert for each place, with the labels that its rule gives it."""
    assert {"alert": name, "severity": severity} in KNOWN, f"no rule {name} is {severity}"
    labels = {"alertname": name, "severity": severity, "cluster": "shop", **more}
    return [labels | place for place in places or ({},)]


KNOWN = [{"alert": one["alert"], "severity": one["labels"]["severity"]} for one in ALL_ALERTS]
BURN = [
    *fires("LockdErrorBudgetBurn", "critical", window="1h"),
    *fires("LockdErrorBudgetBurn", "critical", window="6h"),
]
NO_MARGIN = [
    *fires("LockdQuorumNoMargin", "warning", *HOSTS),
    *fires("LockdQuorumNoMargin", "critical", *HOSTS),
]
NO_QUORUM = [
    *fires("LockdQuorumLostEverywhere", "critical"),
    *fires("LockdQuorumLost", "critical", *HOSTS),
    *fires("LockdLeaseLost", "critical", *HOSTS, **{"class": "billing"}),
    *fires("LockdExtendFailing", "warning", **{"class": "billing"}),
    *BURN,
]


@dataclass(frozen=True)
class Outage:
    """What fires, and the pages that are sent: the alerts that stand in each."""

    what: str
    alerts: list[Labels]
    pages: tuple[frozenset[str], ...]


def page(*names: str) -> frozenset[str]:
    return frozenset(names)


OUTAGES = (
    Outage("one app host is down", fires("LockdDown", "warning", HOSTS[0]), ()),
    Outage(
        "one app host of many lost its network",
        [
            *fires("LockdQuorumLost", "critical", HOSTS[0]),
            *fires("LockdMasterUnreachable", "warning", *MASTERS),
            *fires("LockdLeaseLost", "critical", HOSTS[0], **{"class": "billing"}),
            *BURN,
        ],
        (page("LockdQuorumLost", "LockdLeaseLost", "LockdErrorBudgetBurn"),),
    ),
    Outage("one agent ends again and again", fires("LockdRestarting", "warning", HOSTS[0]), ()),
    Outage(
        "many agents end again and again",
        [*fires("LockdRestarting", "critical"), *fires("LockdRestarting", "warning", *HOSTS)],
        (page("LockdRestarting"),),
    ),
    Outage(
        "one of two Alertmanagers is down",
        fires("LockdAlertmanagerAbsent", "warning", PROMETHEUS),
        (),
    ),
    Outage(
        "many app hosts are down",
        [*fires("LockdManyDown", "critical"), *fires("LockdDown", "warning", *HOSTS)],
        (page("LockdManyDown"),),
    ),
    Outage(
        "one master is down",
        [
            *fires("LockdMasterDown", "warning", MASTERS[0]),
            *fires("LockdMasterMetricsAbsent", "warning", MASTERS[0]),
        ],
        (),
    ),
    Outage(
        "two masters are down",
        [*fires("LockdMasterDown", "warning", *MASTERS[:2]), *NO_MARGIN],
        (page("LockdQuorumNoMargin"),),
    ),
    Outage(
        "three masters are down",
        [*fires("LockdMasterDown", "warning", *MASTERS[:3]), *NO_QUORUM],
        (page("LockdQuorumLostEverywhere", "LockdLeaseLost"),),
    ),
    Outage(
        "no host reaches the masters: the network between them is cut",
        [*fires("LockdMasterDown", "warning", *MASTERS), *NO_QUORUM],
        (page("LockdQuorumLostEverywhere", "LockdLeaseLost"),),
    ),
    Outage(
        "the monitoring host is cut off from all app hosts",
        [*fires("LockdManyDown", "critical"), *fires("LockdDown", "warning", *HOSTS)],
        (page("LockdManyDown"),),
    ),
    Outage(
        "the disks of all masters are nearly full",
        [
            {**one, "instance": f"{one['master']}:9100", "mountpoint": "/"}
            for severity in ("warning", "critical")
            for one in fires("LockdMasterDiskFull", severity, *MASTERS)
        ],
        (page("LockdMasterDiskFull"),),
    ),
    Outage(
        "the monitoring evaluates no rules, has a full disk and can't send",
        [
            *fires("LockdRulesFailing", "critical", PROMETHEUS),
            *fires("LockdRulesMissed", "warning", PROMETHEUS),
            *fires("LockdMonitoringDiskFull", "warning", PROMETHEUS),
            *fires("LockdMonitoringDiskFull", "critical", PROMETHEUS),
            *fires("LockdAlertsNotSent", "critical", PROMETHEUS),
            *fires("LockdAlertmanagerAbsent", "critical", PROMETHEUS),
        ],
        (
            page(
                "LockdRulesFailing",
                "LockdMonitoringDiskFull",
                "LockdAlertsNotSent",
                "LockdAlertmanagerAbsent",
            ),
        ),
    ),
    Outage(
        "the way to the people is broken",
        fires("LockdAlertsNotDelivered", "critical", PROMETHEUS),
        (page("LockdAlertsNotDelivered"),),
    ),
)


@contextmanager
def alertmanager() -> Iterator[tuple[str, Receiver]]:
    """Its URL, and who is told. A minute of its routes takes three seconds."""
    address, receiver = f"{LOOPBACK}:{free_ports(1)[0]}", Receiver()
    try:
        with short_folder() as folder:
            routes = shortened((ALERTS / "alertmanager.yml").read_text())
            (folder / "alertmanager.yml").write_text(routes.replace(Receiver.STAND_IN, receiver.address))
            process = prometheus.alertmanager(folder, address, folder / "alertmanager.yml")
            try:
                process.start()
                prometheus.wait_ready(f"http://{address}")
                yield f"http://{address}", receiver
            finally:
                process.kill()
    finally:
        receiver.close()


def post(url: str, alerts: list[Labels]) -> None:
    body = json.dumps([{"labels": one} for one in alerts]).encode()
    request = urllib.request.Request(f"{url}/api/v2/alerts", body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=PATIENCE_S).close()


@pytest.mark.parametrize("outage", OUTAGES, ids=lambda outage: outage.what)
def test_one_outage_is_one_page_or_none(outage: Outage) -> None:
    """An outage of another cluster, later, tells when all that there is to tell was told."""
    with alertmanager() as (url, told):

        def pages(ours: bool) -> list[frozenset[str]]:
            return [one.alerts for one in told.pages("/pager") if ("other" not in one.group) == ours]

        post(url, outage.alerts)
        eventually(lambda: pages(ours=True) == list(outage.pages), f"{outage.pages}")
        post(url, [one | {"cluster": "other"} for one in fires("LockdQuorumLostEverywhere", "critical")])
        eventually(lambda: pages(ours=False), "the other cluster's")
        assert pages(ours=True) == list(outage.pages)


def test_what_an_outage_brings_later_is_added_to_its_page() -> None:
    with alertmanager() as (url, told):
        post(url, fires("LockdQuorumNoMargin", "critical", *HOSTS))
        eventually(lambda: told.pages("/pager"), "the first page")
        post(url, NO_QUORUM)
        eventually(lambda: "LockdQuorumLostEverywhere" in told.alerts("/pager"), "the update")
        assert len(told.pages("/pager")) == 1


def test_two_clusters_are_two_pages_and_the_monitoring_is_a_third() -> None:
    with alertmanager() as (url, told):
        lost = fires("LockdQuorumLostEverywhere", "critical")
        post(
            url,
            [
                *lost,
                *(one | {"cluster": "bank"} for one in lost),
                *fires("LockdRulesFailing", "critical", PROMETHEUS),
            ],
        )
        eventually(lambda: len(told.pages("/pager")) == 3)
