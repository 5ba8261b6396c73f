"""Views of records: a table has none, and what is mirrored around an image must be in it."""

from typing import Any

import pytest

from service.db.tables import Dataset
from service.plans.checks import faults
from tan_core.spec import StudySpec
from tests.fixtures.api import make_spec


def told(shape: list[int], *, space: dict[str, Any] | None = None, **train: Any) -> list[str]:
    row = Dataset(
        name="data", shape=shape, num_classes=10, num_train=1000, unit="record", path=None, public=False,
        allowed_modes=["declared_unaccounted"], waiver="me: mine", approval="automatic",
    )  # fmt: skip
    asked = make_spec(train=train)
    asked["search"]["space"] |= space or {}
    return [fault.path for fault in faults(StudySpec.model_validate(asked), row, row, None)]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("augmentation_multiplicity", 2),
        ("crop_padding", 1),
        ("horizontal_flip", True),
        ("color_jitter", 0.1),
    ],
)
def test_a_table_is_not_augmented_in_any_way(field: str, value: Any) -> None:
    assert told([5], **{field: value}) == [f"train.{field}"]
    searched = {f"train.{field}": {"choices": [value]}}
    assert told([5], space=searched) == [f"search.space.train.{field}.choices.0"]
    assert told([3, 8, 8], **{field: value}) == told([3, 8, 8], space=searched) == []


def test_a_crop_is_padded_by_less_than_the_side_of_the_image() -> None:
    assert told([3, 8, 12], crop_padding=8) == ["train.crop_padding"]
    assert told([3, 8, 12], crop_padding=7) == told([3, 8, 12], crop_padding="auto") == []
    space = {"crop_padding": {"low": 0, "high": 8}}
    assert told([3, 8, 12], space=space) == ["search.space.crop_padding.high"]
