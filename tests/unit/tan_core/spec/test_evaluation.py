"""What a study lets be told of the private model beside its accuracy."""

import pytest
from pydantic import ValidationError

from tan_core.spec import StudySpec
from tan_core.spec.study import EvaluationSpec


@pytest.mark.parametrize(
    ("asked", "of_public", "of_private"),
    [
        ({}, True, False),
        ({"by_class": True}, True, True),
        ({"by_class": False}, False, False),
        ({"baseline": True}, True, True),
    ],
)
def test_classes_are_told_of_public_data_or_where_that_is_declared(
    asked: dict, of_public: bool, of_private: bool
) -> None:
    spec = EvaluationSpec.model_validate(asked)

    assert spec.is_by_class(is_public=True) is of_public
    assert spec.is_by_class(is_public=False) is of_private


def test_a_baseline_without_classes_is_refused_by_path() -> None:
    study = {
        "name": "one",
        "privacy": {"epsilon": 3.0, "delta": 1e-5},
        "dataset": "digits",
        "model": {"name": "linear"},
        "search": {"accounting": "declared_unaccounted", "space": {"learning_rate": {"low": 1.0, "high": 2.0}}},
        "evaluation": {"baseline": True, "by_class": False},
    }  # fmt: skip

    with pytest.raises(ValidationError) as error:
        StudySpec.model_validate(study)

    assert [fault["loc"] for fault in error.value.errors()] == [("evaluation", "by_class")]
