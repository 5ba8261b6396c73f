"""Argument checks that name the argument themselves: ``positive(steps=steps)``.

They take Python's own numbers alone: whatever is computed of a ``numpy.float32`` is rounded as one, and of a
``numpy.int64`` wraps around. A door that is handed those makes them :func:`plain` first.
"""

import math
import numbers
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from tan_core.errors import ParameterError

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def plain(value: Any) -> Any:
    """Python's own number for one of NumPy's; anything else as it is, truth values too.

    Example:
        >>> plain(2.5), plain("2.5"), plain(True)
        (2.5, '2.5', True)
    """
    if type(value) in (int, float, bool):
        return value
    try:
        if isinstance(value, numbers.Integral):
            return int(value)
        return float(value) if isinstance(value, numbers.Real) else value
    except OverflowError:  # a number beyond every float, which the checks refuse by name
        return value


def plainly(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """The function, given :func:`plain` arguments."""
    anyhow: Callable[..., _Result] = function

    @wraps(function)
    def called(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        return anyhow(*map(plain, args), **{name: plain(own) for name, own in kwargs.items()})

    return called


def make_plain(frozen: object, *names: str) -> None:
    """Make fields of a frozen dataclass :func:`plain`, as it is made."""
    for name in names:
        object.__setattr__(frozen, name, plain(getattr(frozen, name)))


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


def rate(**values: float) -> None:
    """Refuse anything outside (0, 1]."""
    for name, value in values.items():
        if not (_is_number(value) and 0 < value <= 1):
            raise ParameterError(f"{name} must be in (0, 1], got {value!r}", field=name)


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
