"""What a model's hits on a split come to, by what a study is scored by."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tan_core.spec.study import Metric


def score_of(hits: Tensor, labels: Tensor, metric: Metric) -> float:
    """In [0, 1]; classes without a record do not count.

    Args:
        hits: [N], bool: which records are told right; N >= 1.
        labels: [N], int64.
        metric: of the study.

    Example:
        >>> hits, labels = torch.tensor([True, True, True, False]), torch.tensor([0, 0, 0, 1])
        >>> score_of(hits, labels, Metric.ACCURACY), score_of(hits, labels, Metric.BALANCED_ACCURACY)
        (0.75, 0.5)
    """
    if metric is Metric.ACCURACY:
        return int(hits.sum()) / len(hits)
    of_each = torch.bincount(labels).double()
    right = torch.bincount(labels[hits], minlength=len(of_each)).double()
    is_there = of_each > 0
    return float((right[is_there] / of_each[is_there]).mean())


def alike(labels: Tensor, class_shares: Sequence[float] | None, metric: Metric) -> Tensor | None:
    """What a hit on each record counts, [N] in (0, 1], where one that counts more must not be looked up in the records.

    A record of the rarest class by the stated shares counts one. None: each counts one, of whatever class.
    """
    if metric is Metric.ACCURACY or class_shares is None:
        return None
    shares_O = torch.tensor(class_shares, dtype=torch.float64)
    return (shares_O.min() / shares_O)[labels]
