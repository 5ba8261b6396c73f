"""Batch normalisation by numbers that a checkpoint holds: no example is normalised by another one."""

from typing import Any

import torch
from torch import Tensor, nn


class FrozenBatchNorm(nn.Module):
    """What batch normalisation computes when a network is used: an affine map of each channel.

    Mean and variance are buffers that nothing writes to but a checkpoint. Scale and shift can be trained.
    All have the names that they have in a batch normalisation.

    Formal guarantees:

    * Example i of the output depends on example i of the input and on nothing else.

    Args:
        layer: whose place it takes: any batch normalisation of torch that keeps running statistics.
            It shares their memory, and the scale and the shift.
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.num_features: int = layer.num_features
        self.eps: float = layer.eps
        self.register_parameter("weight", layer.weight)
        self.register_parameter("bias", layer.bias)
        self.register_buffer("running_mean", layer.running_mean)
        self.register_buffer("running_var", layer.running_var)
        self.train(layer.training)

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, ...] -> the same shape."""
        return self._computed(x, self.weight, self.bias)

    def normalised(self, x: Tensor) -> Tensor:
        """[N, C, ...]: before scale and shift."""
        return self._computed(x, None, None)

    def _computed(self, x: Tensor, scale: Tensor | None, shift: Tensor | None) -> Tensor:
        # Not by torch's own batch norm: on its way back torch 2.13 takes one layout in memory for another where there
        # is one example or one row, so that an example alone had another gradient than among others.
        if x.shape[1] != self.num_features:
            raise RuntimeError(f"expected {self.num_features} channels, got shape {list(x.shape)}")
        dtype = torch.promote_types(x.dtype, torch.float32)
        factor = (self.running_var.to(dtype) + self.eps).rsqrt()
        if scale is not None:
            factor = factor * scale.to(dtype)
        rest = -self.running_mean.to(dtype) * factor
        if shift is not None:
            rest = rest + shift.to(dtype)
        sides = (-1, *[1] * (x.dim() - 2))
        return torch.addcmul(rest.view(sides), x.to(dtype), factor.view(sides)).to(x.dtype)

    def extra_repr(self) -> str:
        """As a batch normalisation says it."""
        return f"{self.num_features}, eps={self.eps}, affine={self.weight is not None}"
