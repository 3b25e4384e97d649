"""The page of documentation says what the code counts, and the rules ask only for what it counts."""

from __future__ import annotations

import re
from pathlib import Path

from alerts.metrics_page import agent_families, certificate_families, full_name, guard_families, page
from lockd.metrics.families import Measured

PAGE = Path(__file__).resolve().parents[2] / "alerts" / "METRICS.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(), "run `make alerts-docs`"


def test_it_gives_the_buckets_of_every_histogram() -> None:
    histograms = [family.name for family in agent_families() if family.type == "histogram"]
    assert sorted(re.findall(r"^- `(\w+)`: [\d.e-]+(?:, [\d.e-]+)+$", page(), re.M)) == sorted(histograms)


def test_each_family_is_declared_once_and_exposed_once_and_has_one_line_of_the_page() -> None:
    ours = [of for of in Measured.__subclasses__() if of.__module__.startswith("lockd.")]
    declared = [f"lockd_{name}" for of in ours for name in of.families]
    assert len(declared) == len(set(declared))
    assert sorted(declared) == sorted(family.name for family in agent_families())
    families = (*agent_families(), *guard_families(), *certificate_families())
    assert all(family.documentation for family in families)
    named = [full_name(family) for family in families]
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE.read_text(), re.M)
    assert rows == [(full_name(family), family.type) for family in families]
    assert len(named) == len(set(named))


def test_how_long_a_class_may_wait_is_in_seconds() -> None:
    """LockWaiterStuck measures the oldest waiter by it."""
    [family] = [one for one in agent_families() if one.name == "lockd_class_max_wait_seconds"]
    assert {sample.labels["class"]: sample.value for sample in family.samples}["other"] == 60
