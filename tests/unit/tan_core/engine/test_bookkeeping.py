"""Book-keeping against per-example differentiation, and what it refuses to vouch for."""

import pytest
import torch
from torch import nn

from tan_core import models
from tan_core.engine import bookkeeping, gradients
from tan_core.spec.models import MODEL_TYPES


class CallsItsLayerTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(self.layer(x))


class MakesItsOwnSum(nn.Linear):
    """A subclass may compute anything."""


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

    def test_a_layer_that_runs_twice_is_refused(self) -> None:
        with pytest.raises(RuntimeError, match="must each run once"):
            bookkeeping.batch_gradients(
                CallsItsLayerTwice(), torch.ones(2, 3), torch.tensor([0, 1]), views=1
            )

    def test_no_hook_is_left_on_the_model(self) -> None:
        model = nn.Sequential(nn.Linear(3, 3))

        bookkeeping.batch_gradients(model, torch.ones(2, 3), torch.tensor([0, 1]), views=1)

        assert not model[0]._forward_hooks


class TestSupports:
    @pytest.mark.parametrize("name", MODEL_TYPES)
    def test_every_registered_model_is_supported(self, name: str) -> None:
        model = models.build(
            MODEL_TYPES[name](), shape=(1, 8, 8), num_classes=3, generator=torch.Generator()
        )

        assert bookkeeping.supports(model)

    @pytest.mark.parametrize(
        "layer",
        [
            MakesItsOwnSum(3, 3),
            nn.LayerNorm(3),
            nn.Conv2d(2, 2, 3, groups=2),
            nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"),
            nn.Conv2d(2, 2, 3, padding="same"),
            nn.Linear(3, 3).requires_grad_(False),
        ],
        ids=["subclass", "layer-norm", "groups", "circular", "same", "frozen"],
    )
    def test_any_other_layer_goes_the_slow_way(self, layer: nn.Module) -> None:
        assert not bookkeeping.supports(nn.Sequential(layer))


class TestSquaredNorms:
    @pytest.mark.parametrize("size", [0, 5, 4096, 1_000_003])
    def test_float32_rows_keep_their_norm_to_a_millionth(self, size: int) -> None:
        rows = torch.randn(2, size, generator=torch.Generator().manual_seed(0))

        got = bookkeeping.squared_norms(rows).sqrt()

        assert torch.allclose(got, rows.double().norm(dim=1), rtol=1e-6)
