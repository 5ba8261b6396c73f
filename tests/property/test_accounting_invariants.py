"""Invariants that every change of the accounting must keep."""

import json
import math
from typing import Any

import pytest
from hypothesis import Phase, assume, example, given, settings
from hypothesis import strategies as st
from scipy import special

from tan_core.accounting import (
    calibrate_noise_multiplier,
    calibrate_sampling_rate,
    calibrate_steps,
    gdp_estimate,
    price,
    round_up,
)
from tan_core.accounting.events import sampled_gaussian
from tan_core.accounting.loss_distribution import loss_profile
from tan_core.accounting.pld import pld_profile
from tan_core.accounting.rdp import Conversion, SearchedRdpProfile, rdp_profile
from tan_core.errors import AccountantError, ParameterError, UnreachableTargetError
from tan_core.mechanism import Accountant, Mechanism
from tan_core.testing.strategies import mechanisms

# A price may take a second: what fails is shown as it was drawn, not shrunk for minutes.
BUDGET = settings(
    max_examples=20, deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate)
)
GRID_TOLERANCE = 1 + 1e-3  # the grid follows the mechanism: neighbours differ by its excess

rates = st.floats(1e-3, 1.0)
sigmas = st.floats(0.5, 20.0)
step_counts = st.integers(1, 5000)
deltas = st.sampled_from([1e-5, 1e-7, 1e-9])


runs = st.builds(
    lambda q, sigma, steps: Mechanism(
        sampling_rate=q, noise_multiplier=sigma, clip_norm=1.0, steps=steps
    ),
    rates,
    sigmas,
    step_counts,
)


def run_of(q: float, sigma: float, steps: int) -> Mechanism:
    return Mechanism(sampling_rate=q, noise_multiplier=sigma, clip_norm=1.0, steps=steps)


def assume_sensible(*mechanisms: Mechanism, delta: float) -> None:
    """Where anybody would ask for a price: far above 300 even dp-accounting has none."""
    assume(gdp_estimate(mechanisms, delta=delta).epsilon < 200)


def pld(run: Mechanism, delta: float) -> float:
    assume_sensible(run, delta=delta)
    return price([run], delta=delta).epsilon


def sensible_cost(q: float, sigma: float, steps: int, delta: float) -> float:
    epsilon = pld(run_of(q, sigma, steps), delta)
    assume(0.01 < epsilon < 300)
    return epsilon


