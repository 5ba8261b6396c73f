"""Weight standardisation against its formula, term by term."""

import math

import pytest
import torch
from torch.nn import functional

from tan_core.models.weight_standardised import WeightStandardisedConv2d


def make_layer(*, seed: int = 0, gain: bool = True, groups: int = 1, **options):
    layer = WeightStandardisedConv2d(
        4, 6, 3, padding=1, groups=groups, gain=gain, **options
    ).double()
    generator = torch.Generator().manual_seed(seed)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, generator=generator)
    return layer


def by_hand(weight: torch.Tensor) -> torch.Tensor:
    """The formula on lists of numbers, one output channel at a time."""
    rows = []
    for row in weight.flatten(1).tolist():
        mean = math.fsum(row) / len(row)
        variance = math.fsum((w - mean) ** 2 for w in row) / len(row)
        rate = 1 / math.sqrt(max(variance * len(row), 1e-4))
        rows.append([(w - mean) * rate for w in row])
    return torch.tensor(rows, dtype=weight.dtype).view_as(weight)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("gain", [True, False])
def test_the_convolution_uses_the_standardised_weight(gain: bool, groups: int) -> None:
    layer = make_layer(gain=gain, groups=groups, stride=2)
    inputs = torch.randn(2, 4, 5, 5, dtype=torch.float64)
    weight = by_hand(layer.weight)
    if layer.gain is not None:
        weight = weight * layer.gain[:, None, None, None]

    expected = functional.conv2d(inputs, weight, layer.bias, stride=2, padding=1, groups=groups)

    assert (layer.gain is not None) == gain
    torch.testing.assert_close(layer(inputs), expected)


def test_neither_scale_nor_shift_of_the_weight_matters() -> None:
    layer = make_layer()
    inputs = torch.randn(2, 4, 5, 5, dtype=torch.float64)
    before = layer(inputs)
    with torch.no_grad():
        layer.weight.mul_(7).add_(3)

    torch.testing.assert_close(layer(inputs), before)


def test_the_rate_is_that_of_the_formula_and_free_above_its_bound() -> None:
    layer = make_layer()
    with torch.no_grad():
        layer.weight[0] = 5.0
        layer.weight[1] = 1e-4 * layer.weight[1]

    weight, rate, is_free = layer.standardised()

    assert is_free.tolist() == [False, False, True, True, True, True]
    torch.testing.assert_close(rate[:2], torch.full((2,), 100.0, dtype=torch.float64))
    assert weight[0].count_nonzero() == 0
    torch.testing.assert_close(weight, by_hand(layer.weight))
    torch.testing.assert_close(
        weight[2:].square().sum((1, 2, 3)), torch.ones(4, dtype=torch.float64)
    )


def test_its_gradient_is_the_vector_jacobian_product_in_closed_form() -> None:
    r"""Of what an engine needs: :math:`J^\top g = r (g - \bar g - \hat w \langle g, \hat w \rangle)`."""
    layer = make_layer(gain=False)
    with torch.no_grad():
        layer.weight[0] = 1e-4 * layer.weight[0]
    out = torch.randn_like(layer.weight)

    weight, rate, is_free = layer.standardised()
    (got,) = torch.autograd.grad(weight, layer.weight, out)

    inner = torch.where(is_free, (out * weight).sum((1, 2, 3)), 0.0)
    centred = out - out.mean((1, 2, 3), keepdim=True)
    expected = rate.view(-1, 1, 1, 1) * (centred - weight * inner.view(-1, 1, 1, 1))
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_channels_last_changes_nothing(dtype: torch.dtype) -> None:
    layer = make_layer().to(dtype)
    inputs = torch.randn(2, 4, 5, 5, dtype=dtype)

    expected = layer(inputs)
    got = layer.to(memory_format=torch.channels_last)(inputs.to(memory_format=torch.channels_last))

    torch.testing.assert_close(got, expected)
