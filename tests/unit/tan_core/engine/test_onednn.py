"""oneDNN's product is the same product, and is only used where it holds."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn import functional

from tan_core.engine.onednn import FastLinear, fast_linear, product


def make_operands(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    shapes = ((70, 300), (40, 300), (40,))
    return [
        torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes
    ]


class TestProduct:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("has_bias", [True, False])
    def test_is_the_matrix_product(self, dtype, has_bias: bool) -> None:
        x, weight, bias = make_operands(dtype)
        bias = bias if has_bias else None
        truth = x.double() @ weight.double().t() + (0 if bias is None else bias.double())

        got = product(x, weight, bias)

        assert got.dtype == dtype
        assert torch.allclose(got.double(), truth, atol=1e-4 if dtype == torch.float32 else 1e-12)

    def test_any_strides_are_read_rightly(self) -> None:
        x, weight, _ = make_operands()
        x, weight = x.t().contiguous().t(), weight.t().contiguous().t()

        got = product(x, weight)

        assert torch.allclose(got.double(), x.double() @ weight.double().t(), atol=1e-4)

    def test_without_the_operator_torch_multiplies(self, monkeypatch) -> None:
        monkeypatch.setattr(torch.ops, "mkldnn", object())
        x, weight, bias = make_operands()

        assert torch.equal(product(x, weight, bias), functional.linear(x, weight, bias))


class TestFastLinear:
    def test_gradients_of_the_inputs_are_those_of_torch(self) -> None:
        x, weight, bias = make_operands()
        x.requires_grad_(True)
        with FastLinear():
            got = functional.linear(x, weight, bias)
        (gradient,) = torch.autograd.grad(got.square().sum(), x)

        (truth,) = torch.autograd.grad(functional.linear(x, weight, bias).square().sum(), x)
        assert type(got.grad_fn).__name__ == "_ProductBackward"
        assert torch.allclose(gradient, truth, rtol=1e-4, atol=1e-2)

    def test_a_weight_that_needs_a_gradient_keeps_it(self) -> None:
        """The product in its place knows no gradient of the weight: it would be lost silently."""
        x, weight, bias = make_operands()
        weight.requires_grad_(True)
        with FastLinear():
            got = functional.linear(x, weight, bias)

        (gradient,) = torch.autograd.grad(got.sum(), weight)

        assert torch.allclose(gradient, x.sum(0).expand(40, 300), rtol=1e-4, atol=1e-4)


class TestFastLinearWhereWorthIt:
    @pytest.mark.parametrize(("num_rows", "expected"), [(8, nullcontext), (4096, FastLinear)])
    def test_it_looks_at_calls_only_where_a_layer_is_large_enough(
        self, num_rows: int, expected: type
    ) -> None:
        model = nn.Sequential(nn.Linear(300, 10), nn.Tanh(), nn.Linear(10, 3))

        assert type(fast_linear(model, num_rows=num_rows)) is expected

    def test_a_model_without_linear_layers_has_none(self) -> None:
        assert type(fast_linear(nn.Conv2d(1, 2, 3), num_rows=10**9)) is nullcontext
