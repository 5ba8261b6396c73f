"""Fast ways through layers give what torch gives, there and back."""

import copy

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from tan_core.engine import clipped_sum, native
from tan_core.engine.bookkeeping import Books
from tan_core.engine.fast_layers import fast_methods
from tan_core.models.relu_group_norm import ReluGroupNorm
from tan_core.models.weight_standardised import WeightStandardisedConv2d
from tests.support.models import frozen_batch_norm
from tests.unit.tan_core.engine.oracle import assert_exact

needs_kernels = pytest.mark.skipif(not native.is_available(), reason="the kernels are not compiled")


def methods_of(layer):
    prepare = fast_methods(layer, is_channels_last=True)
    assert prepare is not None
    return prepare()


def fast(layer):
    """The fast forward of a layer."""
    return methods_of(layer)["forward"]


def there_and_back(layer, x, g):
    """Output and gradient of the input, by torch, on contiguous copies in float64."""
    own = copy.deepcopy(layer).double()
    x = x.double().contiguous().requires_grad_()
    output = own(x)
    return output.detach(), torch.autograd.grad(output, x, g.double().contiguous())[0]


@needs_kernels
class TestGroupNorm:
    @settings(max_examples=60, deadline=None)
    @given(
        groups=st.sampled_from([1, 2, 3, 4]),
        width=st.integers(1, 9),
        size=st.tuples(st.integers(1, 5), st.integers(1, 5)),
        examples=st.integers(0, 3),
        mean=st.sampled_from([0.0, 1.0, -100.0]),
        is_last=st.booleans(),
        affine=st.booleans(),
        dtype=st.sampled_from([torch.float32, torch.float64]),
        kind=st.sampled_from([nn.GroupNorm, ReluGroupNorm]),
    )
    def test_is_that_of_torch(
        self, groups, width, size, examples, mean, is_last, affine, dtype, kind
    ) -> None:
        generator = torch.Generator().manual_seed(0)
        layer = kind(groups, groups * width, affine=affine).to(dtype)
        for parameter in layer.parameters():
            parameter.data.uniform_(0.5, 1.5, generator=generator).requires_grad_(False)
        shape = (examples, groups * width, *size)
        x, g = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
        x = (x + mean).to(dtype)
        if is_last:
            x = x.contiguous(memory_format=torch.channels_last)
        if groups * width * x[0:1].numel() == 0 or width * size[0] * size[1] == 1:
            return  # torch refuses to normalise one number
        truth, gradient = there_and_back(layer, x, g)
        x.requires_grad_()

        forward = fast(layer)
        got = forward(x)
        (own,) = torch.autograd.grad(got, x, g.to(dtype))

        scale = 1e-5 * (1 + abs(mean)) if dtype == torch.float32 else 1e-9 * (1 + abs(mean))
        assert torch.allclose(got.double(), truth, atol=scale)
        assert torch.allclose(own.double(), gradient, rtol=1e-3, atol=10 * scale)

    def test_a_mean_far_from_zero_costs_no_digits(self) -> None:
        """Torch 2.13 is off by 3e-5 on channels-last images like these."""
        layer = nn.GroupNorm(4, 16).requires_grad_(False)
        x = 10 + torch.randn(4, 16, 16, 16, generator=torch.Generator().manual_seed(0))
        truth = nn.functional.group_norm(x.double(), 4)
        forward = fast(layer)

        got = forward(x.contiguous(memory_format=torch.channels_last))

        assert float((got - truth).norm() / truth.norm()) < 1e-6


