"""What the sharp edges say of accountants, samplings and the law, held to the code."""

from dataclasses import replace
from math import ceil, erfc, log, sqrt

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from service.datasets.schemas import SUPPORTED_MODES
from tan_core import Mechanism, NeighboringRelation, Sampling
from tan_core.accounting import SearchAccounting, gdp_estimate, price, price_search
from tan_core.mechanism import Accountant
from tan_core.tan import Observation, fit_law

N, DELTA = 50_000, 1e-5
RUN = Mechanism(sampling_rate=4096 / N, noise_multiplier=3.0, clip_norm=1.0, steps=2500)


def epsilon(
    mechanism: Mechanism, *, delta: float = DELTA, by: Accountant = Accountant.PLD
) -> float:
    return price([mechanism], delta=delta, accountant=by).epsilon


def library_epsilon(mechanism: Mechanism, *, delta: float, grid: float) -> float:
    """By dp-accounting on a grid of our choice."""
    step = dp_accounting.PoissonSampledDpEvent(
        mechanism.sampling_rate, dp_accounting.GaussianDpEvent(mechanism.noise_multiplier)
    )
    accountant = PLDAccountant(value_discretization_interval=grid)
    return float(accountant.compose(step, mechanism.steps).get_epsilon(delta))


class TestAccountants:
    def test_the_central_limit_is_a_per_cent_below_for_the_run(self) -> None:
        assert gdp_estimate([RUN], delta=DELTA).epsilon == pytest.approx(
            0.99 * epsilon(RUN), rel=2e-3
        )

    def test_the_central_limit_is_less_than_half_where_noise_is_small_and_steps_are_few(
        self,
    ) -> None:
        short = replace(RUN, sampling_rate=0.01, noise_multiplier=0.5, steps=100)
        assert gdp_estimate([short], delta=1e-6).epsilon < 0.5 * epsilon(short, delta=1e-6)

    def test_the_librarys_default_grid_is_several_times_too_high_at_small_sampling_rates(
        self,
    ) -> None:
        rare = replace(RUN, sampling_rate=1e-4, noise_multiplier=10.0, steps=2000)
        default = library_epsilon(rare, delta=1e-6, grid=1e-4)
        assert default > 3 * epsilon(rare, delta=1e-6)

    def test_rdp_is_about_five_times_too_high_at_the_noise_of_a_64th_of_the_batch(self) -> None:
        tiny = replace(RUN, sampling_rate=RUN.sampling_rate / 64, noise_multiplier=3 / 64)
        ratio = epsilon(tiny, by=Accountant.RDP) / epsilon(tiny)
        assert 4.5 < ratio < 5.5

    def test_at_a_delta_of_1e_12_round_off_passes_what_a_coarser_grid_adds(self) -> None:
        grids = (3e-4, 1e-3, 2e-3)

        def added(delta: float) -> list[float]:
            fine = library_epsilon(RUN, delta=delta, grid=1e-4)
            return [library_epsilon(RUN, delta=delta, grid=grid) / fine - 1 for grid in grids]

        by_the_grid = added(1e-9)
        assert 0 < by_the_grid[0] < by_the_grid[1] < by_the_grid[2] < 1e-3
        # On which side, and at which grid, is the processor's: one rounds otherwise than another.
        strays = [a - b for a, b in zip(added(1e-12), by_the_grid, strict=True)]
        assert by_the_grid[1] < max(map(abs, strays)) < 5e-3


class TestSampling:
    def test_a_cap_is_free_from_six_deviations_and_dear_at_the_mean(self) -> None:
        batch = 4096
        cut = replace(
            RUN,
            sampling=Sampling.TRUNCATED_POISSON,
            neighboring_relation=NeighboringRelation.ZERO_OUT,
            num_examples=N,
            max_batch_size=ceil(batch + 6 * sqrt(batch * (1 - batch / N))),
        )
        assert epsilon(cut) == pytest.approx(epsilon(RUN), rel=1e-6)
        assert epsilon(replace(cut, max_batch_size=batch)) > 3 * epsilon(RUN)

    def test_fixed_size_by_the_library_alone_is_less_than_half_of_epsilon(self) -> None:
        accountant = RdpAccountant(
            neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE
        )
        step = dp_accounting.SampledWithoutReplacementDpEvent(
            N, 4096, dp_accounting.GaussianDpEvent(3.0)
        )
        naive = accountant.compose(step, 2500).get_epsilon(DELTA)
        fixed = replace(
            RUN,
            sampling=Sampling.FIXED_SIZE,
            neighboring_relation=NeighboringRelation.REPLACE_ONE,
            num_examples=N,
        )
        assert naive < 0.5 * epsilon(fixed, by=Accountant.RDP)


class TestFloatingPoint:
    TAIL = sqrt(2 * 64 * log(2))  # of the generator itself: engine/test_randomness.py

    def test_no_noise_is_beyond_the_deviations_named(self) -> None:
        assert f"{self.TAIL:.2f}" == "9.42"
        assert f"{sqrt(2 * 53 * log(2)):.2f}" == "8.57"  # of uniforms of 53 bits, as they were

    @pytest.mark.parametrize(("sigma", "named"), [(2 / 5, 2.5e-12), (3 / 10, 6e-10), (1 / 5, 5e-6)])
    def test_its_end_counts_where_noise_is_small(self, sigma: float, named: float) -> None:
        beyond = erfc((self.TAIL - 1 / sigma) / sqrt(2)) / 2
        assert 0.8 * named < beyond < named


class TestSearch:
    def test_the_service_supports_the_modes_named_and_the_library_prices_the_others(
        self,
    ) -> None:
        text_modes = {
            SearchAccounting.PUBLIC_PROXY,
            SearchAccounting.ACCOUNTED,
            SearchAccounting.DECLARED_UNACCOUNTED,
            SearchAccounting.NO_SEARCH,
        }
        assert {*SUPPORTED_MODES} == text_modes
        for mode in (SearchAccounting.ACCOUNTED, SearchAccounting.DISJOINT_SPLIT):
            assert price_search(mode, run=RUN, trials=[RUN], delta=DELTA).epsilon

    def test_three_rungs_leave_eight_points_five_doublings_ahead(self) -> None:
        accuracies = {128: 0.4331, 256: 0.4170, 512: 0.3946}
        rungs = [
            Observation(expected_batch_size=batch, accuracy=accuracy, seed=0)
            for batch, accuracy in accuracies.items()
        ]
        ahead = fit_law(rungs).predict(512 * 2**5)
        assert ahead.high - ahead.low == pytest.approx(0.08, abs=0.01)