class TestPrice:
    @pytest.mark.slow
    @BUDGET
    @given(q=rates, sigma=sigmas, steps=step_counts, delta=deltas, more=st.floats(1.0, 3.0))
    def test_more_noise_never_costs_more(
        self, q: float, sigma: float, steps: int, delta: float, more: float
    ) -> None:
        noisier = pld(run_of(q, sigma * more, steps), delta)

        assert noisier <= pld(run_of(q, sigma, steps), delta) * GRID_TOLERANCE + 1e-4

    @pytest.mark.slow
    @BUDGET
    @given(q=rates, sigma=sigmas, steps=step_counts, delta=deltas, more=st.integers(1, 5000))
    def test_more_steps_never_cost_less(
        self, q: float, sigma: float, steps: int, delta: float, more: int
    ) -> None:
        longer = pld(run_of(q, sigma, steps + more), delta)

        assert longer * GRID_TOLERANCE + 1e-6 >= pld(run_of(q, sigma, steps), delta)

    @pytest.mark.slow
    @BUDGET
    @given(q=rates, sigma=sigmas, steps=step_counts, delta=deltas)
    def test_pld_never_costs_more_than_rdp(
        self, q: float, sigma: float, steps: int, delta: float
    ) -> None:
        run = run_of(q, sigma, steps)

        by_rdp = price([run], delta=delta, accountant=Accountant.RDP).epsilon

        assert pld(run, delta) <= by_rdp * GRID_TOLERANCE + 1e-4

    @pytest.mark.slow
    @BUDGET
    @given(q=rates, sigma=sigmas, steps=step_counts, delta=deltas, more=st.floats(1.0, 3.0))
    def test_a_larger_sampling_rate_never_costs_less(
        self, q: float, sigma: float, steps: int, delta: float, more: float
    ) -> None:
        larger = pld(run_of(min(q * more, 1.0), sigma, steps), delta)

        assert larger * GRID_TOLERANCE + 1e-6 >= pld(run_of(q, sigma, steps), delta)

    @pytest.mark.slow
    @BUDGET
    @given(q=rates, sigma=sigmas, steps=step_counts, delta=deltas, more=st.floats(1.0, 1e3))
    @pytest.mark.parametrize("accountant", [Accountant.PLD, Accountant.RDP])
    def test_a_larger_delta_never_costs_more(
        self, accountant: Accountant, q: float, sigma: float, steps: int, delta: float, more: float
    ) -> None:
        run = run_of(q, sigma, steps)
        assume_sensible(run, delta=delta)

        at_less, at_more = (
            price([run], delta=each, accountant=accountant).epsilon
            for each in (delta, delta * more)
        )
        assert at_more <= at_less

    @pytest.mark.slow
    @BUDGET
    @given(runs=st.lists(runs, min_size=2, max_size=4), delta=deltas, data=st.data())
    @pytest.mark.parametrize("accountant", [Accountant.PLD, Accountant.RDP])
    def test_the_order_of_a_composition_does_not_matter(
        self, accountant: Accountant, runs: list[Mechanism], delta: float, data: st.DataObject
    ) -> None:
        shuffled = data.draw(st.permutations(runs))
        assume_sensible(*runs, delta=delta)

        one, other = (
            price(each, delta=delta, accountant=accountant).epsilon for each in (runs, shuffled)
        )
        assert math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9)

    @pytest.mark.slow
    @BUDGET
    @given(runs=st.lists(runs, min_size=1, max_size=3), delta=deltas)
    def test_our_own_loss_distribution_agrees_with_dp_accounting(
        self, runs: list[Mechanism], delta: float
    ) -> None:
        """Two implementations that share no code; also of compositions of unlike runs."""
        events = [event for run in runs if (event := sampled_gaussian(run))]
        assume_sensible(*runs, delta=delta)

        theirs = pld_profile(runs).epsilon(delta)

        assume(theirs < 300)
        ours = loss_profile(events, delta=delta).epsilon(delta)
        assert math.isclose(ours, theirs, rel_tol=1e-3, abs_tol=1e-4)

    @given(value=st.floats(0, 1e6), digits=st.integers(0, 6))
    def test_what_is_shown_is_never_below_the_truth(self, value: float, digits: int) -> None:
        shown = round_up(value, digits)

        assert value <= shown <= value + 10.0**-digits * (1 + 1e-6)


WILD = [
    float("nan"), float("inf"), -float("inf"), 0, 0.0, -0.0, 5e-324, 1e-300, 1e300, -1.0, -3, 2**70, 10**400,
    True, None, "1", "nan", [], 1j, b"1",
]  # fmt: skip


class TestWildInput:
    @pytest.mark.parametrize("value", WILD, ids=lambda value: repr(value)[:12])
    @pytest.mark.parametrize(
        "field", ["sampling_rate", "noise_multiplier", "clip_norm", "steps", "delta", "epsilon"]
    )
    @pytest.mark.parametrize("accountant", [Accountant.PLD, Accountant.RDP])
    def test_it_is_refused_by_name_or_priced_right_and_never_free(
        self, accountant: Accountant, field: str, value: Any
    ) -> None:
        run = {"sampling_rate": 0.01, "noise_multiplier": 1.0, "clip_norm": 1.0, "steps": 10}
        asked: dict[str, Any] = {"delta": 1e-5}
        if field in run:
            run[field] = value
        else:
            asked = {field: value}

        try:
            found = price([Mechanism(**run)], accountant=accountant, **asked)
        except (ParameterError, AccountantError) as error:
            refused = error
        else:
            refused = None
        if refused is not None:
            assert str(refused)
            assert getattr(refused, "field", field) in (field, "delta")
            return

        # One step alone already tells the neighbours apart by this much (total variation).
        apart = run["sampling_rate"] * special.erf(1 / (8**0.5 * run["noise_multiplier"]))
        assert found.epsilon > 0 or apart <= found.delta
        assert found.delta > 0 or apart == 0 or found.epsilon > 0
        assert math.isfinite(found.epsilon)
        assert 0 <= found.delta <= 1


