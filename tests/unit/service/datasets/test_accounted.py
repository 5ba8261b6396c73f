"""Which data allow a search that is charged."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import ValidationError

from service.datasets.schemas import DatasetRegistration
from service.plans.checks import _mode_faults
from tan_core.spec import StudySpec

PRIVATE = {"name": "data", "path": "/data", "epsilon": 10.0, "delta": 1e-4}
SPEC = StudySpec.model_validate(
    {
        "name": "study",
        "privacy": {"epsilon": 3.0, "delta": 1e-5},
        "dataset": "data",
        "model": {"name": "linear"},
        "search": {"accounting": "accounted", "space": {"learning_rate": 1.0}},
    }
)


@pytest.mark.parametrize(
    ("changes", "modes"),
    [
        ({}, ["public_proxy", "accounted"]),
        ({"waiver": "owner: why"}, ["public_proxy", "accounted", "declared_unaccounted"]),
        ({"unit": "patient"}, ["public_proxy", "accounted"]),
        ({"public": True, "epsilon": None, "delta": None}, ["public_proxy"]),
        ({"allow": ["public_proxy"]}, ["public_proxy"]),
        ({"allow": ["accounted"]}, ["accounted"]),
    ],
)
def test_private_data_allow_it_unless_their_owner_says_otherwise(
    changes: dict[str, Any], modes: list[str]
) -> None:
    assert DatasetRegistration.model_validate({**PRIVATE, **changes}).allowed_modes() == modes


def test_of_public_data_it_is_refused() -> None:
    public = {**PRIVATE, "public": True, "epsilon": None, "delta": None}
    with pytest.raises(ValidationError, match="on public data is free") as refused:
        DatasetRegistration.model_validate({**public, "allow": ["accounted"]})
    assert refused.value.errors()[0]["loc"] == ("allow",)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"allowed_modes": ["public_proxy"]}, "does not allow accounted"),
        ({"public": True}, "on public data is free"),
        ({"unit": "patient"}, None),
    ],
)
def test_a_study_is_told_why_not(changes: dict[str, Any], words: str | None) -> None:
    row = {"name": "data", "public": False, "unit": "record", "waiver": None, "allowed_modes": ["accounted"], **changes}  # fmt: skip
    dataset = cast("Any", SimpleNamespace(**row))

    told = [fault.message for fault in _mode_faults(SPEC, dataset, dataset)]

    assert len(told) == (words is not None)
    assert words is None or words in told[0]
