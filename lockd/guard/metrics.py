"""What node_exporter's textfile collector reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from .reasons import Reason
from .records import GuardState


class GuardReading(NamedTuple):
    """What the metrics are read from: the record of what was counted, and what holds now."""

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
        name, found = f"redis_lock_guard_{self.name}", self.value(reading)
        yield from (f"# HELP {name} {self.text}", f"# TYPE {name} {self.kind}")
        if not isinstance(found, Mapping):
            yield f"{name} {found:.15g}"
            return
        for word, value in found.items():
            yield f'{name}{{{self.label}="{word}"}} {value:.15g}'


FAMILIES = (
    Family("quarantined", "gauge", "1 while Redis waits to be let start.", lambda now: int(now.quarantined)),
    Family(
        "quarantine_until_timestamp_seconds",
        "gauge",
        "When the quarantine ends, by the wall clock; 0 when there is none.",
        lambda now: now.until_s,
    ),
    Family(
        "quarantines_total",
        "counter",
        "Starts of Redis that had to wait, and why.",
        lambda now: {reason.value: now.state.quarantines[reason.value] for reason in Reason},
        "reason",
    ),
    Family("delay_seconds", "gauge", "How long a quarantine takes.", lambda now: now.delay_s),
    Family(
        "overrides_total",
        "counter",
        "Quarantines that an operator cut short.",
        lambda now: now.state.overrides,
    ),
    Family(
        "clock_steps_total",
        "counter",
        "Steps of the wall clock that the watch saw.",
        lambda now: {"forward": now.state.steps_forward, "backward": now.state.steps_backward},
        "direction",
    ),
    Family(
        "data_moved_aside_total",
        "counter",
        "Starts that found data of another, or older or shorter than it was, and moved it aside.",
        lambda now: now.state.moved_aside,
    ),
    Family(
        "data_marked_timestamp_seconds",
        "gauge",
        "When it was last noted what Redis has written, by the wall clock; 0 while Redis is not let run.",
        lambda now: now.marked_s,
    ),
)


def metrics_text(reading: GuardReading) -> str:
    return "\n".join(line for family in FAMILIES for line in family.lines(reading)) + "\n"
