"""What a private run reports of its classes and groups."""

from typing import Any


def evaluation(*, baseline: bool = False) -> dict[str, Any]:
    """360 test records of three classes, the last one small, and of two groups."""
    return {
        "private": _scores([(200, 190), (150, 139), (10, 4)], [(120, 105), (240, 228)]),
        "group": "hand",
        "baseline": _scores([(200, 196), (150, 146), (10, 9)], [(120, 117), (240, 234)])
        if baseline
        else None,
        "baseline_reason": None,
    }


def with_small_parts() -> dict[str, Any]:
    """As a worker told it before small parts were told together: a class of 4 records, a group of 3."""
    told = evaluation()
    told["private"]["classes"] = _tallies(["0", "1", "2"], [(200, 190), (156, 139), (4, 4)])
    told["private"]["groups"] = _tallies(
        ["left", "right", "X. Y."], [(117, 105), (240, 227), (3, 1)]
    )
    return told


def _scores(classes: list[tuple[int, int]], groups: list[tuple[int, int]]) -> dict[str, Any]:
    return {
        "name": "all",
        "num": sum(num for num, _ in classes),
        "correct": sum(correct for _, correct in classes),
        "classes": _tallies(["0", "1", "2"], classes),
        "groups": _tallies(["left", "right"], groups),
    }


def _tallies(names: list[str], counts: list[tuple[int, int]]) -> list[dict[str, Any]]:
    return [
        {"name": name, "num": num, "correct": correct}
        for name, (num, correct) in zip(names, counts, strict=True)
    ]