@needs_kernels
class TestFewOutputs:
    @pytest.mark.parametrize("outputs", [1, 3, 10, 16])
    @pytest.mark.parametrize("rows", [0, 1, 4, 7])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("bias", [True, False])
    def test_is_that_of_torch(self, outputs: int, rows: int, dtype, bias: bool) -> None:
        generator = torch.Generator().manual_seed(0)
        layer = nn.Linear(521, outputs, bias=bias).to(dtype)
        x = torch.randn(rows, 521, generator=generator, dtype=dtype)
        g = torch.randn(rows, outputs, generator=generator, dtype=dtype)
        truth, gradient = there_and_back(layer, x, g)
        x.requires_grad_()
        methods = methods_of(layer)

        got = methods["forward"](x)
        (own,) = torch.autograd.grad(got, x, g)

        tolerance = 1e-4 if dtype == torch.float32 else 1e-12
        assert torch.allclose(got.double(), truth, atol=tolerance)
        assert torch.allclose(own.double(), gradient, atol=tolerance)
        norms = methods["squared_inputs"](x.detach())
        assert torch.allclose(norms, x.detach().double().square().sum(1), rtol=1e-12)

    def test_a_bias_of_any_layout_is_read_as_it_is(self) -> None:
        layer, x = nn.Linear(520, 3), torch.ones(2, 520)
        layer.bias = nn.Parameter(torch.arange(6.0)[::2])

        assert torch.allclose(fast(layer)(x), layer(x), atol=1e-5)

    def test_a_bias_of_another_type_is_refused_by_torch(self) -> None:
        layer = nn.Linear(520, 3)
        layer.bias = nn.Parameter(torch.ones(3, dtype=torch.float16))

        with pytest.raises(RuntimeError):
            fast(layer)(torch.ones(2, 520))

    def test_norms_of_other_inputs_are_not_given_out(self) -> None:
        methods = methods_of(nn.Linear(600, 2))
        x = torch.randn(3, 600)
        methods["forward"](x)

        assert methods["squared_inputs"](x) is not None
        assert methods["squared_inputs"](x.clone()) is None
        assert methods["squared_inputs"](x[:2]) is None


@needs_kernels
class TestConvolution:
    @settings(max_examples=80, deadline=None)
    @given(
        channels=st.sampled_from([1, 3, 4, 16]),
        outputs=st.sampled_from([16, 32, 48, 80]),
        kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
        stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
        padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
        dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
        views=st.integers(0, 3),
        has_bias=st.booleans(),
        is_last=st.booleans(),
        dtype=st.sampled_from([torch.float32, torch.float64]),
    )
    def test_is_that_of_torch(
        self,
        channels,
        outputs,
        kernel,
        stride,
        padding,
        dilation,
        views,
        has_bias,
        is_last,
        dtype,
    ) -> None:
        generator = torch.Generator().manual_seed(0)
        layer = nn.Conv2d(
            channels, outputs, kernel, stride, padding, dilation, bias=has_bias, dtype=dtype
        )
        assume(layer.weight.numel() <= 8192)
        for parameter in layer.parameters():
            parameter.data.normal_(generator=generator)
        x = torch.randn(views, channels, 9, 8, generator=generator, dtype=dtype)
        if is_last:
            x = x.contiguous(memory_format=torch.channels_last)
        g = torch.randn(layer(x).shape, generator=generator, dtype=dtype)
        truth, gradient = there_and_back(layer, x, g)
        x.requires_grad_()

        got = fast(layer)(x)
        assert "_ByHand" in type(got.grad_fn).__name__
        (own,) = torch.autograd.grad(got, x, g)

        tolerance = 1e-4 if dtype == torch.float32 else 1e-11
        assert torch.allclose(got.double(), truth, atol=tolerance)
        assert torch.allclose(own.double(), gradient, atol=tolerance)

    def test_threads_change_nothing(self) -> None:
        layer = nn.Conv2d(4, 16, 4, padding=1)
        x = torch.randn(5, 4, 7, 7, generator=torch.Generator().manual_seed(0)).requires_grad_()
        before, found = torch.get_num_threads(), []
        try:
            for threads in (1, 3):
                torch.set_num_threads(threads)
                y = fast(layer)(x)
                found.append((y, *torch.autograd.grad(y.square().sum(), x)))
        finally:
            torch.set_num_threads(before)

        for one, other in zip(*found, strict=True):
            assert torch.equal(one, other)

    @pytest.mark.parametrize(
        "layer",
        [
            nn.Conv2d(4, 10, 3),
            nn.Conv2d(16, 32, 3, groups=2),
            nn.Conv2d(4, 16, 3, padding="same"),
            nn.Conv2d(4, 16, 3, padding=1, padding_mode="reflect"),
            nn.Conv2d(64, 64, 3),
        ],
    )
    def test_what_it_is_not_made_for_is_left_to_torch(self, layer) -> None:
        x = torch.randn(2, layer.in_channels, 6, 6, generator=torch.Generator().manual_seed(0))

        got = fast(layer)(x)

        assert "_ByHand" not in type(got.grad_fn).__name__
        assert torch.allclose(got, layer(x), atol=1e-5)

    def test_a_bias_of_another_type_is_refused_by_torch(self) -> None:
        layer = nn.Conv2d(1, 16, 3)
        layer.bias = nn.Parameter(torch.ones(16, dtype=torch.float16))

        with pytest.raises(RuntimeError):
            fast(layer)(torch.ones(1, 1, 4, 4))

    def test_a_window_that_does_not_fit_is_refused_by_torch(self) -> None:
        with pytest.raises(RuntimeError, match="Kernel size can't be greater"):
            fast(nn.Conv2d(1, 16, 5))(torch.ones(1, 1, 2, 2))


