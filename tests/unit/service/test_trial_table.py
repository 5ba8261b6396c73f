"""One row a trial, flat, and the same for the command line, the page and the Python client."""

from typing import Any

import pytest

from service.trial_table import AFTER, BEFORE, columns, rows
from tan_core.spec import MODEL_TYPES, TrainerConfig
from tan_core.spec.fields import model_options


def score(rung: int, accuracy: float | None, **changes: Any) -> dict[str, Any]:
    made = {"rung": rung, "seed": 0, "expected_batch_size": 8.0 * 4**rung, "seconds": 1.5}
    return {**made, "accuracy": accuracy, **changes}


def trial(number: int, *scores: dict[str, Any], **changes: Any) -> dict[str, Any]:
    made = {"number": number, "state": "completed", "value": None, "params": {}, "repeats": []}
    return {**made, "scores": scores, "source": None, "reason": None, **changes}


def test_every_row_has_every_column_in_order_and_none_where_a_trial_has_no_such_thing() -> None:
    trials = [
        trial(0, score(0, 0.5), params={"momentum": 0.9}),
        trial(1, score(0, 0.5), score(1, 0.25), params={"optimizer": "adam", "momentum": 0.5}),
    ]
    made = rows(trials)
    middle = ["momentum", "optimizer", "accuracy_rung_0", "accuracy_rung_1"]
    assert [list(row) for row in made] == [[*BEFORE, *middle, *AFTER]] * 2
    assert columns(trials) == list(made[0])
    assert [made[0][name] for name in middle] == [0.9, None, 0.5, None]
    assert [made[1][name] for name in middle] == [0.5, "adam", 0.5, 0.25]


def test_a_value_stands_beside_the_batch_that_it_is_of() -> None:
    made = rows([trial(0, score(0, 0.9), score(1, 0.5), value=0.5), trial(1, state="running")])
    assert [(row["value"], row["expected_batch_size"]) for row in made] == [
        (0.5, 32.0),
        (None, None),
    ]


def test_an_accuracy_within_a_heat_is_not_one_at_the_end_of_a_rung() -> None:
    (row,) = rows([trial(0, score(0, 0.7, heat=True, expected_batch_size=32.0), value=0.7)])
    assert (row["value"], row["expected_batch_size"], row["accuracy_rung_0"]) == (0.7, 32.0, None)


def test_seconds_are_of_all_simulations_and_seeds_are_counted_once() -> None:
    repeats = [score(0, 0.5, seed=1), score(1, 0.5, seed=1), score(0, 0.5, seed=2)]
    (row,) = rows([trial(0, score(0, 0.5), repeats=repeats)])
    assert (row["fresh_seeds"], row["seconds"]) == (2, 6.0)


def test_one_that_went_on_says_from_which_and_at_which_learning_rate() -> None:
    start = {"trial": 3, "learning_rate_factor": 0.5}
    (row,) = rows([trial(4, began_from=start)])
    assert (row["goes_on_from"], row["learning_rate_factor"]) == (3, 0.5)


def test_without_trials_there_are_columns_still() -> None:
    assert columns([]) == [*BEFORE, *AFTER]
    assert rows([]) == []


@pytest.mark.parametrize("name", sorted(MODEL_TYPES))
def test_no_parameter_has_the_name_of_a_column(name: str) -> None:
    searched = {*TrainerConfig.model_fields, "steps", *model_options(MODEL_TYPES[name])}
    assert searched.isdisjoint((*BEFORE, *AFTER))
