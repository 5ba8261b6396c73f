"""Initial values: a rule for every layer, and none by accident."""

import pytest
import torch
from torch import nn

from tan_core.models.gain import Gain
from tan_core.models.initialise import initialise
from tan_core.models.position_embedding import PositionEmbedding
from tan_core.models.weight_standardised import WeightStandardisedConv2d


def filled(layer: nn.Module, seed: int = 0) -> nn.Module:
    """The layer, started from memory that holds nothing useful."""
    for parameter in layer.parameters():
        nn.init.constant_(parameter, float("nan"))
    initialise(nn.Sequential(layer), torch.Generator().manual_seed(seed))
    return layer


@pytest.mark.parametrize(
    "layer",
    [
        nn.Linear(64, 50),
        nn.Conv2d(4, 50, 4),
        WeightStandardisedConv2d(4, 50, 4, bias=False, gain=False),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_weights_are_uniform_in_the_inverse_root_of_the_fan_in(layer: nn.Module) -> None:
    values = torch.cat([p.detach().flatten() for p in filled(layer).parameters()])

    assert float(values.abs().max()) <= 1 / 8
    assert float(values.std()) == pytest.approx(1 / 8 / 3**0.5, rel=0.05)


@pytest.mark.parametrize(
    "layer",
    [nn.GroupNorm(2, 4), nn.LayerNorm(4), nn.LayerNorm(4, bias=False), nn.RMSNorm(4)],
    ids=str,
)
def test_norms_start_without_effect(layer: nn.Module) -> None:
    values = {name: p.tolist() for name, p in filled(layer).named_parameters()}

    assert values == {
        name: [1.0 if name == "weight" else 0.0] * 4 for name, _ in layer.named_parameters()
    }


def test_a_standardised_convolution_starts_with_gain_one_and_no_bias() -> None:
    layer = filled(WeightStandardisedConv2d(4, 3, 3))

    assert layer.get_parameter("gain").tolist() == [1.0] * 3
    assert layer.get_parameter("bias").tolist() == [0.0] * 3


def test_a_gain_starts_where_it_says() -> None:
    assert filled(Gain(initial=0.25)).get_parameter("weight").item() == 0.25
    assert filled(Gain(3)).get_parameter("weight").tolist() == [1.0] * 3


def test_positions_start_small_and_words_at_one() -> None:
    positions = filled(PositionEmbedding(50, 40)).get_parameter("weight")
    words = filled(nn.Embedding(50, 40, padding_idx=3)).get_parameter("weight")

    assert float(positions.detach().std()) == pytest.approx(0.02, rel=0.05)
    assert float(words.detach().std()) == pytest.approx(1.0, rel=0.05)
    assert words[3].count_nonzero() == 0


def test_a_layer_without_a_rule_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"'0' of type Bilinear"):
        filled(nn.Bilinear(2, 2, 2))
