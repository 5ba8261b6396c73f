"""What the engine may execute, and what a simulation keeps of it."""

from dataclasses import replace

import pytest

from tan_core.errors import ParameterError, UnaccountedError
from tan_core.execution import PrivateRun, Simulation
from tan_core.mechanism import Mechanism, NeighboringRelation, Sampling

N = 50_000
POISSON = Mechanism(
    sampling_rate=4096 / N,
    noise_multiplier=3.0,
    clip_norm=1.0,
    steps=2500,
    neighboring_relation=NeighboringRelation.ZERO_OUT,
)
CAPPED = replace(POISSON, sampling=Sampling.TRUNCATED_POISSON, num_examples=N, max_batch_size=4464)


class TestPrivateRun:
    @pytest.mark.parametrize("mechanism", [POISSON, CAPPED], ids=["poisson", "truncated"])
    def test_the_divisor_is_the_expected_batch_whatever_the_cap(self, mechanism: Mechanism) -> None:
        run = PrivateRun(mechanism=mechanism, num_examples=N)

        assert run.expected_batch_size == pytest.approx(4096)

    @pytest.mark.parametrize(
        ("mechanism", "field"),
        [
            (replace(POISSON, sampling=Sampling.UNAMPLIFIED), "sampling"),
            (replace(POISSON, sampling=Sampling.FIXED_SIZE, num_examples=N), "sampling"),
            (replace(CAPPED, num_examples=N + 1), "num_examples"),
            (replace(CAPPED, max_batch_size=4095), "max_batch_size"),
        ],
        ids=["unamplified", "fixed-size", "other-data", "low-cap"],
    )
    def test_what_the_engine_would_draw_otherwise_is_refused_by_name(
        self, mechanism: Mechanism, field: str
    ) -> None:
        for make in (
            lambda: PrivateRun(mechanism=mechanism, num_examples=N),
            lambda: Simulation(dynamics=mechanism, num_examples=N, scale_factor=1.0),
        ):
            with pytest.raises(ParameterError) as refused:
                make()
            assert refused.value.field == field


class TestSimulation:
    @pytest.mark.parametrize("mechanism", [POISSON, CAPPED], ids=["poisson", "truncated"])
    def test_it_keeps_sigma_over_q_and_never_cuts_a_batch(self, mechanism: Mechanism) -> None:
        run = PrivateRun(mechanism=mechanism, num_examples=N)

        simulated = Simulation.of(run, expected_batch_size=256)

        assert simulated.scale_factor == pytest.approx(16)
        assert simulated.dynamics == replace(
            POISSON,
            sampling_rate=POISSON.sampling_rate / simulated.scale_factor,
            noise_multiplier=POISSON.noise_multiplier / simulated.scale_factor,
        )

    @pytest.mark.parametrize("batch", [0, 4097])
    def test_a_batch_that_is_not_smaller_than_the_run_s_is_refused(self, batch: int) -> None:
        run = PrivateRun(mechanism=POISSON, num_examples=N)

        with pytest.raises(ParameterError, match="expected_batch_size must be in"):
            Simulation.of(run, expected_batch_size=batch)

    def test_it_has_no_epsilon(self) -> None:
        run = PrivateRun(mechanism=CAPPED, num_examples=N)

        with pytest.raises(UnaccountedError):
            _ = Simulation.of(run, expected_batch_size=256).epsilon
