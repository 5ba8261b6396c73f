"""Batch normalisation by numbers that a checkpoint holds: no example is normalised by another one."""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional


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
        mean, variance = self.running_mean, self.running_var
        return functional.batch_norm(x, mean, variance, scale, shift, training=False, eps=self.eps)

    def extra_repr(self) -> str:
        """As a batch normalisation says it."""
        return f"{self.num_features}, eps={self.eps}, affine={self.weight is not None}"
