"""Books of layers that add a learned tensor, against plain autograd one example at a time."""

import pytest
import torch

from tan_core.engine.layers import is_known, layer_gradients
from tan_core.models.position_embedding import PositionEmbedding


@pytest.mark.parametrize("views", [1, 4])
@pytest.mark.parametrize("examples", [0, 1, 3])
def test_norms_and_weighted_sums_equal_one_backward_pass_per_example(
    examples: int, views: int
) -> None:
    generator = torch.Generator().manual_seed(0)
    layer = PositionEmbedding(5, 3).double()
    torch.nn.init.normal_(layer.weight, generator=generator)
    entered, gradient = (
        torch.randn(examples * views, 5, 3, generator=generator, dtype=torch.float64)
        for _ in range(2)
    )
    rows = torch.zeros(examples, 5, 3, dtype=torch.float64)
    for example in range(examples):
        own = slice(example * views, (example + 1) * views)
        rows[example] = torch.autograd.grad(layer(entered[own]), layer.weight, gradient[own])[0]
    weights = torch.rand(examples, generator=generator, dtype=torch.float64)

    assert is_known(layer)
    got = layer_gradients(layer, entered, gradient, views)

    torch.testing.assert_close(got.squared_norms, rows.square().sum((1, 2)))
    torch.testing.assert_close(
        got.weighted_sum(weights), {"weight": torch.einsum("b,btd->td", weights, rows)}
    )
