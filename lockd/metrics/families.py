"""How a metric is declared: once, in the class that counts it or looks it up. The field or method has the
metric's name.

    class Door(Measured):
        knocks = counted("Knocks at the door.", int)

        @gauge("Whether it is open: 1 or 0.")
        def door_open(self) -> int: ...

exposes lockd_knocks_total and lockd_door_open. A counter is a plain int, Tally or Histogram of the instance
(`door.knocks += 1`), since more than ten thousand locks a second pass here. `by` names further labels: the
value is then a mapping from their words, nested if there are several. None: absent now.

A counter is there from the start, at 0, under each word that it may have. Prometheus's increase() and rate()
do not see a step from nothing to 1: alerts and graphs would miss the first event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, cast

from lockd.metrics.counts import Histogram, Tally

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.samples import Exemplar

T = TypeVar("T")
F = TypeVar("F", bound=Callable[[Any], Any])

Words = tuple[str, ...]
"""Values of labels."""
Kind = Literal["Counter", "Gauge", "Histogram", "Info", "Summary"]
"""As Prometheus names them. Its library is loaded by the first scrape: an agent's start would wait for it."""


@dataclass(frozen=True)
class Family:
    """Everything about a metric except its name. new: makes its first value; None if it is looked up."""

    kind: Kind
    text: str
    by: Words
    new: Callable[[], Any] | None = None

    def rows(self, words: Words, value: Any) -> Iterator[tuple[Words, Any]]:
        """The rows of a value, with all labels; `words` are the values of the labels before its own."""
        rows = [(words, value)]
        for _ in self.by:
            rows = [((*words, word), one) for words, of in rows for word, one in _by_word(of).items()]
        return (row for row in rows if row[1] is not None)

    def metric(self, name: str, labels: Words, rows: Iterable[tuple[Words, Any]]) -> Metric:
        from prometheus_client import core

        family_class = getattr(core, f"{self.kind}MetricFamily")
        family = family_class(f"lockd_{name}", self.text, labels=(*labels, *self.by))
        for words, value in rows:
            family.add_metric(words, **self._values(value))
        return cast("Metric", family)

    def _values(self, value: Any) -> dict[str, Any]:
        if self.kind == "Summary":
            return {"count_value": sum(value.counts), "sum_value": value.sum_ns / 1e9}
        return _histogram(value) if isinstance(value, Histogram) else {"value": value}


def counted(text: str, new: Callable[[], T], by: str | Words = ()) -> T:
    """A field that is counted up: int, or Tally by a word."""
    return cast(T, Family("Counter", text, _labels(by), new))


def timed(text: str, new: Callable[[], T], by: str | Words = ()) -> T:
    """A field with durations: a Histogram, or one for each word."""
    return cast(T, Family("Histogram", text, _labels(by), new))


def summed(text: str, new: Callable[[], T], by: str | Words = ()) -> T:
    """A field with durations of which only the number and the sum are exposed."""
    return cast(T, Family("Summary", text, _labels(by), new))


def counter(text: str, by: str | Words = ()) -> Callable[[F], F]:
    """The value that the function finds only grows. Its name is without the `_total` that the exposition
    adds."""
    return _looked_up("Counter", text, by)


def gauge(text: str, by: str | Words = ()) -> Callable[[F], F]:
    return _looked_up("Gauge", text, by)


def info(text: str) -> Callable[[F], F]:
    """The function returns labels and their values."""
    return _looked_up("Info", text, ())


class Measured:
    """A class with families of metrics, in the order in which they are declared."""

    families: ClassVar[Mapping[str, Family]] = {}
    """By name, without the `lockd_` with which all begin."""

    def __init_subclass__(cls) -> None:
        declared = {name: getattr(one, "family", one) for name, one in vars(cls).items()}
        cls.families = {name: one for name, one in declared.items() if isinstance(one, Family)}
        for name, one in cls.families.items():
            if one.new is not None:
                # If the class had an attribute of that name, each access to the instance's would look there
                # first.
                delattr(cls, name)

    def __init__(self) -> None:
        for name, family in self.families.items():
            if family.new is not None:
                setattr(self, name, family.new())

    def shows(self, name: str) -> bool:
        """Whether it has a row in this family."""
        return True

    def collect(self) -> Iterator[Metric]:
        return collected(type(self), [((), self)])


def collected(of: type[Measured], things: Iterable[tuple[Words, Measured]], *labels: str) -> Iterator[Metric]:
    """The families of these things, which `labels` tell apart.

    Their values are of one instant, because ratios are made of them: between two families the loop may grant
    some. Only histograms are read when it is their turn.
    """
    things = list(things)
    taken = {
        name: [
            row
            for words, thing in things
            if thing.shows(name)
            for row in family.rows(words, _value(thing, name))
        ]
        for name, family in of.families.items()
    }
    for name, family in of.families.items():
        yield family.metric(name, labels, taken[name])


def _looked_up(kind: Kind, text: str, by: str | Words) -> Callable[[F], F]:
    def declare(function: F) -> F:
        setattr(function, "family", Family(kind, text, _labels(by)))  # noqa: B010  # mypy knows no such field
        return function

    return declare


def _labels(by: str | Words) -> Words:
    return (by,) if isinstance(by, str) else by


def _value(thing: Measured, name: str) -> Any:
    value = getattr(thing, name)
    return value() if callable(value) else value


def _by_word(value: Any) -> Mapping[str, Any]:
    return value.by_label() if isinstance(value, Tally) else cast(Mapping[str, Any], value)


def _histogram(one: Histogram) -> dict[str, Any]:
    seen = map(_exemplar, one.exemplars[:])
    buckets = [
        (le, count) if exemplar is None else (le, count, exemplar)
        for (le, count), exemplar in zip(one.buckets(), seen, strict=True)
    ]
    return {"buckets": buckets, "sum_value": one.sum_ns / 1e9}


def _exemplar(seen: tuple[int, int] | None) -> Exemplar | None:
    """A lease by its fence, which `lockctl locks --local` and the log show with its resource.

    Anybody may read it: a fence shows in which order, and about when, a lease was granted, but neither what
    was locked nor by whom, and no command accepts a fence instead of a token.
    """
    from prometheus_client.samples import Exemplar

    return None if seen is None else Exemplar({"fence": str(seen[0])}, seen[1] / 1e9)
