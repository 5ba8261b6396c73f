"""Spaces of finitely many candidates: each combination that differs, once, and as a sampler of a study."""

from itertools import islice, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tan_core.spec import SearchSpec, StudySpec, TrainerConfig, field_problems
from tan_core.spec.conditions import Conditions
from tan_core.spec.grid import Grid
from tan_core.spec.models import MlpModel
from tan_core.spec.space import values_of

DIMENSIONS: dict[str, st.SearchStrategy[Any]] = {
    "optimizer": st.sampled_from(["adam", {"choices": ["sgd", "adam"]}, {"choices": ["sgd", "adam", "adamw"]}]),
    "beta2": st.sampled_from([0.9, {"choices": [0.9, 0.95, 0.9]}]),
    "momentum": st.sampled_from([0.0, {"choices": [0.0, 0.5, 0.9]}]),
    "dampening": st.just({"choices": [0.0, 0.5]}),
    "beta1": st.just({"choices": [0.8, 0.9]}),
    "augmentation_multiplicity": st.integers(2, 4).map(lambda high: {"low": 1, "high": high}),
    "clipping": st.just({"choices": ["per_example", "automatic"]}),
    "clipping_stability": st.just({"choices": [0.01, 0.1]}),
}  # fmt: skip
SPACES = st.fixed_dictionaries({}, optional=DIMENSIONS).filter(bool)


def grid_of(space: dict[str, Any]) -> tuple[Grid, SearchSpec, Conditions]:
    search = SearchSpec.model_validate({"accounting": "accounted", "space": space})
    conditions = Conditions(search.space, TrainerConfig(), MlpModel())
    grid = Grid.of(search.space, conditions)
    assert grid is not None
    return grid, search, conditions


def listed(search: SearchSpec, conditions: Conditions) -> set[frozenset[tuple[str, Any]]]:
    """By brute force: of all combinations what is read of them."""
    values = [values_of(search.space[key]) or () for key in conditions.keys]
    found: set[frozenset[tuple[str, Any]]] = set()
    for combination in product(*values):
        chosen: dict[str, Any] = {}
        for key, value in zip(conditions.keys, combination, strict=True):
            if conditions.is_read(key, chosen):
                chosen[key] = value
        found.add(frozenset(chosen.items()))
    return found


@given(space=SPACES, seed=st.integers(0, 2**32 - 1))
def test_each_combination_that_differs_is_there_once(space: dict[str, Any], seed: int) -> None:
    grid, search, conditions = grid_of(space)

    in_order = [frozenset(grid.at(place).items()) for place in range(grid.size)]
    shuffled = [frozenset(each.items()) for each in grid.shuffled(seed=seed)]

    assert len(in_order) == len({*in_order}) == len(shuffled)
    assert {*in_order} == {*shuffled} == listed(search, conditions)
    assert shuffled == [frozenset(each.items()) for each in grid.shuffled(seed=seed)]


def test_what_is_not_read_makes_no_other_combination() -> None:
    grid, *_ = grid_of(
        {
            "beta2": {"choices": [0.9, 0.95, 0.99]},
            "optimizer": {"choices": ["sgd", "adam"]},
            "learning_rate": {"choices": [1, 2]},
        }
    )
    assert grid.size == 2 * (1 + 3)


def test_orders_of_a_seed_begin_anywhere() -> None:
    grid, *_ = grid_of({"augmentation_multiplicity": {"low": 1, "high": 1000}})
    firsts = [next(grid.shuffled(seed=seed))["augmentation_multiplicity"] for seed in range(200)]
    assert len({*firsts}) > 150
    assert {int(each) // 251 for each in firsts} == {0, 1, 2, 3}


def test_more_combinations_than_can_be_listed_are_counted_and_drawn() -> None:
    keys = ("learning_rate", "momentum", "weight_decay", "ema_decay", "clip_norm", "color_jitter")
    many = {"choices": [place / 1000 for place in range(1000)]}
    grid, *_ = grid_of({**dict.fromkeys(keys, many), "steps": {"low": 1, "high": 10**7}})

    first = list(islice(grid.shuffled(seed=1), 100))

    assert grid.size == 10**25
    assert len({frozenset(each.items()) for each in first}) == 100
    assert grid.at(grid.size - 1)["steps"] == 10**7


def study(**search: Any) -> StudySpec:
    space = {"learning_rate": {"choices": [1.0, 2.0, 4.0]}, "ema_decay": {"choices": [0.0, 0.9]}}
    given = {"accounting": "declared_unaccounted", "sampler": "grid", "trials": 6, "space": space}
    train = search.pop("train", {})
    return StudySpec.model_validate(
        {
            "name": "study",
            "privacy": {"epsilon": 3.0, "delta": 1e-5},
            "dataset": "digits",
            "model": {"name": "mlp"},
            "train": train,
            "search": {**given, **search},
        }
    )


def problems(**search: Any) -> list[tuple[str, str]]:
    with pytest.raises(ValidationError) as refused:
        study(**search)
    return [(each.path, each.message) for each in field_problems(refused.value, StudySpec)]


@pytest.mark.parametrize("trials", [1, 6])
def test_a_study_may_try_each_or_some(trials: int) -> None:
    assert study(trials=trials).search.trials == trials


def test_one_that_has_more_trials_is_told_how_many_it_may_have() -> None:
    ((path, message),) = problems(trials=7)

    assert path == "search.trials"
    assert message == "search.space has 6 combinations, and a grid tries each once; accepted: 1 to 6, got 7"  # fmt: skip


@pytest.mark.parametrize(
    ("dimension", "few"),
    [
        ({"low": 0.25, "high": 16.0, "log": True}, "[0.25, 2.0, 16.0]"),
        ({"low": 1, "high": 2.0}, "[1, 1.5, 2.0]"),
        ({"low": 1.00001, "high": 1.00002}, "[1.00001, 1.00002]"),
    ],
)
def test_a_range_without_end_is_told_what_to_write(dimension: dict[str, Any], few: str) -> None:
    space = {"momentum": {"choices": [0.0, 0.9]}, "learning_rate": dimension}

    ((path, message),) = problems(space=space)

    assert path == "search.space.learning_rate"
    assert f"write choices: {few}" in message


def test_trials_that_go_on_from_others_need_no_combination_of_their_own() -> None:
    accounted = {"accounting": "accounted", "rungs": [32], "trials": 8}

    assert study(**accounted).search.trials == 8
    ((path, _),) = problems(**accounted, train={"begin_from": "scratch"})
    assert path == "search.trials"
