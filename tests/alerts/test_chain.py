"""The whole chain, for two faults of its list: `make chain` makes all of them and prints a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.alerts.chain import FAULTS, Fault, Ground, ground, suffer
from tests.alerts.monitoring import FACTOR, shortened
from tests.harness.observatory import need_programs

SHORT = [fault for fault in FAULTS if fault.name in ("one master killed", "agent killed")]


@pytest.fixture(scope="module")
def where() -> Iterator[Ground]:
    need_programs()
    with ground() as running:
        yield running


# Its rules' durations are divided by 20: an agent that is late for a second is one that was late for 20. And
# each takes a minute or two of waiting, for what the parts show one by one: test_rules, test_pages, and the
# dashboards' test_queries with a real Prometheus.
@pytest.mark.thorough
@pytest.mark.parametrize("fault", SHORT, ids=lambda fault: fault.name)
def test_a_fault_fires_exactly_its_alerts_and_they_clear(where: Ground, fault: Fault) -> None:
    """Not for as long as `make chain` looks out for others."""
    assert suffer(where, replace(fault, linger_s=3.0)).problems() == []


def test_every_duration_of_a_rule_is_divided_and_nothing_else() -> None:
    text = (
        "rate(x[5m]) > 60\nmax_over_time(y[1h:1m])\nfor: 1m\ninterval: 1m\n"
        "repeat_interval: 5m\nrecord: a:b:p99_5m\n"
    )
    assert FACTOR == 20
    assert shortened(text) == (
        "rate(x[15000ms]) > 60\nmax_over_time(y[180000ms:3000ms])\nfor: 3000ms\ninterval: 3000ms\n"
        "repeat_interval: 5m\nrecord: a:b:p99_5m\n"
    )
