"""Argument checks that name the argument themselves: ``positive(steps=steps)``.

They take Python's own numbers alone: whatever is computed of a ``numpy.float32`` is rounded as one, and of a
``numpy.int64`` wraps around. A door that is handed those makes them :func:`plain` first.
"""

import math
import numbers
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from tan_core.errors import ParameterError

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def plain(value: Any) -> Any:
    """Python's own number for one of NumPy's, or in an array or tensor without a dimension; anything else
    as it is, truth values too.

    Example:
        >>> plain(2.5), plain("2.5"), plain(True)
        (2.5, '2.5', True)
    """
    if type(value) in (int, float, bool):
        return value
    held = value.item() if _is_scalar(value) else value
    try:
        if isinstance(held, bool):
            return value
        if isinstance(held, numbers.Integral):
            return int(held)
        return float(held) if isinstance(held, numbers.Real) else value
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


def instance(kind: type, /, **values: object) -> None:
    """Refuse anything that is not of this class."""
    for name, value in values.items():
        if not isinstance(value, kind):
            article = "an" if kind.__name__[0] in "AEIOU" else "a"
            raise ParameterError(
                f"{name} must be {article} {kind.__name__}, got {_described(value)}", field=name
            )


def optional(kind: type, /, **values: object) -> None:
    """Refuse anything that is neither of this class nor None."""
    instance(kind, **{name: value for name, value in values.items() if value is not None})


_Member = TypeVar("_Member")


def sequence(kind: type[_Member], /, **values: object) -> tuple[_Member, ...]:
    """What one argument holds, refused unless it holds objects of this class alone."""
    ((name, value),) = values.items()
    if isinstance(value, kind):
        raise ParameterError(
            f"{name} must be a sequence of {kind.__name__}, got a single one: put it into a list",
            field=name,
        )
    held = items(kind, **values)
    for index, member in enumerate(held):
        instance(kind, **{f"{name}[{index}]": member})
    return held


def items(kind: type[_Member], /, **values: object) -> tuple[_Member, ...]:
    """What one argument holds, whatever that is; refused where it holds nothing one by one."""
    ((name, value),) = values.items()
    try:
        return tuple(value)  # pyright: ignore[reportArgumentType] whatever it is
    except TypeError:
        raise ParameterError(
            f"{name} must be a sequence of {kind.__name__}, got {_described(value)}", field=name
        ) from None


def sides(**values: object) -> tuple[int, ...]:
    """The shape of one example as plain numbers, refused unless they are whole and above 0."""
    ((name, value),) = values.items()
    found = tuple(map(plain, value)) if isinstance(value, Iterable) else ()
    if not found or not all(type(side) is int and side > 0 for side in found):
        raise ParameterError(
            f"{name} must be the whole numbers of one example's sides, such as (1, 28, 28), got {_shown(value)}",
            field=name,
        )
    return found


def boolean(**values: object) -> None:
    """Refuse anything that is not a truth value, of Python or NumPy."""
    for name, value in values.items():
        held: Any = value.item() if _is_scalar(value) else value  # pyright: ignore[reportAttributeAccessIssue]
        if not isinstance(held, bool):
            raise ParameterError(
                f"{name} must be True or False, got {_described(value)}", field=name
            )


def number(**values: object) -> None:
    """Refuse anything that is not a number, and NaN; infinities are numbers here."""
    for name, value in values.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or value != value:
            raise ParameterError(f"{name} must be a number, got {_described(value)}", field=name)


def integer(**values: object) -> None:
    """Refuse anything that is not an integer."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise ParameterError(f"{name} must be an integer, got {_described(value)}", field=name)


def positive(**values: float) -> None:
    """Refuse anything that is not a finite number above zero."""
    for name, value in values.items():
        if not (_is_number(value) and value > 0):
            raise ParameterError(
                f"{name} must be a finite number > 0, got {_shown(value)}", field=name
            )


def positive_integer(**values: object) -> None:
    """Refuse anything that is not an integer of at least 1, and those beyond every count: 2**63 and more."""
    _integer_from(1, values)


def natural_number(**values: object) -> None:
    """Refuse anything that is not an integer of at least 0, and those beyond every count: 2**63 and more."""
    _integer_from(0, values)


def probability(*, open_ends: bool = False, **values: float) -> None:
    """Refuse anything outside [0, 1], or outside (0, 1) with ``open_ends``."""
    for name, value in values.items():
        inside = _is_number(value) and (0 < value < 1 if open_ends else 0 <= value <= 1)
        if not inside:
            domain = "(0, 1)" if open_ends else "[0, 1]"
            raise ParameterError(f"{name} must be in {domain}, got {_shown(value)}", field=name)


def rate(**values: float) -> None:
    """Refuse anything outside (0, 1]."""
    for name, value in values.items():
        if not (_is_number(value) and 0 < value <= 1):
            raise ParameterError(f"{name} must be in (0, 1], got {_shown(value)}", field=name)


def fraction(**values: float) -> None:
    """Refuse anything outside [0, 1)."""
    for name, value in values.items():
        if not (_is_number(value) and 0 <= value < 1):
            raise ParameterError(f"{name} must be in [0, 1), got {_shown(value)}", field=name)


def in_range(low: float, high: float, /, **values: float) -> None:
    """Refuse anything outside [low, high]."""
    for name, value in values.items():
        if not (_is_number(value) and low <= value <= high):
            raise ParameterError(
                f"{name} must be in [{low:g}, {high:g}], got {_shown(value)}", field=name
            )


def _integer_from(least: int, values: Mapping[str, object]) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ParameterError(
                f"{name} must be an integer >= {least}, got {_shown(value)}", field=name
            )
        if value >= 2**63:
            raise ParameterError(
                f"{name} must be an integer < 2**63, got one of {value.bit_length()} bits",
                field=name,
            )


def _described(value: object) -> str:
    """What it is: all of a short one such as a number, for a text may hide in its type."""
    shown = _shown(value)
    return shown if len(shown) <= 40 else f"an object of type {type(value).__name__}"


def _shown(value: object) -> str:
    """The value itself; of an integer that Python writes no text of, how long it is."""
    try:
        return repr(value)
    except ValueError:
        return f"an integer of {value.bit_length()} bits" if isinstance(value, int) else "a value"


def _is_scalar(value: Any) -> bool:
    """Whether it is an array or tensor that holds a single value, of NumPy, torch, JAX or their like."""
    return getattr(value, "shape", None) == () and hasattr(value, "item")


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False
