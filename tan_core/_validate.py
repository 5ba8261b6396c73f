"""Argument checks that name the argument themselves: ``positive(steps=steps)``."""

import math

from tan_core.errors import ParameterError


def positive(**values: float) -> None:
    """Refuse anything that is not a finite number above zero."""
    for name, value in values.items():
        if not (_is_number(value) and value > 0):
            raise ParameterError(f"{name} must be a finite number > 0, got {value!r}", field=name)


def positive_integer(**values: object) -> None:
    """Refuse anything that is not an integer of at least 1."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ParameterError(f"{name} must be an integer >= 1, got {value!r}", field=name)


def probability(*, open_ends: bool = False, **values: float) -> None:
    """Refuse anything outside [0, 1], or outside (0, 1) with ``open_ends``."""
    for name, value in values.items():
        inside = _is_number(value) and (0 < value < 1 if open_ends else 0 <= value <= 1)
        if not inside:
            domain = "(0, 1)" if open_ends else "[0, 1]"
            raise ParameterError(f"{name} must be in {domain}, got {value!r}", field=name)


def in_range(low: float, high: float, /, **values: float) -> None:
    """Refuse anything outside [low, high]."""
    for name, value in values.items():
        if not (_is_number(value) and low <= value <= high):
            raise ParameterError(
                f"{name} must be in [{low:g}, {high:g}], got {value!r}", field=name
            )


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False
