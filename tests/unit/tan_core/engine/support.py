"""Small runs for the engine's tests."""

import threading
from collections.abc import Callable

import torch

from tan_core import models
from tan_core.engine import PrivateRandomness, SeededRandomness, Trainer
from tan_core.engine.noise_ahead import NoiseAhead
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


def in_threads(work: Callable[[int], object], number: int) -> None:
    """Do it once for each rank, side by side."""
    errors: list[BaseException] = []

    def watched(rank: int) -> None:
        try:
            work(rank)
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=watched, args=(r,), daemon=True) for r in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not errors


def run_ranks(world_size: int, steps: int, **changes) -> list[Trainer]:
    """One trainer per rank, each run in its own thread."""
    ranks = ThreadRanks(world_size)
    trainers = [
        make_trainer(rank=rank, world_size=world_size, all_reduce=ranks.all_reduce(rank), **changes)
        for rank in range(world_size)
    ]
    in_threads(lambda rank: run(trainers[rank], steps), world_size)
    return trainers


def linear_from_zero(features: int, dtype: torch.dtype) -> torch.nn.Linear:
    """Of two outputs, without biases."""
    model = torch.nn.Linear(features, 2, bias=False, dtype=dtype)
    torch.nn.init.zeros_(model.weight)
    return model


class Noiseless(PrivateRandomness):
    """The same draws, and no noise."""

    def add_noise(self, step, total_P, deviation, *, share=0, shares=1) -> None:
        del step, total_P, deviation, share, shares


def told_by_ranks(
    randomness: Callable[[], PrivateRandomness],
    world_size: int,
    model: Callable[[], torch.nn.Module],
    *,
    is_audited: bool = True,
    is_ahead: bool = False,
    told: torch.dtype | None = None,
    **changes,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The noisy sum of the first step as each rank has it, and what the ranks added up to before it was rounded."""
    ranks, whole, found = ThreadRanks(world_size), [], {}

    def all_reduce(rank: int):
        reduce = ranks.all_reduce(rank)

        def watched(piece: torch.Tensor) -> None:
            reduce(piece)
            if rank == 0:
                whole.append(piece)

        return watched

    def work(rank: int) -> None:
        trainer = make_trainer(
            rank=rank,
            world_size=world_size,
            all_reduce=all_reduce(rank) if world_size > 1 else None,
            model=model(),
            randomness=randomness(),
            **changes,
        )
        trainer._next_audit = 0 if is_audited else 1
        trainer._noise_ahead = NoiseAhead() if is_ahead else None
        trainer._told_type = told or trainer._told_type
        with torch.no_grad():
            found[rank] = trainer._noisy_sum(trainer._draw())[0]

    in_threads(work, world_size)
    assert all(found[rank].equal(found[0]) for rank in range(world_size))
    return found[0], torch.cat(whole or [found[0]]).double()
