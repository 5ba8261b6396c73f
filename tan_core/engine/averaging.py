"""The average of the weights over a run."""

from torch import Tensor


def average(mean: Tensor, parameters: Tensor, *, decay: float, step: int) -> None:
    """Move ``mean`` in place by min(decay, (1 + t) / (10 + t)): early weights are soon forgotten.

    Args:
        mean: of the weights so far.
        parameters: after step t.
        decay: in (0, 1), at which it settles.
        step: t, steps before this one.
    """
    mean.lerp_(parameters, 1 - min(decay, (1 + step) / (10 + step)))
