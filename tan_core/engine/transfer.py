"""How tensors come to a GPU."""

import torch
from torch import Tensor


def sent(x: Tensor, device: torch.device) -> Tensor:
    """``x`` on ``device``, and no wait where that is a GPU.

    From memory that the system may move, the processor would wait for the copy and for all that was asked of the GPU before
    it, and the GPU then for the processor. What is returned must be read by the current stream alone.

    Example:
        >>> sent(torch.ones(2), torch.device("cpu"))
        tensor([1., 1.])
    """
    if device.type != "cuda" or not x.is_cpu:
        return x.to(device)
    return x.pin_memory().to(device, non_blocking=True)
