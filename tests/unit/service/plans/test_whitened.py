"""A study whose features would fill the memory is refused when it is submitted, by its path."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from service.plans.checks import _model_faults
from tan_core.spec import StudySpec


def refused(shape: list[int], **options: Any) -> list[str]:
    spec = StudySpec.model_validate(
        {
            "name": "study",
            "privacy": {"epsilon": 3.0, "delta": 1e-5},
            "dataset": "photos",
            "model": {"name": "scatter-linear", **options},
            "search": {"accounting": "public_proxy", "space": {"learning_rate": 1.0}},
        }
    )
    dataset = cast("Any", SimpleNamespace(name="photos", shape=shape))
    return [fault.path for fault in _model_faults(spec, dataset)]


@pytest.mark.parametrize(
    ("shape", "paths"), [([3, 64, 64], []), ([3, 96, 96], ["model.normalization"])]
)
def test_what_is_too_large_to_whiten(shape: list[int], paths: list[str]) -> None:
    assert refused(shape, normalization="whitened") == paths
    assert refused(shape) == []
