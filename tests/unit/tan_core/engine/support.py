"""Small runs for the engine's tests."""

import threading

import torch

from tan_core import models
from tan_core.engine import PrivateRandomness, SeededRandomness, Trainer
from tan_core.execution import PrivateRun, Simulation
from tan_core.mechanism import Mechanism
from tan_core.spec.models import MlpModel
from tan_core.spec.train import TrainerConfig
from tan_core.testing.tiny import SHAPE, tiny_images

KEY = bytes(range(32))
NUM_EXAMPLES = 60


def make_run(*, q: float = 0.2, sigma: float = 1.0, clip_norm: float = 1.0, steps: int = 20):
    mechanism = Mechanism(sampling_rate=q, noise_multiplier=sigma, clip_norm=clip_norm, steps=steps)
    return PrivateRun(mechanism=mechanism, num_examples=NUM_EXAMPLES)


def make_trainer(
    execution: PrivateRun | Simulation | None = None,
    *,
    spec=None,
    config=None,
    attempt: int = 1,
    **changes,
) -> Trainer:
    execution = execution or make_run()
    mechanism = execution.mechanism if isinstance(execution, PrivateRun) else execution.dynamics
    settings = {"clip_norm": mechanism.clip_norm} | (config or {})
    inputs, labels = tiny_images(NUM_EXAMPLES)
    randomness = (
        PrivateRandomness(KEY, attempt)
        if isinstance(execution, PrivateRun)
        else SeededRandomness(0)
    )
    model = models.build(
        spec or MlpModel(hidden=[4]),
        shape=SHAPE,
        num_classes=3,
        generator=torch.Generator().manual_seed(0),
    )
    arguments = {
        "model": model,
        "execution": execution,
        "config": TrainerConfig.model_validate(settings),
        "inputs": inputs,
        "labels": labels,
        "randomness": randomness,
    }
    return Trainer(**arguments | changes)


def run(trainer: Trainer, steps: int) -> Trainer:
    for _ in range(steps):
        trainer.step()
    return trainer


def vector(trainer: Trainer) -> torch.Tensor:
    """The current parameters, a copy."""
    return trainer.state().tensors["parameters"]


class ThreadRanks:
    """Sums a tensor over threads that stand for ranks."""

    def __init__(self, world_size: int) -> None:
        self._barrier = threading.Barrier(world_size, timeout=60)
        self._shares: dict[int, torch.Tensor] = {}

    def all_reduce(self, rank: int):
        def reduce(tensor: torch.Tensor) -> None:
            self._shares[rank] = tensor.clone()
            self._barrier.wait()
            tensor.copy_(sum(self._shares[r] for r in sorted(self._shares)))
            self._barrier.wait()

        return reduce


def run_ranks(world_size: int, steps: int, **changes) -> list[Trainer]:
    """One trainer per rank, each run in its own thread."""
    ranks = ThreadRanks(world_size)
    trainers = [
        make_trainer(rank=rank, world_size=world_size, all_reduce=ranks.all_reduce(rank), **changes)
        for rank in range(world_size)
    ]
    errors: list[BaseException] = []

    def work(trainer: Trainer) -> None:
        try:
            run(trainer, steps)
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=work, args=(t,), daemon=True) for t in trainers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not errors
    return trainers
