"""Kernels for NVIDIA GPUs, in Triton, for what torch has no fast way to do for each example by itself; optional.

Triton comes with torch's CUDA build, and builds them with the C compiler of the machine. :func:`is_available` says
whether they run on a device, the functions named ``reads_...`` whether one reads these tensors; whoever calls the rest has asked. Images are made channels-last
if they are not. Kernels are launched on the GPU that holds the tensors, whichever is the current one.
"""

# Shape legend: B = examples, K = views of each, V = B * K, T = positions, C and O = channels in and out, G = groups,
# I = what a kernel sees at one position: its size times C.
import importlib.util
import logging
import math
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Final

import torch
from torch import Tensor, nn

_log = logging.getLogger(__name__)

_LEAST_CAPABILITY: Final = (8, 0)
"""Ampere: the first whose matrix units multiply bfloat16."""

_LARGEST_ROW: Final = 4096
"""Numbers that one program holds: squares of more are not summed in one float32 either."""

_MOST_CHANNELS: Final = 1024
"""Of a group norm: the sums of all of them are held at once."""

_LARGEST_INDEX: Final = 2**31
"""Within one example; where an example begins is counted in 64 bits."""


def is_available(device: torch.device) -> bool:
    """Whether it is a GPU that runs the kernels, found out once: where they cannot be built torch does all the work."""
    return device.type == "cuda" and torch.version.cuda is not None and _works_on(device)


@cache
def _works_on(device: torch.device) -> bool:
    is_able = torch.cuda.get_device_capability(device) >= _LEAST_CAPABILITY
    if not is_able or importlib.util.find_spec("triton") is None:
        return False
    try:
        x = torch.zeros(1, 1, 1, 1, device=device)
        group_norm(x, 1, None, None, 1.0)
    except Exception as error:  # noqa: BLE001 - no compiler, no folder to write to, whatever Triton lacks
        _log.warning(
            "the kernels for GPUs cannot be built here, so private steps are several times slower: %s: %s",
            type(error).__name__,
            error,
        )
        return False
    return True


@cache
def _kernels() -> ModuleType:
    return importlib.import_module("tan_core.engine.gpu.kernels")


def reads_convolution(layer: nn.Module, a: Tensor, g: Tensor, views: int) -> bool:
    """Whether :func:`weight_rows` does: passes in bfloat16 through a convolution of images, in one group.

    In float32 torch's own product is as fast and more precise.
    """
    # First what answers on a processor, for every layer of every step.
    if not is_available(a.device):
        return False
    if not (a.device == g.device and a.dtype == g.dtype == torch.bfloat16):
        return False
    if not (isinstance(layer, nn.Conv2d) and a.dim() == 4 and layer.groups == 1):
        return False
    is_plain = not isinstance(layer.padding, str) and layer.padding_mode == "zeros"
    largest = views * max(math.prod(a.shape[1:]), math.prod(g.shape[1:]), layer.weight.numel())
    return is_plain and largest < _LARGEST_INDEX


def weight_rows(
    a: Tensor,
    g: Tensor,
    *,
    size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    views: int,
) -> Tensor:
    """The weight gradient of each example, [B, O, I] in float32 with channels last within I.

    No patch is written: each program gathers what its part of the weight sees.

    Args:
        a: [V, C, H, W], inputs.
        g: [V, O, H', W'], gradients of the outputs, of the same type.
        size: of the window, rows and columns; so are the next three.
        stride: of the window.
        padding: zeros around the image.
        dilation: of the window.
        views: K.
    """
    a, g = (x.contiguous(memory_format=torch.channels_last) for x in (a, g))
    examples, channels, outputs = len(a) // views, a.shape[1], g.shape[1]
    rows = a.new_empty(examples, outputs, math.prod(size) * channels, dtype=torch.float32)
    if rows.numel():
        with torch.cuda.device_of(a):
            _kernels().weight_rows(
                a, g, rows, views, tuple(size), tuple(stride), tuple(padding), tuple(dilation)
            )
    return rows


