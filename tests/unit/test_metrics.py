"""What is counted, and what a scrape shows of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families

from lockd import __version__
from lockd.build import build
from lockd.config.current import Current
from lockd.config.model import Config
from lockd.core import sizes
from lockd.core.clocks import Clocks
from lockd.core.errors import ErrorWord
from lockd.core.leases import Loss, Standing
from lockd.core.locks import Locks
from lockd.core.membership import Identity, MasterFacts, Memory, State
from lockd.core.queues import KeptEnd, Queue
from lockd.core.slewing import Slewing
from lockd.core.stakes import STOCKS
from lockd.core.tenures.places import RecallEnd
from lockd.core.values import Chance, RedlockParameters, Refusal
from lockd.masters.fleet import Fleet
from lockd.metrics.canary import CANARY_OUTCOMES
from lockd.metrics.collector import Metrics
from lockd.metrics.counts import WAIT_S, Histogram
from lockd.metrics.leases import LEASE_REFUSAL_CODES, OUTCOMES, REFUSAL_CODES, RELEASE_REASONS
from lockd.metrics.masters import NOT_COUNTED
from lockd.server.quotas import Cost, Holding, Quotas, Room
from tests.harness.agent_series import AgentSeries
from tests.harness.clocks import MS
from tests.harness.configs import a_config
from tests.harness.leases import a_lease

NOW_NS = 1_000_000 * MS
ALL, QUORUM = 0b111, 0b011
OF_MASTERS_AND_CLOCKS = {
    "lockd_master_evicted_keys_total", "lockd_master_clock_jumps_total", "lockd_standstills_total",
    "lockd_stood_still_seconds_total",
}  # fmt: skip
"""What others count, and an agent only passes on."""


@pytest.fixture
def config() -> Config:
    return a_config(
        classes=[
            {"name": "billing", "match": "billing:*", "page_on_loss": True, "wait_objective_ms": 200},
            {"name": "jobs", "match": "jobs:*"},
        ]
    )


@pytest.fixture
def metrics(config: Config) -> Metrics:
    return Metrics(Current(config), now_ns=lambda: NOW_NS)


def scraped(metrics: Metrics) -> dict[str, float]:
    """Every sample as Prometheus would name it: `name{label=value,...}`."""
    text = generate_latest(metrics.registry).decode()
    return {
        sample_name(s.name, s.labels): s.value
        for f in text_string_to_metric_families(text)
        for s in f.samples
    }


def shows(metrics: Metrics, expected: dict[str, float]) -> None:
    """A scrape has these samples, by their names without `lockd_`."""
    samples = scraped(metrics)
    assert {name: samples[f"lockd_{name}"] for name in expected} == pytest.approx(expected, rel=1e-12, abs=0)


def sample_name(name: str, labels: dict[str, str]) -> str:
    return name + ("{" + ",".join(f"{k}={v}" for k, v in sorted(labels.items())) + "}" if labels else "")


def a_link(index: int, state: State) -> Any:
    master = SimpleNamespace(name=f"m{index + 1}", address=f"10.0.0.{index + 1}:6379")
    return SimpleNamespace(index=index, state=state, master=master, facts=None, certificate_end_s=None)


def a_fleet(*states: State, voting: int = ALL) -> Any:
    clocks = Clocks(3, max_ttl_ms=60_000, allowance_ms=100)
    links = [a_link(i, state) for i, state in enumerate(states or (State.UP,) * 3)]
    return SimpleNamespace(links=links, clocks=clocks, slewing=Slewing(), giving=lambda: voting)


def some_locks(**leases: Any) -> Any:
    queues = {name.encode(): a_queue(name.encode(), lease) for name, lease in leases.items()}
    return SimpleNamespace(queues=queues, detached={}, waiting=0, draining=False, draining_since_ns=None)


def a_queue(resource: bytes, lease: Any) -> Queue:
    queue = Queue(resource)
    queue.lease = lease
    return queue


LIMITED = (
    "resources_per_lock", "slots", "resource_bytes", "request_bytes", "unread_ms",
    "unknown_tokens_per_second", "scripts",
)  # fmt: skip
"""As LIMIT says it where no stock is used up."""


def test_every_class_reason_and_limit_is_there_before_anything_happened(
    metrics: Metrics, config: Config
) -> None:
    def each(name: str, **labels: Iterable[str]) -> list[str]:
        rows = product(*labels.values())
        return [sample_name(f"lockd_{name}", dict(zip(labels, row, strict=True))) for row in rows]

    classes = ["billing", "jobs", "other"]
    masters = ["m1", "m2", "m3"]
    expected = [
        *each("grants_total", **{"class": [*classes, "canary"]}),
        *each("slow_waits_total", **{"class": classes}),
        *each("leases", **{"class": classes}),
        *each("losses_total", **{"class": classes}, reason=Loss),
        *each("refusals_total", **{"class": [*classes, "canary"]}, reason=map(str.lower, REFUSAL_CODES)),
        *each("releases_total", reason=[one.replace(" ", "_") for one in RELEASE_REASONS]),
        *each("failed_tries_total", reason=["taken", "timeout", "noquorum", "clock"]),
        *each("renewals_total", **{"class": classes}, outcome=["worked", "failed"]),
        *each("wait_seconds_count", **{"class": classes}, outcome=["granted"]),
        *each(
            "lease_refusals_total",
            **{"class": classes, "reason": map(str.lower, LEASE_REFUSAL_CODES)},
        ),
        *each("kept_seconds_count", outcome=KeptEnd),
        *each("recall_seconds_count", outcome=RecallEnd),
        *each("master_round_trip_seconds_count", master=masters, question=["vote", "probe"]),
        *each("master_votes_not_counted_total", master=masters, reason=NOT_COUNTED),
        *each("master_connects_total", master=masters),
        *each("limit_refusals_total", limit=[*STOCKS, *LIMITED]),
        *each("canary_seconds_count", outcome=CANARY_OUTCOMES),
    ]
    samples = scraped(metrics)
    assert {name: samples.get(name) for name in expected} == dict.fromkeys(expected, 0)


def test_the_agent_says_what_it_is_and_how_it_is_configured(metrics: Metrics, config: Config) -> None:
    shows(
        metrics,
        {
            f"build_info{{build={build()},version={__version__}}}": 1,
            f"config_info{{fingerprint={config.fingerprint()},name=shop}}": 1,
            "masters": 3, "quorum": 2, "max_ttl_seconds": 60, "master_timeout_seconds": 0.25,
            "clock_skew_allowance_seconds": 0.1, "canary_interval_seconds": 10,
            "class_info{class=billing,page_on_loss=true}": 1,
            "class_info{class=canary,page_on_loss=false}": 1,
            "class_wait_objective_seconds{class=billing}": 0.2,
        },
    )  # fmt: skip
    samples = scraped(metrics)
    assert samples["process_resident_memory_bytes"] > 0
    assert any(name.startswith("python_info") for name in samples)


def test_what_becomes_of_leases_is_counted_by_class_and_as_other_where_none_is_configured(
    metrics: Metrics,
) -> None:
    lease = a_lease("jobs", granted_ns=10 * MS)
    metrics.leases.granted(a_lease("billing"), waited_ns=3 * MS)
    metrics.leases.granted(lease, 0)
    metrics.leases.released(lease, "app gone", 2_010 * MS)
    metrics.leases.granted(a_lease("nobody_knows"), 0)
    for worked in (True, True, False):
        metrics.leases.renewed(lease, worked)
    metrics.leases.lost(a_lease("jobs", lost_by=Loss.NOT_RENEWED), "it could not be renewed: no quorum")
    # Words that are not counted from the start are counted all the same.
    metrics.leases.refused("jobs", Refusal(ErrorWord.NOTHELD, ""), 0)
    metrics.leases.released(a_lease("other"), "handed on", 0)
    metrics.leases.tried_in_vain("jobs", ErrorWord.TAKEN)
    shows(
        metrics,
        {
            "grants_total{class=billing}": 1, "leases{class=billing}": 1,
            "wait_seconds_bucket{class=billing,le=0.001,outcome=granted}": 0,
            "wait_seconds_bucket{class=billing,le=0.005,outcome=granted}": 1,
            "wait_seconds_bucket{class=billing,le=+Inf,outcome=granted}": 1,
            "wait_seconds_sum{class=billing,outcome=granted}": 0.003,
            "leases{class=jobs}": 0, "releases_total{reason=app_gone}": 1,
            "hold_seconds_bucket{class=jobs,le=1.0}": 0, "hold_seconds_bucket{class=jobs,le=10.0}": 1,
            "hold_seconds_sum{class=jobs}": 2, "grants_total{class=other}": 1,
            "renewals_total{class=jobs,outcome=worked}": 2, "renewals_total{class=jobs,outcome=failed}": 1,
            "losses_total{class=jobs,reason=not_renewed}": 1, "losses_total{class=jobs,reason=gone}": 0,
            "failed_tries_total{reason=taken}": 1, "failed_tries_total{reason=clock}": 0,
            "refusals_total{class=jobs,reason=notheld}": 1, "releases_total{reason=handed_on}": 1,
        },
    )  # fmt: skip


@pytest.mark.parametrize(
    ("code", "outcome"),
    [("TAKEN", "contended"), ("TIMEOUT", "contended"), ("NOQUORUM", "unavailable"), ("CLOCK", "unavailable"),
     ("DENIED", "rejected"), ("LIMIT", "rejected"), ("DRAINING", "rejected"), ("ERR", "rejected")],
)  # fmt: skip
def test_contention_and_outage_are_never_counted_as_each_other(
    metrics: Metrics, code: str, outcome: str
) -> None:
    refusal = Refusal(ErrorWord(code), "retry-after=7")
    metrics.leases.refused("jobs", refusal, MS)
    metrics.canary.refused(refusal, MS)
    outcomes = {f"canary_seconds_count{{outcome={one}}}": int(one == outcome) for one in OUTCOMES}
    words = {f"refusals_total{{class=jobs,reason={one.lower()}}}": int(one == code) for one in REFUSAL_CODES}
    shows(metrics, outcomes | words | {"grants_total{class=jobs}": 0})


def test_a_wait_is_slow_above_its_own_objective_and_only_for_another_holder(metrics: Metrics) -> None:
    for label in ("billing", "jobs"):
        metrics.leases.granted(a_lease(label), 200 * MS)
        metrics.leases.granted(a_lease(label), 201 * MS)
        metrics.leases.refused(label, Refusal(ErrorWord.TIMEOUT, ""), 201 * MS)
        metrics.leases.refused(label, Refusal(ErrorWord.NOQUORUM, ""), 9_000 * MS)
        # This one did not wait: the masters were slow.
        metrics.leases.refused(label, Refusal(ErrorWord.TAKEN, ""), 9_000 * MS)
    shows(metrics, {"slow_waits_total{class=billing}": 2, "slow_waits_total{class=jobs}": 0})


def test_grants_refusals_and_slow_waits_of_a_scrape_are_of_one_instant(metrics: Metrics) -> None:
    """Or a share made of them would be above 100 %, when the loop grants between two families."""
    metrics.leases.granted(a_lease("billing"), 201 * MS)
    found = {}
    for family in metrics.collect():
        found[family.name] = sum(sample.value for sample in family.samples)
        metrics.leases.granted(a_lease("billing"), 201 * MS)
        metrics.leases.refused("billing", Refusal(ErrorWord.TIMEOUT, ""), 201 * MS)
    assert found["lockd_slow_waits"] == found["lockd_grants"] + found["lockd_refusals"]


def test_the_margin_is_what_validity_was_left_and_counts_only_what_apps_gave_back(metrics: Metrics) -> None:
    for why, at_ms in (("released", 60), ("released", 400), ("expired", 300)):
        metrics.leases.released(a_lease("billing", deadline_ns=300 * MS), why, at_ms * MS)
    counts = {f"release_margin_seconds_bucket{{class=billing,le={le}}}": n for le, n in ((0.1, 1), (1.0, 2))}
    shows(metrics, counts | {"release_margin_seconds_sum{class=billing}": 0.24})


def test_held_leases_are_told_apart_by_how_many_masters_confirmed_them(metrics: Metrics) -> None:
    locks = some_locks(a=a_lease("billing"), b=a_lease("billing", proven=QUORUM), c=None)
    locks.detached[b"t"] = a_lease("billing", proven=QUORUM)
    metrics.attach(a_fleet(), locks, lambda: 0)
    samples = scraped(metrics)
    assert [samples[f"lockd_leases_on_masters{{masters={n}}}"] for n in range(4)] == [0, 0, 2, 1]


def test_the_canary_says_how_it_fared_and_when_it_last_worked_and_counts_failures_since(
    metrics: Metrics,
) -> None:
    worked_at = "lockd_canary_last_success_timestamp_seconds"
    shows(metrics, {"canary_failures": 0})
    metrics.canary.refused(Refusal(ErrorWord.NOQUORUM, "m1=error-OOM"), 3 * MS)
    metrics.canary.unreleased(Refusal(ErrorWord.NOQUORUM, "m1=error-NOPERM"), 4 * MS)
    shows(metrics, {"canary_failures": 2})
    why = "its release was not confirmed: NOQUORUM m1=error-NOPERM"
    assert metrics.canary.trouble == (2, "UNRELEASED", why)
    metrics.canary.refused(Refusal(ErrorWord.NOQUORUM, "m1=error-OOM"), 3 * MS)
    assert metrics.canary.trouble == (3, "NOQUORUM", "NOQUORUM m1=error-OOM")
    assert worked_at not in scraped(metrics)
    before_s = time.time()
    metrics.canary.worked(5 * MS)
    outcomes = {"granted": 1, "unavailable": 2, "unreleased": 1}
    counts = {f"canary_seconds_count{{outcome={outcome}}}": n for outcome, n in outcomes.items()}
    shows(metrics, counts | {"canary_failures": 0})
    assert scraped(metrics)[worked_at] >= before_s
    assert metrics.canary.trouble == (0, "", "")


def test_of_a_canary_that_was_switched_off_nothing_is_said(metrics: Metrics) -> None:
    """A time at which it last worked would look as if it had failed ever since."""
    metrics.canary.worked(5 * MS)
    metrics.canary.refused(Refusal(ErrorWord.NOQUORUM, "m1=error-OOM"), 3 * MS)
    metrics.canary.stopped()
    shows(metrics, {"canary_failures": 0})
    assert "lockd_canary_last_success_timestamp_seconds" not in scraped(metrics)


def test_refusals_about_leases_are_no_refusals_of_locks(metrics: Metrics) -> None:
    """Or an app that extends what is long over would look like an outage, or like contention."""
    before = scraped(metrics)
    metrics.leases.lease_refused("jobs", ErrorWord.NOQUORUM)
    metrics.leases.lease_refused("nobody configured it", ErrorWord.NOTHELD)
    changed = {
        name
        for name, value in scraped(metrics).items()
        if name.startswith("lockd_") and value != before[name]
    }
    assert changed == {
        "lockd_lease_refusals_total{class=jobs,reason=noquorum}",
        "lockd_lease_refusals_total{class=other,reason=notheld}",
    }


def test_the_totals_tell_losses_that_were_meant_from_others_and_how_long_ago_those_were(
    config: Config,
) -> None:
    now_ns = NOW_NS
    metrics = Metrics(Current(config), now_ns=lambda: now_ns)
    for by in (Loss.FORCED, Loss.MAX_HOLD):
        metrics.leases.lost(a_lease("jobs", lost_by=by), "")
    none = {"grants": 0, "refusals": 0}
    assert metrics.leases.totals_by_class()["jobs"] == none | {"losses": 2, "losses_meant": 2}
    for by in (Loss.GONE, Loss.NOT_RENEWED):
        metrics.leases.lost(a_lease("jobs", lost_by=by), "")
        now_ns += 5_000 * MS
    jobs = metrics.leases.totals_by_class()["jobs"]
    assert (jobs["losses"], jobs["losses_meant"], jobs["last_loss_ms"]) == (4, 2, 5_000)
    assert "last_loss_ms" not in metrics.leases.totals_by_class()["billing"]


def test_an_exemplar_leads_from_a_slow_wait_to_its_lease_in_openmetrics_only(metrics: Metrics) -> None:
    metrics.leases.granted(a_lease("billing", fence=1795249311324028), 40 * MS)
    text = openmetrics.generate_latest(metrics.registry).decode()
    line = next(line for line in text.splitlines() if "fence" in line)
    assert line == (
        'lockd_wait_seconds_bucket{class="billing",le="0.1",outcome="granted"} 1.0'
        ' # {fence="1795249311324028"} 0.04'
    )
    assert len([*openmetrics_parser.text_string_to_metric_families(text)]) > 20
    assert "fence=" not in generate_latest(metrics.registry).decode()


def test_a_master_shows_where_it_is_and_what_it_accepts(metrics: Metrics, config: Config) -> None:
    fleet = Fleet(
        config, metrics.masters, lambda _link: None, lambda *_: None, lambda _now_ns: None, lambda *_: None,
        b"host",
    )  # fmt: skip
    memory = Memory(used_bytes=30_000_000, most_bytes=64_000_000, evicted=7)
    identity = Identity("shop", "m2", 30_000)
    facts = MasterFacts("id", "7.0.15", "master", 0, identity, {}, memory=memory, aof_rewrite_ok=False)
    fleet.links[1].facts = facts
    fleet.links[2].facts = replace(facts, aof_rewrite_ok=True)
    fleet.links[1].certificate_end_s = 1_800_000_000.0
    metrics.attach(fleet, some_locks(), lambda: 0)
    shows(
        metrics,
        {
            "master_memory_used_bytes{master=m2}": 30_000_000,
            "master_memory_max_bytes{master=m2}": 64_000_000,
            "master_evicted_keys_total{master=m2}": 7,
            "master_aof_rewrite_ok{master=m2}": 0,
            "master_aof_rewrite_ok{master=m3}": 1,
            "master_certificate_expiry_timestamp_seconds{master=m2}": 1_800_000_000,
            "master_info{address=10.0.0.2:6379,master=m2,version=7.0.15}": 1,
            "master_info{address=10.0.0.1:6379,master=m1,version=}": 1,
            "master_max_ttl_seconds{master=m2}": 30,
            "master_clock_trusted{master=m1}": 0,
        },
    )
    names = (
        "evicted_keys_total", "max_ttl_seconds", "aof_rewrite_ok", "certificate_expiry_timestamp_seconds",
    )  # fmt: skip
    unknown = {f"lockd_master_{name}{{master=m1}}" for name in names}
    assert not unknown & scraped(metrics).keys()


def test_what_the_links_and_the_server_report_is_counted(metrics: Metrics) -> None:
    metrics.masters.votes_of(1)(3 * MS)
    metrics.masters.probed(1, 1 * MS)
    metrics.masters.not_counted(0, "late")
    metrics.agent.internal_errors += 1
    metrics.masters.connected(2)
    for limit in ("renewals", "new_limit"):
        metrics.agent.limit_refusals[limit] += 1
    metrics.leases.fence_round()
    metrics.agent.forced_releases += 1
    metrics.agent.protocol_errors += 1
    shows(
        metrics,
        {
            "master_round_trip_seconds_bucket{le=0.002,master=m2,question=vote}": 0,
            "master_round_trip_seconds_bucket{le=0.005,master=m2,question=vote}": 1,
            "master_round_trip_seconds_sum{master=m2,question=probe}": 0.001,
            "master_votes_not_counted_total{master=m1,reason=late}": 1,
            "internal_errors_total": 1, "fence_rounds_total": 1, "forced_releases_total": 1,
            "protocol_errors_total": 1, "master_connects_total{master=m3}": 1,
            "limit_refusals_total{limit=renewals}": 1, "limit_refusals_total{limit=new_limit}": 1,
        },
    )  # fmt: skip


def test_a_master_is_in_exactly_one_state_and_says_whether_it_votes(metrics: Metrics) -> None:
    metrics.attach(a_fleet(State.UP, State.BLANK, State.UP, voting=0b101), some_locks(), lambda: 7)
    states = {"m1": State.UP, "m2": State.BLANK, "m3": State.UP}
    of_state = {f"master_state{{master={name},state={state}}}": 1 for name, state in states.items()}
    votes = {f"master_vote{{master=m{i}}}": vote for i, vote in ((1, 1), (2, 0), (3, 1))}
    shows(metrics, of_state | votes | {"masters_voting": 2, "connections": 7})
    assert len([name for name in scraped(metrics) if "master_state{" in name]) == 3


def test_clock_offsets_are_off_the_median_and_absent_for_a_master_never_seen(metrics: Metrics) -> None:
    fleet = a_fleet()
    for master, ahead_us in ((0, 0), (1, 250_000)):
        fleet.clocks.watches[master].observe(NOW_NS - MS, NOW_NS, NOW_NS // 1000 + ahead_us)
    fleet.clocks.watches[1].jumps = 2
    metrics.attach(fleet, some_locks(), lambda: 0)
    offsets = {f"master_clock_offset_seconds{{master=m{i}}}": s for i, s in ((1, -0.125), (2, 0.125))}
    jumps = {f"master_clock_jumps_total{{master=m{i}}}": n for i, n in ((1, 0), (2, 2), (3, 0))}
    shows(metrics, offsets | jumps)
    assert "lockd_master_clock_offset_seconds{master=m3}" not in scraped(metrics)


def test_what_the_host_stood_still_how_its_clock_is_slewed_and_whether_the_agent_stops_is_shown(
    metrics: Metrics,
) -> None:
    fleet, locks = a_fleet(), some_locks()
    fleet.clocks.standstills, fleet.clocks.stood_still_ns = 2, 31_500 * MS
    fleet.slewing.ppm = -1_500
    metrics.attach(fleet, locks, lambda: 0)
    stood_still = {"standstills_total": 2, "stood_still_seconds_total": 31.5}
    shows(metrics, stood_still | {"clock_slew_ppm": -1_500, "draining": 0, "draining_seconds": 0})
    locks.draining, locks.draining_since_ns = True, NOW_NS - 2_500 * MS
    shows(metrics, {"draining": 1, "draining_seconds": 2.5})


def test_the_limits_that_all_apps_share_show_what_is_used_as_a_refusal_goes_by_it(
    metrics: Metrics, config: Config
) -> None:
    quotas = Quotas(Current(config), Room(1_792 << 20, 10_000))
    metrics.agent.limits_in_use = quotas.in_use
    usage = quotas.connected("uid 1")
    quotas.watches("uid 1")
    quotas.holds(usage, Holding(10, 1_000))
    quotas.waits(usage, Cost(1, 1, 10, None))
    quotas.keeps(usage, 5_000)
    of_leases = sizes.lease(10) + sizes.lease(10, renewed=False) + sizes.waiter(10)
    used = {
        "bytes": sizes.CONNECTION + sizes.PROCESS + of_leases + 5_000,
        "files": 2,
        "renewals": 3,
    }
    most = {"bytes": 1_280 << 20, "files": 10_000 - 160, "renewals": 3_200}
    shows(metrics, {f"limit_used{{limit={name}}}": count for name, count in used.items()})
    shows(metrics, {f"limit_max{{limit={name}}}": count for name, count in most.items()})


def test_whether_apps_find_the_socket_is_shown(metrics: Metrics) -> None:
    troubles = ["", "the socket is gone"]
    assert scraped(metrics)["lockd_app_socket_ok"] == 0, "it isn't made yet"
    metrics.agent.socket_trouble = lambda: troubles.pop(0)
    assert [scraped(metrics)["lockd_app_socket_ok"] for _ in range(2)] == [1, 0]


def young(age_ms: int, ttl_ms: int) -> Any:
    return a_lease("billing", proven=QUORUM, t1_ns=NOW_NS - age_ms * MS, ttl_ms=ttl_ms)


@pytest.mark.parametrize(
    ("lease", "counts"),
    [
        pytest.param(a_lease("billing", proven=QUORUM), 1, id="on a quorum only"),
        pytest.param(a_lease("billing", proven=ALL), 0, id="on all"),
        pytest.param(a_lease("billing", proven=QUORUM, standing=Standing.LOST), 0, id="lost"),
        pytest.param(None, 0, id="free"),
        pytest.param(young(249, 10_000), 0, id="the slow ones have time left"),
        pytest.param(young(251, 10_000), 1, id="they had their time"),
        pytest.param(young(30, 100), 1, id="they had their time, of a short TTL"),
    ],
)
def test_a_held_lease_that_not_all_masters_confirmed_in_time_is_on_fewer_masters(
    metrics: Metrics, lease: Any, counts: int
) -> None:
    metrics.attach(a_fleet(), some_locks(one=lease), lambda: 0)
    shows(metrics, {"leases_on_fewer_masters": counts})


def test_the_oldest_waiter_of_all_queues_is_the_one_that_counts(metrics: Metrics) -> None:
    locks = some_locks(a=None, b=None)
    locks.waiting = 3
    for name, asked_ms_ago in ((b"a", 40), (b"b", 1_500), (b"b", 20)):
        locks.queues[name].waiters[Waiter(NOW_NS - asked_ms_ago * MS)] = None
    metrics.attach(a_fleet(), locks, lambda: 0)
    oldest = "oldest_waiter_seconds{class=%s}"
    shows(metrics, {"waiters{class=billing}": 3, oldest % "billing": 1.5, oldest % "jobs": 0})


def test_the_worst_lag_stays_for_half_a_minute_however_often_it_is_looked_at(metrics: Metrics) -> None:
    for at_s, lag_ms, worst_s in (
        (100, 2, 0.002),
        (101, 700, 0.7),
        (102, 1, 0.7),
        (131, 1, 0.7),
        (162, 1, 0.001),
    ):
        metrics.agent.loop_lag(lag_ms * MS, at_s * 1_000 * MS)
        for _ in range(2):
            shows(metrics, {"event_loop_lag_seconds": lag_ms / 1_000, "event_loop_lag_max_seconds": worst_s})


def test_a_duration_on_a_bound_is_within_it_and_one_longer_than_all_only_in_the_last_bucket() -> None:
    histogram = Histogram(WAIT_S)
    for bound_s in WAIT_S:
        histogram.observe(round(bound_s * 1e9))
    histogram.observe(round(WAIT_S[-1] * 1e9) + 1)
    assert [count for _, count in histogram.buckets()] == [*range(1, len(WAIT_S) + 1), len(WAIT_S) + 1]


def test_every_family_of_ours_has_the_prefix_and_a_description(metrics: Metrics) -> None:
    metrics.attach(a_fleet(), some_locks(), lambda: 0)
    for family in metrics.collect():
        assert family.name.startswith("lockd_")
        assert family.documentation.endswith(".")


def test_scrapes_hold_together_while_the_event_loop_goes_on(metrics: Metrics) -> None:
    locks = some_locks()
    metrics.attach(a_fleet(), locks, lambda: 0)
    stop = threading.Event()
    broken: list[BaseException] = []
    scraper = threading.Thread(target=scrape_until, args=(stop, metrics, broken))
    scraper.start()
    for i in range(60_000):
        resource = b"%d" % (i % 3_000)
        if resource in locks.queues:
            metrics.leases.released(locks.queues.pop(resource).lease, "released", i)
        else:
            lease = a_lease("billing", proven=QUORUM)
            metrics.leases.granted(lease, i)
            queue = locks.queues[resource] = a_queue(resource, lease)
            queue.waiters[Waiter(i)] = None
            queue.waiters.popitem()
    stop.set()
    scraper.join()
    assert broken == []
    assert scraped(metrics)["lockd_leases{class=billing}"] == len(locks.queues)


def scrape_until(stop: threading.Event, metrics: Metrics, broken: list[BaseException]) -> None:
    while not stop.is_set() and not broken:
        try:
            samples = scraped(metrics)
            assert samples["lockd_leases{class=billing}"] >= 0
            counts = list(wait_buckets(samples))
            assert counts == sorted(counts)
            assert counts[-1] == samples["lockd_wait_seconds_count{class=billing,outcome=granted}"]
        except BaseException as error:
            broken.append(error)


def wait_buckets(samples: dict[str, float]) -> Iterator[float]:
    for name, value in samples.items():
        if name.startswith("lockd_wait_seconds_bucket{class=billing,") and "granted" in name:
            yield value


class Waiter:
    """All that the metrics look at in one that waits."""

    label = "billing"

    def __init__(self, asked_ns: int) -> None:
        self.asked_ns = asked_ns


def test_refusals_are_counted_and_only_what_was_granted_has_buckets(metrics: Metrics) -> None:
    for word in (ErrorWord.TAKEN, ErrorWord.NOQUORUM, ErrorWord.DENIED):
        metrics.leases.refused("jobs", Refusal(word, "so"), 20 * MS)
        metrics.canary.refused(Refusal(word, "so"), 20 * MS)
    samples = scraped(metrics)
    assert samples["lockd_wait_seconds_count{class=jobs,outcome=granted}"] == 0
    buckets = [name for name in samples if "_seconds_bucket{" in name and "le=+Inf" not in name]
    with_outcome = [name for name in buckets if "outcome=" in name]
    assert with_outcome
    assert all("outcome=granted" in name for name in with_outcome)
    shows(metrics, {"canary_seconds_sum{outcome=contended}": 0.02})


def test_the_class_of_the_canary_shows_only_what_availability_is_made_of(metrics: Metrics) -> None:
    metrics.leases.granted(a_lease("canary"), 201 * MS)
    metrics.leases.released(a_lease("canary"), "released", 300 * MS)
    metrics.leases.tried_in_vain("canary", ErrorWord.NOQUORUM)
    shown = {name.partition("{")[0] for name in scraped(metrics) if "class=canary" in name}
    assert shown == {"lockd_class_info", "lockd_grants_total", "lockd_refusals_total"}
    shows(
        metrics,
        {
            "grants_total{class=canary}": 1, "grants_total{class=other}": 0,
            "releases_total{reason=released}": 0, "failed_tries_total{reason=noquorum}": 0,
        },
    )  # fmt: skip


def test_how_tenures_were_kept_and_asked_for_is_told_of_all_classes_together(metrics: Metrics) -> None:
    for label in ("billing", "jobs"):
        metrics.leases.kept_no_more(label, KeptEnd.LOCKED, 30 * MS)
        metrics.leases.asked_back(label, RecallEnd.SILENT, 250 * MS)
        metrics.leases.turn_over(label, 20 * MS)
        metrics.leases.taken_over(a_lease(label))
        metrics.leases.asked("script")
    shows(
        metrics,
        {
            "kept_seconds_count{outcome=locked}": 2, "kept_seconds_sum{outcome=locked}": 0.06,
            "recall_seconds_count{outcome=silent}": 2, "recall_seconds_sum{outcome=silent}": 0.5,
            "turn_seconds_bucket{le=0.1}": 2, "taken_over_total": 2, "asked_total{via=script}": 2,
        },
    )  # fmt: skip


@pytest.mark.parametrize("master_ms", [1, 100, 250, 333, 400, 2_000, 60_000])
def test_votes_that_take_longer_than_a_quarter_of_the_timeout_are_told_apart_whatever_it_is(
    master_ms: int,
) -> None:
    """LockdMasterSlow compares a quantile with a quarter of what this agent says its timeout is."""
    metrics = Metrics(Current(a_config(timeouts={"master_ms": master_ms})))
    answered = metrics.masters.votes_of(1)
    for ns in (master_ms * MS // 4, master_ms * MS // 4 + 1, master_ms * MS, master_ms * MS + 1):
        answered(ns)
    timeout_s = scraped(metrics)["lockd_master_timeout_seconds"]
    shows(
        metrics,
        {
            f"master_round_trip_seconds_bucket{{le={0.25 * timeout_s},master=m2,question=vote}}": 1,
            f"master_round_trip_seconds_bucket{{le={timeout_s},master=m2,question=vote}}": 3,
            "master_round_trip_seconds_count{master=m2,question=vote}": 4,
        },
    )


def test_an_agent_with_ten_classes_and_five_masters_has_less_than_a_thousand_series() -> None:
    """Prometheus keeps those of each agent. There were 4,121, then 2,230. All have been counted once that can
    be, in every class, and of every master."""
    agent = AgentSeries(classes=10, masters=5)
    at_first = agent.count
    agent.everything()
    assert at_first <= agent.count < 1_000


def test_every_counter_and_histogram_is_there_before_anything_was_counted() -> None:
    agent = AgentSeries(classes=2)
    before = {(sample.name, *sample.labels.items()) for sample in agent.samples()}
    agent.everything()
    new = {(sample.name, *sample.labels.items()) for sample in agent.samples()} - before
    assert {name for name, *_ in new} == {"lockd_config_restart_needed"}
    counted = [
        s for s in agent.samples() if s.name.startswith("lockd_") and s.name.endswith(("_total", "_count"))
    ]
    assert [s for s in counted if s.value == 0 and s.name not in OF_MASTERS_AND_CLOCKS] == []


def test_draining_is_measured_from_when_it_began_however_often_it_is_asked_for(
    metrics: Metrics, config: Config
) -> None:
    parameters = RedlockParameters(len(config.masters))
    locks = Locks(parameters, a_fleet(), metrics.leases, Chance(lambda: b""))
    metrics.attach(a_fleet(), locks, lambda: 0)
    shows(metrics, {"draining_seconds": 0})
    locks.drain(NOW_NS - 3_000 * MS)
    locks.drain(NOW_NS - 1_000 * MS)
    shows(metrics, {"draining_seconds": 3})
