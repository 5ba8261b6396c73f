"""What may be compared, and what of it differs."""

from typing import Any

import pytest

from service.dashboard.beside import Row, chosen_few
from service.errors import InvalidInputError


def few(chosen: list[int]) -> list[int]:
    return chosen_few(chosen, field="trial", things="trials", listed="the table")


def test_each_is_compared_once_in_the_order_of_asking() -> None:
    assert few([7, 3, 7]) == [7, 3]
    assert few([6, 5, 4, 3, 2, 1]) == [6, 5, 4, 3, 2, 1]


@pytest.mark.parametrize("chosen", [[], [3], [3, 3], [1, 2, 3, 4, 5, 6, 7]])
def test_one_or_too_many_are_refused_with_what_to_do(chosen: list[int]) -> None:
    said = rf"2 to 6 trials can be compared: tick them in the table; got {len(set(chosen))}"
    with pytest.raises(InvalidInputError, match=said) as refused:
        few(chosen)
    assert refused.value.problems[0].path == "trial"


@pytest.mark.parametrize(
    ("values", "known", "others"),
    [
        ([0.9, 0.9], [True, True], [False, False]),
        ([0.9, 0.98, None], [True, True, True], [False, True, True]),
        ([None, 0.9, 0.98], [False, True, True], [False, False, True]),
        ([None, None], [False, False], [False, False]),
    ],
)
def test_others_are_not_as_the_first_that_is_known(
    values: list[Any], known: list[bool], others: list[bool]
) -> None:
    row = Row("ema_decay", values, known)

    assert row.others == others
    assert row.differs == any(others)
