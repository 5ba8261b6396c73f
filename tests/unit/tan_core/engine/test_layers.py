"""Books of every layer against plain autograd, one example at a time."""

import doctest
from importlib import import_module

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from tan_core.engine import native
from tan_core.engine.layers import base, convolution, is_known, layer_gradients
from tan_core.engine.layers.base import squared_norms
from tan_core.models.gain import Gain
from tan_core.models.relu_group_norm import ReluGroupNorm
from tan_core.models.weight_standardised import WeightStandardisedConv2d
from tests.support.models import frozen_batch_norm
from tests.unit.tan_core.engine.oracle import one_at_a_time

DRAWN = settings(max_examples=100, deadline=None, derandomize=True)
CONVOLUTIONS = [nn.Conv1d, nn.Conv2d, nn.Conv3d]
VIEWS = [1, 3, 4, 16]
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


@pytest.fixture(params=["kernels", "torch"], scope="module", autouse=True)
def kernels(request):
    """Everything twice: with our kernels, and without them as where there was no compiler."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "torch":
            patch.setattr(native, "is_available", lambda: False)
        elif not native.is_available():
            pytest.skip("the kernels are not compiled here")
        yield


@st.composite
def convolutions(draw):
    """A convolution and the shape of one of its inputs."""
    axes = draw(st.integers(1, 3))

    def per_axis(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(axes))

    groups = draw(st.sampled_from([1, 1, 2, 3]))
    stride, padding = per_axis(1, 2), draw(st.sampled_from(["same", "valid", "number"]))
    if padding == "same":
        stride = (1,) * axes
    layer = CONVOLUTIONS[axes - 1](
        groups * draw(st.integers(1, 2)),
        groups * draw(st.integers(1, 3)),
        per_axis(1, 3),
        stride=stride,
        padding=per_axis(0, 2) if padding == "number" else padding,
        dilation=per_axis(1, 2),
        groups=groups,
        bias=draw(st.booleans()),
    )
    return layer, (layer.in_channels, *per_axis(5, 7))


@st.composite
def standardised(draw):
    groups = draw(st.sampled_from([1, 1, 2]))
    layer = WeightStandardisedConv2d(
        groups * draw(st.integers(1, 3)),
        groups * draw(st.integers(1, 3)),
        draw(st.integers(1, 3)),
        stride=draw(st.integers(1, 2)),
        padding=draw(st.integers(0, 2)),
        dilation=draw(st.integers(1, 2)),
        groups=groups,
        bias=draw(st.booleans()),
        gain=draw(st.booleans()),
    )
    # Two weights of mean 0 and norm 1 are always the same: nothing of the gradient would be left.
    assume(layer.weight[0].numel() > 2)
    return layer, (layer.in_channels, draw(st.integers(5, 7)), draw(st.integers(5, 7)))


@st.composite
def linears(draw):
    inputs, positions = draw(st.integers(1, 6)), draw(st.lists(st.integers(1, 4), max_size=3))
    layer = nn.Linear(inputs, draw(st.integers(1, 5)), bias=draw(st.booleans()))
    return layer, (*positions, inputs)


@st.composite
def scales(draw):
    sizes = tuple(draw(st.lists(st.integers(1, 4), max_size=3)))
    features = tuple(draw(st.lists(st.integers(2, 3), min_size=1, max_size=2)))
    layers = [
        (nn.GroupNorm(2, 4), (4, *sizes)),
        (ReluGroupNorm(2, 4), (4, *sizes)),
        (frozen_batch_norm(4), (4, *sizes)),
        (nn.LayerNorm(features, bias=draw(st.booleans())), (*sizes, *features)),
        (nn.RMSNorm(features), (*sizes, *features)),
        (Gain(initial=0.5), sizes),
        (Gain(3), (3, *sizes)),
    ]
    return draw(st.sampled_from(layers))


@st.composite
def embeddings(draw):
    sizes = tuple(draw(st.lists(st.integers(1, 5), max_size=2)))
    padding = draw(st.sampled_from([None, 0, 3, -1]))
    return nn.Embedding(6, draw(st.integers(1, 4)), padding_idx=padding), sizes


def layers():
    return st.one_of(convolutions(), standardised(), linears(), scales(), embeddings())


def make_step(layer, shape, *, examples: int, views: int, is_last: bool = False, seed: int = 0):
    """What enters the layer, and a gradient of what leaves it, float64."""
    generator = torch.Generator().manual_seed(seed)
    size = (examples * views, *shape)
    layer.double()
    for parameter in layer.parameters():
        parameter.data.uniform_(-1, 1, generator=generator)
    if isinstance(layer, nn.Embedding):
        a = torch.randint(0, layer.num_embeddings, size, generator=generator)
    else:
        a = torch.randn(size, generator=generator, dtype=torch.float64)
    if is_last and a.dim() in LAST and a.is_floating_point():
        a = a.contiguous(memory_format=LAST[a.dim()])
    output = layer(a)
    g = torch.randn(output.shape, generator=generator, dtype=torch.float64)
    return a, (torch.empty_like(output).copy_(g))


def assert_agree(layer, a, g, views: int, *, expected, rtol: float) -> None:
    """Norms and weighted sums, relative to the length of what they were made of."""
    weights_B = torch.linspace(0.1, 1, len(g) // views, dtype=g.dtype)
    squared_B = sum(each[..., None].flatten(1).square().sum(1) for each in expected.values())
    length = float(squared_B.sum().sqrt())

    got = layer_gradients(layer, a, g, views)
    sums = got.weighted_sum(weights_B)

    assert got.squared_norms.dtype == torch.float64
    assert got.squared_norms.shape == (len(g) // views,)
    # What cancels out has no digits left, in plain autograd neither: hence the absolute part.
    norms_B = got.squared_norms.sqrt()
    assert torch.allclose(norms_B, squared_B.sqrt(), rtol=rtol, atol=rtol * 1e-3 * length)
    assert sums.keys() == expected.keys()
    for name, each in expected.items():
        truth = torch.tensordot(weights_B.double(), each, 1)
        assert sums[name].shape == truth.shape
        assert float((sums[name].double() - truth).norm()) <= rtol * length


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
class TestLayerGradients:
    @DRAWN
    @given(
        drawn=layers(),
        examples=st.integers(0, 5),
        views=st.sampled_from(VIEWS),
        is_last=st.booleans(),
        seed=st.integers(0, 1000),
    )
    def test_norms_and_sums_are_those_of_one_backward_per_example(
        self, drawn, examples, views, is_last, seed
    ) -> None:
        layer, shape = drawn
        a, g = make_step(layer, shape, examples=examples, views=views, is_last=is_last, seed=seed)

        expected = one_at_a_time(layer, a, g, views)

        assert_agree(layer, a, g, views, expected=expected, rtol=1e-10)

    @DRAWN
    @given(
        drawn=layers(),
        examples=st.integers(1, 4),
        views=st.sampled_from(VIEWS),
        is_last=st.booleans(),
        seed=st.integers(0, 1000),
    )
    def test_float32_keeps_four_digits(self, drawn, examples, views, is_last, seed) -> None:
        layer, shape = drawn
        a, g = make_step(layer, shape, examples=examples, views=views, is_last=is_last, seed=seed)
        expected = one_at_a_time(layer, a, g, views)
        layer.float()
        a = a.float() if a.is_floating_point() else a

        assert_agree(layer, a, g.float(), views, expected=expected, rtol=1e-4)

    @pytest.mark.parametrize(
        ("entry", "call"), [(1e9, 0), (0, 1e12), (0, 0)], ids=["ghost", "patches", "one-by-one"]
    )
    @settings(max_examples=30, deadline=None, derandomize=True)
    @given(
        drawn=st.one_of(convolutions(), linears()),
        views=st.sampled_from(VIEWS),
        is_last=st.booleans(),
    )
    def test_every_way_gives_the_same_whatever_costs_least(
        self, entry, call, drawn, views, is_last
    ) -> None:
        layer, shape = drawn
        a, g = make_step(layer, shape, examples=3, views=views, is_last=is_last)
        expected = one_at_a_time(layer, a, g, views)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(base, "_ENTRY", entry)
            patch.setattr(convolution, "_ENTRY", entry)
            patch.setattr(convolution, "_SUM", 0)
            patch.setattr(convolution, "_CALL", call)
            assert_agree(layer, a, g, views, expected=expected, rtol=1e-10)

    def test_one_pixel_and_whole_vectors_of_outputs(self) -> None:
        layer = WeightStandardisedConv2d(5, 32, 1, stride=2)
        a, g = make_step(layer, (5, 6, 6), examples=3, views=4)

        expected = one_at_a_time(layer, a, g, 4)

        assert_agree(layer, a, g, 4, expected=expected, rtol=1e-10)

    def test_a_weight_without_variance_has_a_fixed_rate(self) -> None:
        """Below the floor the rate no longer follows the weight, and one part of the gradient goes."""
        layer = WeightStandardisedConv2d(2, 3, 2)
        a, g = make_step(layer, (2, 5, 5), examples=3, views=1)
        layer.weight.data[1] *= 1e-4

        expected = one_at_a_time(layer, a, g, 1)

        assert_agree(layer, a, g, 1, expected=expected, rtol=1e-10)

    def test_views_that_cancel_each_other_do_not_lose_the_norm(self) -> None:
        """In float32 the tables add up to 0 +- 2, and the truth is 2e-5."""
        layer = nn.Linear(50, 40, bias=False)
        generator = torch.Generator().manual_seed(0)
        a = torch.randn(1, 50, generator=generator).repeat(2, 1)
        g = 100 * torch.randn(1, 40, generator=generator)
        g = torch.cat([g, -g * (1 + 1e-6)])
        truth = torch.linalg.matrix_norm(g.double().mT @ a.double())

        got = layer_gradients(layer, a, g, 2).squared_norms.sqrt().item()

        # What the sum in float32 may be off by is added: more is clipped, never less.
        lost = torch.finfo(torch.float32).eps * 2**0.5 * float(a.norm() * g.norm())
        assert truth.item() * 0.99 < got < truth.item() + lost * 1.01

    @pytest.mark.filterwarnings("ignore:Initializing zero-element")
    @pytest.mark.parametrize(("positions", "outputs"), [(0, 4), (3, 0), (0, 0)])
    def test_without_positions_or_outputs_there_is_no_gradient(
        self, positions: int, outputs: int
    ) -> None:
        """What the memory held before was taken for it, and of no outputs the process ended."""
        layer = nn.Linear(6, outputs).double()
        a, g = torch.ones(2, positions, 6).double(), torch.ones(2, positions, outputs).double()
        before = [torch.full((2, 7, 16), torch.nan).double() for _ in range(16)]
        del before  # freed, for the next tensors of this size

        got = layer_gradients(layer, a, g, 1)

        assert got.squared_norms.tolist() == [0, 0]
        sums = got.weighted_sum(torch.ones(2).double())
        assert {name: value.shape for name, value in sums.items()} == {
            name: p.shape for name, p in layer.named_parameters()
        }
        assert not any(value.any() for value in sums.values())

    def test_a_padding_word_has_no_gradient(self) -> None:
        layer = nn.Embedding(4, 2, padding_idx=1)

        got = layer_gradients(layer, torch.tensor([[1, 1]]), torch.ones(1, 2, 2), 1)

        assert got.squared_norms.item() == 0
        assert not got.weighted_sum(torch.ones(1))["weight"].any()


class TestIsKnown:
    @pytest.mark.parametrize(
        "layer",
        [
            nn.Embedding(4, 2, max_norm=1.0),
            nn.Embedding(4, 2, scale_grad_by_freq=True),
            nn.Embedding(4, 2, sparse=True),
            nn.Conv1d(2, 2, 3, padding=1, padding_mode="reflect"),
            nn.ConvTranspose2d(2, 2, 3),
            nn.Bilinear(2, 2, 2),
            nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)),
            type("Mine", (nn.Linear,), {})(2, 2),
            type("Mine", (Gain,), {})(),
        ],
        ids=[
            "max-norm",
            "frequency",
            "sparse",
            "reflect",
            "transposed",
            "bilinear",
            "weight-norm",
            "linear-like",
            "gain-like",
        ],
    )
    def test_what_the_books_do_not_cover_is_unknown(self, layer: nn.Module) -> None:
        assert not is_known(layer)

    def test_a_hook_or_a_forward_of_its_own_makes_a_layer_unknown(self) -> None:
        hooked, patched = nn.Linear(2, 2), nn.Linear(2, 2)
        assert is_known(hooked)

        hooked.register_forward_hook(lambda *_: None)
        patched.forward = lambda x: x

        assert not is_known(hooked)
        assert not is_known(patched)


class TestSquaredNorms:
    @pytest.mark.parametrize("size", [0, 5, 4096, 1_000_003])
    def test_float32_rows_keep_their_norm_to_a_millionth(self, size: int) -> None:
        rows = torch.randn(2, size, generator=torch.Generator().manual_seed(0))

        got = squared_norms(rows).sqrt()

        assert torch.allclose(got, rows.double().norm(dim=1), rtol=1e-6)


class TestGain:
    def test_a_gain_per_channel_scales_the_second_dimension(self) -> None:
        gain = Gain(2)
        gain.weight.data.copy_(torch.tensor([2.0, 3.0]))

        got = gain(torch.ones(1, 2, 2))

        assert got.tolist() == [[[2.0, 2.0], [3.0, 3.0]]]

    def test_the_examples_in_its_docstring_are_true(self) -> None:
        results = doctest.testmod(import_module("tan_core.models.gain"))

        assert results.attempted
        assert not results.failed
