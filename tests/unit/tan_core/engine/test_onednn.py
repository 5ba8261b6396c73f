"""oneDNN's product is the same product, and is only used where it holds."""

import pytest
import torch
from torch.nn import functional

from tan_core.engine import onednn
from tan_core.engine.onednn import linear, product, times_faster_here


@pytest.fixture(autouse=True)
def _is_faster_here(monkeypatch) -> None:
    """Whatever this processor prefers."""
    monkeypatch.setattr(onednn, "times_faster_here", lambda: 2.0)


def make_operands(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    shapes = ((80, 304), (48, 304), (48,))
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


class TestIsFaster:
    @pytest.mark.parametrize(
        ("examples", "is_expected"),
        [(256, True), (240, True), (250, False), (500, True), (16, False)],
    )
    def test_code_is_only_made_for_sizes_that_come_again_or_are_large(
        self, examples: int, is_expected: bool
    ) -> None:
        x, weight = torch.empty(examples, 512), torch.empty(32, 512)

        assert onednn.is_faster(x, weight) == is_expected
        # The same batch, summed over.
        assert (
            onednn.is_faster(torch.empty(32, examples), torch.empty(512, examples)) == is_expected
        )

    @pytest.mark.parametrize(
        ("times", "shape", "is_expected"),
        [
            (1.1, (1024, 256, 4096), True),
            (1.1, (1000, 256, 4096), True),
            (1.1, (256, 256, 2048), True),
            (1.1, (250, 256, 2048), False),  # code for a size that may not come again
            (1.1, (1024, 32, 512), False),
            (1.4, (1024, 32, 512), True),
            (1.0, (1024, 256, 4096), False),
        ],
    )
    def test_large_products_take_it_where_it_is_a_little_faster(
        self, times: float, shape, is_expected: bool, monkeypatch
    ) -> None:
        monkeypatch.setattr(onednn, "times_faster_here", lambda: times)
        examples, outputs, inputs = shape

        x, weight = torch.empty(examples, inputs), torch.empty(outputs, inputs)

        assert onednn.is_faster(x, weight) == is_expected

    def test_it_is_timed_in_float32_whatever_type_torch_makes_by_default(self) -> None:
        torch.set_default_dtype(torch.float64)
        try:
            assert times_faster_here.__wrapped__() > 0
        finally:
            torch.set_default_dtype(torch.float32)


class TestLinear:
    def test_gradients_of_the_inputs_are_those_of_torch(self) -> None:
        x, weight, bias = make_operands()
        x.requires_grad_(True)
        got = linear(x, weight, bias)
        (gradient,) = torch.autograd.grad(got.square().sum(), x)

        (truth,) = torch.autograd.grad(functional.linear(x, weight, bias).square().sum(), x)
        assert torch.allclose(gradient, truth, rtol=1e-4, atol=1e-2)
