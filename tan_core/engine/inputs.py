"""A split as tensors, and its records as what a model reads."""

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any] | Tensor


def as_tensor(values: Array) -> Tensor:
    """A tensor over the same memory where it can be written to; torch warns of read-only arrays."""
    if isinstance(values, Tensor):
        return values
    return torch.from_numpy(values if values.flags.writeable else values.copy())


def as_floats(inputs: Tensor, dtype: torch.dtype) -> Tensor:
    """Pixels as floats in [-1, 1], by fixed constants; features as they are."""
    if inputs.dtype == torch.uint8:
        return inputs.to(dtype).mul_(1 / 127.5).sub_(1)
    return inputs.to(dtype)
