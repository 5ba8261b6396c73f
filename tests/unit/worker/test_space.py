"""Candidates that are spread over a search space."""

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from tan_core.mechanism import Mechanism
from tests.support.assignments import DIGITS, search_assignment
from worker.searcher import space_of
from worker.space import Space, value_at

COUNTS = st.integers(1, 40)
SEEDS = st.integers(0, 2**32 - 1)


def searched(space: dict[str, Any]) -> Space:
    mechanism = Mechanism(sampling_rate=0.1, noise_multiplier=2.0, clip_norm=1.0, steps=40)
    return space_of(search_assignment(DIGITS, mechanism=mechanism, search={"space": space}))


@pytest.mark.parametrize(
    ("distribution", "share", "value"),
    [
        (FloatDistribution(1.0, 5.0), 0.25, 2.0),
        (FloatDistribution(0.25, 16.0, log=True), 0.5, 2.0),
        (FloatDistribution(0.1, 0.7, log=True), 0.0, 0.1),
        (IntDistribution(1, 3), 0.32, 1),
        (IntDistribution(1, 3), 0.34, 2),
        (IntDistribution(1, 3), 1 - 2**-53, 3),
        (IntDistribution(1, 15, log=True), 0.0, 1),
        (IntDistribution(7, 7), 0.9, 7),
        (CategoricalDistribution(("sgd", "adam")), 0.49, "sgd"),
        (CategoricalDistribution(("sgd", "adam")), 0.5, "adam"),
        (CategoricalDistribution(("sgd", "adam")), 1.0, "adam"),
    ],
)
def test_a_share_of_a_distribution_lies_below_its_value(
    distribution: BaseDistribution, share: float, value: object
) -> None:
    found = value_at(distribution, share)
    assert found == pytest.approx(value) if isinstance(value, float) else found == value
    assert type(found) is type(value)


@given(count=COUNTS, seed=SEEDS)
def test_of_a_range_each_candidate_has_a_share_of_its_own(count: int, seed: int) -> None:
    space = searched(
        {
            "learning_rate": {"low": 0.25, "high": 16.0, "log": True},
            "momentum": {"low": 0.0, "high": 0.8},
        }
    )
    found = space.spread([{}] * count, seed=seed)
    rates = [math.log(point["learning_rate"] / 0.25) / math.log(64) for point in found]
    momenta = [point["momentum"] / 0.8 for point in found]
    for shares in (rates, momenta):
        # Logarithms round: a share may come out on the rim of its own.
        places = [min(int(share * count + 1e-9), count - 1) for share in shares]
        assert sorted(places) == [*range(count)]


def small(choices: int) -> Space:
    """Of choices * choices combinations."""
    return searched(
        {
            "weight_decay": {"choices": [i / 10 for i in range(choices)]},
            "augmentation_multiplicity": {"low": 1, "high": choices},
        }
    )


def unevenness(space: Space, points: list[dict[str, Any]], choices: int) -> list[int]:
    """By dimension, how much more often the most frequent of its values comes than the rarest."""
    times = [Counter(point[key] for point in points) for key in space.distributions]
    return [
        max(each.values()) - (min(each.values()) if len(each) == choices else 0) for each in times
    ]


@given(more=COUNTS, seed=SEEDS, choices=st.integers(2, 6))
def test_choices_and_whole_numbers_come_equally_often(more: int, seed: int, choices: int) -> None:
    space = small(choices)
    found = space.spread([{}] * (choices**2 + more), seed=seed)
    assert max(unevenness(space, found, choices)) <= 1


@given(count=COUNTS, seed=SEEDS, choices=st.integers(2, 6))
def test_no_combination_comes_twice_while_there_are_others(
    count: int, seed: int, choices: int
) -> None:
    found = small(choices).spread([{}] * min(count, choices**2), seed=seed)
    assert all(found.count(point) == 1 for point in found)


@pytest.mark.parametrize(("choices", "count"), [(2, 3), (3, 8), (4, 10), (6, 10)])
def test_for_that_values_come_no_less_equally_often(choices: int, count: int) -> None:
    space = small(choices)
    for seed in range(50):
        found = space.spread([{}] * count, seed=seed)
        assert max(unevenness(space, found, choices)) <= 1


