"""Invariants that every change of the accounting must keep."""

import json
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from tan_core.accounting import calibrate_noise_multiplier, price, round_up
from tan_core.errors import UnreachableTargetError
from tan_core.mechanism import Accountant, Mechanism
from tan_core.tan import (
    Setting,
    keep_epochs,
    scale_batch,
    signal_to_noise,
    trade_steps_for_batch,
    trade_steps_for_noise,
)

BUDGET = settings(max_examples=20, deadline=None, derandomize=True)
GRID_TOLERANCE = 1 + 1e-3  # the grid follows the mechanism: neighbours differ by its excess

rates = st.floats(1e-3, 1.0)
sigmas = st.floats(0.5, 20.0)
step_counts = st.integers(1, 5000)
deltas = st.sampled_from([1e-5, 1e-7, 1e-9])


def run_of(q: float, sigma: float, steps: int) -> Mechanism:
    return Mechanism(sampling_rate=q, noise_multiplier=sigma, clip_norm=1.0, steps=steps)


def pld(run: Mechanism, delta: float) -> float:
    return price([run], delta=delta).epsilon


class TestPrice:
    @BUDGET
    @given(q=rates, sigma=sigmas, steps=step_counts, delta=deltas, more=st.floats(1.0, 3.0))
    def test_more_noise_never_costs_more(
        self, q: float, sigma: float, steps: int, delta: float, more: float
    ) -> None:
        noisier = pld(run_of(q, sigma * more, steps), delta)

        assert noisier <= pld(run_of(q, sigma, steps), delta) * GRID_TOLERANCE + 1e-4

    @BUDGET
    @given(q=rates, sigma=sigmas, steps=step_counts, delta=deltas, more=st.integers(1, 5000))
    def test_more_steps_never_cost_less(
        self, q: float, sigma: float, steps: int, delta: float, more: int
    ) -> None:
        longer = pld(run_of(q, sigma, steps + more), delta)

        assert longer * GRID_TOLERANCE + 1e-6 >= pld(run_of(q, sigma, steps), delta)

    @BUDGET
    @given(q=rates, sigma=sigmas, steps=step_counts, delta=deltas)
    def test_pld_never_costs_more_than_rdp(
        self, q: float, sigma: float, steps: int, delta: float
    ) -> None:
        run = run_of(q, sigma, steps)

        by_rdp = price([run], delta=delta, accountant=Accountant.RDP).epsilon

        assert pld(run, delta) <= by_rdp * GRID_TOLERANCE + 1e-4

    @given(value=st.floats(0, 1e6), digits=st.integers(0, 6))
    def test_what_is_shown_is_never_below_the_truth(self, value: float, digits: int) -> None:
        shown = round_up(value, digits)

        assert value <= shown <= value + 10.0**-digits * (1 + 1e-6)


class TestCalibrate:
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

        assert 0.999 * epsilon <= pld(run_of(q, sigma, steps), delta) <= epsilon


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


class TestMoves:
    @given(
        batch=st.floats(1, 1e5),
        sigma=st.floats(0.1, 100),
        steps=st.integers(1, 10**6),
        other=st.integers(1, 10**6),
        factor=st.floats(1, 1000),
    )
    def test_every_move_keeps_signal_to_noise_and_all_but_the_first_keep_total_step_size(
        self, batch: float, sigma: float, steps: int, other: int, factor: float
    ) -> None:
        start = Setting(
            expected_batch_size=batch, noise_multiplier=sigma, steps=steps, learning_rate=2.0
        )

        simulated = scale_batch(start, scale_factor=factor)
        moved = [
            trade_steps_for_batch(start, steps=other),
            trade_steps_for_noise(start, steps=other),
            keep_epochs(start, steps=other),
        ]

        assert (simulated.steps, simulated.learning_rate) == (steps, 2.0)
        for setting in (simulated, *moved):
            assert math.isclose(_eta(setting), _eta(start), rel_tol=1e-9)
        for setting in moved:
            assert math.isclose(setting.learning_rate * setting.steps, 2.0 * steps, rel_tol=1e-9)


def _eta(setting: Setting) -> float:
    """Of a dataset so large that every batch here is a valid part of it."""
    return signal_to_noise(
        sampling_rate=setting.expected_batch_size / 1e12,
        noise_multiplier=setting.noise_multiplier,
        steps=setting.steps,
    )
