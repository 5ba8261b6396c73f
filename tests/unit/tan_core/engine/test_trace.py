"""What a private run tells of its noisy gradients: their norms, and nothing of the data beside them."""

import math
from pathlib import Path

import pytest
import torch

from tan_core.engine import checkpoint
from tan_core.engine.trace import MAX_POINTS, Trace
from tan_core.execution import Simulation
from tests.unit.tan_core.engine.support import make_run, make_trainer, run, vector


class OnlyNoise:
    """Draws nobody, and adds a constant."""

    def __init__(self, level: float = 0.5) -> None:
        self.level = level

    def mask(self, step, *, num_examples, sampling_rate):
        return torch.empty(0, dtype=torch.int64).numpy()

    def cut(self, step, drawn, *, max_batch_size):
        return drawn

    def noise(self, step, size):
        return torch.full((size,), self.level)

    def add_noise(self, step, total_P, deviation, *, share, shares):
        total_P += deviation * self.noise(step, len(total_P))

    def augmentation(self, step):
        return torch.Generator().manual_seed(step)


class TestPoints:
    def test_the_norm_is_that_of_the_noisy_sum_per_expected_example(self) -> None:
        execution = make_run(q=0.2, sigma=3.0, clip_norm=0.7)
        trainer = make_trainer(execution, randomness=OnlyNoise())

        run(trainer, 1)

        each = 3.0 * 0.7 * 0.5 / (0.7 * execution.expected_batch_size)
        expected = each * math.sqrt(len(vector(trainer)))
        assert trainer.updates[0].gradient_norm == pytest.approx(expected, rel=1e-5)
        assert trainer.updates[0].ema_distance is None

    def test_the_distance_is_that_of_what_would_be_released(self) -> None:
        trainer = run(make_trainer(config={"ema_decay": 0.9}), 4)
        state = trainer.state().tensors
        apart = float((state["parameters"] - state["ema"]).norm())

        run(trainer, 1)

        assert trainer.updates[0].ema_distance == 0
        assert trainer.updates[4].ema_distance == pytest.approx(apart)
        assert apart > 0

    def test_which_steps_are_noted_depends_on_their_number_alone(self) -> None:
        for steps in (1, MAX_POINTS, MAX_POINTS + 1, 25 * MAX_POINTS - 7):
            trace = Trace(steps)
            for step in range(steps):
                trace.note(step, torch.ones(2), torch.ones(2), None)

            noted = [point.step for point in trace.points]
            assert noted == list(range(0, steps, -(-steps // MAX_POINTS)))
            assert len(noted) <= MAX_POINTS

    def test_a_simulation_has_none(self) -> None:
        simulation = Simulation.of(make_run(), expected_batch_size=6)

        assert run(make_trainer(simulation), 3).updates == []


class TestCheckpoints:
    def test_it_goes_on_where_it_was(self, tmp_path: Path) -> None:
        straight = run(make_trainer(config={"ema_decay": 0.9}), 10)
        sha256 = checkpoint.save(tmp_path / "c", run(make_trainer(config={"ema_decay": 0.9}), 5))
        resumed = make_trainer(config={"ema_decay": 0.9})

        resumed.load_state(checkpoint.load(tmp_path / "c", sha256).state)
        run(resumed, 5)

        assert resumed.updates == straight.updates
        assert len(resumed.updates) == 10

    def test_a_run_that_diverged_can_still_be_written(self, tmp_path: Path) -> None:
        trainer = run(make_trainer(randomness=OnlyNoise(math.inf)), 2)

        sha256 = checkpoint.save(tmp_path / "c", trainer)

        resumed = make_trainer()
        resumed.load_state(checkpoint.load(tmp_path / "c", sha256).state)
        assert [point.gradient_norm for point in resumed.updates] == [None, None]
