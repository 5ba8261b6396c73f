import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tan_core.errors import ParameterError
from tan_core.planner import batch_ladder, reduction_factor
from tan_core.planner.rungs import (
    CONFIRMATION_FACTOR,
    MIN_RUNG,
    confirmation_batch,
    expected_trials,
    held_trials,
)


@pytest.mark.parametrize(
    ("batch", "trials", "rungs"),
    [
        (32_768, 4, [512, 2048, 8192]),
        (32_768, 24, [512, 2048]),
        (32_768, 40, [256, 1024]),
        (4096, 8, [32, 128, 512]),
        (4096, 24, [64, 256]),
        (4096, 32, [32, 128]),
        (2048, 24, [32, 128]),
        (1024, 24, [32, 128]),
        (256, 24, [32, 128]),
        (8192, 1000, [32, 128]),
        (127, 24, [32]),
        (20, 24, [20]),
    ],
)
def test_the_ladder_is_the_highest_that_a_private_run_pays(
    batch: int, trials: int, rungs: list[int]
) -> None:
    assert batch_ladder(batch, trials=trials) == rungs


def test_no_rung_is_above_the_data_of_the_search() -> None:
    assert batch_ladder(4096, trials=8, search_num_examples=300) == [64, 256]
    assert batch_ladder(4096, trials=8, search_num_examples=50) == [50]
    assert batch_ladder(4096, trials=8, search_num_examples=200) == [32, 128]
    assert batch_ladder(4096, trials=8, search_num_examples=31) == [31]


def test_a_batch_that_is_none_is_refused() -> None:
    with pytest.raises(ParameterError, match="expected_batch_size"):
        batch_ladder(math.nan, trials=24)


@given(
    batch=st.floats(1, 1e8), trials=st.integers(1, 10**5), data=st.none() | st.integers(1, 10**8)
)
def test_rungs_rise_stay_inside_and_are_large_enough(
    batch: float, trials: int, data: int | None
) -> None:
    rungs = batch_ladder(batch, trials=trials, search_num_examples=data)

    most = min(batch, data or math.inf)
    assert rungs
    assert all(low < high for low, high in pairwise(rungs))
    assert rungs[0] >= 1
    assert rungs[-1] <= most
    assert rungs[0] >= min(MIN_RUNG, int(most))
    assert len(rungs) > 1 or most < 4 * MIN_RUNG


@pytest.mark.slow
@pytest.mark.parametrize("rungs", [[8, 32, 128], [8, 16, 32], [8, 24], [32]])
def test_as_many_trials_climb_as_ashas_own_cut_lets_through(rungs: list[int]) -> None:
    counts = np.mean([asha(24, rungs, np.random.default_rng(seed)) for seed in range(400)], axis=0)

    assert expected_trials(24, rungs) == pytest.approx(counts, rel=0.08)


def asha(trials: int, rungs: list[int], random: np.random.Generator) -> list[int]:
    """Counts of trials by rung, cut as Ray's ASHA cuts: below a percentile of the earlier scores."""
    seen: list[list[float]] = [[] for _ in rungs]
    for _ in range(trials):
        for scores in seen:
            score = random.random()
            goes_on = not scores or score >= np.percentile(
                scores, 100 * (1 - 1 / reduction_factor(rungs))
            )
            scores.append(score)
            if not goes_on:
                break
    return [len(scores) for scores in seen]


class TestConfirmation:
    """One batch above the ladder, where the budget holds it."""

    @pytest.mark.parametrize(
        ("rungs", "trials", "budget", "found"),
        [
            ([32, 128], 24, 1.0, 512),
            ([32, 128, 512], 4, 1.0, None),
            ([32, 128], 24, 0.8, None),
            ([32, 128], 48, 1.0, None),
            ([32, 128], 48, 2.0, 512),
            ([128, 256], 4, 1.0, 512),
            ([128, 257], 4, 1.0, None),
        ],
    )
    def test_it_is_a_quarter_of_the_private_batch(
        self, rungs: list[int], trials: int, budget: float, found: int | None
    ) -> None:
        assert confirmation_batch(2048, rungs, trials=trials, budget=budget) == found

    def test_it_reads_no_more_than_there_is(self) -> None:
        ask = {"trials": 24, "budget": 1.0}
        assert confirmation_batch(2048, [32, 128], search_num_examples=512, **ask) == 512
        assert confirmation_batch(2048, [32, 128], search_num_examples=511, **ask) is None

    @given(batch=st.integers(16, 10**6), trials=st.integers(1, 300), budget=st.floats(0.05, 20))
    def test_the_budget_holds_it_and_at_least_half_of_those_that_would_climb(
        self, batch: int, trials: int, budget: float
    ) -> None:
        rungs = batch_ladder(batch, trials=trials)
        found = confirmation_batch(batch, rungs, trials=trials, budget=budget)
        if found is None:
            return

        assert 2 * rungs[-1] <= found <= batch / CONFIRMATION_FACTOR
        held = held_trials(trials, rungs, budget * batch - found)
        expected = expected_trials(trials, rungs)
        assert held[0] == trials
        assert all(a >= 0.499 * b for a, b in zip(held, expected, strict=True))
        cost = sum(rung * num for rung, num in zip(rungs, held, strict=True))
        assert cost + found <= budget * batch * (1 + 1e-9)

    @given(trials=st.integers(1, 300), examples=st.floats(0, 1e6))
    def test_no_more_climb_than_asha_lets(self, trials: int, examples: float) -> None:
        held = held_trials(trials, [32, 128, 512], examples)

        assert held[0] == trials
        for number, most in zip(held, expected_trials(trials, [32, 128, 512]), strict=True):
            assert 0 <= number <= most
