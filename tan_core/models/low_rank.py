"""Low-rank adaptation of linear layers: two small factors beside each, trained while its own weight is frozen.

References:
    Hu et al. (2021), arXiv:2106.09685; trained with differential privacy by Yu et al. (2022), arXiv:2110.06500.
"""

from collections import Counter
from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from tan_core.models.changed import is_changed
from tan_core.models.initialise import initialise

_FACTORS = ("lora_A", "lora_B")


# Shape legend: V = examples or their views, I = inputs, O = outputs, R = rank; ... are positions, if any.
class LowRankLinear(nn.Module):
    """A linear layer with ``weight + lora_B @ lora_A`` in place of its weight.

    Args:
        layer: whose weight and bias are kept, under the names that they had.
        rank: of what is added.
        generator: source of ``lora_A``; ``lora_B`` is 0, so the layer begins as it was.
    """

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(self, layer: nn.Linear, rank: int, generator: torch.Generator) -> None:
        super().__init__()
        for name in ("weight", "bias"):
            self.register_parameter(name, getattr(layer, name))
        like = {"device": "meta", "dtype": layer.weight.dtype}
        self.lora_A = nn.Linear(layer.in_features, rank, bias=False, **like)
        self.lora_B = nn.Linear(rank, layer.out_features, bias=False, **like)
        for factor in (self.lora_A, self.lora_B):
            factor.to_empty(device=layer.weight.device)
        initialise(self.lora_A, generator)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x_VI: Tensor) -> Tensor:
        """[V, ..., I] -> [V, ..., O]."""
        return self.product(x_VI) + self.lora_B(self.lora_A(x_VI))

    def product(self, x_VI: Tensor) -> Tensor:
        """By the layer's own weight alone."""
        return functional.linear(x_VI, self.weight, self.bias)


def adaptable(model: nn.Module, *, besides: Collection[str] = ()) -> dict[str, nn.Linear]:
    """The linear layers that can be adapted, by name.

    Not one whose weight another layer has too, which what is added would not reach; nor one that hooks change or
    that is of a class of its own, which may use its weight without being called, as torch's attention does.

    Args:
        model: any.
        besides: names of parameters whose layers are left out.

    Example:
        >>> model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
        >>> [*adaptable(model, besides=["2.weight"])]
        ['0']
    """
    uses = Counter[Tensor](p for layer in model.modules() for p in layer.parameters(recurse=False))
    return {
        name: layer
        for name, layer in model.named_modules()
        if name
        and type(layer) is nn.Linear
        and not is_changed(layer)
        and uses[layer.weight] == 1
        and f"{name}.weight" not in besides
    }


def adapt(
    model: nn.Module, layers: Mapping[str, nn.Linear], *, rank: int, generator: torch.Generator
) -> set[str]:
    """Put factors beside the layers, wherever each is used; what the model computes stays as it is.

    Args:
        model: changed in place.
        layers: of :func:`adaptable`.
        rank: of what is added to each weight, >= 1.
        generator: source of the factors.

    Returns:
        Names of the factors' parameters.

    Example:
        >>> model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
        >>> layers = adaptable(model, besides=["2.weight"])
        >>> sorted(adapt(model, layers, rank=2, generator=torch.Generator()))
        ['0.lora_A.weight', '0.lora_B.weight']
    """
    adapted = {id(layer): LowRankLinear(layer, rank, generator) for layer in layers.values()}
    for name, layer in [*model.named_modules(remove_duplicate=False)]:
        if id(layer) in adapted:
            model.set_submodule(name, adapted[id(layer)])
    return {f"{name}.{factor}.weight" for name in layers for factor in _FACTORS}


def merged(model: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of a model as it was before it was adapted: what was added is in the weights of its layers.

    Args:
        model: whose weights they are.
        weights: by name; those of the factors are left out of the answer.

    Example:
        >>> model = nn.Sequential(nn.Linear(3, 8))
        >>> before = {name: value.clone() for name, value in model.state_dict().items()}
        >>> _ = adapt(model, adaptable(model), rank=2, generator=torch.Generator())
        >>> nn.init.ones_(model[0].lora_B.weight).sum().item()
        16.0
        >>> after = merged(model, model.state_dict())
        >>> [*after] == [*before], torch.equal(after["0.weight"], before["0.weight"])
        (True, False)
    """
    left = dict(weights)
    for name, layer in model.named_modules(remove_duplicate=False):
        if isinstance(layer, LowRankLinear):
            down_RI, up_OR = (left.pop(f"{name}.{factor}.weight").double() for factor in _FACTORS)
            own_OI = left[f"{name}.weight"]
            left[f"{name}.weight"] = (own_OI.double() + up_OR @ down_RI).to(own_OI.dtype)
    return left
