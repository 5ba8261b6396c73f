import json
import logging
import math
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld.pld_pmf import SparsePLDPmf
from dp_accounting.rdp import RdpAccountant

from tan_core.accounting import (
    Conversion,
    gdp_delta,
    gdp_epsilon,
    gdp_estimate,
    gdp_mu,
    price,
    prv,
    round_up,
)
from tan_core.accounting.check import check_agreement
from tan_core.accounting.events import SampledGaussian, pld_event, relation_of
from tan_core.accounting.loss_distribution import loss_profile
from tan_core.accounting.pld import PldProfile, _bounds, pld_profile
from tan_core.accounting.rdp import ORDERS, SearchedRdpProfile, rdp_profile
from tan_core.errors import AccountantError, ParameterError, UnsupportedEventError
from tan_core.mechanism import Accountant, Mechanism, NeighboringRelation, Sampling


def run_of(
    q: float = 4096 / 50_000,
    sigma: float = 3.0,
    steps: int = 2500,
    relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE,
) -> Mechanism:
    return Mechanism(
        sampling_rate=q,
        noise_multiplier=sigma,
        clip_norm=1.0,
        steps=steps,
        neighboring_relation=relation,
    )


def pld(*mechanisms: Mechanism, delta: float = 1e-5) -> float:
    return price(mechanisms, delta=delta).epsilon