@given(seed=SEEDS)
def test_a_repeated_one_that_is_replaced_keeps_what_its_point_has(seed: int) -> None:
    points: list[dict[str, Any]] = [
        {"weight_decay": 0.0},
        {"augmentation_multiplicity": 1},
        {"weight_decay": 0.0, "augmentation_multiplicity": 1},
        {},
    ]
    found = small(2).spread(points, seed=seed)

    assert all(found.count(point) == 1 for point in found)
    assert all(point.items() <= chosen.items() for point, chosen in zip(points, found, strict=True))


@given(count=st.integers(0, 9), seed=SEEDS)
def test_the_others_are_all_that_is_left_of_the_space(count: int, seed: int) -> None:
    space = small(3)
    found = space.spread([{}] * count, seed=seed)

    others = [*space.others(found, seed=seed)]

    assert (
        len({tuple(sorted(each.items())) for each in [*found, *others]}) == 9 == count + len(others)
    )
    endless = searched({"learning_rate": {"low": 0.25, "high": 16.0}})
    assert [*endless.others([], seed=seed)] == []


def test_what_a_candidate_does_not_read_is_left_out() -> None:
    space = searched(
        {
            "beta2": {"low": 0.9, "high": 0.999},
            "momentum": {"low": 0.1, "high": 0.9},
            "optimizer": {"choices": ["sgd", "adam"]},
        }
    )
    for point in space.spread([{}] * 12, seed=1):
        is_sgd = point["optimizer"] == "sgd"
        assert ("beta2" in point) is not is_sgd


@given(free=st.integers(0, 12), given_=st.integers(0, 6), seed=SEEDS)
def test_a_point_keeps_what_it_has_and_what_it_lacks_is_spread(
    free: int, given_: int, seed: int
) -> None:
    space = searched(
        {
            "learning_rate": {"low": 0.25, "high": 16.0, "log": True},
            "momentum": {"choices": [0.0, 0.5, 0.9]},
        }
    )
    rates = [{"learning_rate": 1.0 + at} for at in range(given_)]
    whole = {"learning_rate": 4.0, "momentum": 0.9}

    found = space.spread([*rates, whole, *([{}] * free)], seed=seed)

    assert [point["learning_rate"] for point in found[:given_]] == [
        point["learning_rate"] for point in rates
    ]
    assert found[given_] == whole
    places = [
        math.log(point["learning_rate"] / 0.25) / math.log(64) for point in found[given_ + 1 :]
    ]
    assert sorted(min(int(place * free + 1e-9), free - 1) for place in places) == [*range(free)]
    times = Counter(point["momentum"] for point in [*found[:given_], *found[given_ + 1 :]])
    assert sum(times.values()) == given_ + free
    assert max(times.values(), default=0) - (min(times.values()) if len(times) == 3 else 0) <= 1


def test_of_what_some_candidates_read_their_values_are_spread() -> None:
    space = searched(
        {
            "beta2": {"low": 0.0, "high": 0.8},
            "optimizer": {"choices": ["sgd", "adam"]},
        }
    )
    given_ = {"beta2": 0.4, "optimizer": "sgd"}

    first, *others = space.spread([given_, *([{}] * 8)], seed=3)

    assert first == {"optimizer": "sgd"}
    assert sorted(int(point["beta2"] / 0.2) for point in others if "beta2" in point) == [0, 1, 2, 3]


def test_for_what_no_other_combination_has_a_large_space_is_not_walked_through() -> None:
    space = searched(
        {
            "horizontal_flip": {"choices": [True, False]},
            "augmentation_multiplicity": {"low": 1, "high": 10**9},
        }
    )
    taken = [
        {"augmentation_multiplicity": 5},
        *({"augmentation_multiplicity": 5, "horizontal_flip": flip} for flip in (True, False)),
    ]
    found = space.spread([*taken, {}], seed=0)
    assert [point["augmentation_multiplicity"] for point in found[:3]] == [5, 5, 5]
    assert found[0] in found[1:3]


def test_a_seed_is_a_draw() -> None:
    space = searched({"learning_rate": {"low": 0.25, "high": 16.0, "log": True}})
    five: list[dict[str, Any]] = [{}] * 5
    assert space.spread(five, seed=1) == space.spread(five, seed=1) != space.spread(five, seed=2)
    assert space.spread([], seed=1) == []
