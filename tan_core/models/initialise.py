"""Initial parameters, drawn from one explicit generator."""

import math

import torch
from torch import Tensor, nn

from tan_core.models.gain import Gain
from tan_core.models.position_embedding import PositionEmbedding
from tan_core.models.weight_standardised import WeightStandardisedConv2d

_POSITION_STD = 0.02
"""Of position embeddings, cut off at 2: Dosovitskiy et al. (2021), arXiv:2010.11929."""


def initialise(model: nn.Module, generator: torch.Generator) -> None:
    """Fill every parameter.

    ==========================================  =================================================
    Layer                                       Initial values
    ==========================================  =================================================
    ``Linear``, ``Conv2d``                      uniform, variance 1 / (3 fan-in), as torch does
    ``WeightStandardisedConv2d``                its weight likewise; gain 1, bias 0
    ``GroupNorm``, ``LayerNorm``, ``RMSNorm``   scale 1, shift 0
    ``Gain``                                    its own ``initial``
    ``Embedding``                               standard normal, 0 at the padding index
    ``PositionEmbedding``                       truncated normal of standard deviation 0.02
    ==========================================  =================================================

    Raises:
        TypeError: a layer holds parameters that no rule here covers; they would stay unset memory.
    """
    for name, layer in model.named_modules():
        own = dict(layer.named_parameters(recurse=False))
        match layer:
            case _ if not own:
                continue
            case WeightStandardisedConv2d():
                _uniform(own.pop("weight"), like=layer.weight, generator=generator)
                _scale_and_shift(own)
            case nn.Linear() | nn.Conv2d():
                for parameter in own.values():
                    _uniform(parameter, like=layer.weight, generator=generator)
            case nn.GroupNorm() | nn.LayerNorm() | nn.RMSNorm():
                _scale_and_shift(own)
            case Gain():
                nn.init.constant_(layer.weight, layer.initial)
            case nn.Embedding():
                nn.init.normal_(layer.weight, generator=generator)
                if layer.padding_idx is not None:
                    nn.init.zeros_(layer.weight[layer.padding_idx])
            case PositionEmbedding():
                nn.init.trunc_normal_(layer.weight, std=_POSITION_STD, generator=generator)
            case _:
                raise TypeError(
                    f"no initial values for layer {name!r} of type {type(layer).__name__}"
                )


def _uniform(parameter: Tensor, *, like: Tensor, generator: torch.Generator) -> None:
    """Within 1 / sqrt(fan-in) of the weight ``like``."""
    bound = 1 / math.sqrt(like[0].numel())
    nn.init.uniform_(parameter, -bound, bound, generator=generator)


def _scale_and_shift(own: dict[str, nn.Parameter]) -> None:
    for name, parameter in own.items():
        nn.init.constant_(parameter, 0.0 if name == "bias" else 1.0)