class TestPrice:
    def test_says_everything_that_is_needed_to_compute_it_again(self) -> None:
        found = price([run_of()], delta=1e-5)

        assert (found.delta, found.accountant, found.library) == (1e-5, "pld", "dp-accounting")
        assert found.conversion == "pld connect-the-dots"
        assert found.neighboring_relation is NeighboringRelation.ADD_OR_REMOVE_ONE
        assert found.library_version.startswith("0.6")

    @pytest.mark.parametrize(
        ("batch", "sigma", "steps", "rdp", "expected"),
        [
            (8192, 6, 2500, 6.880, 6.382),
            (2048, 1.5, 2500, 8.004, 7.399),
            (1024, 0.75, 2500, 13.731, 12.444),
            (512, 0.375, 2500, 63.03, 55.66),
            (256, 0.1875, 2500, 327.7, 298.27),
            (8192, 3, 625, 7.159, 6.624),
            (2048, 3, 10_000, 7.062, 6.550),
            (4096, 6, 10_000, 6.865, 6.371),
            (2048, 2.1213, 5000, 7.352, 6.814),
            (8192, 4.2426, 1250, 6.972, 6.461),
        ],
    )
    def test_one_total_noise_has_many_prices(
        self, batch: int, sigma: float, steps: int, rdp: float, expected: float
    ) -> None:
        """Constant-TAN moves of (4096, 3, 2500), the setting of Sander et al. (2023)."""
        run = run_of(batch / 50_000, sigma, steps)

        assert pld(run) == pytest.approx(expected, rel=2e-3)
        by_rdp = price([run], delta=1e-5, accountant=Accountant.RDP).epsilon
        assert by_rdp == pytest.approx(rdp, rel=5e-3)

    @pytest.mark.parametrize(
        ("sigma", "low_noise_free", "high"),
        [
            (0.5, 5.347, 26.73),
            (1, 0.966, 8.941),
            (2, 0.725, 6.777),
            (4, 0.679, 6.343),
            (8, 0.668, 6.231),
        ],
    )
    def test_epsilon_climbs_the_wall_below_noise_two(
        self, sigma: float, low_noise_free: float, high: float
    ) -> None:
        """The same total noise, eta = .13 and .95, at S = 2500 (Sander et al. 2023, figure 2)."""
        for eta, expected in ((0.13, low_noise_free), (0.95, high)):
            run = run_of(q=eta * sigma / (2500 / 2) ** 0.5, sigma=sigma)

            assert pld(run) == pytest.approx(expected, abs=0.01, rel=1e-3)

    def test_a_simulation_is_not_private_and_its_price_says_so(self) -> None:
        found = pld(run_of(256 / 50_000, 0.1875))

        assert found == pytest.approx(298.3, abs=0.1)

    @pytest.mark.timeout(120)  # a guard against a price that never comes
    @pytest.mark.parametrize(
        ("sigma", "steps"), [(0.0195, 18_000), (0.001, 100), (0.3, 10_000_000)]
    )
    def test_hopeless_noise_gets_a_finite_bound_in_bounded_time(
        self, sigma: float, steps: int
    ) -> None:
        found = pld(run_of(0.01, sigma, steps))

        assert 1000 < found < 1e9

    @pytest.mark.parametrize("accountant", ["pld", "rdp"])
    def test_where_a_library_fails_its_reason_is_told(self, accountant: str) -> None:
        boundless = Mechanism(sampling_rate=0.1, noise_multiplier=1e300, clip_norm=1.0, steps=10)
        with pytest.raises(AccountantError, match=f"^{accountant} failed: [A-Za-z ]+$"):
            price([boundless], delta=1e-5, accountant=Accountant(accountant))

    def test_noise_below_the_domain_is_refused_by_name(self) -> None:
        with pytest.raises(AccountantError, match=r"noise_multiplier >= 0\.001"):
            pld(run_of(sigma=1e-4))

    def test_unlike_mechanisms_compose_below_the_sum_of_their_prices(self) -> None:
        one, other = run_of(), run_of(0.01, 1.0, 1000)

        both = pld(one, other)

        assert max(pld(one), pld(other)) < both < pld(one) + pld(other)
        assert both == pytest.approx(pld(other, one))

    def test_composing_a_run_with_itself_is_running_it_twice(self) -> None:
        assert pld(run_of(), run_of()) == pytest.approx(pld(run_of(steps=5000)), rel=1e-4)

    def test_unlike_neighboring_relations_are_refused_by_name(self) -> None:
        mechanisms = [run_of(), run_of(relation=NeighboringRelation.REPLACE_ONE)]

        with pytest.raises(ParameterError, match="add_or_remove_one, replace_one"):
            pld(*mechanisms)

    def test_replacing_one_costs_more_than_removing_one(self) -> None:
        run = run_of(sigma=2.5764, relation=NeighboringRelation.REPLACE_ONE)

        assert pld(run) == pytest.approx(17.9, abs=0.05)

    @pytest.mark.parametrize(("q", "sigma", "steps"), [(5e-4, 0.7, 5000), (2e-3, 1.0, 5000)])
    def test_cells_are_as_narrow_where_a_unit_is_replaced(
        self, q: float, sigma: float, steps: int
    ) -> None:
        """A statement computes it again on cells of its own, and is not made where the two differ by more."""
        run = run_of(q, sigma, steps, NeighboringRelation.REPLACE_ONE)
        event, count = pld_event(run)
        fine = PLDAccountant(relation_of([run]), value_discretization_interval=5e-5)
        limit = fine.compose(event, count).get_epsilon(1e-6)

        assert limit * (1 - 1e-6) <= pld(run, delta=1e-6) <= limit * (1 + 5e-4)

    @pytest.mark.slow
    def test_zeroing_out_costs_what_removing_costs(self) -> None:
        """The same two distributions tell the neighbours apart."""
        for accountant in Accountant:
            removed, zeroed = (
                price([run_of(relation=relation)], delta=1e-5, accountant=accountant).epsilon
                for relation in (
                    NeighboringRelation.ADD_OR_REMOVE_ONE,
                    NeighboringRelation.ZERO_OUT,
                )
            )
            assert zeroed == pytest.approx(removed, rel=1e-6)

    @pytest.mark.parametrize("accountant", [Accountant.RDP, Accountant.PRV])
    def test_an_accountant_names_the_relation_that_it_cannot_price(
        self, accountant: Accountant
    ) -> None:
        run = run_of(relation=NeighboringRelation.REPLACE_ONE)

        with pytest.raises(UnsupportedEventError, match=f"{accountant.value} .* replace_one"):
            price([run], delta=1e-5, accountant=accountant)

    @pytest.mark.parametrize("delta", [0.0, 1.0, 9e-11, float("nan")])
    def test_a_delta_out_of_range_is_refused(self, delta: float) -> None:
        with pytest.raises(ParameterError, match="delta"):
            price([run_of()], delta=delta)

    def test_nothing_has_no_price(self) -> None:
        with pytest.raises(ParameterError, match="at least one"):
            price([], delta=1e-5)


