"""Whether memory grows: a line through its samples, and a picture of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import linear_regression

FIRST_PART = 1 / 5
"""Not looked at: tables fill until they forget, code is loaded, an allocator gets its pages."""
MOST_GROWN_MIB = 4.0
"""Over the rest, by the line through it. In an hour of 90 uses a second it is 16 bytes a use: one object that
stays is larger. What an allocator does with pages that are partly used is less."""
_LINES = 30
_BAR = 50


@dataclass(frozen=True, slots=True)
class Sample:
    at_s: float
    mib: float


def settled(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Those after the first part."""
    if not samples:
        return ()
    from_s = samples[0].at_s + (samples[-1].at_s - samples[0].at_s) * FIRST_PART
    return [sample for sample in samples if sample.at_s >= from_s]


def grown_mib(samples: Sequence[Sample]) -> float:
    """By how much the line through what is settled rises, from its begin to its end. ValueError: there are
    not three samples of it."""
    rest = settled(samples)
    if len(rest) < 3:
        raise ValueError("there are too few samples to say whether memory grows: soak for longer")
    slope, _ = linear_regression([one.at_s for one in rest], [one.mib for one in rest])
    return slope * (rest[-1].at_s - rest[0].at_s)


def picture(samples: Sequence[Sample]) -> Iterator[str]:
    """A bar for each part of the time, from the least to the most; · marks what is not looked at."""
    if not samples:
        return
    least, most = min(one.mib for one in samples), max(one.mib for one in samples)
    looked_at = set(settled(samples))
    for one in samples[:: -(-len(samples) // _LINES)]:
        share = (one.mib - least) / (most - least) if most > least else 0.0
        mark = "█" if one in looked_at else "·"
        minutes, seconds = divmod(int(one.at_s), 60)
        yield f"{minutes:4}:{seconds:02} {one.mib:8.2f} MiB  {mark * (1 + round(share * _BAR))}"
