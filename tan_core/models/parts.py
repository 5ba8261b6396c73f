"""The parts of a model that a study may train alone, beside its classifier: which parameters they hold."""

from torch import nn

from tan_core.models.frozen_batch_norm import FrozenBatchNorm
from tan_core.models.gain import Gain
from tan_core.models.weight_standardised import WeightStandardisedConv2d
from tan_core.spec.pretrained import Part

_NORMS = (
    nn.GroupNorm,
    nn.LayerNorm,
    nn.RMSNorm,
    nn.InstanceNorm1d,
    nn.InstanceNorm2d,
    nn.InstanceNorm3d,
    FrozenBatchNorm,
    Gain,
)
"""And what is derived from them. A gain at the end of a branch is what stands there for the scale of a norm."""

_OF_STANDARDISED = ("gain", "bias")
"""The scale and the shift of a convolution whose weights are normalised in place of its outputs."""


def parameters_of(part: Part, model: nn.Module) -> set[str]:
    """Names in the model of the parameters of a part, those of the classifier among them.

    * Norms: scale and shift of every normalisation. So the gain and the bias of a
      convolution with standardised weights, and gains at the end of residual branches: networks
      without norms have them in their place.
    * Biases: every vector that is added to what a layer makes, shifts of norms included. By name, as
      torch's own layers have it: ``bias``; or a vector with that word in its name, such as the
      ``in_proj_bias`` of attention. So a table of position biases is none.

    Args:
        part: of the backbone.
        model: any.

    Returns:
        No name where the model has no such parameter.

    References:
        Bu, Wang, Zha and Karypis (2022), arXiv:2210.00036, train biases alone.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.Linear(8, 2))
        >>> sorted(parameters_of("norms", model)), sorted(parameters_of("biases", model))
        (['1.bias', '1.weight'], ['0.bias', '1.bias', '2.bias'])
    """
    belongs = _is_of_norm if part == "norms" else _is_bias
    return {
        f"{prefix}.{name}".lstrip(".")
        for prefix, layer in model.named_modules()
        for name, parameter in layer.named_parameters(recurse=False)
        if belongs(layer, name, parameter)
    }


def _is_of_norm(layer: nn.Module, name: str, _: nn.Parameter) -> bool:
    if isinstance(layer, WeightStandardisedConv2d):
        return name in _OF_STANDARDISED
    return isinstance(layer, _NORMS)


def _is_bias(_: nn.Module, name: str, parameter: nn.Parameter) -> bool:
    return name == "bias" or (parameter.dim() == 1 and "bias" in name.split("_"))
