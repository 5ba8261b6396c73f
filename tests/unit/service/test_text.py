from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service import text
from tests.unit.service.cli.recorded import STUDY


@given(st.floats(min_value=1e-9, max_value=1e6))
def test_a_printed_epsilon_is_never_below_the_true_one(value: float) -> None:
    assert Decimal(text.epsilon(value)) >= Decimal(repr(value))


@given(st.floats(min_value=1e-9, max_value=1e6))
def test_what_is_left_of_a_budget_is_never_shown_larger_than_it_is(value: float) -> None:
    assert Decimal(text.rounded_down(value)) <= Decimal(repr(value))


@given(st.floats(min_value=1e-9, max_value=1e6))
def test_a_printed_epsilon_is_close_to_the_true_one(value: float) -> None:
    assert float(text.epsilon(value)) <= max(value * 1.011, value + 1.0001e-3 * (value >= 1))


@pytest.mark.parametrize(
    ("value", "shown"),
    [(2.95, "2.950"), (3.0, "3.000"), (0.012341, "0.0124"), (None, "-"), (float("inf"), "∞")],
)
def test_epsilon_as_written(value: float | None, shown: str) -> None:
    assert text.epsilon(value) == shown


def test_epsilon_is_never_written_without_what_it_means_nothing_without() -> None:
    line = text.guarantee(STUDY["privacy"])
    for words in ("ε = 2.941", "δ = 1e-05", "PLD", "add_or_remove_one", "NOT accounted"):
        assert words in line


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (4.4, "4s"),
        (0, "0s"),
        (0.003, "0.1s"),
        (0.42, "0.4s"),
        (0.96, "1s"),
        (185, "3m05s"),
        (3720, "1h02m"),
        (None, "-"),
        (-1, "-"),
    ],
)
def test_durations_as_written(seconds: float | None, shown: str) -> None:
    assert text.duration(seconds) == shown
