"""What every way of drawing a batch costs, and what is refused."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tan_core.accounting import calibrate_noise_multiplier, gdp_epsilon, price
from tan_core.accounting.events import joined, participations, rdp_event
from tan_core.errors import ParameterError, UnsupportedEventError
from tan_core.mechanism import MAX_STEPS, Accountant, Mechanism, NeighboringRelation, Sampling

ZERO_OUT, REPLACE = NeighboringRelation.ZERO_OUT, NeighboringRelation.REPLACE_ONE


def run_of(
    sampling: Sampling = Sampling.POISSON,
    *,
    q: float = 4096 / 50_000,
    sigma: float = 10.0,
    steps: int = 875,
    relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE,
    **sizes: int,
) -> Mechanism:
    return Mechanism(
        sampling_rate=q,
        noise_multiplier=sigma,
        clip_norm=1.0,
        steps=steps,
        sampling=sampling,
        neighboring_relation=relation,
        **sizes,
    )


def truncated(cap: int, relation: NeighboringRelation = ZERO_OUT) -> Mechanism:
    return run_of(
        Sampling.TRUNCATED_POISSON, relation=relation, num_examples=50_000, max_batch_size=cap
    )


class TestUnamplified:
    @pytest.mark.parametrize(
        ("q", "sigma", "steps", "expected"),
        [
            (4096 / 50_000, 3.0, 2500, 31.0),
            (4096 / 50_000, 10.0, 875, 3.62),
            (512 / 60_000, 1.23, 4680, 34.4),
        ],
    )
    def test_shuffled_runs_cost_several_times_what_poisson_would(
        self, q: float, sigma: float, steps: int, expected: float
    ) -> None:
        """The three runs as their authors shuffled them: no amplification is proven."""
        run = run_of(Sampling.UNAMPLIFIED, q=q, sigma=sigma, steps=steps, relation=ZERO_OUT)

        assert price([run], delta=1e-5).epsilon == pytest.approx(expected, rel=5e-3)

    @pytest.mark.parametrize(("q", "steps", "batches"), [(0.1, 101, 11), (0.5 + 2.5e-10, 2, 2)])
    def test_is_the_plain_gaussian_over_the_batches_that_one_unit_is_in(
        self, q: float, steps: int, batches: int
    ) -> None:
        run = run_of(Sampling.UNAMPLIFIED, q=q, sigma=5.0, steps=steps, relation=ZERO_OUT)

        exact = gdp_epsilon(mu=math.sqrt(batches) / 5, delta=1e-5)
        assert exact <= price([run], delta=1e-5).epsilon <= exact * 1.001

    @pytest.mark.parametrize(
        ("q", "steps", "expected"),
        [
            *((1 / 13, 26, 2), (1 / 13, 27, 3), (0.08192, 2500, 205), (1e-9, 1, 1)),
            *((0.5 + 2.5e-10, 2, 2), (1 / 7 + 1e-15, 7_000_000, 1_000_001)),
            *((1 / 49, 49_000_000, 1_000_000), (1.0, 10**9, 10**9)),
        ],
    )
    def test_participations_round_up_but_not_for_round_off(
        self, q: float, steps: int, expected: int
    ) -> None:
        assert participations(run_of(Sampling.UNAMPLIFIED, q=q, steps=steps)) == expected

    @pytest.mark.parametrize("accountant", list(Accountant))
    def test_a_replaced_unit_moves_the_sum_twice_as_far(self, accountant: Accountant) -> None:
        replaced = run_of(Sampling.UNAMPLIFIED, q=0.1, sigma=10.0, steps=100, relation=REPLACE)
        zeroed = run_of(Sampling.UNAMPLIFIED, q=0.1, sigma=5.0, steps=100, relation=ZERO_OUT)

        costs = [
            price([run], delta=1e-5, accountant=accountant).epsilon for run in (replaced, zeroed)
        ]
        assert costs[0] == pytest.approx(costs[1], rel=1e-3)

    @pytest.mark.parametrize("relation", [ZERO_OUT, REPLACE])
    def test_runs_add_up_each_with_an_epoch_of_its_own_that_it_began(
        self, relation: NeighboringRelation
    ) -> None:
        """Fifty runs of a hundredth of an epoch: each may have drawn the same unit."""
        run = run_of(Sampling.UNAMPLIFIED, q=0.01, sigma=8.0, steps=1, relation=relation)
        runs = [run] * 50

        (whole,) = joined(runs)

        assert whole.steps == 50
        assert price([whole], delta=1e-5).epsilon == pytest.approx(
            price(runs, delta=1e-5).epsilon, rel=1e-3
        )

    def test_more_steps_than_one_mechanism_holds_stay_the_same_composition(self) -> None:
        run = run_of(Sampling.POISSON, q=1.0, sigma=10_000.0, steps=MAX_STEPS)
        parts = joined([run] * 4 + [run.with_steps(5)])
        assert [each.steps for each in parts] == [MAX_STEPS] * 4 + [5]
        same = run_of(Sampling.POISSON, q=1.0, sigma=5_000.0, steps=MAX_STEPS)  # a fourth of it
        for accountant in (Accountant.PLD, Accountant.RDP):
            epsilon = price(parts[:4], delta=1e-5, accountant=accountant).epsilon
            expected = price([same], delta=1e-5, accountant=accountant).epsilon
            assert epsilon == pytest.approx(expected, rel=1e-6)

    def test_it_is_not_made_whole_where_it_has_no_price(self) -> None:
        with pytest.raises(UnsupportedEventError, match="accepted: zero_out"):
            joined([run_of(Sampling.UNAMPLIFIED, q=0.01, sigma=8.0, steps=1)])

    def test_shuffling_is_not_a_sampling_and_the_error_says_what_is(self) -> None:
        with pytest.raises(ParameterError, match="not Poisson batches; 'unamplified'"):
            Sampling("shuffled")

    @pytest.mark.parametrize("accountant", list(Accountant))
    def test_it_is_refused_where_a_unit_moves_the_others_between_batches(
        self, accountant: Accountant
    ) -> None:
        """In file order at B = 1, {a} and {b, a} with opposite gradients differ by (2, -1) C."""
        run = run_of(Sampling.UNAMPLIFIED, q=0.5, sigma=2.0, steps=2)

        with pytest.raises(UnsupportedEventError, match=r"unamplified .* accepted: zero_out"):
            price([run], delta=1e-5, accountant=accountant)
        with pytest.raises(UnsupportedEventError, match="unamplified"):
            calibrate_noise_multiplier(
                sampling_rate=0.5,
                steps=2,
                epsilon=1.0,
                delta=1e-5,
                sampling=Sampling.UNAMPLIFIED,
                certified=False,
            )


class TestTruncatedPoisson:
    @pytest.mark.parametrize(("cap", "expected"), [(4200, 1.204), (4300, 0.9065), (4500, 0.90277)])
    def test_a_cap_six_deviations_above_the_mean_is_free(self, cap: int, expected: float) -> None:
        """Chua et al. (2024), Ganesh et al. (2025): mean 4096, deviation 61."""
        found = price([truncated(cap)], delta=1e-5).epsilon

        assert found == pytest.approx(expected, rel=1e-3)

    def test_a_cap_above_the_data_changes_nothing(self) -> None:
        plain = price([run_of(relation=ZERO_OUT)], delta=1e-5).epsilon

        assert price([truncated(50_000)], delta=1e-5).epsilon == pytest.approx(plain, rel=1e-6)

    def test_it_composes_with_whole_batches(self) -> None:
        """What has no second voice is not confirmed by that of the rest."""
        whole = run_of(relation=ZERO_OUT)
        twice = price([whole.with_steps(2 * whole.steps)], delta=1e-5).epsilon

        found = price([truncated(50_000), whole], delta=1e-5).epsilon

        assert found == pytest.approx(twice, rel=1e-4)

    def test_reproduces_the_library_s_own_example(self) -> None:
        """dp-accounting's tests: three steps of n = 4, two of n = 3, at p = .5 and cap 2."""
        runs = [
            run_of(
                Sampling.TRUNCATED_POISSON,
                q=0.5,
                sigma=1.0,
                steps=steps,
                relation=ZERO_OUT,
                num_examples=n,
                max_batch_size=2,
            )
            for steps, n in ((3, 4), (2, 3))
        ]

        assert price(runs, delta=1e-6).epsilon == pytest.approx(17.904330, rel=1e-3)

    def test_it_is_refused_between_datasets_of_unlike_size(self) -> None:
        run = truncated(4500, NeighboringRelation.ADD_OR_REMOVE_ONE)

        with pytest.raises(UnsupportedEventError, match=r"truncated_poisson .* accepted: zero_out"):
            price([run], delta=1e-5)


