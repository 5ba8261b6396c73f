"""A list of studies as a table for spreadsheets and scripts: the page's CSV and that of ``tan-cli list``."""

from collections.abc import Mapping
from typing import Any

COLUMNS = (
    *("id", "name", "state", "reason", "tenant", "dataset", "model", "tags", "archived"),
    *("target_epsilon", "epsilon", "delta", "accountant", "neighboring_relation", "search_note"),
    *("restored_note", "metric"),
    *("best_accuracy", "predicted_accuracy", "predicted_low", "predicted_high", "test_accuracy"),
    *("created_at", "started_at", "finished_at"),
)
"""Fields of a summary. No epsilon goes out without what it means nothing without."""


def row(summary: Mapping[str, Any]) -> list[Any]:
    """One study, as JSON has it; its tags in one cell.

    Example:
        >>> row({name: 1 for name in COLUMNS} | {"tags": ["paper", "fig:2"]})[5:9]
        [1, 1, 'paper fig:2', 1]
    """
    return [" ".join(summary[name]) if name == "tags" else summary.get(name) for name in COLUMNS]
