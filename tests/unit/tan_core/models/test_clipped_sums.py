"""Clipped sums of every registered model against one backward pass per example, float64."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tan_core import models
from tan_core.engine import check_model, clipped_sum
from tan_core.engine.layers import is_known
from tan_core.spec.models import (
    MODEL_TYPES,
    ModelSpec,
    NfResNetModel,
    VitModel,
    WideResNetModel,
)
from tests.support.models import SMALL_MODELS

VIEWS = [1, 4, 16]
SHAPE = (3, 8, 8)
VARIANTS: dict[str, ModelSpec] = SMALL_MODELS | {
    "wrn standardised": WideResNetModel(weight_standardization=True),
    "wrn norm first": WideResNetModel(order="norm_relu", groups=4),
    "vit with an edge": VitModel(patch_size=3, depth=1, width=8, heads=2),
}
LARGE: dict[str, ModelSpec] = {
    "wrn-40-4": WideResNetModel(name="wrn-40-4"),
    "wrn-28-10": WideResNetModel(name="wrn-28-10"),
    "nf-resnet-50": NfResNetModel(),
}


def make_model(spec: ModelSpec) -> nn.Module:
    """In float64 and away from its initial values: no gain of a branch is 0, no scale exactly 1."""
    generator = torch.Generator().manual_seed(0)
    model = models.build(spec, shape=SHAPE, num_classes=3, generator=generator).double()
    with torch.no_grad():
        for parameter in model.parameters():
            step = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter += 0.02 * step
    return model


def loop(
    model: nn.Module, inputs: Tensor, labels: Tensor, *, clip_norm: float, views: int
) -> tuple[Tensor, Tensor]:
    """The definition: the mean loss over the views of one example at a time, clipped, summed."""
    total, norms = torch.zeros(0), []
    for own, label in zip(inputs.split(views), labels, strict=True):
        loss = functional.cross_entropy(model(own), label.expand(views))
        parts = torch.autograd.grad(loss, list(model.parameters()))
        gradient = torch.cat([part.flatten() for part in parts])
        norms.append(gradient.norm())
        clipped = gradient * min(1.0, clip_norm / float(gradient.norm()))
        total = clipped if len(norms) == 1 else total + clipped
    return total, torch.stack(norms)


def check(spec: ModelSpec, *, views: int, examples: int) -> None:
    model = make_model(spec)
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(examples * views, *SHAPE, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 3, (examples,), generator=generator)
    first = inputs[:views], labels[:1]
    # The first example is clipped; whether others are depends on them.
    clip_norm = 0.9 * float(loop(model, *first, clip_norm=1.0, views=views)[1])
    expected, norms = loop(model, inputs, labels, clip_norm=clip_norm, views=views)

    got = clipped_sum(model, inputs, labels, clip_norm=clip_norm, views=views)

    assert float((got.sum - expected).norm() / expected.norm()) < 1e-6
    torch.testing.assert_close(got.norms, norms, rtol=1e-6, atol=0)


@pytest.mark.parametrize("views", VIEWS)
@pytest.mark.parametrize("name", VARIANTS)
def test_they_equal_one_backward_pass_per_example(name: str, views: int) -> None:
    check(VARIANTS[name], views=views, examples=2)


@pytest.mark.slow
@pytest.mark.parametrize("views", VIEWS)
@pytest.mark.parametrize("name", LARGE)
def test_those_of_large_models_do_as_well(name: str, views: int) -> None:
    check(LARGE[name], views=views, examples=2)


def test_every_registered_model_is_among_them() -> None:
    assert {spec.name for spec in (VARIANTS | LARGE).values()} == set(MODEL_TYPES)


@pytest.mark.parametrize("name", VARIANTS)
def test_no_registered_model_is_refused(name: str) -> None:
    check_model(make_model(VARIANTS[name]))


@pytest.mark.parametrize("name", ["vit-tiny", "vit with an edge"])
def test_books_can_be_kept_for_every_layer_of_a_transformer(name: str) -> None:
    layers = [
        layer
        for layer in make_model(VARIANTS[name]).modules()
        if any(True for _ in layer.parameters(recurse=False))
    ]

    assert len(layers) > 4
    assert all(is_known(layer) for layer in layers)
