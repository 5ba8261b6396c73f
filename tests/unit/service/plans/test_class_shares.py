"""Shares of classes that do not fit the data of a study, told by their path when it is submitted."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from service.plans.checks import _class_faults
from tan_core.spec import StudySpec


def dataset(unit: str = "record", num_classes: int = 2) -> Any:
    return cast("Any", SimpleNamespace(name="fraud", unit=unit, num_classes=num_classes))


def told(shares: list[float] | None, private: Any, search: Any = None) -> list[str]:
    spec = StudySpec.model_validate(
        {
            "name": "study",
            "privacy": {"epsilon": 3.0, "delta": 1e-5},
            "dataset": "fraud",
            "model": {"name": "linear"},
            "search": {"accounting": "public_proxy", "space": {"learning_rate": 1.0}},
            "train": {"class_shares": shares},
        }
    )
    return [fault.message for fault in _class_faults(spec, private, search or private)]


def test_one_for_each_class() -> None:
    (message,) = told([98, 1, 1], dataset())
    assert message.startswith("'fraud' has 2 classes")
    assert told([98, 2], dataset()) == []
    assert told(None, dataset(num_classes=3)) == []


@pytest.mark.parametrize("units", [("user", "record"), ("record", "user")])
def test_records_are_the_units_wherever_is_trained(units) -> None:
    (message,) = told([98, 2], *map(dataset, units))
    assert "is for a user" in message
