"""Marks of a chart, read back from its paths."""

import re


def dots(path: str) -> list[tuple[int, int]]:
    """Where the dots of a path are."""
    return [(int(x), int(y)) for x, y in re.findall(r"M(-?\d+) (-?\d+)h0", path)]


def bars(path: str) -> list[tuple[int, int, int]]:
    """X and both ends of the upright bars of a path."""
    found = re.findall(r"M(-?\d+) (-?\d+)V(-?\d+)", path)
    return [(int(x), int(one), int(other)) for x, one, other in found]


def line(path: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Both ends of a straight line."""
    ends = re.fullmatch(r"M(\d+) (\d+)L(\d+) (\d+)", path)
    assert ends
    x, y, to_x, to_y = map(int, ends.groups())
    return (x, y), (to_x, to_y)
