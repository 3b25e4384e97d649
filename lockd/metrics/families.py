"""Families of metrics as prometheus_client hands them on: all begin with `lockd_`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.samples import Exemplar

from lockd.metrics.counts import Histogram

V = TypeVar("V")
Rows = Sequence[tuple[tuple[str, ...], V]]
"""Label values, and what is so labelled."""


def gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"lockd_{name}", text, value=value)


def gauges(name: str, text: str, labels: Sequence[str], rows: Rows[float]) -> Metric:
    family = GaugeMetricFamily(f"lockd_{name}", text, labels=labels)
    for words, value in rows:
        family.add_metric(words, value)
    return family


def counter(name: str, text: str, labels: Sequence[str], rows: Rows[float]) -> Metric:
    """The name is without its `_total`, which the exposition adds."""
    family = CounterMetricFamily(f"lockd_{name}", text, labels=labels)
    for words, value in rows:
        family.add_metric(words, value)
    return family


def histogram(name: str, text: str, labels: Sequence[str], rows: Rows[Histogram]) -> Metric:
    family = HistogramMetricFamily(f"lockd_{name}", text, labels=labels)
    for words, one in rows:
        seen = map(_exemplar, one.exemplars[:])
        buckets = [
            (le, count) if exemplar is None else (le, count, exemplar)
            for (le, count), exemplar in zip(one.buckets(), seen, strict=True)
        ]
        family.add_metric(words, buckets=buckets, sum_value=one.sum_ns / 1e9)
    return family


def _exemplar(seen: tuple[int, int] | None) -> Exemplar | None:
    """A lease by its fence, which `lockctl locks --local` and the log show with its resource.

    Strangers may read it: a fence says in which order, and about when, a lease was granted, but neither what
    was locked nor by whom, and no command takes one in place of a token.
    """
    return None if seen is None else Exemplar({"fence": str(seen[0])}, seen[1] / 1e9)