class TestRdp:
    @pytest.mark.slow
    @settings(max_examples=12, deadline=None, derandomize=True)
    @given(
        runs=st.lists(mechanisms(), min_size=1, max_size=3),
        conversion=st.sampled_from(Conversion),
        delta=st.floats(-10, -0.5).map(lambda power: 10**power),
        epsilon=st.floats(-3, 3).map(lambda power: 10**power),
    )
    @example(
        [run_of(0.45807581131385594, 29.44425202589416, 15433)], Conversion.CLASSICAL, 8e-4, 1.35
    )
    @example(
        [run_of(0.14513583415205777, 13.675554341886102, 11047)], Conversion.IMPROVED, 8e-6, 0.92
    )
    def test_few_orders_answer_as_all_do(
        self, runs: list[Mechanism], conversion: Conversion, delta: float, epsilon: float
    ) -> None:
        """The examples: with much noise the library is above the truth at orders that are not whole."""
        every, few = rdp_profile(runs, conversion), SearchedRdpProfile(runs, conversion)

        assert few.epsilon(delta) == every.epsilon(delta)
        assert few.delta(epsilon) == every.delta(epsilon)


class TestCalibrate:
    @pytest.mark.slow
    @BUDGET
    @given(q=rates, steps=step_counts, epsilon=st.floats(0.1, 50.0), delta=deltas)
    def test_never_overshoots_and_lands_close(
        self, q: float, steps: int, epsilon: float, delta: float
    ) -> None:
        try:
            sigma = calibrate_noise_multiplier(
                sampling_rate=q, steps=steps, epsilon=epsilon, delta=delta
            )
        except UnreachableTargetError:
            assert pld(run_of(q, 0.02, steps), delta) < epsilon
            return

        assert 0.999 * epsilon <= price([run_of(q, sigma, steps)], delta=delta).epsilon <= epsilon

    @pytest.mark.slow
    @BUDGET
    @given(q=st.floats(1e-3, 0.5), sigma=sigmas, steps=st.integers(10, 5000), delta=deltas)
    def test_noise_of_a_price_is_the_noise_that_was_priced(
        self, q: float, sigma: float, steps: int, delta: float
    ) -> None:
        """On the safe side: never less, and more by what a thousandth of epsilon buys."""
        epsilon = sensible_cost(q, sigma, steps, delta)

        found = calibrate_noise_multiplier(
            sampling_rate=q, steps=steps, epsilon=epsilon, delta=delta
        )

        assert sigma * (1 - 1e-3) <= found <= sigma * (1 + 2.5e-3)

    @pytest.mark.slow
    @BUDGET
    @given(q=st.floats(1e-3, 0.5), sigma=sigmas, steps=st.integers(1, 5000), delta=deltas)
    def test_steps_of_a_price_are_the_steps_that_were_priced(
        self, q: float, sigma: float, steps: int, delta: float
    ) -> None:
        epsilon = sensible_cost(q, sigma, steps, delta)

        found = calibrate_steps(
            sampling_rate=q, noise_multiplier=sigma, epsilon=epsilon, delta=delta
        )

        assert steps <= found <= steps * 1.005 + 1

    @pytest.mark.slow
    @BUDGET
    @given(q=st.floats(1e-3, 0.5), sigma=sigmas, steps=st.integers(10, 5000), delta=deltas)
    def test_rate_of_a_price_is_the_rate_that_was_priced(
        self, q: float, sigma: float, steps: int, delta: float
    ) -> None:
        epsilon = sensible_cost(q, sigma, steps, delta)

        found = calibrate_sampling_rate(
            noise_multiplier=sigma, steps=steps, epsilon=epsilon, delta=delta
        )

        assert q * (1 - 2.5e-3) <= found <= q * (1 + 1e-3)


class TestMechanism:
    @given(
        q=st.floats(0, 1, exclude_min=True),
        sigma=st.floats(1e-300, 1e300),
        clip=st.floats(1e-300, 1e300),
        steps=st.integers(1, 10**9),
    )
    def test_survives_its_codec_bit_by_bit(
        self, q: float, sigma: float, clip: float, steps: int
    ) -> None:
        run = Mechanism(sampling_rate=q, noise_multiplier=sigma, clip_norm=clip, steps=steps)

        again = Mechanism.from_json(json.loads(json.dumps(run.to_json())))

        assert again == run
        assert again.fingerprint == run.fingerprint