@needs_kernels
class TestWritingToWhatLeavesALayer:
    @pytest.mark.parametrize(
        "layer",
        [nn.Conv2d(3, 16, 3).requires_grad_(False), nn.MaxPool2d(2)],
        ids=["frozen", "pool"],
    )
    def test_is_allowed_where_nothing_is_trained(self, layer) -> None:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(2, 3, 6, 6, generator=generator).requires_grad_()

        found = [
            torch.autograd.grad(way(x).mul_(2).relu_().square().sum(), x)[0]
            for way in (fast(layer), layer)
        ]

        assert torch.allclose(*found, atol=1e-4)

    def test_is_allowed_where_it_is_trained(self) -> None:
        class InPlace(nn.Sequential):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                x = self[0](x)
                x *= 2
                return self[1](x.flatten(1))

        layers = nn.Conv2d(3, 16, 3), nn.Linear(16, 2)
        inputs = torch.randn(2, 3, 3, 3, generator=torch.Generator().manual_seed(0)).double()

        assert_exact(InPlace(*layers).double(), inputs, torch.tensor([0, 1]), views=1)

    @pytest.mark.parametrize("views", [1, 4])
    @pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
    @pytest.mark.parametrize(
        "norm",
        [frozen_batch_norm(16), nn.GroupNorm(4, 16), ReluGroupNorm(4, 16)],
        ids=lambda norm: type(norm).__name__,
    )
    def test_a_residual_network_is_the_same_in_place_to_the_last_bit(
        self, norm: nn.Module, layout: torch.memory_format, views: int
    ) -> None:
        class Residual(nn.Module):
            def __init__(self, norm: nn.Module, *, in_place: bool) -> None:
                super().__init__()
                self.first, self.norm = nn.Conv2d(3, 16, 3, padding=1), norm
                self.second, self.last = nn.Conv2d(16, 16, 3, padding=1), copy.deepcopy(norm)
                self.pool, self.head = nn.MaxPool2d(2), nn.Linear(256, 3)
                self.in_place = in_place

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                x = self.norm(self.first(x))
                x = x.relu_() if self.in_place else x.relu()
                y = self.last(self.second(x))
                if self.in_place:
                    y += x
                else:
                    y = y + x
                y = self.pool(functional.relu(y, inplace=self.in_place))
                logits = self.head(y.flatten(1))
                return logits.mul_(0.5) if self.in_place else logits * 0.5

        torch.manual_seed(0)
        plain = Residual(copy.deepcopy(norm), in_place=False)
        written = Residual(copy.deepcopy(norm), in_place=True)
        written.load_state_dict(plain.state_dict())
        generator = torch.Generator().manual_seed(1)
        inputs = torch.randn(4 * views, 3, 8, 8, generator=generator).contiguous(
            memory_format=layout
        )
        labels = torch.tensor([0, 1, 2, 0])

        found, expected = (
            clipped_sum(model, inputs.clone(), labels, clip_norm=0.3, views=views)
            for model in (written, plain)
        )

        assert torch.equal(found.sum, expected.sum)
        assert torch.equal(found.norms, expected.norms)


