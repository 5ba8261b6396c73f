"""The clipped sum of a linear classifier in one pass: the definition's, and nobody else's model."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tan_core.engine import clipped_sum, native
from tan_core.engine.linear_classifier import in_one_pass, linear_classifier
from tests.unit.tan_core.engine.oracle import assert_exact, example_gradients

pytestmark = pytest.mark.skipif(not native.is_available(), reason="the kernels are not compiled")


def make_batch(size: int, features: int, classes: int, dtype=torch.float64):
    generator = torch.Generator().manual_seed(size)
    inputs = torch.randn(size, features, generator=generator, dtype=dtype)
    return inputs, torch.randint(0, classes, (size,), generator=generator)


def one_pass(model: nn.Module, inputs, labels, *, clip_norm: float = 1.0):
    layer = linear_classifier(model)
    assert layer is not None
    found = in_one_pass(layer, inputs, labels, clip_norm=clip_norm)
    assert found is not None
    return found


class TestInOnePass:
    @given(
        size=st.integers(1, 70),
        features=st.integers(1, 150),
        classes=st.integers(2, 16),
        bias=st.booleans(),
    )
    def test_the_sum_is_the_one_of_the_definition(
        self, size: int, features: int, classes: int, bias: bool
    ) -> None:
        model = nn.Sequential(nn.Flatten(), nn.Linear(features, classes, bias=bias)).double()
        inputs, labels = make_batch(size, features, classes)
        assert linear_classifier(model) is model[1]

        assert_exact(model, inputs, labels)

    def test_in_float32_it_is_as_close_as_float32_can_be(self) -> None:
        layer = nn.Linear(4096, 10)
        inputs, labels = make_batch(100, 4096, 10, torch.float32)
        total, norms, losses = one_pass(layer, inputs, labels)
        exact = clipped_sum(layer.double(), inputs.double(), labels, clip_norm=1.0)

        assert float((total - exact.sum).norm()) < 1e-6 * float(exact.sum.norm())
        assert torch.allclose(norms, exact.norms, rtol=1e-6)
        assert torch.allclose(losses.double(), exact.losses, rtol=1e-5)

    @pytest.mark.parametrize("clip_norm", [1e-3, 1e-300])
    def test_no_example_adds_more_than_the_clipping_norm(self, clip_norm: float) -> None:
        layer = nn.Linear(20, 3)
        inputs, labels = make_batch(40, 20, 3, torch.float32)

        for example in range(len(labels)):
            one = slice(example, example + 1)
            total, _, _ = one_pass(layer, inputs[one] * 1e3, labels[one], clip_norm=clip_norm)
            assert float(total.double().norm()) <= clip_norm * (1 + 1e-6)

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e30])
    @pytest.mark.parametrize("at", [0, 31, 32, 39])
    def test_an_example_that_is_not_finite_adds_exactly_nothing(self, value, at: int) -> None:
        layer = nn.Linear(50, 4)
        inputs, labels = make_batch(40, 50, 4, torch.float32)
        others = torch.arange(40) != at
        expected = example_gradients(layer, inputs[others], labels[others], views=1)
        inputs[at, 7] = value

        got = clipped_sum(layer, inputs, labels, clip_norm=1e6)

        assert bool(got.norms[others].isfinite().all())
        if value == 1e30:  # finite, and clipped
            assert float((got.sum - expected.sum(0)).norm()) <= 1e6 * (1 + 1e-6)
        else:
            assert not got.norms[at].isfinite()
            assert torch.allclose(got.sum, expected.sum(0), atol=1e-4)

    def test_threads_change_nothing_beyond_rounding(self) -> None:
        layer = nn.Linear(64, 10).double()
        inputs, labels = make_batch(101, 64, 10)
        before = torch.get_num_threads()
        try:
            torch.set_num_threads(1)
            alone = one_pass(layer, inputs, labels)
            torch.set_num_threads(3)
            shared = one_pass(layer, inputs, labels)
        finally:
            torch.set_num_threads(before)
        for one, other in zip(alone, shared, strict=True):
            assert torch.allclose(one, other, rtol=1e-12, atol=1e-12)

    @pytest.mark.parametrize("label", [-1, 3, 2**40])
    def test_a_label_of_no_class_never_reaches_the_kernel(self, label: int) -> None:
        layer, inputs = nn.Linear(4, 3), torch.ones(2, 4)
        labels = torch.tensor([0, label])

        assert in_one_pass(layer, inputs, labels, clip_norm=1.0) is None
        with pytest.raises((IndexError, RuntimeError)):
            clipped_sum(layer, inputs, labels, clip_norm=1.0)

    def test_what_the_kernel_cannot_read_goes_another_way(self) -> None:
        layer, labels = nn.Linear(4, 3), torch.tensor([0, 1])

        assert in_one_pass(layer, torch.ones(2, 4).half(), labels, clip_norm=1.0) is None
        assert in_one_pass(layer, torch.ones(2, 5), labels, clip_norm=1.0) is None
        assert in_one_pass(layer, torch.ones(0, 4), labels[:0], clip_norm=1.0) is None
        assert in_one_pass(layer, torch.ones(2, 4), labels.int(), clip_norm=1.0) is None

    def test_inputs_of_any_layout_are_read_as_they_are(self) -> None:
        layer = nn.Linear(6, 3).double()
        inputs, labels = make_batch(5, 6, 3)

        assert_exact(layer, inputs.t().contiguous().t(), labels)


class Doubled(nn.Linear):
    """A subclass may compute anything."""

    def forward(self, x):
        return 2 * super().forward(x)


def hooked(register: str) -> nn.Module:
    layer = nn.Linear(4, 3)
    getattr(layer, register)(lambda *_: None)
    return layer


def frozen_bias() -> nn.Module:
    layer = nn.Linear(4, 3)
    layer.bias.requires_grad_(False)
    return layer


class TestLinearClassifier:
    @pytest.mark.parametrize(
        "model",
        [
            nn.Linear(4, 3),
            nn.Sequential(nn.Flatten(), nn.Linear(4, 3)),
            nn.Sequential(nn.Identity(), nn.Flatten(), nn.Linear(4, 3, bias=False)),
        ],
    )
    def test_a_flattening_and_one_layer_is_one(self, model) -> None:
        assert linear_classifier(model) is [*model.modules()][-1]

    @pytest.mark.parametrize(
        "model",
        [
            nn.Sequential(),
            nn.Linear(4, 17),
            Doubled(4, 3),
            nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3)),
            nn.Sequential(nn.Tanh(), nn.Linear(4, 3)),
            nn.Sequential(nn.Linear(4, 3), nn.Flatten()),
            nn.Sequential(nn.Flatten(0), nn.Linear(4, 3)),
            hooked("register_forward_hook"),
            hooked("register_forward_pre_hook"),
            nn.Sequential(nn.Flatten(), hooked("register_forward_hook")),
            frozen_bias(),
            nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)),
        ],
    )
    def test_anything_else_is_not(self, model) -> None:
        assert linear_classifier(model) is None
