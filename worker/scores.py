"""How a model does on the test split, by class and by group: counts of many records, and nothing of few."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tan_core.data import Split
from tan_core.engine import Trainer
from tan_core.wire import Scores, Tally


def scores_of(trainer: Trainer, test: Split) -> Scores:
    """Of the weights that a trainer releases. Small classes and groups are told of together, by ``Scores``."""
    hits = trainer.hits(test.inputs, test.labels).numpy()
    names = [str(label) for label in range(int(test.labels.max()) + 1)]
    groups = test.groups
    return Scores(
        num=len(hits),
        correct=int(hits.sum()),
        classes=_tallies(hits, test.labels, names),
        groups=[] if groups is None else _tallies(hits, groups.of, groups.names),
    )


def _tallies(hits: NDArray[Any], of: NDArray[np.int64], names: Sequence[str]) -> list[Tally]:
    """Of each part that has a record, by its number."""
    nums = np.bincount(of, minlength=len(names)).tolist()
    corrects = np.bincount(of[hits], minlength=len(names)).tolist()
    return [
        Tally(name=name, num=num, correct=correct)
        for name, num, correct in zip(names, nums, corrects, strict=True)
        if num
    ]