def reads_rows(rows_BOI: Tensor) -> bool:
    """Whether :func:`standardise` does."""
    if not is_available(rows_BOI.device):
        return False
    return rows_BOI.dtype == torch.float32 and rows_BOI.shape[2] <= _LARGEST_ROW


def standardise(
    rows_BOI: Tensor, unit_OI: Tensor, factor_O: Tensor, is_free_O: Tensor
) -> tuple[Tensor, Tensor]:
    """Take gradients of standardised weights on to the weights themselves, in place.

    Args:
        rows_BOI: of each example, dense.
        unit_OI: the weight, mean 0 and sum of squares 1 for each output.
        factor_O: the rate of the standardisation times the gain.
        is_free_O: whether the rate follows the weight.

    Returns:
        [B, O] each: gradients of the gain, and the squared norm of what was written.
    """
    gain_BO = rows_BOI.new_empty(rows_BOI.shape[:2])
    squared_BO = torch.empty_like(gain_BO)
    if rows_BOI.numel():
        of_outputs = [x.to(rows_BOI).contiguous() for x in (unit_OI, factor_O, is_free_O)]
        with torch.cuda.device_of(rows_BOI):
            _kernels().standardise(rows_BOI, *of_outputs, gain_BO, squared_BO)
    return gain_BO, squared_BO


def reads_norm(x: Tensor, layer: nn.GroupNorm) -> bool:
    """Whether :func:`group_norm` does: images whose channels, and those of a group, are powers of two."""
    if not is_available(x.device):
        return False
    if not (x.dim() == 4 and x.dtype in (torch.float32, torch.bfloat16)):
        return False
    if any(p.dtype != torch.float32 or p.device != x.device for p in layer.parameters()):
        return False
    is_image = x.shape[1] == layer.num_channels and x[0:1].numel() < _LARGEST_INDEX
    return is_image and fits_norm(layer)


def fits_norm(layer: nn.GroupNorm) -> bool:
    """Whether the kernels hold its channels."""
    channels, groups = layer.num_channels, layer.num_groups
    is_power = channels & (channels - 1) == 0 and groups & (groups - 1) == 0
    return is_power and channels <= _MOST_CHANNELS


def group_norm(
    x: Tensor,
    groups: int,
    scale: Tensor | None,
    shift: Tensor | None,
    epsilon: float,
    *,
    rectifies: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """The output, of the type of ``x``, and [V, G] each: means and 1 over standard deviations, float32.

    Args:
        x: [V, C, H, W].
        groups: G.
        scale: [C], float32.
        shift: [C], float32.
        epsilon: added to the variance.
        rectifies: whether what is normalised is the ReLU of ``x``.
    """
    x = x.contiguous(memory_format=torch.channels_last)
    y = torch.empty_like(x)
    mean = x.new_empty(len(x), groups, dtype=torch.float32)
    rate = torch.empty_like(mean)
    if x.numel():
        with torch.cuda.device_of(x):
            _kernels().group_norm(x, scale, shift, y, mean, rate, epsilon, rectifies=rectifies)
    return y, mean, rate


def group_norm_backward(
    g: Tensor,
    x: Tensor,
    mean: Tensor,
    rate: Tensor,
    scale: Tensor | None,
    *,
    rectifies: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient of the input, of its type, and [V, C] each: those of scale and shift, float32.

    Args:
        g: [V, C, H, W], of the output.
        x: as of :func:`group_norm`; the next three too.
        mean: [V, G].
        rate: [V, G].
        scale: [C].
        rectifies: as there; the gradient is that of ``x``, before the ReLU.
    """
    x, g = (each.contiguous(memory_format=torch.channels_last) for each in (x, g))
    dx = torch.empty_like(x)
    of_scale = x.new_empty(x.shape[:2], dtype=torch.float32)
    of_shift = torch.empty_like(of_scale)
    if x.numel():
        with torch.cuda.device_of(x):
            _kernels().group_norm_backward(
                g, x, mean, rate, scale, dx, of_scale, of_shift, rectifies=rectifies
            )
    return dx, of_scale, of_shift
