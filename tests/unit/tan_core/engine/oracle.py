"""What the engine finds, held against the definition."""

import torch
from torch import nn

from tan_core.engine import clipped_sum
from tan_core.engine.units import units_of
from tan_core.testing.oracle import clipped, example_gradients


def assert_exact(
    model: nn.Module, inputs, labels, *, views: int = 1, rtol: float = 1e-10, **settings
):
    """The clipped sum and the norms are those of the definition; half of the examples are clipped."""
    rows = example_gradients(model, inputs, labels, views=views)
    norms = rows.norm(dim=1)
    clip_norm = float(norms.median())
    expected = clipped(rows, clip_norm)

    got = clipped_sum(model, inputs, labels, clip_norm=clip_norm, views=views, **settings)

    assert torch.allclose(got.norms, norms, rtol=rtol)
    assert float((got.sum - expected).norm()) <= rtol * float(expected.norm())


def books_are_enough(model: nn.Module) -> bool:
    """Whether the gradients of each example are not made for any layer."""
    return all(unit.is_plain for unit in units_of(model))


def one_at_a_time(layer, a, g, views: int) -> dict[str, torch.Tensor]:
    """The definition: [B, ...] by parameter.

    On contiguous copies: the backward pass of torch 2.13's group norm writes to a null pointer when
    its input is channels-last and needs no gradient.
    """
    a = a.clone(memory_format=torch.contiguous_format)
    g = g.clone(memory_format=torch.contiguous_format)
    names, parameters = zip(*layer.named_parameters(), strict=True)
    rows = [
        torch.autograd.grad((layer(own_a) * own_g).sum(), parameters)
        for own_a, own_g in zip(a.split(views), g.split(views), strict=True)
        if len(own_a)
    ]
    if not rows:
        return {name: p.new_zeros(0, *p.shape) for name, p in layer.named_parameters()}
    return {
        name: torch.stack(each) for name, each in zip(names, zip(*rows, strict=True), strict=True)
    }
