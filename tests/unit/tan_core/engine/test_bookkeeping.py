"""Book-keeping against per-example differentiation, and what it refuses to vouch for."""

import pytest
import torch
from torch import nn

from tan_core import models
from tan_core.engine import bookkeeping, gradients
from tests.support.models import SMALL_MODELS


class Wired(nn.Module):
    """Two layers, and a forward pass that uses them as it likes."""

    def __init__(self, forward) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.wiring = forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.wiring(self, x)


class MakesItsOwnSum(nn.Linear):
    """A subclass may compute anything."""


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    return model


WRONG = {
    "skipped": (lambda m, x: m.first(x) if x.sum() > 0 else m.second(m.first(x)), "each run once"),
    "twice": (lambda m, x: m.second(m.first(m.first(x))), "each run once"),
    "by-keyword": (lambda m, x: m.second(m.first(input=x)), "'first' .* positional"),
    "not-first": (lambda m, x: m.second(m.first(x[None])[0]), "'first' .* first dimension"),
    "output-overwritten": (lambda m, x: m.second(m.first(x * 1)).mul_(2), "'second' .* in place"),
    "input-overwritten": (
        lambda m, x: (lambda y: (m.second(m.first(y)), y.mul_(2))[0])(x * 1),
        "'first' .* in place",
    ),
}


LAYERS = {
    "strided": nn.Conv2d(2, 4, 3, stride=2, padding=1),
    "dilated": nn.Conv2d(2, 4, 3, dilation=2),
    "oblong": nn.Conv2d(2, 4, (1, 3), stride=(2, 1), padding=(0, 1), bias=False),
    "pointwise": nn.Conv2d(2, 4, 1, stride=2),
}


class TestBatchGradients:
    @pytest.mark.parametrize("views", [1, 3])
    @pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
    def test_every_kind_of_convolution_agrees_with_differentiation(self, layer, views) -> None:
        generator = torch.Generator().manual_seed(0)
        model = nn.Sequential(layer, nn.ReLU(), nn.Flatten(), nn.LazyLinear(3)).double()
        inputs = torch.randn(4 * views, 2, 8, 9, generator=generator, dtype=torch.float64)
        model(inputs)
        labels = torch.tensor([0, 1, 2, 0])
        weights = torch.rand(4, generator=generator, dtype=torch.float64)

        kept = bookkeeping.batch_gradients(model, inputs, labels, views=views)
        differentiated = gradients.batch_gradients(model, inputs, labels, views=views)

        assert torch.allclose(kept.norms, differentiated.norms, rtol=1e-10)
        expected = differentiated.weighted_sum(weights)
        for name, value in kept.weighted_sum(weights).items():
            assert torch.allclose(value.flatten(), expected[name], atol=1e-12)

    @pytest.mark.parametrize(("wiring", "message"), WRONG.values(), ids=WRONG)
    def test_a_model_whose_norms_would_be_wrong_is_refused(self, wiring, message: str) -> None:
        with pytest.raises(RuntimeError, match=message):
            bookkeeping.batch_gradients(
                Wired(wiring), torch.ones(2, 3), torch.tensor([0, 1]), views=1
            )

    def test_no_hook_is_left_on_the_model(self) -> None:
        model = nn.Sequential(nn.Linear(3, 3))

        bookkeeping.batch_gradients(model, torch.ones(2, 3), torch.tensor([0, 1]), views=1)

        assert not model[0]._forward_hooks


class TestSupports:
    @pytest.mark.parametrize("name", sorted(SMALL_MODELS.keys() - {"nf-resnet-50"}))
    def test_every_registered_model_is_supported(self, name: str) -> None:
        model = models.build(
            SMALL_MODELS[name], shape=(1, 8, 8), num_classes=3, generator=torch.Generator()
        )

        assert bookkeeping.supports(model)

    @pytest.mark.parametrize(
        "layer",
        [
            MakesItsOwnSum(3, 3),
            nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"),
            nn.Linear(3, 3).requires_grad_(False),
            nn.ReLU(inplace=True),
            tied(),
        ],
        ids=["subclass", "circular", "frozen", "in-place", "tied"],
    )
    def test_any_other_layer_goes_the_slow_way(self, layer: nn.Module) -> None:
        assert not bookkeeping.supports(nn.Sequential(layer))
