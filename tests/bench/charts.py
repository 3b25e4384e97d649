"""Lines over a logarithmic axis, as SVG. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import log10

Line = Sequence[tuple[float, float]]

_WIDE, _HIGH = 760, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 250, 40, 50
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999", "#000000")


def chart(title: str, across: str, up: str, lines: Mapping[str, Line], *, log_up: bool = False) -> str:
    """Each line a name and its points. Across is logarithmic, since clients and leases double."""
    points = [point for line in lines.values() for point in line]
    x_of = _Scale([x for x, _ in points], _LEFT, _WIDE - _RIGHT, log=True)
    y_of = _Scale([y for _, y in points], _HIGH - _BOTTOM, _TOP, log=log_up)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE} {_HIGH}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDE}" height="{_HIGH}" fill="white"/>',
        _text(_LEFT, 22, title, "start", 15),
        _text((_LEFT + _WIDE - _RIGHT) / 2, _HIGH - 12, across, "middle"),
        _text(_LEFT, _TOP - 6, up, "start"),
        *_axes(points, x_of, y_of, log_up),
    ]
    for number, (name, line) in enumerate(lines.items()):
        parts += _drawn(number, name, [(x_of(x), y_of(y)) for x, y in line])
    return "\n".join([*parts, "</svg>\n"])


class _Scale:
    """From a value to a place."""

    def __init__(self, values: Sequence[float], begin: float, end: float, *, log: bool) -> None:
        self._log = log
        low = min(values, default=1.0) if log else 0.0
        self._low, high = self._of(low), self._of(max(values, default=1.0))
        self._begin, self._per_unit = begin, (end - begin) / ((high - self._low) or 1.0)

    def _of(self, value: float) -> float:
        return log10(max(value, 1e-9)) if self._log else value

    def __call__(self, value: float) -> float:
        return self._begin + (self._of(value) - self._low) * self._per_unit


def _axes(points: Line, x_of: _Scale, y_of: _Scale, log_up: bool) -> list[str]:
    bottom, right = _HIGH - _BOTTOM, _WIDE - _RIGHT
    parts = []
    for x in sorted({x for x, _ in points}):
        parts += [_line(x_of(x), bottom, x_of(x), _TOP), _text(x_of(x), bottom + 16, _number(x), "middle")]
    for y in _ticks([y for _, y in points], log_up):
        parts += [_line(_LEFT, y_of(y), right, y_of(y)), _text(_LEFT - 6, y_of(y) + 4, _number(y), "end")]
    return parts


def _ticks(values: Sequence[float], log: bool) -> list[float]:
    high = max(values, default=1.0)
    if not log:
        step = 10 ** int(log10(high)) if high >= 1 else high or 1.0
        step = next(s for s in (step / 5, step / 2, step, 2 * step) if high / s <= 8)
        return [n * step for n in range(int(high / step) + 1)]
    low = min(values, default=1.0)
    ticks = [m * 10.0**e for e in range(-6, 9) for m in (1, 2, 5)]
    return [tick for tick in ticks if low <= tick <= high]


def _drawn(number: int, name: str, points: Sequence[tuple[float, float]]) -> list[str]:
    colour = _COLOURS[number % len(_COLOURS)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    beside = _TOP + 18 * number + 8
    return [
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points),
        f'<rect x="{_WIDE - _RIGHT + 14}" y="{beside - 9}" width="10" height="10" fill="{colour}"/>',
        _text(_WIDE - _RIGHT + 30, beside, name, "start"),
    ]


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#ddd"/>'


def _text(x: float, y: float, words: str, anchor: str, size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(words)}</text>'


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"
