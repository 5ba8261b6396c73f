"""Convolutions whose weights are standardised before use: what stands for a norm of activations."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

_EPSILON = 1e-4


class StandardisedWeight(NamedTuple):
    """A weight as the convolution sees it before the gain, and the factor that took it there."""

    weight: Tensor
    r"""[O, I/groups, H, W]: :math:`\hat w = r (w - \bar w)` of each output channel."""
    rate: Tensor
    r"""[O]: :math:`r = 1 / \sqrt{\max(d \operatorname{Var} w, 10^{-4})}`, d the fan-in."""
    is_free: Tensor
    """[O], bool: the maximum above is the variance's, so the rate follows the weight."""


class WeightStandardisedConv2d(nn.Conv2d):
    r"""Convolution with weights of mean 0 and sum of squares 1 in each output channel.

    .. math::

        \hat w = g \, \frac{w - \bar w}{\sqrt{\max(d \operatorname{Var} w, 10^{-4})}}

    Each output channel has its own mean, variance (biased) and learned gain :math:`g`; :math:`d` is the
    fan-in. Nothing here depends on the inputs, so no example sees another.

    Args:
        in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias: as in
            ``nn.Conv2d``; inputs are padded with zeros.
        gain: whether :math:`g` is learned, from 1 on; else it is 1.

    References:
        Qiao et al. (2019), arXiv:1903.10520; Brock et al. (2021), arXiv:2101.08692, section 4.

    Example:
        >>> layer = WeightStandardisedConv2d(4, 2, 3)
        >>> [f"{x:.3f}" for x in layer.standardised().weight.square().sum((1, 2, 3)).tolist()]
        ['1.000', '1.000']
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        *,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        gain: bool = True,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
            bias=bias,
        )
        self.gain = nn.Parameter(torch.ones(out_channels)) if gain else None

    def standardised(self) -> StandardisedWeight:
        """The weight without the gain, and what the gradient of the standardisation needs."""
        axes = (1, 2, 3)
        centred = self.weight - self.weight.mean(axes, keepdim=True)
        scatter = centred.square().sum(axes, keepdim=True)  # d Var w
        rate = scatter.clamp_min(_EPSILON).rsqrt()
        return StandardisedWeight(centred * rate, rate.flatten(), scatter.flatten() >= _EPSILON)

    def forward(self, input: Tensor) -> Tensor:
        """[V, O, ...] of [V, C, ...]."""
        weight = self.standardised().weight
        if self.gain is not None:
            weight = weight * self.gain.view(-1, 1, 1, 1)
        return self._conv_forward(input, weight, self.bias)
