"""What a budget was opened for: stated in the first entry of its journal, where nobody can change it."""

from typing import Any

from service.db.tables import Dataset


def registration_of(dataset: Dataset) -> dict[str, Any]:
    """Which data, whom the budget protects, how they are split, and what searches may do with them.

    The paths of its files are not among it: a journal is handed out, and data may move.
    """
    return {
        "dataset": dataset.name,
        "source": dataset.source,
        "label": dataset.label,
        **({"classes": dataset.classes} if dataset.classes else {}),
        "features": dataset.features,
        "sha256": dataset.content_sha256,
        "unit": dataset.unit,
        "records_per_unit": dataset.records_per_unit,
        "group": dataset.group,
        "num_train": dataset.num_train,
        "num_train_records": dataset.num_train_records,
        "num_validation": dataset.num_validation,
        **_of_users(dataset),
        "num_test": dataset.num_test,
        "split_seed": dataset.split_seed,
        "allowed_modes": dataset.allowed_modes,
        "waiver": dataset.waiver,
        "overlap": dataset.overlap,
    }


def _of_users(dataset: Dataset) -> dict[str, int]:
    users = dataset.num_validation_users
    return {} if users is None else {"num_validation_users": users}
