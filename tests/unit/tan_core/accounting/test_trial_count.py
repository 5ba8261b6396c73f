import math

import numpy as np
import pytest
from scipy import stats

from tan_core.accounting.trial_count import (
    MAX_MEAN,
    NegativeBinomialTrials,
    PoissonTrials,
    TrialCount,
    last_holding,
)
from tan_core.errors import ParameterError


class FixedUniform(np.random.Generator):
    """A generator whose next uniform number is known."""

    def __init__(self, uniform: float) -> None:
        super().__init__(np.random.PCG64(0))
        self.uniform = uniform

    def random(self, *_: object, **__: object) -> float:
        return self.uniform


def law_of(shape: float, mean: float = 10.0) -> NegativeBinomialTrials:
    return NegativeBinomialTrials(mean=mean, shape=shape)


class TestNegativeBinomialTrials:
    @pytest.mark.parametrize("mean", [1.0, 1.5, 10.0, 300.0])
    def test_shape_one_is_geometric(self, mean: float) -> None:
        law = law_of(1.0, mean)

        assert law.halting_probability == pytest.approx(1 / mean, rel=1e-12)
        assert law.pmf(7) == pytest.approx(stats.geom(1 / mean).pmf(7), rel=1e-9)

    @pytest.mark.parametrize("mean", [1.5, 10.0, 300.0])
    def test_shape_zero_is_logarithmic(self, mean: float) -> None:
        law = law_of(0.0, mean)

        logarithmic = stats.logser(1 - law.halting_probability)

        assert logarithmic.mean() == pytest.approx(mean)
        for k in (1, 2, 30):
            assert law.pmf(k) == pytest.approx(logarithmic.pmf(k))

    @pytest.mark.parametrize("mean", [1.5, 10.0, 300.0])
    @pytest.mark.parametrize("shape", [0.01, 0.5, 3.0, 40.0])
    def test_other_shapes_are_negative_binomial_without_zero(
        self, shape: float, mean: float
    ) -> None:
        law = law_of(shape, mean)

        untruncated = stats.nbinom(shape, law.halting_probability)
        positive = 1 - untruncated.pmf(0)

        assert untruncated.mean() / positive == pytest.approx(mean)
        for k in (1, 2, 30):
            assert law.pmf(k) == pytest.approx(untruncated.pmf(k) / positive)

    def test_a_vanishing_shape_is_the_logarithmic_law(self) -> None:
        assert law_of(1e-9).pmf(3) == pytest.approx(law_of(0.0).pmf(3), rel=1e-7)

    @pytest.mark.parametrize("shape", [0.0, 0.5, 1.0, 100.0])
    def test_a_mean_of_one_is_a_single_trial(self, shape: float) -> None:
        law = law_of(shape, mean=1.0)

        assert law.pmf(1) == pytest.approx(1.0)
        assert law.sample(FixedUniform(0.999_999_999)) == 1

    def test_never_runs_zero_trials(self) -> None:
        assert law_of(1.0).pmf(0) == 0
        assert law_of(1.0).sample(FixedUniform(0.0)) == 1

    @pytest.mark.parametrize(("mean", "shape"), [(0.9, 1.0), (2 * MAX_MEAN, 1.0), (10, -0.1)])
    def test_arguments_out_of_range_are_refused(self, mean: float, shape: float) -> None:
        with pytest.raises(ParameterError, match=r"mean|shape"):
            law_of(shape, mean)


class TestPoissonTrials:
    @pytest.mark.parametrize("mean", [1.0, 20.0, 500.0])
    def test_is_the_poisson_law(self, mean: float) -> None:
        law = PoissonTrials(mean=mean)

        for k in (0, 1, int(mean), int(2 * mean)):
            assert law.pmf(k) == pytest.approx(stats.poisson(mean).pmf(k), rel=1e-9)

    @pytest.mark.parametrize("mean", [0.5, 501.0, math.nan])
    def test_a_mean_out_of_range_is_refused(self, mean: float) -> None:
        with pytest.raises(ParameterError, match="mean"):
            PoissonTrials(mean=mean)


class TestSample:
    @pytest.mark.parametrize("uniform", [0.0, 0.05, 0.5, 0.9, 0.999])
    def test_is_the_quantile_of_the_uniform_number(self, uniform: float) -> None:
        """The quantile of scipy is the least k with P(K <= k) >= u: the same but at the steps."""
        geometric, poisson = law_of(1.0), PoissonTrials(mean=5.0)

        just_above = np.nextafter(uniform, 1)
        assert geometric.sample(FixedUniform(uniform)) == stats.geom(0.1).ppf(just_above)
        assert poisson.sample(FixedUniform(uniform)) == stats.poisson(5.0).ppf(just_above)

    @pytest.mark.parametrize("law", [law_of(0.0), law_of(1.0), PoissonTrials(mean=5.0)])
    def test_ends_at_the_largest_uniform_number(self, law: TrialCount) -> None:
        assert 20 < law.sample(FixedUniform(1 - 2**-53)) < 100_000

    @pytest.mark.statistical
    @pytest.mark.parametrize(
        "law",
        [law_of(0.0), law_of(0.5), law_of(1.0), law_of(5.0), PoissonTrials(mean=10.0)],
        ids=str,
    )
    def test_draws_from_the_law_that_is_priced(self, law: TrialCount) -> None:
        """Chi-square over the counts with more than 20 expected; false alarm once in 10,000."""
        draws, rng = 10_000, np.random.default_rng(20_240_117)
        expected = draws * np.array([law.pmf(k) for k in range(40)])
        common = expected > 20
        counts = np.bincount([min(law.sample(rng), 40) for _ in range(draws)], minlength=41)[:40]

        observed = np.append(counts[common], draws - counts[common].sum())
        hoped = np.append(expected[common], draws - expected[common].sum())

        assert stats.chisquare(observed, hoped).pvalue > 1e-4


class TestLastHolding:
    def test_the_result_always_holds_and_its_neighbour_does_not(self) -> None:
        edge = last_holding(lambda x: x * x <= 2, holds_at=0.0, fails_at=2.0)

        assert edge**2 <= 2 < np.nextafter(edge, 2) ** 2

    def test_a_tolerance_ends_the_search_on_the_safe_side(self) -> None:
        edge = last_holding(lambda x: x >= 0.3, holds_at=1.0, fails_at=0.0, tolerance=0.1)

        assert 0.3 <= edge <= 0.4


class TestExtremeShapes:
    def test_a_shape_next_to_nothing_is_the_logarithmic_law(self) -> None:
        tiny = NegativeBinomialTrials(mean=5.0, shape=5e-324)
        logarithmic = NegativeBinomialTrials(mean=5.0, shape=0.0)

        assert tiny.halting_probability == pytest.approx(logarithmic.halting_probability)
        assert tiny.pmf(3) == pytest.approx(logarithmic.pmf(3))
