"""What is counted of the test split, and what of it is told."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from tan_core.data import Split
from tan_core.data.part import Members
from tan_core.wire import OTHER
from worker.scores import scores_of


class Judge:
    """A trainer whose weights are right where a record says so."""

    def hits(self, inputs: np.ndarray, labels: np.ndarray) -> torch.Tensor:
        del labels
        return torch.from_numpy(inputs[:, 0] > 0)


def test_parts_of_few_users_are_told_together_however_many_records_they_have() -> None:
    """Twelve villages of one user each, of 12 records: nobody is told of by itself."""
    village = np.repeat(np.arange(12), 12)
    labels = np.tile([0, 1], 72)
    names = tuple(f"village {number}" for number in range(12))
    inputs = np.ones((144, 1), dtype=np.float32)
    split: Any = Split(
        inputs=inputs, labels=labels, users=village, groups=Members(of=village, names=names)
    )

    scores = scores_of(Judge(), split)  # pyright: ignore[reportArgumentType]

    assert [(each.name, each.num) for each in scores.groups] == [(OTHER, 144)]
    assert [(each.name, each.num) for each in scores.classes] == [("0", 72), ("1", 72)]
    few: Any = replace(split, users=village // 2)
    told = scores_of(Judge(), few)  # pyright: ignore[reportArgumentType]
    assert (told.classes, told.groups) == ([], [])  # six users in all
    whole: Any = replace(split, users=None)
    by_records = scores_of(Judge(), whole)  # pyright: ignore[reportArgumentType]
    assert len(by_records.groups) == 12


def test_classes_and_groups_of_few_records_are_told_together() -> None:
    labels = np.repeat([0, 1, 2, 3], [40, 30, 6, 5])
    names = ("a village", "left", "right")
    of = np.where(np.arange(81) < 3, 0, 1 + np.arange(81) % 2)
    inputs = np.ones((81, 1), dtype=np.float32)
    inputs[labels == 2] = -1
    split: Any = Split(inputs=inputs, labels=labels, groups=Members(of=of, names=names))

    scores = scores_of(Judge(), split)  # pyright: ignore[reportArgumentType]

    assert (scores.num, scores.correct) == (81, 75)
    assert [(each.name, each.num, each.correct) for each in scores.classes] == [
        ("0", 40, 40), ("1", 30, 30), (OTHER, 11, 5),
    ]  # fmt: skip
    named = scores_of(Judge(), split, ["cat", "dog", "eel", "fox", "gnu"])  # pyright: ignore[reportArgumentType]
    assert [each.name for each in named.classes] == ["cat", "dog", OTHER]
    [only, pooled] = scores.groups  # the village has three: the smaller hand joins it
    assert only.num + pooled.num == 81
    assert pooled.name == OTHER
    assert "village" not in scores.model_dump_json()
