"""Points that a search tries first: values of its space, each point once."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tan_core.spec import StudySpec, field_problems
from tan_core.spec.first import varied, written

SPACE: dict[str, Any] = {
    "learning_rate": {"low": 0.25, "high": 16.0, "log": True},
    "optimizer": {"choices": ["sgd", "adam"]},
    "beta2": {"low": 0.9, "high": 0.99},
    "augmentation_multiplicity": {"low": 1, "high": 4},
    "ema_decay": 0.5,
    "clip_norm": {"choices": [0.25]},
}


def study(*first: Any, space: dict[str, Any] = SPACE, **search: Any) -> StudySpec:
    given = {"accounting": "public_proxy", "dataset": "open", "trials": 3, "space": space}
    return StudySpec.model_validate(
        {
            "name": "study",
            "privacy": {"epsilon": 3.0, "delta": 1e-5},
            "dataset": "digits",
            "model": {"name": "mlp"},
            "search": {**given, "first": [*first], **search},
        }
    )


def problems(*first: Any, **search: Any) -> list[tuple[str, str, object]]:
    with pytest.raises(ValidationError) as refused:
        study(*first, **search)
    return [(each.path, each.message, each.value) for each in field_problems(refused.value, StudySpec)]  # fmt: skip


def test_a_search_has_none_unless_it_says_so() -> None:
    assert study().search.first == []


POINTS = st.fixed_dictionaries(
    {},
    optional={
        "learning_rate": st.floats(0.25, 16.0) | st.integers(1, 16),
        "optimizer": st.sampled_from(["sgd", "adam"]),
        "augmentation_multiplicity": st.integers(1, 4),
        "ema_decay": st.just(0.5),
    },
).filter(bool)


@given(points=st.lists(POINTS, max_size=3, unique_by=lambda point: str(varied(point, study().search.space))))  # fmt: skip
def test_whatever_is_in_the_space_is_taken_as_it_is(points: list[dict[str, Any]]) -> None:
    made = study(*points)

    assert made.search.first == points
    assert StudySpec.model_validate_json(made.model_dump_json()) == made
    rates = [written(point, made.search.space).get("learning_rate") for point in points]
    assert all(rate is None or type(rate) is float for rate in rates)


@pytest.mark.parametrize(
    ("point", "path", "message"),
    [
        ({"learning_rate": 16.5}, "learning_rate", "outside search.space.learning_rate; accepted: numbers from 0.25 to 16.0"),
        ({"learning_rate": "4"}, "learning_rate", "accepted: numbers from 0.25 to 16.0"),
        ({"learning_rate": True}, "learning_rate", "accepted: numbers from 0.25 to 16.0"),
        ({"augmentation_multiplicity": 1.5}, "augmentation_multiplicity", "accepted: whole numbers from 1 to 4"),
        ({"optimizer": "lamb"}, "optimizer", 'accepted: "sgd", "adam"'),
        ({"ema_decay": 0.9}, "ema_decay", "accepted: 0.5"),
        ({"rate": 4.0}, "rate", "not a key of search.space; accepted: learning_rate, optimizer, "),
        ({"train.learning_rate": 4.0}, "train.learning_rate", "not a key of search.space"),
        ({"optimizer": "sgd", "beta2": 0.95}, "beta2", "has no effect: optimizer must be adam or adamw, got sgd"),
        ({"beta2": 0.95}, "beta2", "is read for some optimizer only: give it too, adam or adamw"),
        ({"learning_rate": None}, "learning_rate", "a number, a text or true/false, got null"),
        ({"learning_rate": [4.0]}, "learning_rate", "a number, a text or true/false"),
    ],
)  # fmt: skip
def test_what_is_not_is_told_by_its_place(point: dict[str, Any], path: str, message: str) -> None:
    ((found, said, value),) = problems({"learning_rate": 1.0}, point)

    assert found == f"search.first.1.{path}"
    assert message in said
    assert value == (str(point[path]) if isinstance(point[path], list) else point[path])


def test_what_a_key_depends_on_is_given_beside_it_or_fixed() -> None:
    point = {"beta2": 0.95, "optimizer": "adam"}
    assert study(point).search.first == [point]
    assert study({"beta2": 0.95}, space={**SPACE, "optimizer": "adam"}).search.first


@pytest.mark.parametrize(
    "again",
    [
        {"learning_rate": 4},
        {"learning_rate": 4.0, "ema_decay": 0.5},
        {"learning_rate": 4.0, "clip_norm": 0.25},
    ],
)
def test_a_point_is_tried_once(again: dict[str, Any]) -> None:
    ((path, message, _),) = problems({"optimizer": "sgd"}, {"learning_rate": 4.0}, again)

    assert path == "search.first.2"
    assert message == "the same point as search.first.1; each is tried once"


def test_there_are_no_more_of_them_than_trials() -> None:
    points = [{"learning_rate": float(rate)} for rate in range(1, 5)]

    ((path, message, value),) = problems(*points)

    assert (path, value) == ("search.first", 4)
    assert "search.trials is 3; got 4 points" in message
    assert study(*points, trials=4).search.trials == 4


@pytest.mark.parametrize(
    ("first", "path"), [({}, "search.first"), ([{}], "search.first.0"), ([4], "search.first.0")]
)
def test_what_is_no_list_of_points_is_refused(first: Any, path: str) -> None:
    assert [found for found, *_ in problems(first=first)] == [path]


def test_of_a_space_that_is_refused_itself_all_is_told() -> None:
    found = problems({"learning_rate": 99.0}, space={**SPACE, "wdth": 8})

    assert {path for path, *_ in found} == {"search.first.0.learning_rate", "search.space.wdth"}
