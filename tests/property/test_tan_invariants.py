"""Invariants of constant TAN: what each move keeps, and where the wall stands."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tan_core.mechanism import Mechanism
from tan_core.tan import (
    Observation,
    Setting,
    constant_tan_curve,
    fit_law,
    keep_epochs,
    paired_runs_needed,
    scale_batch,
    signal_to_noise,
    trade_steps_for_batch,
    trade_steps_for_noise,
    wall,
)

Move = Callable[..., Setting]
STEP_MOVES = [trade_steps_for_batch, trade_steps_for_noise, keep_epochs]
FEW = settings(max_examples=5, deadline=None, derandomize=True)

step_counts = st.integers(1, 10**6)


@st.composite
def training_settings(draw: st.DrawFn) -> Setting:
    steps = draw(step_counts)
    return Setting(
        expected_batch_size=draw(st.floats(1, 1e5)),
        noise_multiplier=draw(st.floats(0.1, 100)),
        steps=steps,
        learning_rate=draw(st.floats(1e-4, 100)),
        ema_decay=draw(st.none() | st.floats(0, 0.99999)),
        warmup_steps=draw(st.none() | st.floats(0, steps)),
    )


def eta(setting: Setting) -> float:
    """Of a dataset so large that every batch here is a valid part of it."""
    return signal_to_noise(
        sampling_rate=setting.expected_batch_size / 1e13,
        noise_multiplier=setting.noise_multiplier,
        steps=setting.steps,
    )


class TestMoves:
    @given(start=training_settings(), factor=st.floats(1e-3, 1e3))
    def test_the_simulation_keeps_all_but_batch_and_noise(
        self, start: Setting, factor: float
    ) -> None:
        simulated = scale_batch(start, scale_factor=factor)

        assert math.isclose(eta(simulated), eta(start), rel_tol=1e-9)
        assert math.isclose(
            simulated.noise_multiplier / simulated.expected_batch_size,
            start.noise_multiplier / start.expected_batch_size,
            rel_tol=1e-12,
        )
        assert simulated.steps == start.steps
        assert simulated.learning_rate == start.learning_rate
        assert simulated.ema_decay == start.ema_decay
        assert simulated.warmup_steps == start.warmup_steps

    @pytest.mark.parametrize("move", STEP_MOVES)
    @given(start=training_settings(), steps=step_counts)
    def test_other_steps_keep_signal_to_noise_and_total_step_size(
        self, move: Move, start: Setting, steps: int
    ) -> None:
        moved = move(start, steps=steps)

        assert math.isclose(eta(moved), eta(start), rel_tol=1e-9)
        assert math.isclose(
            moved.learning_rate * moved.steps, start.learning_rate * start.steps, rel_tol=1e-9
        )

    @pytest.mark.parametrize("move", STEP_MOVES)
    @given(start=training_settings(), steps=step_counts)
    def test_the_same_part_of_the_run_is_warmed_up_and_remembered(
        self, move: Move, start: Setting, steps: int
    ) -> None:
        moved = move(start, steps=steps)

        if start.warmup_steps is None:
            assert moved.warmup_steps is None
        else:
            assert math.isclose(
                moved.warmup_steps / steps,
                start.warmup_steps / start.steps,
                rel_tol=1e-9,
                abs_tol=1e-12,
            )
        if moved.ema_decay:
            remembered = (1 - start.ema_decay) * start.steps
            assert math.isclose((1 - moved.ema_decay) * steps, remembered, rel_tol=1e-6)

    @pytest.mark.parametrize("move", STEP_MOVES)
    @given(start=training_settings(), steps=step_counts)
    def test_there_and_back_is_where_it_began(self, move: Move, start: Setting, steps: int) -> None:
        back = move(move(start, steps=steps), steps=start.steps)

        assert back.steps == start.steps
        for name in ("expected_batch_size", "noise_multiplier", "learning_rate"):
            assert math.isclose(getattr(back, name), getattr(start, name), rel_tol=1e-9)
        if start.warmup_steps is not None:
            assert math.isclose(back.warmup_steps, start.warmup_steps, rel_tol=1e-9, abs_tol=1e-12)


class TestWall:
    @pytest.mark.slow
    @FEW
    @given(
        rate=st.floats(1e-3, 0.1),
        sigma=st.floats(0.7, 6),
        steps=st.integers(50, 5000),
        tolerance=st.floats(1.03, 3),
    )
    def test_everything_right_of_it_is_within_tolerance_and_nothing_left_of_it(
        self, rate: float, sigma: float, steps: int, tolerance: float
    ) -> None:
        run = Mechanism(sampling_rate=rate, noise_multiplier=sigma, clip_norm=1.0, steps=steps)

        edge = wall(run, delta=1e-6, tolerance=tolerance)

        right = constant_tan_curve(
            run, delta=1e-6, noise_multipliers=[edge * k for k in (1.0, 1.7)]
        )
        left = constant_tan_curve(
            run, delta=1e-6, noise_multipliers=[edge * k for k in (0.6, 0.97)]
        )
        assert all(p.overcharge <= tolerance * 1.001 for p in right)
        assert all(p.overcharge is None or p.overcharge > tolerance for p in left)


@st.composite
def ladders(draw: st.DrawFn) -> list[Observation]:
    """What a search may leave behind: rungs with seeds missing, repeated, collapsed."""
    rungs = draw(st.lists(st.integers(3, 16), min_size=1, max_size=5, unique=True))
    return [
        Observation(expected_batch_size=2**rung, accuracy=accuracy, seed=seed)
        for rung in rungs
        for seed, accuracy in draw(
            st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1)), min_size=1, max_size=4)
        )
    ]


batches = st.floats(1, 1e7)


class TestLaw:
    @given(observations=ladders(), batch=batches, level=st.floats(0.01, 0.99))
    def test_every_ladder_has_an_interval_around_its_prediction(
        self, observations: list[Observation], batch: float, level: float
    ) -> None:
        ahead = fit_law(observations).predict(batch, level=level)

        assert 0 <= ahead.low <= ahead.accuracy <= ahead.high <= 1
        assert math.isfinite(ahead.slope)
        assert ahead.residual_std > 0
        assert ahead.seed_std > 0

    @given(observations=ladders(), batch=batches, levels=st.tuples(*[st.floats(0.01, 0.99)] * 2))
    def test_a_surer_interval_holds_a_less_sure_one(
        self, observations: list[Observation], batch: float, levels: tuple[float, float]
    ) -> None:
        law = fit_law(observations)

        inner, outer = (law.predict(batch, level=level) for level in sorted(levels))

        assert outer.low <= inner.low + 1e-9
        assert inner.high <= outer.high + 1e-9

    @given(observations=ladders(), batch=batches, data=st.data())
    def test_the_order_of_the_runs_does_not_matter(
        self, observations: list[Observation], batch: float, data: st.DataObject
    ) -> None:
        shuffled = data.draw(st.permutations(observations))

        one, other = fit_law(observations).predict(batch), fit_law(shuffled).predict(batch)

        assert math.isclose(one.low, other.low, abs_tol=1e-6)
        assert math.isclose(one.high, other.high, abs_tol=1e-6)

    @given(observations=ladders(), doublings=st.floats(0, 4), more=st.floats(0.01, 4))
    def test_the_further_beyond_the_rungs_the_wider(
        self, observations: list[Observation], doublings: float, more: float
    ) -> None:
        """Before the interval meets the ends of what is possible."""
        law = fit_law(observations)
        largest = max(one.expected_batch_size for one in observations)

        near = law.predict(largest * 2**doublings)
        far = law.predict(largest * 2 ** (doublings + more))

        if min(near.low, far.low) > 0 and max(near.high, far.high) < 1:
            assert near.high - near.low <= far.high - far.low + 1e-9


class TestPairs:
    @given(difference=st.floats(1e-3, 10), std=st.floats(1e-3, 10), more=st.floats(1, 3))
    def test_a_smaller_difference_never_needs_fewer_pairs(
        self, difference: float, std: float, more: float
    ) -> None:
        small = paired_runs_needed(difference=difference, std=std)
        large = paired_runs_needed(difference=difference * more, std=std)

        assert large <= small
