"""Small plots of characters, for a terminal."""

from collections.abc import Sequence

DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a braille cell, of its four rows and two columns."""
BLANK = 0x2800
BLOCKS = "▁▂▃▄▅▆▇█"


def line(
    values: Sequence[float], *, width: int, height: int, is_stepped: bool = False
) -> list[str]:
    """A curve as ``height`` lines of ``width`` braille cells, the lowest value at the bottom.

    Values are at equal distances and fill the width; neighbours are joined, or each value holds until
    the next one where ``is_stepped``.

    Example:
        >>> line([0, 1, 2, 3], width=2, height=1)
        ['⡠⠊']
    """
    columns, rows = 2 * width, 4 * height
    low, high = min(values), max(values)
    cells = [[BLANK] * width for _ in range(height)]
    before: int | None = None
    for column in range(columns):
        share = column / max(columns - 1, 1)
        row = _row(_at(values, share, is_stepped=is_stepped), low, high, rows)
        start = row if before is None else before + (before < row) - (before > row)
        for each in range(min(start, row), max(start, row) + 1):
            down = rows - 1 - each
            cells[down // 4][column // 2] |= DOTS[down % 4][column % 2]
        before = row
    return ["".join(map(chr, line_)) for line_ in cells]


def sparkline(values: Sequence[float], *, width: int) -> str:
    """Values as blocks of eight heights, from zero to the largest; the last ones if there are many.

    Example:
        >>> sparkline([1, 2, 4, 8], width=10)
        '▁▂▄█'
    """
    shown = list(values)[-width:]
    high = max(shown, default=0.0)
    if high <= 0:
        return BLOCKS[0] * len(shown)
    return "".join(BLOCKS[max(0, round(8 * value / high) - 1)] for value in shown)


def _at(values: Sequence[float], share: float, *, is_stepped: bool) -> float:
    """The value at a share of the way."""
    place = share * (len(values) - 1)
    left = int(place)
    if is_stepped:
        return values[left]
    right = min(left + 1, len(values) - 1)
    return values[left] + (place - left) * (values[right] - values[left])


def _row(value: float, low: float, high: float, rows: int) -> int:
    return round((rows - 1) * (value - low) / (high - low)) if high > low else 0