class TestFixedSize:
    def test_a_size_that_round_off_left_below_a_whole_number_is_that_number(self) -> None:
        """0.29 of 100 is 28.999999999999996 in floats: a batch of 28 would cost too little."""
        run = run_of(Sampling.FIXED_SIZE, q=0.29, relation=REPLACE, num_examples=100)

        event, _ = rdp_event(run)

        assert event.sample_size == 29

    def fixed(self, relation: NeighboringRelation = REPLACE, q: float = 0.5) -> Mechanism:
        return run_of(
            Sampling.FIXED_SIZE, q=q, sigma=4.0, steps=10, relation=relation, num_examples=10
        )

    def test_it_is_never_below_a_pair_of_datasets_that_can_be_computed(self) -> None:
        """All other gradients are 0, the replaced one is +C or -C: a mixture of two Gaussians."""
        found = price([self.fixed()], delta=1e-5, accountant=Accountant.RDP).epsilon

        pair = price([run_of(q=0.5, sigma=4.0, steps=10, relation=REPLACE)], delta=1e-5).epsilon
        assert found >= pair

    def test_the_whole_data_in_every_batch_is_the_plain_gaussian_with_twice_the_shift(self) -> None:
        found = price([self.fixed(q=1.0)], delta=1e-5, accountant=Accountant.RDP).epsilon

        exact = gdp_epsilon(mu=2 * math.sqrt(10) / 4, delta=1e-5)
        assert exact <= found <= exact * 1.1

    def test_it_is_refused_where_neighbours_differ_in_size(self) -> None:
        run = self.fixed(NeighboringRelation.ADD_OR_REMOVE_ONE)

        with pytest.raises(UnsupportedEventError, match=r"fixed_size .* accepted: replace_one"):
            price([run], delta=1e-5, accountant=Accountant.RDP)

    @pytest.mark.parametrize("accountant", [Accountant.PLD, Accountant.PRV])
    def test_other_accountants_refuse_it_by_name(self, accountant: Accountant) -> None:
        with pytest.raises(UnsupportedEventError, match=f"{accountant.value} .* fixed_size"):
            price([self.fixed()], delta=1e-5, accountant=accountant)


