"""What a search driver is told, with everything that a test is not about filled in."""

from typing import Any

from tan_core.mechanism import Mechanism
from tan_core.wire import DatasetRef, SearchAssignment


def search_assignment(
    dataset: DatasetRef, *, mechanism: Mechanism, search: dict[str, Any], **changes: Any
) -> SearchAssignment:
    """A first attempt on the dataset; changes replace fields of the assignment."""
    return SearchAssignment.model_validate(
        {
            "run_id": "s-search",
            "study_id": "s",
            "study_name": dataset.name,
            "attempt": 1,
            "fence": 1,
            "search": {"accounting": "declared_unaccounted", **search},
            "model": {"name": "linear"},
            "trainer": {},
            "reference": {"event": mechanism.to_json()},
            "target": None,
            "num_examples": dataset.num_train,
            "rungs": [32],
            "max_examples": 0,
            "dataset": dataset,
            "trials": [],
            **changes,
        }
    )
