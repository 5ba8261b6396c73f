"""A learned factor: what stands for a normalisation at the end of a residual branch."""

import torch
from torch import Tensor, nn


class Gain(nn.Module):
    """Inputs times one learned factor, or one per channel.

    At the end of a residual branch and started at 0 it is SkipInit: the block starts as the identity
    and needs no normalisation, so no statistic of an example has to be kept.

    Args:
        channels: size of the second dimension, one factor each; ``None`` for a single factor.
        initial: value of every factor before training.

    References:
        De and Smith (2020), arXiv:2002.10444, section 3.

    Example:
        >>> Gain(initial=0.5)(torch.tensor([[4.0]])).tolist()
        [[2.0]]
    """

    def __init__(self, channels: int | None = None, *, initial: float = 1.0) -> None:
        super().__init__()
        self.channels = channels
        self.initial = initial
        shape = () if channels is None else (channels,)
        self.weight = nn.Parameter(torch.full(shape, initial))

    def forward(self, x: Tensor) -> Tensor:
        """The scaled inputs, [V, C, ...]."""
        return x * self.weight.view(-1, *[1] * (x.dim() - 2)) if self.channels else x * self.weight
