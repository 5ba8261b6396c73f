"""What each example's gradient is multiplied by before the sum, as a function of its norm.

A rule w bounds the sensitivity by C if w(n) n <= C for every norm n; all but :func:`no_clipping` do.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from tan_core.spec.train import Clipping, TrainerConfig

ClippingRule = Callable[[Tensor, float | Tensor], Tensor]
"""Norms [B], all finite, and C > 0 -> weights [B]; or [B, T] and [T], of T trials."""


def clipping_rule(config: TrainerConfig) -> ClippingRule:
    """The rule that a trainer's configuration asks for."""
    match config.clipping:
        case Clipping.PER_EXAMPLE:
            return per_example_clipping
        case Clipping.AUTOMATIC:
            return partial(automatic_clipping, stability=config.clipping_stability)
        case Clipping.NONE:
            return no_clipping


def class_weights(config: TrainerConfig) -> Tensor | None:
    r"""What the clipped gradient of a record is multiplied by, for its label: [O] in (0, 1]; None: by 1.

    :math:`(\min_k s_k / s_y)^b` with the stated shares :math:`s` and the balance :math:`b`. Above 1 it would be no longer
    bounded by C. A weight of the loss would come before the clip, which takes back what it makes longer: that hardly balances
    where most gradients are clipped.

    Example:
        >>> class_weights(TrainerConfig(class_shares=[98, 2], class_balance=0.5))
        tensor([0.1429, 1.0000], dtype=torch.float64)
    """
    if config.class_shares is None:
        return None
    shares_O = torch.tensor(config.class_shares, dtype=torch.float64)
    return (shares_O.min() / shares_O) ** config.class_balance


def per_example_clipping(norms_B: Tensor, clip_norm: float | Tensor) -> Tensor:
    r"""Weights :math:`\min(1, C / n)`: gradients within C stay as they are.

    References:
        Abadi et al. (2016), algorithm 1.
    """
    return (clip_norm / norms_B).clamp_max(1)  # C / 0 is infinite


def automatic_clipping(norms_B: Tensor, clip_norm: float | Tensor, *, stability: float) -> Tensor:
    r"""Weights :math:`C / (n + \gamma)`: every gradient is normalised, to a norm below C.

    Args:
        norms_B: n >= 0, finite.
        clip_norm: C > 0.
        stability: :math:`\gamma > 0`, in units of a norm; what is far below it stays small.

    References:
        Bu, Wang, Zha and Karypis (2023), "Automatic clipping", section 4.
    """
    return clip_norm / (norms_B + stability)


def no_clipping(norms_B: Tensor, clip_norm: float | Tensor) -> Tensor:
    """Weights 1: noisy SGD, which bounds nothing and has no epsilon. For simulations only."""
    del clip_norm
    return torch.ones_like(norms_B)
