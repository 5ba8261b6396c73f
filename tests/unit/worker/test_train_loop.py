"""What the ranks of a private run have in common, and what comes before they are charged."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from tan_core.data import inspect
from tan_core.engine.trainer import Trainer
from tan_core.mechanism import Mechanism
from tan_core.spec.models import LinearModel
from tests.support.assignments import private_assignment
from tests.support.datasets import dataset_ref
from worker import train_loop
from worker.leader import Leader
from worker.selftest.rig import Lab, Ranks, Setup, ThreadTeam
from worker.settings import WorkerSettings

SETUP = Setup(
    mechanism=Mechanism(sampling_rate=0.5, noise_multiplier=1.0, clip_norm=1.0, steps=4),
    model=LinearModel(),
    inputs=np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32),
    labels=np.arange(40) % 3,
    num_classes=3,
)


def test_ranks_begin_with_the_weights_of_the_first(tmp_path, monkeypatch) -> None:
    """Also where the model's own code draws them, frozen ones and buffers too, from what no seed of ours reaches."""
    random, made = np.random.default_rng(), list[torch.nn.Module]()

    def drawn_from_numpy(*_: object, **__: object) -> torch.nn.Module:
        model = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))
        model[0].weight.requires_grad_(False)
        model.register_buffer("mask", torch.zeros(3, dtype=torch.bool).expand(2, 3))
        model.register_buffer("middle", torch.tensor(0.5).expand(2, 3))
        model.register_buffer("turned", torch.ones(2, dtype=torch.complex64).conj())
        model.register_buffer("number", torch.zeros(()))
        for value in (*model.parameters(), model.number):
            value.data = torch.from_numpy(random.normal(size=tuple(value.shape))).to(value.dtype)
        made.append(model)
        return model

    monkeypatch.setattr(train_loop, "model_for", drawn_from_numpy)
    Lab(tmp_path, 0).run(SETUP, lambda _: None, workers=2)

    one, other = (model.state_dict() for model in made)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


class ChargedError(Exception):
    """A step was charged."""


class Charging(Leader):
    """Rank 0's line to nobody."""

    def __init__(self) -> None:
        pass

    @property
    def is_to_stop(self) -> bool:
        return False

    def charge(self, start_step: int, num_steps: int) -> Any:
        raise ChargedError


def _trained_on_digits(ranks: Ranks, rank: int = 0) -> None:
    digits = dataset_ref(inspect(None, source="digits"))
    settings = WorkerSettings(api_url="http://nowhere", run_id="r", fence=1, run_token="t")  # type: ignore[arg-type]
    team = ThreadTeam(ranks, rank, None)
    team.is_first_of_node = rank == 0
    leader = Charging() if rank == 0 else None
    train_loop._train(private_assignment(digits, workers=ranks.size), settings, team, leader)


def test_a_run_that_does_not_fit_is_not_charged(monkeypatch) -> None:
    def rehearse(self: Trainer, *, num_scored: int) -> None:
        asked.append(num_scored)
        if is_short:
            raise torch.OutOfMemoryError

    asked, is_short = list[int](), True
    monkeypatch.setattr(Trainer, "rehearse", rehearse)
    with pytest.raises(torch.OutOfMemoryError):
        _trained_on_digits(Ranks(1))
    is_short = False
    with pytest.raises(ChargedError):
        _trained_on_digits(Ranks(1))
    assert asked == [359, 359]  # the test split's


@pytest.mark.parametrize("is_short", [True, False])
def test_nor_one_that_does_not_fit_on_another_rank(monkeypatch, is_short: bool) -> None:
    ranks = Ranks(2)

    def rehearse(self: Trainer, *, num_scored: int) -> None:
        if self._rank == 1:
            time.sleep(0.5)  # while rank 0 goes on, if nothing holds it
            if is_short:
                ranks.abort()
                raise torch.OutOfMemoryError

    monkeypatch.setattr(Trainer, "rehearse", rehearse)
    with ThreadPoolExecutor(2) as pool:
        first, other = (pool.submit(_trained_on_digits, ranks, rank) for rank in range(2))
        failed = first.exception()
        ranks.abort()
        assert isinstance(failed, threading.BrokenBarrierError if is_short else ChargedError)
        assert other.exception() is not None