@needs_kernels
class TestMaxPool:
    @settings(max_examples=60, deadline=None)
    @given(
        kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
        stride=st.integers(1, 3),
        is_padded=st.booleans(),
        channels=st.integers(1, 20),
        dtype=st.sampled_from([torch.float32, torch.float64]),
        has_ties=st.booleans(),
    )
    def test_is_that_of_torch(self, kernel, stride, is_padded, channels, dtype, has_ties) -> None:
        padding = tuple(size // 2 for size in kernel) if is_padded else 0
        layer = nn.MaxPool2d(kernel, stride, padding)
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(2, channels, 9, 8, generator=generator, dtype=dtype)
        if has_ties:
            x = x.round()
        g = torch.randn(layer(x).shape, generator=generator, dtype=dtype)
        truth, gradient = there_and_back(layer, x, g)
        x.requires_grad_()

        got = fast(layer)(x)
        (own,) = torch.autograd.grad(got, x, g)

        assert torch.equal(got, truth.to(dtype))
        assert torch.allclose(own, gradient.to(dtype), atol=1e-5)

    def test_what_is_not_a_number_is_passed_on(self) -> None:
        x = torch.tensor([1.0, torch.nan, 2.0, 3.0]).view(1, 1, 1, 4)

        got = fast(nn.MaxPool2d((1, 2), 1))(x)

        assert got.isnan().flatten().tolist() == [True, True, False]

    def test_minus_infinity_alone_in_a_window_is_its_largest(self) -> None:
        x = torch.full((1, 1, 2, 2), -torch.inf)
        kernel = native.Kernel((2, 2), (2, 2), (1, 1))

        y, place = native.max_pool(x, kernel)

        assert y.isneginf().all()
        assert native.max_pool_backward(x, torch.ones_like(y), place, kernel).eq(1).all()

    def test_a_kernel_beyond_the_image_is_refused_by_torch(self) -> None:
        with pytest.raises(RuntimeError, match="Output size is too small"):
            fast(nn.MaxPool2d(3))(torch.ones(1, 1, 2, 2))

    @pytest.mark.parametrize(
        "layer",
        [
            nn.MaxPool2d(2, ceil_mode=True),
            nn.MaxPool2d(2, return_indices=True),
            nn.MaxPool2d(17),
            nn.MaxPool2d(2, dilation=2),
            nn.MaxPool2d(2, padding=2),
        ],
    )
    def test_what_the_kernel_cannot_do_is_left_to_torch(self, layer) -> None:
        assert fast_methods(layer, is_channels_last=True) is None


@needs_kernels
class TestTanh:
    LARGE = 20_000

    def test_every_number_is_within_two_units_in_the_last_place(self) -> None:
        ends = torch.tensor([0.0, 1e-45, 0.625, 9.01, 9.02, 9.03, 3e38, torch.inf])
        x = torch.cat([torch.linspace(0, 12, 200_001), torch.logspace(-40, 2, 100_001), ends])
        truth = torch.tanh(x.double())
        unit = torch.nextafter(truth.float(), torch.full_like(x, 2)).double() - truth.float()

        got = native.hyperbolic_tangent(x)

        assert float(((got - truth).abs() / unit).max()) < 2
        assert torch.equal(native.hyperbolic_tangent(-x), -got)
        assert got.max() == 1

    @pytest.mark.parametrize("size", [0, 1, 7, 16, 33])
    def test_no_number_depends_on_its_neighbours_or_writes_beyond_its_own(self, size: int) -> None:
        x = torch.randn(64, generator=torch.Generator().manual_seed(0))
        whole = native.hyperbolic_tangent(x)

        assert torch.equal(native.hyperbolic_tangent(x[:size]), whole[:size])

    def test_what_is_not_a_number_stays_so(self) -> None:
        x = torch.full((self.LARGE,), 0.5)
        x[::7] = torch.nan

        assert torch.equal(fast(nn.Tanh())(x).isnan(), x.isnan())

    @pytest.mark.parametrize("threads", [1, 3])
    @pytest.mark.parametrize("layout", ["contiguous", "channels-last", "strided"])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_there_and_back_is_that_of_torch(self, threads: int, layout: str, dtype) -> None:
        generator = torch.Generator().manual_seed(0)
        x, g = (3 * torch.randn(8, 10, 16, 17, generator=generator, dtype=dtype) for _ in range(2))
        if layout == "channels-last":
            x = x.contiguous(memory_format=torch.channels_last)
        if layout == "strided":
            x = x.repeat(1, 1, 1, 2)[..., ::2]
        truth, gradient = there_and_back(nn.Tanh(), x, g)
        x.requires_grad_()
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            got = fast(nn.Tanh())(x)
            (own,) = torch.autograd.grad(got, x, g)
        finally:
            torch.set_num_threads(before)

        tolerance = 3e-7 if dtype == torch.float32 else 1e-14
        assert got.stride() == torch.tanh(x).stride()
        assert torch.allclose(got.double(), truth, rtol=tolerance, atol=0)
        assert torch.allclose(own.double(), gradient, rtol=0, atol=10 * tolerance)

    def test_few_numbers_are_left_to_torch(self) -> None:
        x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))

        assert torch.equal(fast(nn.Tanh())(x), torch.tanh(x))


