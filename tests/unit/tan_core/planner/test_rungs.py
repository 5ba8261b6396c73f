import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tan_core.errors import ParameterError
from tan_core.planner import batch_ladder
from tan_core.planner.rungs import MIN_RUNG, halving_trials


@pytest.mark.parametrize(
    ("batch", "rungs"),
    [
        (32_768, [512, 2048, 8192]),
        (4096, [64, 256, 1024]),
        (512, [8, 32, 128]),
        (511, [31, 127]),
        (256, [16, 64]),
        (127, [31]),
        (32, [8]),
        (20, [8]),
        (5, [5]),
    ],
)
def test_the_ladder_is_a_64th_a_16th_and_a_quarter_while_they_are_worth_it(
    batch: int, rungs: list[int]
) -> None:
    assert batch_ladder(batch) == rungs


def test_no_rung_is_above_the_data_of_the_search() -> None:
    assert batch_ladder(4096, search_num_examples=300) == [64, 256]
    assert batch_ladder(4096, search_num_examples=50) == [50]


def test_a_batch_that_is_none_is_refused() -> None:
    with pytest.raises(ParameterError, match="expected_batch_size"):
        batch_ladder(math.nan)


@given(batch=st.floats(1, 1e8), data=st.none() | st.integers(1, 10**8))
def test_rungs_rise_stay_inside_and_are_large_enough(batch: float, data: int | None) -> None:
    rungs = batch_ladder(batch, search_num_examples=data)

    most = min(batch, data or math.inf)
    assert rungs
    assert all(low < high for low, high in pairwise(rungs))
    assert rungs[0] >= 1
    assert rungs[-1] <= most
    assert rungs[0] >= min(MIN_RUNG, int(most))


@given(trials=st.integers(1, 10**5), num_rungs=st.integers(1, 3))
def test_every_rung_is_reached_and_by_no_less_than_a_quarter(trials: int, num_rungs: int) -> None:
    reached = halving_trials(trials, num_rungs)

    assert reached[0] == trials
    assert all(above >= 1 for above in reached)
    assert all(below / 4 <= above < below / 4 + 1 for below, above in pairwise(reached))
