"""What the owner of a dataset without a waiver is told: only what can be done about it."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from service.plans.checks import _mode_faults
from tan_core.spec import StudySpec

SPEC = StudySpec.model_validate(
    {
        "name": "study",
        "privacy": {"epsilon": 3.0, "delta": 1e-5},
        "dataset": "data",
        "model": {"name": "linear"},
        "search": {"accounting": "declared_unaccounted", "space": {"learning_rate": 1.0}},
    }
)


@pytest.mark.parametrize(
    ("public", "allowed", "way_out"),
    [
        (
            False,
            ["public_proxy"],
            "public_proxy, with search.dataset: a public dataset of the same shape and classes; or no_search",
        ),
        (True, ["public_proxy"], "public_proxy; or no_search"),
        (False, ["accounted"], "accounted, where each trial is charged; or no_search"),
        (False, [], "no_search"),
    ],
)
def test_the_way_out_is_one_that_the_dataset_allows(
    public: bool, allowed: list[str], way_out: str
) -> None:
    dataset = cast(
        "Any",
        SimpleNamespace(
            name="data", public=public, allowed_modes=allowed, waiver=None, unit="record"
        ),
    )

    (fault,) = _mode_faults(SPEC, dataset, dataset)

    assert fault.path == "search.accounting"
    told = (
        f"none can be given later; accepted here: {way_out}, with hyper-parameters that are given"
    )
    assert fault.message.endswith(told)
