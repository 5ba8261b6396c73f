"""The units of a model: its layers with trainable parameters of their own."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace

from torch import nn
from torch.nn.utils import parametrize

from tan_core.engine.layers import is_bias_alone, is_known


@dataclass(frozen=True, slots=True)
class Unit:
    """One layer, and the trainable parameters that belong to it and to none of the layers in it."""

    name: str
    layer: nn.Module
    parameters: dict[str, str]
    """Names in the layer -> names in the model; of a shared parameter its first one."""
    is_plain: bool
    """Of a known kind, nothing shared, and nothing frozen that its books do not leave out."""
    reads_inputs: bool = True
    """Whether its gradients are made of what entered the layer; not those of a bias."""

    def is_inside(self, other: "Unit") -> bool:
        """Whether this layer is a part of ``other``."""
        return other.name == "" or self.name.startswith(f"{other.name}.")

    def without(self, names: Collection[str]) -> "Unit":
        """The same layer, but for parameters of these names in the model."""
        kept = {own: name for own, name in self.parameters.items() if name not in names}
        unit = replace(self, parameters=kept)
        return unit if len(kept) == len(self.parameters) else unit.with_rows()

    def with_rows(self) -> "Unit":
        """The same layer, where it runs again for each example."""
        return replace(self, is_plain=False, reads_inputs=True)


def units_of(model: nn.Module) -> list[Unit]:
    """Units that have every trainable parameter between them; a frozen layer is none.

    What a layer shares with a layer in it belongs to the outer one, which sees all of its uses. A
    parametrised layer, by weight normalisation say, is one unit with what makes its parameters, and
    attention is one with its last layer, whose weight it uses without calling it.
    """
    names = {p: name for name, p in model.named_parameters() if p.requires_grad}
    units: list[Unit] = []
    for name, layer in model.named_modules():
        is_whole = isinstance(layer, nn.MultiheadAttention) or parametrize.is_parametrized(layer)
        own = dict(layer.named_parameters(recurse=is_whole))
        trainable = {own_name: names[p] for own_name, p in own.items() if p in names}
        is_plain = bool(trainable) and is_known(layer)
        unit = Unit(name, layer, trainable, is_plain, not (is_plain and is_bias_alone(layer)))
        for outer in units:
            if not outer.is_plain and unit.is_inside(outer):
                unit = unit.without(outer.parameters.values())
        if unit.parameters:
            units.append(unit)
    uses = Counter(name for unit in units for name in unit.parameters.values())
    return [
        unit.with_rows()
        if unit.is_plain and any(uses[name] > 1 for name in unit.parameters.values())
        else unit
        for unit in units
    ]