class TestWeightStandardisedConv2d:
    @pytest.mark.parametrize("is_channels_last", [True, False])
    def test_the_weight_is_standardised_once(self, is_channels_last: bool) -> None:
        layer = WeightStandardisedConv2d(3, 4, 2)
        prepare = fast_methods(layer, is_channels_last=is_channels_last)
        assert prepare is not None

        standardised = prepare()["standardised"]

        assert standardised() is standardised()
        for got, expected in zip(standardised(), layer.standardised(), strict=True):
            assert torch.equal(got, expected)
            assert not got.requires_grad


class TestFastMethods:
    @pytest.mark.parametrize("layer", [nn.Sigmoid(), type("Mine", (nn.Linear,), {})(2, 2)])
    def test_what_is_not_known_keeps_its_way(self, layer) -> None:
        assert fast_methods(layer, is_channels_last=True) is None

    def test_a_forward_of_its_own_stays(self) -> None:
        layer = nn.Linear(2, 2)
        layer.forward = lambda x: x

        assert fast_methods(layer, is_channels_last=True) is None


class TestOpened:
    @pytest.mark.parametrize("layer", [nn.Linear(2, 2), nn.Conv2d(1, 2, 1), nn.GroupNorm(1, 2)])
    def test_layers_are_as_before_after_the_block_even_if_it_fails(self, layer) -> None:
        # A model that is layers one after the other needs nothing of them.
        model = nn.ModuleList([layer])
        before = dict(vars(layer))

        with pytest.raises(ZeroDivisionError), Books(model).opened():
            fail(vars(layer)["forward"])

        assert vars(layer) == before


class TestClosed:
    """Looking only: the fast ways without notes."""

    @pytest.mark.parametrize(
        "model",
        [
            nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.Tanh(), nn.MaxPool2d(2)),
            nn.Sequential(WeightStandardisedConv2d(3, 4, 3, padding=1), nn.ReLU()),
            nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 4)),
        ],
        ids=["convolution", "standardised", "linear"],
    )
    def test_predictions_are_those_of_the_model(self, model) -> None:
        images = torch.randn(5, 3, 16, 16, generator=torch.Generator().manual_seed(0))
        books = Books(model)

        with torch.inference_mode(), books.closed():
            predicted = books.predictions(images)

        assert torch.allclose(predicted, model(images), atol=1e-5)


def fail(_forward) -> None:
    raise ZeroDivisionError
