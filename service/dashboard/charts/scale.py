"""Scales of charts: evenly spaced round ticks, their labels, and where a value lies among them."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from service import text

SIZE = 1000
"""Of the plot area, both ways."""

_STEPS = (1, 2, 5)
_THOUSANDS = ("", "k", "M", "G", "T", "P")
_TIMES = {
    "s": (1, (1, 2, 5, 10, 15, 30)),
    "min": (60, (1, 2, 5, 10, 15, 30)),
    "h": (3600, (1, 2, 3, 6, 12)),
    "d": (86_400, (1, 2, 5, 10, 20, 50, 100, 200, 500)),
}
"""Units of elapsed time: their seconds, and what of them is between ticks."""
_MAX_TIMES = 6
"""Intervals between ticks of elapsed time: on a phone there is room for so many labels."""
_MAX_DOUBLINGS = 6
"""Intervals between ticks of batch sizes: their labels are long."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Ticks, rising and evenly spaced, at least two; and their labels."""

    ticks: tuple[float, ...]
    labels: tuple[str, ...]

    def right(self, value: float) -> int:
        """How far from the left a value lies; what is beyond the ticks lies at the edge."""
        low, high = self.ticks[0], self.ticks[-1]
        return round(SIZE * min(max((value - low) / (high - low), 0.0), 1.0))

    def down(self, value: float) -> int:
        """How far from the top."""
        return SIZE - self.right(value)


@dataclass(frozen=True, slots=True)
class Frame:
    """What surrounds the marks of a chart."""

    grid: str
    x_labels: tuple[str, ...]
    """Evenly spaced, from the left."""
    y_labels: tuple[str, ...]
    """Evenly spaced, from the top."""

    @classmethod
    def of(cls, x: Scale, y: Scale) -> Self:
        """The frame of two scales: a line at each tick of the second."""
        return cls(
            grid="".join(f"M0 {y.down(tick)}h{SIZE}" for tick in y.ticks),
            x_labels=x.labels,
            y_labels=tuple(reversed(y.labels)),
        )


def dots(points: Iterable[tuple[float, float]], x: Scale, y: Scale) -> str:
    """A path of dots."""
    return "".join(f"M{x.right(across)} {y.down(up)}h0" for across, up in points)


def accuracy_scale(values: Sequence[float]) -> Scale:
    """Shares in percent."""
    ticks = accuracy_ticks(min(values), max(values))
    digits = 0 if ticks[1] - ticks[0] >= 0.01 - 1e-9 else 1
    return Scale(tuple(ticks), tuple(f"{100 * tick:.{digits}f} %" for tick in ticks))


def count_scale(highest: int) -> Scale:
    """Whole numbers from 0."""
    ticks = number_ticks(highest)
    return Scale(tuple(ticks), tuple(map(str, ticks)))


def number_scale(values: Sequence[float]) -> Scale:
    """Numbers as they are."""
    ticks = _round_ticks(min(values), max(values), least=1e-9 + 1e-3 * abs(max(values)), about=8)
    return Scale(tuple(ticks), tuple(map(text.number, ticks)))


def doublings_scale(low: float, high: float) -> Scale:
    """Batch sizes by their base-2 logarithm, with ticks at powers of two.

    Example:
        >>> doublings_scale(48, 1024).labels
        ('32', '64', '128', '256', '512', '1,024')
    """
    first = math.floor(math.log2(low))
    doublings = max(math.ceil(math.log2(high)) - first, 1)
    step = math.ceil(doublings / _MAX_DOUBLINGS)
    ticks = [first + step * i for i in range(math.ceil(doublings / step) + 1)]
    return Scale(tuple(ticks), tuple(text.number(2.0**tick) for tick in ticks))


def decades_scale(low: float, high: float) -> Scale:
    """Counts by their base-10 logarithm, with ticks at powers of ten.

    Example:
        >>> decades_scale(48_000, 2_000_000).labels
        ('10 k', '100 k', '1 M', '10 M')
    """
    first = math.floor(math.log10(low))
    ticks = range(first, max(math.ceil(math.log10(high)), first + 1) + 1)
    return Scale(tuple(ticks), tuple(_thousands(tick) for tick in ticks))


def elapsed_scale(seconds: float) -> Scale:
    """Time from 0 on, with ticks at whole seconds, minutes, hours or days.

    Example:
        >>> elapsed_scale(95).labels, elapsed_scale(7300).labels
        (('0', '30 s', '60 s', '90 s', '120 s'), ('0', '30 min', '60 min', '90 min', '120 min', '150 min'))
        >>> elapsed_scale(0.0).labels
        ('0', '1 s')
    """
    steps = [(size * part, size, unit) for unit, (size, parts) in _TIMES.items() for part in parts]
    step, size, unit = next((each for each in steps if each[0] * _MAX_TIMES >= seconds), steps[-1])
    ticks = range(0, step * max(math.ceil(seconds / step), 1) + 1, step)
    return Scale(tuple(ticks), ("0", *(f"{tick // size} {unit}" for tick in ticks[1:])))


def _thousands(power: int) -> str:
    """A power of ten, by the name of its thousands."""
    if not 0 <= power < 3 * len(_THOUSANDS):
        return f"1e{power}"
    return f"{10 ** (power % 3)} {_THOUSANDS[power // 3]}".strip()


def accuracy_ticks(low: float, high: float, *, about: int = 5) -> list[float]:
    """Evenly spaced round shares that hold ``low`` and ``high``, at least two."""
    return _round_ticks(low, high, least=0.01, about=about, smallest=0.002)


def number_ticks(highest: int, *, about: int = 8) -> list[int]:
    """Evenly spaced whole numbers from 0 that hold ``highest``, at least two."""
    step = max(1, math.ceil(_round_step(max(highest, 1) / (about - 1))))
    return list(range(0, max(highest, 1) + step, step))


def _round_ticks(
    low: float, high: float, *, least: float, about: int, smallest: float = 0.0
) -> list[float]:
    """Multiples of a round step that hold both ends; a range is taken for ``least`` at least."""
    step = max(_round_step(max(high - low, least) / (about - 1)), smallest)
    first = math.floor(low / step + 1e-9)
    last = max(math.ceil(high / step - 1e-9), first + 1)
    return [round(k * step, 9) for k in range(first, last + 1)]


def _round_step(least: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is not below ``least``."""
    power = 10.0 ** math.floor(math.log10(least))
    return next((k * power for k in _STEPS if k * power >= least * (1 - 1e-9)), 10 * power)