class TestLongRuns:
    @pytest.mark.parametrize("steps", [1, 2, 9, 99, 100, 2500, 200_000])
    @pytest.mark.parametrize("relation", list(NeighboringRelation))
    @pytest.mark.parametrize("sampling", [Sampling.POISSON, Sampling.TRUNCATED_POISSON])
    def test_they_are_composed_into_what_the_library_composes(
        self, steps: int, relation: NeighboringRelation, sampling: Sampling
    ) -> None:
        sizes: dict[str, Any] = {}
        if sampling is Sampling.TRUNCATED_POISSON:
            if relation is NeighboringRelation.ADD_OR_REMOVE_ONE:
                pytest.skip("no accountant prices it")
            sizes = {"num_examples": 10_000, "max_batch_size": 130}
        run = Mechanism(
            sampling_rate=0.01,
            noise_multiplier=3.0,
            clip_norm=1.0,
            steps=steps,
            neighboring_relation=relation,
            sampling=sampling,
            **sizes,
        )
        bounds = _bounds([run])

        for grid in bounds.grids:
            library = PLDAccountant(relation_of([run]), grid)
            library.compose(*pld_event(run))
            found = bounds.on(grid)
            assert found is not None
            for delta in (1e-3, 1e-7):
                assert found.get_epsilon_for_delta(delta) == library.get_epsilon(delta)

    def test_what_fourier_space_may_lose_is_not_there_to_be_spent(self) -> None:
        """Of delta, a rounding for each step; of one that is small enough for it to be seen."""
        runs, delta = [run_of(0.01, 20.0, 60_000), run_of(0.01, 25.0, 40_000)], 1e-9
        lost = 100_000 * 2.0**-52
        (grid,) = _bounds(runs).grids
        library = PLDAccountant(relation_of(runs), grid)
        for run in runs:
            library.compose(*pld_event(run))

        profile = pld_profile(runs)

        epsilon = profile.epsilon(delta)
        assert epsilon == library.get_epsilon(delta - lost) > library.get_epsilon(delta)
        assert profile.delta(epsilon) == library.get_delta(epsilon) + lost

    @pytest.mark.slow
    @pytest.mark.parametrize("steps", [10_000, 10_000_000])
    def test_none_of_them_is_a_power_of_integers_that_no_one_can_stop(
        self, steps: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def endless(_: SparsePLDPmf, num_times: int, *__: Any, **___: Any) -> Any:
            pytest.fail(f"points to the power of {num_times}")

        monkeypatch.setattr(SparsePLDPmf, "self_compose", endless)
        assert pld(run_of(q=1e-3, sigma=5.0, steps=steps)) > 0

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("q", "steps", "loose"),
        [(1e-4, 2_000_000, 0.002), (1e-4, 10_000_000, 0.005), (1e-5, 4_000_000, 0.01)],
    )
    def test_round_off_of_tiny_steps_does_not_add_up(
        self, q: float, steps: int, loose: float
    ) -> None:
        """Their sum is normal: the oracle is the closed form of its limit. On one fine grid the last
        was 9 % above it, and the two accountants differed by more than they may.
        """
        limit = gdp_estimate([run_of(q, 4.0, steps)], delta=1e-5).epsilon

        found = pld(run_of(q, 4.0, steps))

        assert limit * (1 - 1e-4) <= found <= limit * (1 + loose)

    @pytest.mark.parametrize(
        ("q", "steps"),
        [(1e-9, 1), (1e-9, 1000), (1.5e-9, 1_000_000), (1e-8, 10_000_000), (1e-12, 100)],
    )
    def test_the_smallest_sampling_rates_have_a_price(self, q: float, steps: int) -> None:
        """One failed where log(1 - q) met a cell, others took minutes and all memory."""
        found = pld(run_of(q, 1.0, steps))

        # No more than a group of all steps that could meet the unit at all.
        assert 0 <= found <= 1e-3

    def test_a_whole_batch_loses_nothing_to_round_off(self) -> None:
        found = price([run_of(1.0, 1e4, 1_000_000)], delta=1e-9).epsilon

        assert found == pytest.approx(gdp_epsilon(mu=0.1, delta=1e-9), rel=1e-3)

    def test_a_price_from_below_is_refused_at_any_length(self) -> None:
        run = run_of(1e-4, 4.0, 10_000_000)
        exact = gdp_estimate([run], delta=1e-5).epsilon

        check_agreement([run], epsilon=exact * 1.003, delta=1e-5)
        for wrong in (exact * 0.995, exact * 1.02):
            with pytest.raises(AccountantError, match="two accountants differ"):
                check_agreement([run], epsilon=wrong, delta=1e-5)


