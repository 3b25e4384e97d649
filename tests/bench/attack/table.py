"""What is shown: a line for each row, and under it what was over its bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.bench.attack.bounds import Figures
from tests.bench.attack.row import Measured

HEAD = (
    f"{'attack':<24} {'lost':>7} {'failed':>7} {'pairs ms p50/p99/max':>23} {'PING p99/max':>15}"
    f" {'machine late':>12} {'RSS MiB before/peak/after':>26} {'load':>5}  verdict"
)
_SHOWN = {
    "lost", "of", "failed", "rss_before", "rss_peak", "rss_after", "rss_grown", "rss_left", "still_busy",
    *(f"{name}_{place}" for name in ("pair", "ping", "machine") for place in ("p50", "p99", "max")),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Line:
    """why_not: why the row could not be measured. over: the bounds that are broken."""

    name: str
    measured: Measured | None
    over: Sequence[str] = ()
    why_not: str = ""

    @property
    def is_well(self) -> bool:
        return not self.over and not self.why_not

    def as_json(self) -> dict[str, object]:
        told: dict[str, object] = {"name": self.name, "over": list(self.over), "why_not": self.why_not}
        if self.measured is not None:
            failures = dict(self.measured.failures)
            told |= {"figures": self.measured.figures, "failures": failures, "load": self.measured.load}
        return told

    def shown(self) -> list[str]:
        if self.measured is None:
            return [f"{self.name:<24} NOT MEASURED: {self.why_not}"]
        figures = self.measured.figures
        verdict = "ok" if self.is_well else "OVER: " + "; ".join(self.over)
        return [f"{self.name:<24} {_columns(figures)} {self.measured.load:5.1f}  {verdict}", *self._more()]

    def _more(self) -> list[str]:
        """Failures by their words, and the row's own figures."""
        assert self.measured is not None
        failures = [f"{count} {word}" for word, count in self.measured.failures.most_common(6)]
        own = [
            f"{name} {_short(value)}" for name, value in self.measured.figures.items() if name not in _SHOWN
        ]
        if self.measured.figures.get("still_busy"):
            own.append("not all had ended when RSS was looked at last")
        parts = ([f"failures: {', '.join(failures)}"] if failures else []) + own
        return [f"{'':<24}   {' · '.join(parts)}"] if parts else []


def _short(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:.1f}"


def _columns(figures: Figures) -> str:
    lost = f"{figures['lost']:.0f} of {figures['of']:.0f}"
    rss = "/".join(f"{figures[f'rss_{when}']:.0f}" for when in ("before", "peak", "after"))
    return (
        f"{lost:>7} {figures['failed']:>7.0f} {_times(figures, 'pair', 'p50', 'p99', 'max'):>23}"
        f" {_times(figures, 'ping', 'p99', 'max'):>15} {_times(figures, 'machine', 'max'):>12} {rss:>26}"
    )


def _times(figures: Figures, name: str, *places: str) -> str:
    return "/".join(f"{figures[f'{name}_{at}']:.1f}" if f"{name}_{at}" in figures else "-" for at in places)
