"""Whether the last bits of one noisy sum tell who is in it (Mironov 2012).

The attack sees a sum as a step tells it, knows all records but one, and how the noise was made. From each of the two
sums that there may have been it looks for noise that leads to what it sees, number by number: from the wrong
one there is none to some of them, where noise has no more digits than what is told.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from tan_core.engine import PrivateRandomness
from tan_core.execution import PrivateRun
from tan_core.mechanism import Mechanism
from tests.unit.tan_core.engine.support import KEY, Noiseless, linear_from_zero, told_by_ranks

pytestmark = pytest.mark.statistical

SUMS, RECORDS, FEATURES = 40, 6, 500
SIGMA, CLIP_NORM = 8.0, 1.0
NEIGHBOURS = 4
"""On either side of the noise that would lead to a number exactly; rounding moves it by less."""

ENOUGH = 36
"""So many of the 40 are told rightly by chance 1e-7 times."""
BY_CHANCE = range(7, 34)
"""Chance tells fewer or more 8e-6 times."""


class ShortNoise(PrivateRandomness):
    """Of 24 bits."""

    def add_noise(self, step, total_P, deviation, *, share=0, shares=1) -> None:
        noise_P = torch.zeros(total_P.shape)
        super().add_noise(step, noise_P, deviation, share=share, shares=shares)
        total_P.add_(noise_P)


def step_on(
    randomness: type[PrivateRandomness],
    *,
    attempt: int,
    is_there: bool,
    ranks: int,
    parameters: torch.dtype,
    told: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """[P]: what one step on all records, or all but the last, tells, and what that is before it is rounded."""
    random = np.random.default_rng(attempt)
    inputs, labels = random.normal(size=(RECORDS, FEATURES)), random.integers(0, 2, RECORDS)
    kept = slice(None) if is_there else slice(RECORDS - 1)
    mechanism = Mechanism(sampling_rate=1.0, noise_multiplier=SIGMA, clip_norm=CLIP_NORM, steps=1)
    return told_by_ranks(
        lambda: randomness(KEY, attempt),
        ranks,
        lambda: linear_from_zero(FEATURES, parameters),
        told=told,
        execution=PrivateRun(mechanism=mechanism, num_examples=len(labels[kept])),
        inputs=torch.from_numpy(inputs[kept]).to(parameters),
        labels=labels[kept],
    )


@dataclass(frozen=True)
class Case:
    """What the attack has of one step."""

    is_there: bool
    told: Tensor
    without: Tensor
    """The sum that there may have been, with all its digits."""
    with_it: Tensor


def cases(
    randomness: type[PrivateRandomness],
    *,
    ranks: int,
    parameters: torch.dtype,
    told: torch.dtype | None = None,
) -> list[Case]:
    random, found = np.random.default_rng(0), []
    for attempt in range(1, SUMS + 1):
        step = partial(step_on, attempt=attempt, ranks=ranks, parameters=parameters)
        is_there = bool(random.integers(2))
        without, with_it = (
            step(Noiseless, is_there=each, told=parameters)[1] for each in (False, True)
        )
        seen = step(randomness, is_there=is_there, told=told)[0]
        found.append(Case(is_there, seen, without, with_it))
    return found


def impossible(seen: Tensor, total: Tensor, noise: torch.dtype, told: torch.dtype) -> int:
    """How many of the numbers no noise of this type leads to from a sum without it."""
    below = above = (seen.double() - total.double()).to(noise)
    end = torch.tensor(torch.inf, dtype=noise)
    is_reached = torch.zeros(len(seen), dtype=torch.bool)
    for _ in range(NEIGHBOURS):
        for each in (below, above):
            is_reached |= (total.double() + each.double()).to(told).double() == seen.double()
        below, above = torch.nextafter(below, -end), torch.nextafter(above, end)
    return int((~is_reached).sum())


def attacked(
    those: list[Case], noise: torch.dtype, told: torch.dtype = torch.float32
) -> tuple[int, int]:
    """How many sums are told rightly, a coin deciding where nothing else does, and how many numbers are impossible."""
    coins, num_right, num_impossible = np.random.default_rng(1), 0, 0
    for case in those:
        without, with_it = (
            impossible(case.told, each, noise, told) for each in (case.without, case.with_it)
        )
        guess = with_it < without if with_it != without else bool(coins.integers(2))
        num_right += guess == case.is_there
        num_impossible += with_it + without
    return num_right, num_impossible


@pytest.mark.parametrize("parameters", [torch.float32, torch.float64])
@pytest.mark.parametrize("ranks", [1, 2])
class TestOneNoisySum:
    def test_its_last_bits_tell_nothing(self, ranks: int, parameters: torch.dtype) -> None:
        those = cases(PrivateRandomness, ranks=ranks, parameters=parameters)

        assert attacked(those, torch.float32)[0] in BY_CHANCE
        assert attacked(those, torch.float64)[1] == 0  # nothing is impossible, of either sum

    def test_noise_of_as_few_digits_would_show(self, ranks: int, parameters: torch.dtype) -> None:
        those = cases(ShortNoise, ranks=ranks, parameters=parameters)

        assert attacked(those, torch.float32)[0] >= ENOUGH


def test_a_sum_of_as_many_digits_as_the_noise_would_show() -> None:
    those = cases(PrivateRandomness, ranks=1, parameters=torch.float64, told=torch.float64)

    assert attacked(those, torch.float64, told=torch.float64)[0] >= ENOUGH
