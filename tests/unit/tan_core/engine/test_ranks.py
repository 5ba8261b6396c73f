"""Ranks that are not those of one run are refused before they sum anything."""

import math

import pytest
import torch

from tan_core.engine import PrivateRandomness, SeededRandomness, Trainer
from tan_core.engine.ranks import AGREED
from tan_core.errors import ParameterError
from tan_core.execution import Simulation
from tests.unit.tan_core.engine.support import (
    KEY,
    SHAPE,
    ThreadRanks,
    in_threads,
    make_run,
    make_trainer,
    run,
    run_ranks,
    vector,
)

OTHER_KEY = bytes(32)


def refused(trainers: list[Trainer], steps: int) -> list[str]:
    """The field of each rank's error."""
    fields: dict[int, str] = {}

    def work(rank: int) -> None:
        with pytest.raises(ParameterError) as error:
            run(trainers[rank], steps)
        fields[rank] = error.value.field or ""

    in_threads(work, len(trainers))
    return [fields[rank] for rank in range(len(trainers))]


def trainers_of(*changes, numbers=(0, 1), **shared) -> list[Trainer]:
    ranks = ThreadRanks(len(changes))
    return [
        make_trainer(
            rank=number,
            world_size=len(changes),
            all_reduce=ranks.all_reduce(at),
            **{**shared, **own},
        )
        for at, (number, own) in enumerate(zip(numbers, changes, strict=True))
    ]


@pytest.mark.parametrize("q", [0.005, 0.2, 0.995])
def test_ranks_of_unlike_keys_are_refused(q: float) -> None:
    """Each would take a share of a draw of its own, and a record might be in both."""
    run_of = make_run(q=q, steps=400)
    trainers = trainers_of(
        *({"randomness": PrivateRandomness(key, 1)} for key in (KEY, OTHER_KEY)), execution=run_of
    )
    before = [vector(trainer) for trainer in trainers]
    draws = [PrivateRandomness(key, 1) for key in (KEY, OTHER_KEY)]
    unlike = next(
        step
        for step in range(400)
        if [*draws[0].mask(step, num_examples=60, sampling_rate=q)]
        != [*draws[1].mask(step, num_examples=60, sampling_rate=q)]
    )

    assert refused(trainers, 400) == ["randomness"] * 2
    assert [trainer.steps_done for trainer in trainers] == [unlike] * 2
    if unlike == 0:
        for trainer, own in zip(trainers, before, strict=True):
            assert torch.equal(vector(trainer), own)


def test_so_are_those_of_unlike_attempts_and_seeds() -> None:
    simulation = Simulation(dynamics=make_run().mechanism, num_examples=60, scale_factor=1.0)

    of_attempts = trainers_of({"attempt": 1}, {"attempt": 2})
    of_seeds = trainers_of(
        *({"randomness": SeededRandomness(seed)} for seed in (0, 1)), execution=simulation
    )

    assert refused(of_attempts, 1) == refused(of_seeds, 1) == ["randomness"] * 2


def test_so_are_those_that_go_on_from_unlike_checkpoints() -> None:
    states = [run(make_trainer(), steps).state() for steps in (2, 3)]
    trainers = trainers_of({}, {}, attempt=2)
    for trainer, state in zip(trainers, states, strict=True):
        trainer.load_state(state)

    assert refused(trainers, 1) == ["randomness"] * 2


def test_so_are_two_that_say_they_are_one() -> None:
    """Both would add one share of the noise, and nobody the other."""
    assert refused(trainers_of({}, {}, numbers=(0, 0)), 1) == ["rank"] * 2


@pytest.mark.parametrize("layer", [0, 2], ids=["frozen", "trained"])
def test_so_are_those_of_unlike_models(layer: int) -> None:
    """As where each process draws its own: the sum of all would be the gradient of none."""

    def model(seed: int) -> torch.nn.Sequential:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            found = torch.nn.Sequential(
                torch.nn.Linear(math.prod(SHAPE), 4), torch.nn.ReLU(), torch.nn.Linear(4, 3)
            )
            torch.manual_seed(seed)
            torch.nn.init.normal_(found[layer].weight)
        found[0].requires_grad_(False)
        return torch.nn.Sequential(torch.nn.Flatten(), *found)

    rounded = model(0)
    for parameter in rounded.parameters():
        parameter.data.mul_(1 + 1e-6)

    assert refused(trainers_of({"model": model(0)}, {"model": model(1)}), 1) == ["model"] * 2
    alike = trainers_of({"model": model(0)}, {"model": rounded})
    in_threads(lambda rank: run(alike[rank], 1), 2)


def test_those_that_agree_are_asked_until_chance_is_out_of_the_question() -> None:
    asked: list[int] = []
    ranks = ThreadRanks(2)

    def all_reduce(rank: int):
        reduce = ranks.all_reduce(rank)

        def watched(tensor: torch.Tensor) -> None:
            if rank == 0 and len(tensor) == 20:
                asked.append(len(tensor))
            reduce(tensor)

        return watched

    trainers = [make_trainer(rank=r, world_size=2, all_reduce=all_reduce(r)) for r in range(2)]
    in_threads(lambda rank: run(trainers[rank], 20), 2)

    draws = PrivateRandomness(KEY, 1)
    drawn = [len(draws.mask(step, num_examples=60, sampling_rate=0.2)) for step in range(20)]
    enough = next(step for step in range(20) if sum(drawn[:step]) >= AGREED)
    assert len(asked) == enough < 20


def test_whole_batches_need_no_agreement_but_once() -> None:
    execution = make_run(q=1.0)

    first, second = run_ranks(2, 3, execution=execution)

    assert first._agreed == AGREED
    assert torch.equal(vector(first), vector(second))
