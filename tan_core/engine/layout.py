"""How parameters and inputs lie in memory while books are kept."""

import torch
from torch import Tensor, nn

from tan_core.engine import native


def laid_out(model: nn.Module, inputs: Tensor) -> tuple[dict[str, Tensor], tuple[Tensor]]:
    """Detached parameters and the inputs, channels-last: pools and convolutions are faster so.

    Not with group norms where our kernels are missing: torch's own lose digits on such images.
    """
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    is_precise = native.accepts(inputs) or not any(
        isinstance(layer, nn.GroupNorm) for layer in model.modules()
    )
    if inputs.dim() != 4 or not is_precise:
        return parameters, (inputs.contiguous(),)
    # A tensor of one channel counts as channels-last already, whatever its strides say, and
    # contiguous() would leave it alone: only a new tensor tells the convolution.
    last = {
        name: torch.empty_like(p, memory_format=torch.channels_last).copy_(p) if p.dim() == 4 else p
        for name, p in parameters.items()
    }
    return last, (torch.empty_like(inputs, memory_format=torch.channels_last).copy_(inputs),)
