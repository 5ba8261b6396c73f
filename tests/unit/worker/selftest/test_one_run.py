"""The bound of one run, on randomised response: the mechanism that meets it with equality."""

import doctest

import numpy as np
import pytest
from scipy import special, stats

from worker.selftest import one_run

GUESSES = {"num_canaries": 1000, "num_guesses": 100}


class TestPValue:
    @pytest.mark.parametrize("epsilon", [0.5, 2.0])
    def test_randomised_response_meets_it_with_equality(self, epsilon: float) -> None:
        """Each guess is right with probability e^eps / (1 + e^eps), as if every answer were told."""
        right = 75
        expected = stats.binom(100, special.expit(epsilon)).sf(right - 1)

        found = one_run.p_value(epsilon=epsilon, delta=0.0, num_correct=right, **GUESSES)

        assert found == pytest.approx(expected, rel=1e-12)

    def test_delta_adds_as_the_theorem_says(self) -> None:
        """By a loop over i, term by term, as in appendix D."""
        epsilon, delta, right = 1.0, 1e-5, 90
        law = stats.binom(100, special.expit(epsilon))
        steepest = max(
            sum(law.pmf(right - j) for j in range(1, i + 1)) / i for i in range(1, right + 1)
        )

        found = one_run.p_value(epsilon=epsilon, delta=delta, num_correct=right, **GUESSES)

        assert found == pytest.approx(law.sf(right - 1) + 2 * 1000 * delta * steepest, rel=1e-12)

    def test_it_falls_with_every_right_guess(self) -> None:
        values = [
            one_run.p_value(epsilon=1.0, delta=1e-6, num_correct=right, **GUESSES)
            for right in range(101)
        ]

        assert values[0] == 1.0
        assert all(np.diff(values) <= 0)

    def test_its_example_is_true(self) -> None:
        assert doctest.testmod(one_run).failed == 0


class TestEpsilonLowerBound:
    def test_it_is_refuted_at_the_level_just_so(self) -> None:
        what = {"delta": 1e-8, "num_correct": 95, **GUESSES}

        bound = one_run.epsilon_lower_bound(level=1e-3, **what)

        assert 1 < bound < 3
        assert one_run.p_value(epsilon=bound, **what) == pytest.approx(1e-3, rel=1e-6)

    def test_guesses_by_chance_prove_nothing(self) -> None:
        assert one_run.epsilon_lower_bound(level=1e-3, delta=0.0, num_correct=50, **GUESSES) == 0

    def test_all_right_is_bounded_by_the_number_of_guesses(self) -> None:
        """p^100 = 1e-3 at p = 0.933, the odds of epsilon 2.63."""
        bound = one_run.epsilon_lower_bound(level=1e-3, delta=0.0, num_correct=100, **GUESSES)

        assert bound == pytest.approx(special.logit(1e-3**0.01), rel=1e-6)


class TestNumCorrect:
    def test_the_highest_are_called_in_and_the_lowest_out(self) -> None:
        scores = np.array([3.0, -2.0, 0.1, 5.0, -4.0, 0.0])
        is_in = np.array([True, False, True, True, True, False])

        assert one_run.num_correct(scores, is_in, 4) == 3
