"""How a model does on the test split, by class and by group: counts of many records, and nothing of few."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tan_core.data import Split
from tan_core.engine import Trainer
from tan_core.wire import Scores, Tally, pool_small


def scores_of(trainer: Trainer, test: Split, class_names: Sequence[str] | None = None) -> Scores:
    """Of the weights that a trainer releases. Small classes and groups are told of together: those of few users
    here, where it is known whose a record is; those of few records by ``Scores``, whoever counted them.

    Args:
        trainer: holds the weights.
        test: what they are scored on.
        class_names: by label, each another one; None: classes are called by their numbers.
    """
    hits = trainer.hits(test.inputs, test.labels).numpy()
    num_told = int(test.labels.max()) + 1
    names = [*map(str, range(num_told))] if class_names is None else class_names[:num_told]
    groups = test.groups
    return Scores(
        num=len(hits),
        correct=int(hits.sum()),
        classes=_tallies(hits, test.labels, names, test.users),
        groups=[] if groups is None else _tallies(hits, groups.of, groups.names, test.users),
    )


def _tallies(
    hits: NDArray[Any],
    of: NDArray[np.int64],
    names: Sequence[str],
    users: NDArray[np.int64] | None,
) -> list[Tally]:
    """Of each part that has a record, by its number; and of enough users, where they are known."""
    nums = np.bincount(of, minlength=len(names)).tolist()
    corrects = np.bincount(of[hits], minlength=len(names)).tolist()
    told = [
        Tally(name=name, num=num, correct=correct)
        for name, num, correct in zip(names, nums, corrects, strict=True)
        if num
    ]
    return told if users is None else pool_small(told, _users_of_each(of, users))


def _users_of_each(of: NDArray[np.int64], users: NDArray[np.int64]) -> list[frozenset[int]]:
    """Whose records each part has, by its number, of the parts that have any."""
    pairs = np.unique(np.stack([of, users]), axis=1)
    starts = np.unique(pairs[0], return_index=True)[1]
    return [frozenset(own.tolist()) for own in np.split(pairs[1], starts[1:])]
