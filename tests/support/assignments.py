"""What a search driver is told, with everything that a test is not about filled in."""

from typing import Any

from tan_core.mechanism import Mechanism
from tan_core.wire import DatasetRef, PrivateAssignment, SearchAssignment

DIGITS = DatasetRef(
    name="digits",
    source="digits",
    content_sha256="0" * 64,
    num_classes=10,
    shape=[1, 8, 8],
    num_train=10_000,
    num_validation=300,
    num_test=300,
)


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


def private_assignment(dataset: DatasetRef, **changes: Any) -> PrivateAssignment:
    """A first attempt on the dataset by one rank; changes replace fields of the assignment."""
    mechanism = Mechanism(sampling_rate=0.2, noise_multiplier=1.0, clip_norm=1.0, steps=2)
    return PrivateAssignment.model_validate(
        {
            "run_id": "s-private",
            "study_id": "s",
            "study_name": dataset.name,
            "attempt": 1,
            "fence": 1,
            "mechanism": {"event": mechanism.to_json()},
            "num_examples": dataset.num_train,
            "model": {"name": "linear"},
            "trainer": {},
            "workers": 1,
            "microbatch_size": 256,
            "segment_steps": 2,
            "dataset": dataset,
            "checkpoint": None,
            "storage_path": "/nowhere",
            **changes,
        }
    )
