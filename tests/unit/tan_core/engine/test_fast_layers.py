"""Fast ways through layers give what torch gives, there and back."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tan_core.engine import native
from tan_core.engine.fast_layers import fast_forward, fast_layers

needs_kernels = pytest.mark.skipif(not native.is_available(), reason="the kernels are not compiled")


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
    )
    def test_is_that_of_torch(
        self, groups, width, size, examples, mean, is_last, affine, dtype
    ) -> None:
        generator = torch.Generator().manual_seed(0)
        layer = nn.GroupNorm(groups, groups * width, affine=affine).to(dtype)
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

        forward = fast_forward(layer)
        assert forward is not None
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
        forward = fast_forward(layer)
        assert forward is not None

        got = forward(x.contiguous(memory_format=torch.channels_last))

        assert float((got - truth).norm() / truth.norm()) < 1e-6


class TestFastLayers:
    def test_layers_are_as_before_after_the_block(self) -> None:
        layer = nn.Linear(2, 2)
        forward = fast_forward(layer)
        assert forward is not None

        with fast_layers([(layer, forward)]):
            assert vars(layer)["forward"] is forward

        assert "forward" not in vars(layer)

    def test_also_when_the_block_fails(self) -> None:
        layer = nn.Linear(2, 2)
        forward = fast_forward(layer)
        assert forward is not None

        with pytest.raises(RuntimeError), fast_layers([(layer, forward)]):
            layer(torch.ones(1, 3))

        assert "forward" not in vars(layer)

    @pytest.mark.parametrize("layer", [nn.Tanh(), type("Mine", (nn.Linear,), {})(2, 2)])
    def test_what_is_not_known_keeps_its_way(self, layer) -> None:
        assert fast_forward(layer) is None

    def test_a_forward_of_its_own_stays(self) -> None:
        layer = nn.Linear(2, 2)
        layer.forward = lambda x: x

        assert fast_forward(layer) is None
