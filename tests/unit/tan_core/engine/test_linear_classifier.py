"""The clipped sum of a linear classifier in one pass: the definition's, and nobody else's model."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tan_core.engine import clipped_sum, native
from tan_core.engine.inputs import Picked
from tan_core.engine.linear_classifier import in_one_pass, linear_classifier, scores
from tan_core.testing.oracle import example_gradients
from tests.unit.tan_core.engine.oracle import assert_exact

pytestmark = pytest.mark.skipif(not native.is_available(), reason="the kernels are not compiled")


def make_batch(size: int, features: int, classes: int, dtype=torch.float64):
    generator = torch.Generator().manual_seed(size)
    inputs = torch.randn(size, features, generator=generator, dtype=dtype)
    return inputs, torch.randint(0, classes, (size,), generator=generator)


def head(channels: int, pixels: int, groups: int, classes: int = 3) -> nn.Sequential:
    """As behind scattering coefficients."""
    norm = nn.GroupNorm(groups, channels, affine=False)
    return nn.Sequential(norm, nn.Flatten(), nn.Linear(channels * pixels, classes))


def one_pass(model: nn.Module, inputs, labels, *, clip_norm: float = 1.0):
    classifier = linear_classifier(model)
    assert classifier is not None
    found = in_one_pass(classifier, inputs, labels, clip_norm=clip_norm)
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
        assert linear_classifier(model) is not None

        assert_exact(model, inputs, labels)

    @given(
        size=st.integers(1, 40),
        groups=st.integers(1, 4),
        width=st.integers(1, 5),
        pixels=st.integers(2, 40),
        mean=st.sampled_from([0.0, 100.0]),
    )
    def test_so_it_is_behind_a_normalisation(
        self, size: int, groups: int, width: int, pixels: int, mean: float
    ) -> None:
        model = head(groups * width, pixels, groups).double()
        inputs, labels = make_batch(size, groups * width * pixels, 3)
        assert linear_classifier(model) is not None

        assert_exact(model, inputs.view(size, groups * width, pixels) + mean, labels)

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

        assert attempt(layer, inputs, labels) is None
        with pytest.raises((IndexError, RuntimeError)):
            clipped_sum(layer, inputs, labels, clip_norm=1.0)

    def test_what_the_kernel_cannot_read_goes_another_way(self) -> None:
        layer, labels = nn.Linear(4, 3), torch.tensor([0, 1])
        rows = torch.tensor([0, 1])

        assert attempt(layer, torch.ones(2, 4).half(), labels) is None
        assert attempt(layer, torch.ones(2, 5), labels) is None
        assert attempt(layer, torch.ones(0, 4), labels[:0]) is None
        assert attempt(layer, torch.ones(2, 4), labels.int()) is None
        assert attempt(layer, Picked(torch.ones(2, 4).double(), rows), labels) is None
        assert attempt(layer, Picked(torch.ones(4, 2).t(), rows), labels) is None
        assert attempt(head(4, 2, 2), torch.ones(2, 8), labels) is None
        assert attempt(head(4, 1, 4), torch.ones(2, 4), labels) is None

    def test_inputs_of_any_layout_are_read_as_they_are(self) -> None:
        layer = nn.Linear(6, 3).double()
        inputs, labels = make_batch(5, 6, 3)

        assert_exact(layer, inputs.t().contiguous().t(), labels)


class TestPicked:
    """Records are read where they lie: the same numbers as of those gathered and widened first."""

    @pytest.mark.parametrize("groups", [0, 2])
    def test_every_half_float_is_read_as_what_it_is(self, groups: int) -> None:
        every = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(torch.float16)
        records = every.view(-1, 4, 8)
        model = head(4, 8, groups) if groups else nn.Sequential(nn.Flatten(), nn.Linear(32, 3))
        rows, labels = torch.arange(len(records)), torch.arange(len(records)) % 3

        got = one_pass(model, Picked(records, rows), labels)
        expected = one_pass(model, Picked(records.float(), rows), labels)

        for one, other in zip(got, expected, strict=True):
            assert torch.equal(one.nan_to_num(-1), other.nan_to_num(-1))
        assert not got[1].isfinite().all()
        assert bool(got[0].isfinite().all())

    @pytest.mark.parametrize("dtype", [torch.float16, torch.uint8, torch.float64])
    @pytest.mark.parametrize("groups", [0, 3])
    @pytest.mark.parametrize("threads", [1, 3])
    def test_the_rows_that_were_picked_are_read_in_their_order(
        self, dtype, groups, threads
    ) -> None:
        generator = torch.Generator().manual_seed(1)
        records = torch.randint(0, 256, (50, 6, 9), generator=generator).to(dtype)
        model = head(6, 9, groups) if groups else nn.Sequential(nn.Flatten(), nn.Linear(54, 3))
        rows = torch.tensor([0, 49, 7, 7, 31, *range(40)])
        labels = torch.randint(0, 3, (len(rows),), generator=generator)
        picked = Picked(records, rows)
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            got = clipped_sum(model.double(), picked, labels, clip_norm=0.5)
        finally:
            torch.set_num_threads(before)

        rows_of_each = example_gradients(model, picked.floats(torch.float64), labels, views=1)
        norms = rows_of_each.norm(dim=1)
        expected = (rows_of_each * (0.5 / norms).clamp_max(1)[:, None]).sum(0)
        assert torch.allclose(got.norms, norms, rtol=1e-9)
        assert torch.allclose(got.sum, expected, rtol=1e-9, atol=1e-12)

    @pytest.mark.parametrize("row", [-1, 5])
    def test_a_row_that_is_not_there_never_reaches_the_kernel(self, row: int) -> None:
        picked = Picked(torch.ones(5, 4), torch.tensor([0, row]))

        with pytest.raises(IndexError):
            clipped_sum(nn.Linear(4, 3), picked, torch.tensor([0, 1]), clip_norm=1.0)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.uint8, torch.float64])
    @pytest.mark.parametrize("groups", [0, 3])
    def test_scores_are_what_the_model_says(self, dtype, groups) -> None:
        records = torch.randint(0, 256, (30, 6, 9)).to(dtype)
        model = head(6, 9, groups) if groups else nn.Sequential(nn.Flatten(), nn.Linear(54, 3))
        classifier = linear_classifier(model.double())
        picked = Picked(records, torch.tensor([0, 29, 7, 7, *range(9)]))
        assert classifier is not None

        found = scores(classifier, picked)

        assert found is not None
        assert torch.allclose(found, model(picked.floats(torch.float64)), rtol=1e-9, atol=1e-9)

    def test_models_of_other_kinds_see_them_gathered(self) -> None:
        model = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.Tanh(), nn.Linear(5, 3)).double()
        records = torch.randint(0, 256, (20, 3, 4), dtype=torch.uint8)
        picked = Picked(records, torch.tensor([3, 1, 19]))
        labels = torch.tensor([0, 2, 1])

        got = clipped_sum(model, picked, labels, clip_norm=1.0)

        expected = clipped_sum(model, picked.floats(torch.float64), labels, clip_norm=1.0)
        assert torch.equal(got.sum, expected.sum)


def attempt(model: nn.Module, inputs, labels):
    classifier = linear_classifier(model)
    assert classifier is not None
    return in_one_pass(classifier, inputs, labels, clip_norm=1.0)


class Doubled(nn.Linear):
    """A subclass may compute anything."""

    def forward(self, x):
        return 2 * super().forward(x)


def hooked(register: str, layer: nn.Module | None = None) -> nn.Module:
    layer = layer or nn.Linear(4, 3)
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
        found = linear_classifier(model)

        assert found is not None
        assert found.layer is [*model.modules()][-1]
        assert found.norm is None

    def test_so_it_is_behind_a_normalisation_without_parameters(self) -> None:
        model = head(4, 6, 2)
        found = linear_classifier(model)

        assert found is not None
        assert (found.norm, found.layer) == (model[0], model[2])

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
            hooked("register_full_backward_hook"),
            hooked("register_full_backward_pre_hook"),
            nn.Sequential(nn.Flatten(), hooked("register_forward_hook")),
            frozen_bias(),
            nn.GroupNorm(2, 4, affine=False),
            nn.Sequential(nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(4, 3)),
            nn.Sequential(nn.GroupNorm(2, 4, affine=False), nn.Linear(4, 3)),
            nn.Sequential(nn.Flatten(), nn.GroupNorm(2, 4, affine=False), nn.Linear(4, 3)),
            nn.Sequential(
                hooked("register_forward_hook", nn.GroupNorm(2, 4, affine=False)),
                nn.Flatten(),
                nn.Linear(4, 3),
            ),
            nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)),
        ],
    )
    def test_anything_else_is_not(self, model) -> None:
        assert linear_classifier(model) is None
