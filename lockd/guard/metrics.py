"""What node_exporter's textfile collector reads."""

from __future__ import annotations

from collections.abc import Mapping

from .reasons import Reason
from .records import State


def metrics_text(state: State, *, quarantined: bool, until_s: float, delay_s: float, marked_s: float) -> str:
    """What node_exporter's textfile collector reads."""
    reasons = {f'{{reason="{reason.value}"}}': state.quarantines[reason.value] for reason in Reason}
    steps = {'{direction="forward"}': state.steps_forward, '{direction="backward"}': state.steps_backward}
    families: list[tuple[str, str, str, Mapping[str, float]]] = [
        ("quarantined", "gauge", "1 while Redis waits to be let start.", {"": int(quarantined)}),
        (
            "quarantine_until_timestamp_seconds",
            "gauge",
            "When the quarantine ends, by the wall clock; 0 when there is none.",
            {"": until_s},
        ),
        ("quarantines_total", "counter", "Starts of Redis that had to wait, and why.", reasons),
        ("delay_seconds", "gauge", "How long a quarantine takes.", {"": delay_s}),
        ("overrides_total", "counter", "Quarantines that an operator cut short.", {"": state.overrides}),
        ("clock_steps_total", "counter", "Steps of the wall clock that the watch saw.", steps),
        (
            "data_moved_aside_total",
            "counter",
            "Starts that found data of another, or older or shorter than it was, and moved it aside.",
            {"": state.moved_aside},
        ),
        (
            "data_marked_timestamp_seconds",
            "gauge",
            "When it was last noted what Redis has written, by the wall clock; 0 while Redis is not let run.",
            {"": marked_s},
        ),
    ]
    lines = []
    for name, kind, text, samples in families:
        name = f"redis_lock_guard_{name}"
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{labels} {value:.15g}" for labels, value in samples.items()]
    return "\n".join(lines) + "\n"
