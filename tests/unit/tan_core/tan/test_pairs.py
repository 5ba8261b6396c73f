import math

import numpy as np
import pytest
from scipy import stats

from tan_core.errors import ParameterError
from tan_core.tan import paired_runs_needed


class TestPairedRunsNeeded:
    @pytest.mark.parametrize(("points", "pairs"), [(1.0, 14), (2.0, 4)])
    def test_reproduces_the_seed_study(self, points: float, pairs: int) -> None:
        """Bao and Bindschaedler (2024): std 0.93 over 500 seeds of CIFAR-10."""
        assert paired_runs_needed(difference=points, std=0.93) == pairs

    @pytest.mark.parametrize("power", [0.5, 0.8, 0.95])
    def test_that_many_pairs_have_the_power_and_one_less_has_not(self, power: float) -> None:
        n = paired_runs_needed(difference=0.5, std=1.0, power=power)

        def power_of(pairs: int) -> float:
            return float(stats.norm.sf(1.959964 - 0.5 / (math.sqrt(2) * 1.0) * math.sqrt(pairs)))

        assert power_of(n) >= power > power_of(n - 1)

    def test_simulated_comparisons_find_the_difference_as_often_as_asked(self) -> None:
        """At 32 pairs, a z test on 4,000 comparisons: 0.80 within four standard deviations."""
        n = paired_runs_needed(difference=0.7, std=1.0)
        rng = np.random.default_rng(3)
        differences = 0.7 + rng.normal(size=(4000, n)) - rng.normal(size=(4000, n))
        found = differences.mean(axis=1) / math.sqrt(2 / n) > 1.959964

        assert n == 33
        assert found.mean() == pytest.approx(0.80, abs=0.03)

    def test_the_unit_does_not_matter(self) -> None:
        in_points = paired_runs_needed(difference=1.0, std=0.93)

        assert paired_runs_needed(difference=0.01, std=0.0093) == in_points

    def test_no_pair_is_ever_enough_alone(self) -> None:
        assert paired_runs_needed(difference=100.0, std=0.1) == 2

    @pytest.mark.parametrize(
        ("field", "value"), [("difference", 0.0), ("std", -1.0), ("power", 1.0), ("power", 0.01)]
    )
    def test_a_value_outside_its_domain_is_refused_by_name(self, field: str, value: float) -> None:
        good = {"difference": 1.0, "std": 1.0, "power": 0.8}

        with pytest.raises(ParameterError, match=f"{field} must be .* got {value!r}"):
            paired_runs_needed(**{**good, field: value})
