"""Per-example gradients: exact against one backward pass per example, bounded, safe against NaN."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tan_core import models
from tan_core.engine import clipped_sum
from tan_core.errors import ParameterError
from tan_core.models.gain import Gain
from tan_core.testing.oracle import clipped, example_gradients
from tests.support.models import SMALL_MODELS, frozen_batch_norm
from tests.unit.tan_core.engine.oracle import books_are_enough


class Residual(nn.Module):
    """A branch that starts small beside the identity."""

    def __init__(self, *branch: nn.Module) -> None:
        super().__init__()
        self.branch = nn.Sequential(*branch, Gain(initial=0.3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.branch(x)


def sequence_model() -> nn.Module:
    """Reads [V, 6] words."""
    return nn.Sequential(
        nn.Embedding(9, 4, padding_idx=0),
        Residual(nn.LayerNorm(4), nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4)),
        nn.RMSNorm(4),
        nn.Flatten(),
        nn.Linear(24, 3),
    )


def image_model(norm: nn.Module) -> nn.Module:
    """Reads [V, 2, 6, 6] images; without a group norm the books are kept channels-last."""
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding="same", groups=2),
        nn.Tanh(),
        Residual(nn.Conv2d(4, 4, 3, dilation=2, padding="same", bias=False), nn.Tanh()),
        norm,
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(36, 3),
    )


def make_model(name: str, shape=(1, 8, 8), seed: int = 0) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    spec = SMALL_MODELS[name]
    return models.build(spec, shape=shape, num_classes=3, generator=generator).double()


def make_batch(examples: int, views: int = 1, shape=(1, 8, 8), seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(examples * views, *shape, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(0, 3, (examples,), generator=generator)


def one_backward_per_example(model, inputs, labels, *, clip_norm: float, views: int):
    rows = example_gradients(model, inputs, labels, views=views)
    return clipped(rows, clip_norm), rows.norm(dim=1)


class TestClippedSum:
    @pytest.mark.parametrize("views", [1, 4])
    def test_words_in_sequence_equal_one_backward_pass_per_example(self, views: int) -> None:
        model = sequence_model().double()
        generator = torch.Generator().manual_seed(0)
        words = torch.randint(0, 9, (5 * views, 6), generator=generator)
        labels = torch.tensor([0, 1, 2, 0, 1])
        expected, norms = one_backward_per_example(model, words, labels, clip_norm=0.5, views=views)

        got = clipped_sum(model, words, labels, clip_norm=0.5, views=views)

        assert books_are_enough(model)
        assert torch.allclose(got.norms, norms, rtol=1e-10)
        assert float((got.sum - expected).norm() / expected.norm()) < 1e-10

    @pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize(
        "norm",
        [Gain(4), nn.GroupNorm(2, 4), frozen_batch_norm(4)],
        ids=["gain", "group-norm", "frozen-batch-norm"],
    )
    def test_no_layout_lets_an_example_pass_unclipped(self, norm, dtype, layout) -> None:
        """A per-example gradient that forgets the strides clips by a norm that is not its own."""
        model = image_model(norm).to(dtype)
        inputs, labels = make_batch(4, shape=(2, 6, 6))
        inputs = (10 * inputs).to(dtype).contiguous(memory_format=layout)
        _, norms = one_backward_per_example(model, inputs, labels, clip_norm=1.0, views=1)
        clip_norm = float(norms.min() / 2)

        whole = clipped_sum(model, inputs, labels, clip_norm=clip_norm).sum

        for left_out in range(4):
            kept = [i for i in range(4) if i != left_out]
            part = clipped_sum(model, inputs[kept], labels[kept], clip_norm=clip_norm).sum
            moved = float((whole - part).norm())
            assert moved == pytest.approx(clip_norm, rel=1e-3 if dtype is torch.float32 else 1e-9)

    def test_one_example_weighs_as_much_with_many_views_as_with_one(self) -> None:
        model = make_model("mlp").float()
        inputs, labels = make_batch(1, views=16)

        got = clipped_sum(model, inputs.float() * 30, labels, clip_norm=0.01, views=16)

        assert float(got.sum.norm()) == pytest.approx(0.01, rel=1e-5)

    @pytest.mark.parametrize("poison", [float("nan"), float("inf"), 1e38])
    def test_a_non_finite_example_contributes_exactly_zero(self, poison: float) -> None:
        """1e38 is finite, but the norm of its gradient is not."""
        model = make_model("linear").float()
        inputs, labels = make_batch(4)
        inputs = inputs.float()
        inputs[3] = poison

        alone = clipped_sum(model, inputs[3:], labels[3:], clip_norm=0.5).sum
        healthy = clipped_sum(model, inputs[:3], labels[:3], clip_norm=0.5).sum
        together = clipped_sum(model, inputs, labels, clip_norm=0.5)

        assert torch.equal(alone, torch.zeros_like(alone))
        assert torch.allclose(together.sum, healthy, atol=1e-6)
        assert not together.norms[3].isfinite()

    @pytest.mark.parametrize("views", [1, 4])
    @pytest.mark.parametrize("name", ["linear", "mlp", "tanh-cnn"])
    def test_weights_multiply_what_is_clipped(self, name: str, views: int) -> None:
        model, (inputs, labels) = make_model(name), make_batch(6, views)
        weights = torch.tensor([1.0, 0.5, 0.0, 0.25, 1.0, 0.1], dtype=torch.float64)
        rows = example_gradients(model, inputs, labels, views=views)
        expected = sum(
            weight * clipped(row[None], 0.3) for weight, row in zip(weights, rows, strict=True)
        )

        got = clipped_sum(
            model,
            inputs,
            labels,
            clip_norm=0.3,
            views=views,
            weights=weights,
            microbatch_size=2 * views,
        )

        torch.testing.assert_close(got.sum, expected, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(got.norms, rows.norm(dim=1))

    def test_an_example_that_is_not_finite_takes_its_weight_with_it(self) -> None:
        model, (inputs, labels) = make_model("mlp"), make_batch(4)
        weights = torch.tensor([0.5, 1.0, 0.25, 0.1], dtype=torch.float64)
        inputs[1] = torch.nan
        others = [0, 2, 3]

        got = clipped_sum(model, inputs, labels, clip_norm=0.3, weights=weights)

        without = clipped_sum(
            model, inputs[others], labels[others], clip_norm=0.3, weights=weights[others]
        )
        torch.testing.assert_close(got.sum, without.sum)

    @pytest.mark.parametrize("wrong", [1.0000001, -0.1, float("nan"), float("inf")])
    def test_a_weight_that_would_take_a_gradient_beyond_its_norm_is_refused(self, wrong) -> None:
        weights = torch.tensor([1.0, wrong], dtype=torch.float64)

        with pytest.raises(ParameterError, match=r"in \[0, 1\]") as caught:
            clipped_sum(make_model("mlp"), *make_batch(2), clip_norm=1.0, weights=weights)
        assert caught.value.field == "weights"

    def test_weights_are_one_for_each_example(self) -> None:
        with pytest.raises(ParameterError, match="one for each of 2 examples"):
            clipped_sum(make_model("mlp"), *make_batch(2), clip_norm=1.0, weights=torch.ones(3))

    def test_an_empty_batch_sums_to_zero(self) -> None:
        model = make_model("tanh-cnn")
        inputs, labels = make_batch(0)

        got = clipped_sum(model, inputs, labels, clip_norm=1.0, views=4)

        assert torch.equal(got.sum, torch.zeros_like(got.sum))
        assert got.norms.shape == got.losses.shape == (0,)

    def test_losses_are_the_mean_over_the_views(self) -> None:
        model = make_model("mlp")
        inputs, labels = make_batch(3, views=2)
        each = functional.cross_entropy(
            model(inputs), labels.repeat_interleave(2), reduction="none"
        )

        got = clipped_sum(model, inputs, labels, clip_norm=1.0, views=2)

        assert torch.allclose(got.losses, each.view(3, 2).mean(1))

    def test_the_model_is_left_without_gradients(self) -> None:
        model = make_model("mlp")

        clipped_sum(model, *make_batch(3), clip_norm=1.0)

        assert all(parameter.grad is None for parameter in model.parameters())

    def test_counts_that_do_not_fit_are_refused(self) -> None:
        inputs, labels = make_batch(3)

        with pytest.raises(ParameterError, match="2 views of each of 3 examples, got 3"):
            clipped_sum(make_model("mlp"), inputs, labels, clip_norm=1.0, views=2)

    @pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.int64])
    def test_labels_are_integers_of_any_width(self, dtype: torch.dtype) -> None:
        inputs, labels = make_batch(3)
        expected = clipped_sum(make_model("mlp"), inputs, labels, clip_norm=1.0).sum

        found = clipped_sum(make_model("mlp"), inputs, labels.to(dtype), clip_norm=1.0).sum

        assert torch.equal(found, expected)

    @pytest.mark.parametrize(
        ("of_model", "of_inputs"),
        [(torch.float32, torch.float64), (torch.float64, torch.float32), (torch.float32, torch.float16)],
    )  # fmt: skip
    @pytest.mark.parametrize("hidden", [False, True])
    def test_floats_of_another_type_than_the_model_are_refused_with_both(
        self, of_model: torch.dtype, of_inputs: torch.dtype, hidden: bool
    ) -> None:
        before = [nn.Linear(3, 3), nn.Tanh()] if hidden else []
        model = nn.Sequential(*before, nn.Linear(3, 2)).to(of_model)
        inputs, labels = torch.zeros(4, 3, dtype=of_inputs), torch.zeros(4, dtype=torch.int64)

        with pytest.raises(ParameterError) as caught:
            clipped_sum(model, inputs, labels, clip_norm=1.0)

        assert caught.value.field == "inputs"
        assert str(caught.value) == (
            f"inputs are {of_inputs}, what is trained of the model is {of_model}; accepted: inputs.to({of_model}), or "
            "a model of their type"
        )
        assert clipped_sum(model, inputs.to(of_model), labels, clip_norm=1.0).sum.dtype == of_model

    def test_what_is_no_tensor_of_its_kind_is_refused_by_name(self) -> None:
        inputs, labels = make_batch(3)
        for given, said in (
            ((inputs.numpy(), labels), "inputs must be a torch.Tensor, got ndarray"),
            ((inputs, labels.tolist()), "labels must be a torch.Tensor, got list"),
            ((inputs, labels.float()), "labels must be integers, got torch.float32"),
        ):
            with pytest.raises(ParameterError, match=said):
                clipped_sum(make_model("mlp"), *given, clip_norm=1.0)

    def test_nobody_is_told_of_parts_of_nothing(self) -> None:
        with pytest.raises(ParameterError, match="onto, which is missing"):
            clipped_sum(make_model("mlp"), *make_batch(3), clip_norm=1.0, final=print)
