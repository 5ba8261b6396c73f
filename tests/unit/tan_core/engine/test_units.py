"""Every trainable parameter is in a unit, and in more than one only where units are apart."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from tan_core.engine.units import units_of
from tests.unit.tan_core.engine.oracle import assert_exact


class Renamed(nn.Module):
    """Has the weight of the layer in it under a name of its own, and uses it there as well."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.alias = layer.weight
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x @ self.alias)


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    return model


def with_a_frozen_bias() -> nn.Module:
    layer = nn.Linear(3, 3)
    layer.bias.requires_grad_(False)
    return layer


UNITS = {
    "plain": (nn.Linear(3, 3), {"0": (["0.weight", "0.bias"], True)}),
    "frozen": (nn.Linear(3, 3).requires_grad_(False), {}),
    "half-frozen": (with_a_frozen_bias(), {"0": (["0.weight"], False)}),
    "tied": (
        tied(),
        {
            "0.0": (["0.0.weight", "0.0.bias"], False),
            "0.1": (["0.0.weight", "0.1.bias"], False),
        },
    ),
    "renamed": (
        Renamed(nn.Linear(3, 3)),
        {"0": (["0.alias"], False), "0.layer": (["0.layer.bias"], False)},
    ),
    "parametrised": (
        parametrizations.weight_norm(nn.Linear(3, 3, bias=False)),
        {
            "0": (
                [f"0.parametrizations.weight.original{part}" for part in (0, 1)],
                False,
            )
        },
    ),
    "attention": (
        nn.MultiheadAttention(4, 2, bias=False, batch_first=True),
        {"0": (["0.in_proj_weight", "0.out_proj.weight"], False)},
    ),
}


class TestUnitsOf:
    @pytest.mark.parametrize(("layer", "expected"), UNITS.values(), ids=UNITS)
    def test_a_parameter_belongs_to_the_layers_that_use_it(self, layer, expected) -> None:
        found = units_of(nn.Sequential(layer))

        assert {u.name: (list(u.parameters.values()), u.is_plain) for u in found} == expected

    @pytest.mark.parametrize("views", [1, 4])
    def test_a_weight_that_a_layer_shares_with_its_part_counts_once(self, views: int) -> None:
        model = nn.Sequential(Renamed(nn.Linear(3, 3)), nn.Tanh(), nn.Linear(3, 3)).double()
        generator = torch.Generator().manual_seed(0)
        inputs = torch.randn(3 * views, 3, generator=generator, dtype=torch.float64)

        assert_exact(model, inputs, torch.tensor([0, 1, 2]), views=views)