class TestRdp:
    def test_orders_that_do_not_converge_are_left_out_in_silence(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING):
            price([run_of(0.5, 0.4, 10)], delta=1e-5, accountant=Accountant.RDP)

        assert caplog.records == []

    def test_other_warnings_of_the_library_still_pass(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        price([run_of()], delta=1e-5, accountant=Accountant.RDP)

        with caplog.at_level(logging.WARNING):
            logging.getLogger("absl").warning("_compute_log_a_frac failed to converge after 1")

        assert len(caplog.records) == 1

    def test_the_orders_are_distinct_and_rise(self) -> None:
        assert list(ORDERS) == sorted(set(ORDERS))
        assert (ORDERS[0], ORDERS[-1]) == (1.02, 1024.0)

    def test_a_divergence_that_round_off_made_negative_is_not_a_free_run(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """dp-accounting's own conversion answers 0 for it."""
        real = RdpAccountant.compose

        def spoiled(self: RdpAccountant, event: object, count: int) -> None:
            real(self, event, count)
            self._rdp[10], self._rdp[20] = -1e-18, float("nan")

        exact = price([run_of(steps=2503)], delta=1e-5, accountant=Accountant.RDP).epsilon
        monkeypatch.setattr(RdpAccountant, "compose", spoiled)
        found = rdp_profile([run_of(steps=2503)]).epsilon(1e-5)

        assert found == pytest.approx(exact, abs=0.2)

    @pytest.mark.parametrize("conversion", list(Conversion))
    def test_an_order_without_a_divergence_brings_all_the_others_in(
        self, conversion: Conversion, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = RdpAccountant.compose

        def spoiled(self: RdpAccountant, event: object, count: int) -> None:
            real(self, event, count)
            self._rdp[self._orders == 10.0] = math.inf

        monkeypatch.setattr(RdpAccountant, "compose", spoiled)
        every, few = rdp_profile([run_of()], conversion), SearchedRdpProfile([run_of()], conversion)

        assert 10.0 not in every.orders
        assert few.epsilon(1e-5) == every.epsilon(1e-5)
        assert few.delta(1.0) == every.delta(1.0)

    def test_few_orders_are_computed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[float] = []
        real = RdpAccountant.__init__

        def counted(self: RdpAccountant, orders: list[float], **rest: Any) -> None:
            asked.extend(orders)
            real(self, orders, **rest)

        monkeypatch.setattr(RdpAccountant, "__init__", counted)
        SearchedRdpProfile([run_of()]).epsilon(1e-5)

        assert len(asked) == len(set(asked)) < len(ORDERS) / 4

    def test_a_plain_gaussian_matches_the_library_constant(self) -> None:
        """dp-accounting's own tests: sigma = 4.5309 is (1, 1e-6) by a fine grid of orders."""
        run = run_of(1.0, 4.530877117, 1)

        found = price([run], delta=1e-6, accountant=Accountant.RDP).epsilon

        assert 1.0 - 1e-6 <= found <= 1.002

    @pytest.mark.parametrize("conversion", list(Conversion))
    def test_delta_and_epsilon_invert_each_other(self, conversion: Conversion) -> None:
        epsilon = price(
            [run_of()], delta=1e-5, accountant=Accountant.RDP, conversion=conversion
        ).epsilon

        back = price([run_of()], epsilon=epsilon, accountant=Accountant.RDP, conversion=conversion)

        assert back.delta == pytest.approx(1e-5, rel=1e-6)


class TestDelta:
    @pytest.mark.parametrize("accountant", list(Accountant))
    def test_delta_at_the_epsilon_of_a_delta_is_that_delta(self, accountant: Accountant) -> None:
        epsilon = price([run_of()], delta=1e-5, accountant=accountant).epsilon

        found = price([run_of()], epsilon=epsilon, accountant=accountant)

        slack = 1.05 if accountant is Accountant.PRV else 1.001  # PRV answers with an interval
        assert 1e-5 / slack <= found.delta <= 1e-5 * slack
        assert found.epsilon == epsilon

    def test_three_gaussian_releases_have_the_library_s_delta(self) -> None:
        """dp-accounting's own tests: .126936 at epsilon 1 for three releases at sigma = sqrt(3)."""
        run = run_of(1.0, 3**0.5, 3)

        assert price([run], epsilon=1.0).delta == pytest.approx(0.126936, abs=1e-5)

    def test_three_sampled_steps_have_the_library_s_delta(self) -> None:
        """The same place: (q = .2, sigma = .5) three times is .15594 at epsilon 1."""
        assert price([run_of(0.2, 0.5, 3)], epsilon=1.0).delta == pytest.approx(0.15594, abs=1e-3)

    def test_exactly_one_of_the_two_must_be_given(self) -> None:
        for both in ({}, {"delta": 1e-5, "epsilon": 1.0}):
            with pytest.raises(ParameterError, match="exactly one"):
                price([run_of()], **both)

    @pytest.mark.parametrize("epsilon", [-1.0, float("nan"), float("inf"), 1e300, "3"])
    def test_an_epsilon_out_of_range_is_refused(self, epsilon: Any) -> None:
        with pytest.raises(ParameterError, match="epsilon"):
            price([run_of()], epsilon=epsilon)

    def test_numbers_of_numpy_are_numbers(self) -> None:
        found = price([run_of()], delta=np.float64(1e-5))
        as_single = price([run_of()], epsilon=np.float32(6.5))

        assert (found.epsilon, type(found.delta)) == (pld(run_of()), float)
        assert type(as_single.epsilon) is float
        assert gdp_epsilon(mu=np.int64(1), delta=1e-5) == gdp_epsilon(mu=1.0, delta=1e-5)

    def test_a_mu_of_any_size_is_priced_or_refused_by_name(self) -> None:
        assert gdp_epsilon(mu=3e4, delta=1e-5) > 4.5e8
        with pytest.raises(ParameterError, match=r"mu must be in \[0, 30000\]"):
            gdp_epsilon(mu=1e200, delta=1e-5)
        with pytest.raises(ParameterError, match="at least one mechanism"):
            gdp_estimate([], delta=1e-5)
        with pytest.raises(ParameterError, match="so little noise that mu is"):
            gdp_estimate([run_of(sigma=0.15)], delta=1e-5)


class TestCheck:
    def test_a_price_that_the_second_implementation_does_not_confirm_is_refused(self) -> None:
        """Of the CIFAR-10 run, and of a simulation of it at an eighth of the batch."""
        for run, right in ((run_of(), 6.5805), (run_of(512 / 50_000, 0.375), 55.656)):
            check_agreement([run], epsilon=right, delta=1e-5)

            for wrong in (right * 1.003, right * 0.997):
                with pytest.raises(AccountantError, match="two accountants differ"):
                    check_agreement([run], epsilon=wrong, delta=1e-5)

    def test_a_price_goes_through_the_check(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(PldProfile, "epsilon", lambda _self, _delta: 6.0)

        with pytest.raises(AccountantError, match="two accountants differ"):
            price([run_of(steps=2504)], delta=1e-5)

    def test_so_does_a_delta(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(PldProfile, "delta", lambda _self, _epsilon: 1e-5)

        with pytest.raises(AccountantError, match="two accountants differ"):
            price([run_of(steps=2504)], epsilon=6.0)


class TestOwnLossDistribution:
    @pytest.mark.parametrize("rate", [1e-6, 1e-12, 1e-16, 1e-20, 1e-300])
    def test_next_to_no_sampling_shows_next_to_nothing(self, rate: float) -> None:
        """Delta at 0 is below what the steps show each, q times the total variation of a step without
        sampling; where digits of q were lost it was about a third.
        """
        steps, of_a_step = 1000, 2 * float(mpmath.ncdf(0.5)) - 1
        event = SampledGaussian(sampling_rate=rate, noise_multiplier=1.0, steps=steps)

        found = loss_profile([event], delta=1e-5).delta(0.0)

        assert found <= steps * rate * of_a_step * 1.01 + 1e-9
        run = Mechanism(sampling_rate=rate, noise_multiplier=1.0, clip_norm=1.0, steps=steps)
        assert price([run], delta=1e-3).epsilon == 0.0


@pytest.fixture
def no_processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Of PRV that wait; and those that are started hereafter."""
    prv._end_idle()
    started: list[Any] = []
    real = prv._Process.__init__

    def counted(self: Any) -> None:
        real(self)
        started.append(self._process)

    monkeypatch.setattr(prv._Process, "__init__", counted)
    yield started
    prv._end_idle()


class TestPrv:
    def test_agrees_with_pld_from_above(self) -> None:
        found = price([run_of()], delta=1e-5, accountant=Accountant.PRV)

        assert pld(run_of()) * 0.999 <= found.epsilon <= pld(run_of()) * 1.001
        assert (found.library, found.conversion) == ("opacus", "prv upper")

    @pytest.mark.parametrize(
        ("num_examples", "batch", "sigma", "steps", "middle"),
        [
            (50_000, 4096, 10.0, 875, 0.9028),
            (50_000, 4096, 3.0, 2500, 6.579),
            (50_000, 16_384, 9.4, 2000, 7.424),
            (60_000, 512, 1.23, 4680, 2.361),
        ],
    )
    def test_is_a_narrow_interval_above_the_middle_of_the_first_implementation(
        self, num_examples: int, batch: int, sigma: float, steps: int, middle: float
    ) -> None:
        """Of prv-accountant 0.2.0, by its authors; within 0.005 there."""
        run = run_of(q=batch / num_examples, sigma=sigma, steps=steps)

        found = price([run], delta=1e-5, accountant=Accountant.PRV).epsilon

        assert middle - 5e-4 <= found <= middle + 1e-3 + max(0.0007 * middle, 0.001)

    def test_of_many_steps_it_is_wider(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(prv, "_MANY_STEPS", 2531)
        found, wider = (
            price([run_of(steps=steps)], delta=1e-5, accountant=Accountant.PRV).epsilon
            for steps in (2531, 2532)
        )

        assert found + 0.003 < wider < found + 0.01

    @pytest.mark.slow
    def test_the_process_starts_without_torch(self) -> None:
        code = (
            "import sys; from tan_core.accounting import _prv_process as p; p.main();"
            "print('opacus.accountants.prv' in sys.modules, 'torch' in sys.modules)"
        )

        child = subprocess.run(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        )

        assert child.stdout.split() == ["True", "False"]

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("slow", "told"), [("_enter_without_torch", "answer"), ("_answer", "signal")]
    )
    def test_processor_time_is_that_of_the_question_without_imports(
        self, slow: str, told: str
    ) -> None:
        code = f"""if True:
            import time
            from tan_core.accounting import _prv_process as p
            quick = p.{slow}
            def slowly(*given):
                until = time.process_time() + 2.5
                while time.process_time() < until:
                    pass
                return quick(*given)
            p.{slow} = slowly
            p.main()
        """
        request = {
            "history": [(20.0, 0.2, 1)],
            "delta": 1e-5,
            "eps_error": 0.01,
            "delta_error": 1e-8,
            "memory_bytes": prv.MEMORY_LIMIT_BYTES,
            "cpu_seconds": 1,
        }

        child = subprocess.run(
            [sys.executable, "-c", code],
            input=json.dumps(request) + "\n",
            capture_output=True,
            text=True,
            check=True,
        )

        answer = json.loads(child.stdout)
        assert told in answer
        assert answer.get("signal", signal.SIGXCPU) == signal.SIGXCPU
        assert answer.get("cpu_seconds", 0) < 1

    @pytest.mark.slow
    def test_it_ends_when_nobody_asks(self) -> None:
        code = "from tan_core.accounting import _prv_process as p; p.IDLE_SECONDS = 0.1; p.main()"

        child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)

        assert child.wait(60) == 0
        assert child.stdin is not None
        child.stdin.close()

    @pytest.mark.slow
    def test_one_process_answers_many_questions(self, no_processes: list[Any]) -> None:
        for steps in (2511, 2512, 2513):
            price([run_of(steps=steps)], delta=1e-5, accountant=Accountant.PRV)

        assert len(no_processes) == 1

    @pytest.mark.slow
    def test_one_that_was_killed_while_it_waited_is_replaced(self, no_processes: list[Any]) -> None:
        price([run_of(steps=2514)], delta=1e-5, accountant=Accountant.PRV)
        no_processes[0].kill()
        no_processes[0].wait()

        assert price([run_of(steps=2515)], delta=1e-5, accountant=Accountant.PRV).epsilon > 6
        assert len(no_processes) == 2

    def test_a_server_of_many_connections_asks_too(self, no_processes: list[Any]) -> None:
        """Its descriptors are above 1023, which select() does not take."""
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        if most < 1200:
            pytest.skip("fewer than 1200 descriptors are allowed here")
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], 1200), most))
        with ExitStack() as connections:
            connections.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
            for _ in range(1050):
                connections.callback(os.close, os.open("/dev/null", os.O_RDONLY))
            found = price([run_of(steps=2529)], delta=1e-5, accountant=Accountant.PRV)

        assert found.epsilon > 6
        assert len(no_processes) == 1

    def test_a_process_that_only_ends_is_an_accountant_error(
        self, no_processes: list[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "executable", "false")

        with pytest.raises(AccountantError, match="prv failed: exit status 1"):
            price([run_of(steps=2516)], delta=1e-5, accountant=Accountant.PRV)
        assert len(no_processes) == 1

    @pytest.mark.slow
    def test_threads_ask_at_once(self, no_processes: list[Any]) -> None:
        runs = [run_of(steps=steps) for steps in range(2520, 2524)]

        def of(run: Mechanism) -> float:
            return price([run], delta=1e-5, accountant=Accountant.PRV).epsilon

        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(of, runs))

        assert found == [pytest.approx(pld(run), rel=0.005) for run in runs]
        assert sum(process.poll() is None for process in no_processes) <= 2

    @pytest.mark.slow
    def test_a_forked_child_asks_another_process(self, no_processes: list[Any]) -> None:
        price([run_of(steps=2517)], delta=1e-5, accountant=Accountant.PRV)

        child = os.fork()
        if not child:
            started = 0
            try:
                price([run_of(steps=2518)], delta=1e-5, accountant=Accountant.PRV)
                prv._end_idle()
                started = len(no_processes)
            finally:
                os._exit(started)
        price([run_of(steps=2519)], delta=1e-5, accountant=Accountant.PRV)

        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
        assert len(no_processes) == 1

    @pytest.mark.slow
    def test_a_fork_that_was_killed_is_an_accountant_error(
        self, no_processes: list[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As by the system, where memory is short; the process itself stays."""
        price([run_of(steps=2527)], delta=1e-5, accountant=Accountant.PRV)
        monkeypatch.setattr(prv, "_MAX_EPSILON_ERROR", 1e-4)  # takes a while
        monkeypatch.setattr(prv, "_MIN_EPSILON_ERROR", 1e-4)

        def kill_its_fork() -> None:
            children = Path(f"/proc/{no_processes[0].pid}/task/{no_processes[0].pid}/children")
            while not (found := children.read_text().split()):
                time.sleep(0.001)
            os.kill(int(found[0]), signal.SIGKILL)

        with ThreadPoolExecutor(1) as threads:
            killing = threads.submit(kill_its_fork)
            with pytest.raises(AccountantError, match="ended by signal 9"):
                price([run_of(steps=2528)], delta=1e-5, accountant=Accountant.PRV)
            killing.result()

        assert no_processes[0].poll() is None

    def test_running_out_of_time_is_an_accountant_error(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(prv, "TIME_LIMIT_SECONDS", 0.01)

        with pytest.raises(AccountantError, match=r"no answer within 0\.01 s"):
            price([run_of(steps=2501)], delta=1e-5, accountant=Accountant.PRV)

    def test_running_out_of_memory_is_an_accountant_error(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(prv, "MEMORY_LIMIT_BYTES", 2**28)

        with pytest.raises(AccountantError, match="prv failed"):
            price([run_of(steps=2502)], delta=1e-5, accountant=Accountant.PRV)


class TestGaussianTradeOff:
    @pytest.mark.parametrize(("mu", "epsilon"), [(0.2, 0.5), (1.3653, 6.3), (5.0, 30.0)])
    def test_delta_is_the_hockey_stick_of_two_gaussians(self, mu: float, epsilon: float) -> None:
        def excess(x: mpmath.mpf) -> mpmath.mpf:
            kept, taken = mpmath.npdf(x - mu), mpmath.exp(epsilon) * mpmath.npdf(x)
            return kept - taken

        with mpmath.workdps(40):
            start = mpmath.mpf(epsilon) / mu + mpmath.mpf(mu) / 2
            exact = mpmath.quad(excess, [start, start + 1, start + 4, start + 12, start + 40])

        assert gdp_delta(mu=mu, epsilon=epsilon) == pytest.approx(float(exact), rel=1e-9)

    @pytest.mark.parametrize("delta", [1e-5, 8e-7, 1e-12])
    @pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 8.0, 300.0])
    def test_mu_and_epsilon_invert_each_other(self, epsilon: float, delta: float) -> None:
        assert gdp_epsilon(mu=gdp_mu(epsilon=epsilon, delta=delta), delta=delta) == pytest.approx(
            epsilon, rel=1e-6
        )

    @pytest.mark.parametrize(
        ("eta", "delta", "expected"),
        [(0.13, 1e-5, 0.662), (0.95, 1e-5, 6.185), (0.9654, 1e-5, 6.304), (0.9706, 8e-7, 7.100)],
    )
    def test_the_limit_of_constant_tan_reproduces(
        self, eta: float, delta: float, expected: float
    ) -> None:
        """Computed once with another implementation, to three decimals."""
        assert gdp_epsilon(mu=2**0.5 * eta, delta=delta) == pytest.approx(expected, abs=2e-3)

    def test_a_delta_that_covers_the_mechanism_leaves_epsilon_zero(self) -> None:
        assert gdp_epsilon(mu=1e-6, delta=1e-5) == 0

    @pytest.mark.parametrize(("sigma", "steps"), [(20.0, 100), (5.0, 10), (1.0, 1)])
    def test_without_sampling_pld_is_the_plain_gaussian_mechanism(
        self, sigma: float, steps: int
    ) -> None:
        exact = gdp_epsilon(mu=steps**0.5 / sigma, delta=1e-5)

        assert exact - 1e-6 <= pld(run_of(1.0, sigma, steps)) <= exact * 1.001


class TestGdpEstimate:
    def test_it_is_below_the_truth_and_says_that_it_may_be(self) -> None:
        found = gdp_estimate([run_of()], delta=1e-5)

        assert found.epsilon == pytest.approx(6.517, abs=2e-3)
        assert found.epsilon < pld(run_of())
        assert "not a guarantee" in found.note

    def test_few_steps_with_little_noise_are_far_from_the_limit(self) -> None:
        run = run_of(0.001, 1.0, 10)

        assert gdp_estimate([run], delta=1e-6).epsilon < 0.5 * pld(run, delta=1e-6)


class TestRoundUp:
    @pytest.mark.parametrize(
        ("value", "digits", "expected"),
        [
            (6.57901, 3, 6.58),
            (6.579, 3, 6.579),
            (1e-9, 4, 1e-4),
            (0.0, 4, 0.0),
            (2.00001, 4, 2.0001),
        ],
    )
    def test_never_shows_less_than_the_value(
        self, value: float, digits: int, expected: float
    ) -> None:
        assert round_up(value, digits) == expected
        assert round_up(value, digits) >= value
