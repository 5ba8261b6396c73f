"""What makes each network the one of its paper: orders, variances, attention."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from tan_core import models
from tan_core.models import nf_resnet, vit
from tan_core.models.gain import Gain
from tan_core.models.weight_standardised import WeightStandardisedConv2d
from tan_core.spec.models import ModelSpec, NfResNetModel, VitModel, WideResNetModel


def make(spec: ModelSpec, shape: tuple[int, ...] = (3, 32, 32)) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    return models.build(spec, shape=shape, num_classes=10, generator=generator)


def inputs_of(
    model: nn.Module, kinds: tuple[type[nn.Module], ...], x: torch.Tensor
) -> list[torch.Tensor]:
    """What enters every layer of these kinds while the model reads ``x``."""
    seen: list[torch.Tensor] = []
    for layer in model.modules():
        if isinstance(layer, kinds):
            layer.register_forward_pre_hook(lambda _, entered: seen.append(entered[0]))
    with torch.no_grad():
        model(x)
    return seen


class TestWideResNet:
    @pytest.mark.parametrize("order", ["relu_norm", "norm_relu"])
    def test_what_convolutions_and_the_pool_see_was_normed_or_rectified_last(self, order) -> None:
        model = make(WideResNetModel(order=order))

        _, *seen = inputs_of(model, (nn.Conv2d, nn.AdaptiveAvgPool2d), torch.randn(2, 3, 32, 32))

        for x in seen:
            is_normed = x.unflatten(1, (16, -1)).mean((2, 3, 4)).abs().max() < 1e-4
            assert bool(is_normed) == (order == "relu_norm")
            assert bool((x >= 0).all()) == (order == "norm_relu")

    def test_weight_standardisation_reaches_every_convolution(self) -> None:
        plain, standardised = (
            make(WideResNetModel(weight_standardization=on)) for on in (False, True)
        )
        kinds = [
            {type(layer) for layer in model.modules() if isinstance(layer, nn.Conv2d)}
            for model in (plain, standardised)
        ]

        assert kinds == [{nn.Conv2d}, {WeightStandardisedConv2d}]
        for layer in standardised.modules():
            if isinstance(layer, WeightStandardisedConv2d):
                assert layer.gain is not None
                assert layer.bias is not None


class TestNfResNet:
    def test_the_activation_keeps_the_variance_of_a_normal_signal(self) -> None:
        x = torch.randn(1_000_000, generator=torch.Generator().manual_seed(0))

        assert float(nf_resnet.ScaledReLU()(x).var()) == pytest.approx(1.0, rel=0.01)

    def test_every_block_divides_by_the_standard_deviation_that_theory_says(self) -> None:
        """Brock et al. (2021), section 3: alpha squared per block, back to 1 where a stage begins."""
        blocks = [
            each for each in make(NfResNetModel(width=1)) if isinstance(each, nf_resnet.Block)
        ]
        steps = [0, 1, 2, 3, 1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 1, 2]

        assert [block.beta for block in blocks] == pytest.approx(
            [1 / math.sqrt(1 + 0.04 * step) for step in steps]
        )

    def test_the_signal_has_that_standard_deviation_at_the_start(self) -> None:
        """Away from the edges, where zeros are padded, and averaged over channels and places."""
        model = make(NfResNetModel(width=2, skip_gain=1.0), (3, 48, 48))
        x = torch.randn(8, 3, 48, 48, generator=torch.Generator().manual_seed(1))

        entered = inputs_of(model, (nf_resnet.Block,), x)[:7]

        blocks = [each for each in model if isinstance(each, nf_resnet.Block)][:7]
        for block, signal in zip(blocks, entered, strict=True):
            inner = signal[:, :, 6:-6, 6:-6]
            variance = float(inner.var((0, 2, 3)).mean() + inner.mean((0, 2, 3)).var())
            assert variance * block.beta**2 == pytest.approx(1.0, rel=0.25)

    @pytest.mark.parametrize("skip_gain", [0.0, 0.5])
    def test_its_branches_start_with_the_gain_that_is_asked_for(self, skip_gain: float) -> None:
        gains = [
            layer.weight.item()
            for layer in make(NfResNetModel(width=1, skip_gain=skip_gain)).modules()
            if isinstance(layer, Gain)
        ]

        assert gains == [skip_gain] * 16

    @pytest.mark.parametrize(("side", "kernel"), [(63, 3), (64, 7)])
    def test_small_images_keep_their_size_in_the_stem(self, side: int, kernel: int) -> None:
        stem = make(NfResNetModel(width=1), (3, side, side))[0]

        assert stem.kernel_size == (kernel, kernel)


class TestVit:
    def test_attention_is_that_of_torch(self) -> None:
        ours = vit.Attention(12, heads=3)
        torchs = nn.MultiheadAttention(12, 3, batch_first=True)
        torchs.load_state_dict(
            {
                "in_proj_weight": ours.qkv.weight,
                "in_proj_bias": ours.qkv.bias,
                "out_proj.weight": ours.projection.weight,
                "out_proj.bias": ours.projection.bias,
            }
        )
        x = torch.randn(2, 5, 12)

        torch.testing.assert_close(ours(x), torchs(x, x, x)[0])

    def test_the_edge_is_filled_up_with_zeros(self) -> None:
        spec = VitModel(depth=1, width=12)
        model, whole = make(spec, (3, 10, 15)), make(spec, (3, 12, 16))
        x = torch.randn(2, 3, 10, 15)

        torch.testing.assert_close(model(x), whole(functional.pad(x, (0, 1, 0, 2))))

    def test_only_the_positions_tell_patches_apart(self) -> None:
        model = make(VitModel(depth=2, width=12), (1, 8, 8))
        x = torch.randn(2, 1, 8, 8)
        swapped = x.flip(2).unflatten(2, (2, 4)).flip(3).flatten(2, 3)  # the two rows of patches

        assert not torch.allclose(model(x), model(swapped), atol=1e-6)
        nn.init.zeros_(model[0].positions.weight)
        torch.testing.assert_close(model(x), model(swapped))
