"""What a worker is told of a dataset, from what ``inspect`` found."""

import dataclasses
from pathlib import Path
from typing import Any

from tan_core.data import DatasetFacts
from tan_core.wire import DatasetRef


def dataset_ref(
    facts: DatasetFacts, *, name: str = "digits", path: Path | None = None, **changes: Any
) -> DatasetRef:
    """The registered dataset of these facts; changes replace single fields."""
    known = dataclasses.asdict(facts)
    for untold in (
        "files",
        "record_digests",
        "seen_in_train",
        "repeated_in_train",
        "unread_columns",
        "num_unread_folders",
        "far_features",
        "unseen_choices",
        "unseen_classes",
        "num_validation_users",
    ):
        del known[untold]
    place = None if path is None else str(path)
    return DatasetRef.model_validate({"name": name, "path": place, **known, **changes})