class TestSizes:
    @pytest.mark.parametrize(
        ("sampling", "sizes", "field"),
        [
            (Sampling.POISSON, {"num_examples": 10}, "num_examples"),
            (Sampling.UNAMPLIFIED, {"max_batch_size": 10}, "max_batch_size"),
            (Sampling.TRUNCATED_POISSON, {"num_examples": 10}, "max_batch_size"),
            (Sampling.TRUNCATED_POISSON, {"max_batch_size": 10}, "num_examples"),
            (Sampling.TRUNCATED_POISSON, {"num_examples": 0, "max_batch_size": 1}, "num_examples"),
            (Sampling.FIXED_SIZE, {}, "num_examples"),
            (Sampling.FIXED_SIZE, {"num_examples": 7}, "sampling_rate"),
            ("weighted", {}, "sampling"),
        ],
    )
    def test_a_missing_or_meaningless_size_is_refused_by_its_name(
        self, sampling: Any, sizes: dict[str, int], field: str
    ) -> None:
        with pytest.raises(ParameterError) as caught:
            run_of(sampling, q=0.5, **sizes)

        assert caught.value.field == field

    @pytest.mark.parametrize("name", ["sampling_rate", "noise_multiplier", "clip_norm"])
    def test_a_number_that_is_not_marked_as_hexadecimal_is_refused(self, name: str) -> None:
        """Python would read the 10 of an event that was written by hand as 16: a price too low."""
        written = run_of(Sampling.POISSON, q=0.5).to_json()

        with pytest.raises(ParameterError, match="'10' is no hexadecimal number"):
            Mechanism.from_json({**written, name: "10"})

    def test_the_sizes_travel_with_the_event(self) -> None:
        for run in (
            truncated(4200),
            run_of(Sampling.FIXED_SIZE, q=0.5, num_examples=10, relation=REPLACE),
        ):
            assert Mechanism.from_json(run.to_json()) == run


class TestPairOfDatasets:
    def test_the_price_of_a_poisson_step_is_the_distance_of_the_two_output_distributions(
        self,
    ) -> None:
        """One step, by the definition: the larger hockey-stick divergence of the two orders."""
        q, sigma, epsilon = 0.3, 1.2, 0.7
        x = np.linspace(-30, 30, 600_001)
        without = stats.norm.pdf(x, 0, sigma)
        with_unit = (1 - q) * without + q * stats.norm.pdf(x, 1, sigma)

        by_definition = max(
            float(np.trapezoid(np.maximum(p - math.exp(epsilon) * other, 0), x))
            for p, other in ((with_unit, without), (without, with_unit))
        )

        found = price([run_of(q=q, sigma=sigma, steps=1)], epsilon=epsilon).delta
        assert by_definition <= found * (1 + 1e-6)
        assert found == pytest.approx(by_definition, rel=1e-3)
