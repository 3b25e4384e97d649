"""What node_exporter's textfile collector reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from .reasons import Reason
from .records import GuardState


class GuardReading(NamedTuple):
    """The source of the metrics: the record of what was counted, and the present state."""

    state: GuardState
    quarantined: bool = False
    until_s: float = 0
    delay_s: float = 0
    marked_s: float = 0


class Family(NamedTuple):
    """A metric. value: one, or one for each word of `label`."""

    name: str
    kind: str
    text: str
    value: Callable[[GuardReading], float | Mapping[str, float]]
    label: str = ""

    def lines(self, reading: GuardReading) -> Iterator[str]:
        name, found = f"lockd_guard_{self.name}", self.value(reading)
        yield from (f"# HELP {name} {self.text}", f"# TYPE {name} {self.kind}")
        if not isinstance(found, Mapping):
            yield f"{name} {found:.15g}"
            return
        for word, value in found.items():
            yield f'{name}{{{self.label}="{word}"}} {value:.15g}'


FAMILIES = (
    Family(
        "quarantined",
        "gauge",
        ("1 while the guard keeps Redis from starting."),
        lambda now: int(now.quarantined),
    ),
    Family(
        "quarantine_until_timestamp_seconds",
        "gauge",
        "When the quarantine ends, by the wall clock; 0 when there is none.",
        lambda now: now.until_s,
    ),
    Family(
        "quarantines_total",
        "counter",
        "Starts of Redis that had to wait, by reason.",
        lambda now: {reason.value: now.state.quarantines[reason.value] for reason in Reason},
        "reason",
    ),
    Family("delay_seconds", "gauge", "How long a quarantine takes.", lambda now: now.delay_s),
    Family(
        "overrides_total",
        "counter",
        "Quarantines that an operator ended early.",
        lambda now: now.state.overrides,
    ),
    Family(
        "clock_steps_total",
        "counter",
        "Steps of the wall clock that the watch has seen.",
        lambda now: {"forward": now.state.steps_forward, "backward": now.state.steps_backward},
        "direction",
    ),
    Family(
        "data_moved_aside_total",
        "counter",
        "Starts that found foreign, older or shorter data and moved it aside.",
        lambda now: now.state.moved_aside,
    ),
    Family(
        "data_marked_timestamp_seconds",
        "gauge",
        "When the state of the data was last recorded, by the wall clock; 0 while Redis may not run.",
        lambda now: now.marked_s,
    ),
)


def metrics_text(reading: GuardReading) -> str:
    return "\n".join(line for family in FAMILIES for line in family.lines(reading)) + "\n"
