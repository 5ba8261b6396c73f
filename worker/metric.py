"""What a model's hits on a split come to, by what a study is scored by."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tan_core.planner import Counted
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


def drawn_like(labels: Tensor, metric: Metric) -> float:
    """How many records an accuracy would need to be drawn as loudly as the score of records with these labels.

    Example:
        >>> labels = torch.tensor([0] * 98 + [1] * 2)
        >>> drawn_like(labels, Metric.ACCURACY), round(drawn_like(labels, Metric.BALANCED_ACCURACY), 2)
        (100.0, 7.84)
    """
    of_each = torch.bincount(labels)
    return float(Counted.by(len(labels), metric, of_each[of_each > 0].tolist()).effective)


def some_of(labels: Tensor, metric: Metric, *, at_most: int) -> Tensor | slice:
    """Which records stand for a split: some drawn of all, or, where classes count alike, of each class.

    The same ones at each call. The first ones of all would be of one class where records are stored by class, as those of class
    folders are, and of no rare one: a model that names no other class would be the best.

    Example:
        >>> some_of(torch.tensor([0, 0, 0, 0, 1, 1]), Metric.BALANCED_ACCURACY, at_most=4)
        tensor([2, 3, 4, 5])
    """
    if len(labels) <= at_most:
        return slice(at_most)
    drawn = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    if metric is Metric.ACCURACY:
        return drawn[:at_most].sort().values
    by_class, of_each = drawn[labels[drawn].argsort(stable=True)], torch.bincount(labels)
    ranks = torch.empty_like(by_class)
    ranks[by_class] = torch.arange(len(labels)) - (of_each.cumsum(0) - of_each)[labels[by_class]]
    return ranks.argsort(stable=True)[:at_most].sort().values


def alike(labels: Tensor, class_shares: Sequence[float] | None, metric: Metric) -> Tensor | None:
    """What a hit on each record counts, [N] in (0, 1], where one that counts more must not be looked up in the records.

    A record of the rarest class by the stated shares counts one. None: each counts one, of whatever class.
    """
    if metric is Metric.ACCURACY or class_shares is None:
        return None
    shares_O = torch.tensor(class_shares, dtype=torch.float64)
    return (shares_O.min() / shares_O)[labels]
