"""The page of documentation says what the code counts, and the rules ask only for what it counts."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from alerts.build import Site
from alerts.metrics_page import (
    CLOSED,
    FREE,
    agent_families,
    certificate_families,
    closed_values,
    full_name,
    guard_families,
    labels_of,
    page,
)
from lockd.build import BUILDS
from lockd.config.model import Config
from lockd.metrics import configured
from lockd.metrics.families import Measured

PAGE = Path(__file__).resolve().parents[2] / "alerts" / "METRICS.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(), "run `make alerts-docs`"


def test_it_names_every_job_that_the_rules_look_for() -> None:
    jobs = {one for field in dataclasses.astuple(Site()) for one in re.findall('job="[^"]+"', str(field))}
    assert len(jobs) == 5
    assert {one for one in jobs if f"`{one}`" not in page()} == set()


def another_configuration() -> Config:
    """With nothing in common with the page's."""
    masters = [{"name": f"other{i}", "address": f"other{i}.example:7000"} for i in range(3)]
    classes = [{"name": "others", "match": "o:*", "page_on_loss": True}]
    return Config.read({"cluster": "another", "masters": masters, "classes": classes})


@pytest.mark.parametrize("build", BUILDS)
def test_no_value_of_one_configuration_or_build_looks_like_all_there_are(
    build: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What differs from host to host is on the page in whole, or not at all."""
    monkeypatch.setattr(configured, "build", lambda: build)
    assert page(another_configuration()) == page()


def test_each_label_has_the_list_of_its_values_or_is_said_to_be_free() -> None:
    rows = re.findall(r"^\| `(\w+)` \| \w+ \| (.*?) \|", page(), re.M)
    shown = {name: [one.partition(": ") for one in labels.split("; ") if one] for name, labels in rows}
    for family in (*agent_families(), *guard_families(), *certificate_families()):
        given = {label.strip("`"): values for label, _, values in shown[full_name(family)]}
        assert list(given) == labels_of(family)
        assert [label for label, values in given.items() if not values] == [
            label for label in given if label in FREE
        ]
    free = re.findall(r"^\| `(\w+)` \| [^|]+ \|$", page(), re.M)
    assert free == list(FREE)


def test_what_is_said_of_labels_is_of_labels_that_there_are() -> None:
    families = (*agent_families(), *guard_families(), *certificate_families())
    assert FREE.keys() | CLOSED.keys() <= {label for family in families for label in labels_of(family)}
    assert not FREE.keys() & CLOSED.keys()


def test_a_closed_list_has_every_value_that_is_exposed() -> None:
    for family in agent_families(another_configuration()):
        for label in CLOSED.keys() & labels_of(family):
            exposed = {sample.labels[label] for sample in family.samples}
            assert exposed
            assert exposed <= set(closed_values(family, label))


def test_it_gives_the_buckets_of_every_histogram() -> None:
    histograms = {family.name for family in agent_families() if family.type == "histogram"}
    given = re.findall(r"^- `(\w+)(?:\{.*\})?`: [\d.]+(?:, [\d.]+)+$", page(), re.M)
    assert set(given) == histograms


def test_it_tells_apart_what_has_buckets_of_its_own_under_each_word() -> None:
    given = re.findall(r'^- `lockd_master_round_trip_seconds\{question="(\w+)"\}`: ([\d.]+),', page(), re.M)
    assert given == [("vote", "0.001"), ("probe", "0.001")]


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
    """LockdWaiterStuck measures the oldest waiter by it."""
    [family] = [one for one in agent_families() if one.name == "lockd_class_max_wait_seconds"]
    assert {sample.labels["class"]: sample.value for sample in family.samples}["other"] == 60
