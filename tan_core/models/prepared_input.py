"""Images of a dataset as the images that a network was trained on, as its first layer."""

from collections import OrderedDict
from typing import Any, Final, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from tan_core.spec.models import ExternalModel, Model, ModelInput

_NETWORK: Final = "network"


def before_names(spec: Model) -> str:
    """What stands before each name of a model's network: nothing where its input is not prepared."""
    is_prepared = isinstance(spec, ExternalModel) and spec.input is not None
    return f"{_NETWORK}." if is_prepared else ""


class PreparedInput(nn.Module):
    """Scales images, and moves pixels to another mean and deviation; nothing in it is trained or kept in a file.

    Formal guarantees:

    * Example i of the output depends on example i of the input and on nothing else.

    Args:
        spec: what is done.
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, spec: ModelInput) -> None:
        super().__init__()
        self.size = spec.size
        # Of pixels x = 2 p - 1, as a trainer gives them: (p - mean) / std = x / (2 std) + (1 / 2 - mean) / std.
        mean, std = (
            torch.tensor(each or [0.5], dtype=torch.float64) for each in (spec.mean, spec.std)
        )
        for name, values in (("scale", 1 / (2 * std)), ("shift", (0.5 - mean) / std)):
            numbers = values.to(torch.get_default_dtype()).reshape(-1, 1, 1)
            self.register_buffer(name, numbers, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """[N, C, H, W] between -1 and 1 -> [N, C', size, size]."""
        if self.size is not None and images.shape[-2:] != (self.size, self.size):
            sides = (self.size, self.size)
            images = functional.interpolate(images, sides, mode="bicubic", antialias=True)
            images = images.clamp(-1, 1)  # as pixels are: a cubic goes beyond them at edges
        return images * self.scale + self.shift

    def extra_repr(self) -> str:
        """What is done."""
        return f"size={self.size}, channels={len(self.scale)}"


def with_input(spec: ModelInput | None, network: nn.Module) -> nn.Module:
    """The network behind its input; alone where nothing is to be done."""
    if spec is None:
        return network
    layers = {"input": PreparedInput(spec), _NETWORK: network}
    return nn.Sequential(OrderedDict(cast("Any", layers)))
