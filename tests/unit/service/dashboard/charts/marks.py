"""Marks of a chart, read back from its paths."""

import re


def dots(path: str) -> list[tuple[int, int]]:
    """Where the dots of a path are."""
    return [(int(x), int(y)) for x, y in re.findall(r"M(-?\d+) (-?\d+)h0", path)]


def bars(path: str) -> list[tuple[int, int, int]]:
    """X and both ends of the upright bars of a path."""
    found = re.findall(r"M(-?\d+) (-?\d+)V(-?\d+)", path)
    return [(int(x), int(one), int(other)) for x, one, other in found]


def line(path: str) -> list[tuple[int, int]]:
    """Corners of a line, from its beginning."""
    assert path.startswith("M")
    return [(int(x), int(y)) for x, y in (corner.split() for corner in path[1:].split("L"))]
