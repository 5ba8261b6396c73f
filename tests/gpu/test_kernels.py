"""Each kernel against torch in float64."""

import pytest
import torch
from torch.nn import functional

from tan_core.engine import gpu as kernels

pytestmark = pytest.mark.gpu

# Channels, outputs, rows, window, stride, dilation, views.
CONVOLUTIONS = [
    (3, 16, 8, 3, 1, 1, 2),
    (16, 32, 8, 3, 2, 1, 3),
    (16, 20, 8, 1, 2, 1, 2),
    (24, 16, 7, 3, 1, 2, 1),
    (140, 130, 4, 3, 1, 1, 1),
]


def _normal(*shape: int, seed: int, device: str) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(device)


def _of_each(a, g, weight, how, views: int) -> torch.Tensor:
    """The definition: [B, O, I], channels last within I."""
    rows = [
        torch.autograd.grad(functional.conv2d(x, weight, **how), weight, y)[0]
        for x, y in zip(a.double().split(views), g.double().split(views), strict=True)
    ]
    return torch.stack(rows).movedim(2, -1).flatten(2)


@pytest.mark.parametrize("sizes", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("channels_last", [False, True], ids=["dense", "channels-last"])
def test_weight_rows_are_each_examples_own(sizes, channels_last: bool, device: str) -> None:
    channels, outputs, rows, size, stride, dilation, views = sizes
    how = {"stride": stride, "padding": size // 2, "dilation": dilation}
    weight = _normal(outputs, channels, size, size, seed=0, device=device).double()
    weight.requires_grad_()
    # The interpreter multiplies the bits of bfloat16 as if they were whole numbers.
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    a = _normal(3 * views, channels, rows, rows + 1, seed=1, device=device).to(dtype)
    shape = functional.conv2d(a.double(), weight, **how).shape
    g = _normal(*shape, seed=2, device=device).to(dtype)
    if channels_last:
        a, g = (x.contiguous(memory_format=torch.channels_last) for x in (a, g))

    got = kernels.weight_rows(
        a, g, views=views, size=(size, size), **{name: (x, x) for name, x in how.items()}
    )

    expected = _of_each(a, g, weight, how, views)
    # Products of bfloat16 are exact in float32: only the order of the sum differs.
    assert torch.allclose(got.double(), expected, rtol=1e-5, atol=1e-4)


def test_nothing_of_a_window_is_square(device: str) -> None:
    how = {"stride": (2, 1), "padding": (0, 2), "dilation": (1, 2)}
    weight = _normal(7, 5, 2, 3, seed=0, device=device).double().requires_grad_()
    a = _normal(4, 10, 9, 6, seed=1, device=device)[:, ::2]  # what is read need not be dense
    g = _normal(*functional.conv2d(a.double(), weight, **how).shape, seed=2, device=device)
    got = kernels.weight_rows(a, g, views=2, size=(2, 3), **how)
    assert torch.allclose(got.double(), _of_each(a, g, weight, how, 2), rtol=1e-5, atol=1e-4)


def test_no_example_has_no_rows(device: str) -> None:
    empty = torch.zeros(0, 8, 4, 4, device=device)
    one = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)}
    assert kernels.weight_rows(empty, empty, views=2, size=(1, 1), **one).shape == (0, 8, 8)


@pytest.mark.parametrize("rectifies", [False, True], ids=["plain", "of-relu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("channels", "groups", "side"), [(16, 16, 5), (64, 16, 12), (32, 4, 17), (1024, 32, 4)]
)
def test_group_norm_there_and_back(
    channels: int, groups: int, side: int, dtype: torch.dtype, rectifies: bool, device: str
) -> None:
    # Far from 0: sums of squares would lose the digits that differ. What a ReLU stops is around it.
    x = (_normal(3, channels, side, side, seed=0, device=device) * 2).to(dtype)
    x += 0.5 if rectifies else 30
    x[0, :, 0] = 0
    g = _normal(3, channels, side, side, seed=1, device=device).to(dtype)
    scale, shift = (_normal(channels, seed=seed, device=device) for seed in (2, 3))

    y, mean, rate = kernels.group_norm(x, groups, scale, shift, 1e-5, rectifies=rectifies)
    back = kernels.group_norm_backward(g, x, mean, rate, scale, rectifies=rectifies)

    exact = x.double().requires_grad_()
    entered = exact.relu() if rectifies else exact
    # A scale and a shift for each view show what each of them has.
    each = [p.double().expand(3, channels).clone().requires_grad_() for p in (scale, shift)]
    out = (
        functional.group_norm(entered, groups) * each[0][..., None, None] + each[1][..., None, None]
    )
    expected = (out.detach(), *torch.autograd.grad(out, (exact, *each), g.double()))
    # What is written in bfloat16 is rounded once, by the interpreter towards 0; sums are float32.
    rounding = 2**-7 if dtype == torch.bfloat16 else 1e-5
    _check_close((y, *back), expected, (rounding, rounding, 1e-4, 1e-4))


def test_a_group_norm_without_scale_and_shift_is_one_of_ones_and_zeros(device: str) -> None:
    x, g = (_normal(3, 32, 5, 5, seed=seed, device=device) for seed in (0, 1))
    ones, zeros = torch.ones(32, device=device), torch.zeros(32, device=device)
    plain = kernels.group_norm(x, 4, None, None, 1e-5)
    _check_close(plain, kernels.group_norm(x, 4, ones, zeros, 1e-5), (1e-6,) * 3)
    back = kernels.group_norm_backward(g, x, *plain[1:], None)
    _check_close(back, kernels.group_norm_backward(g, x, *plain[1:], ones), (1e-6,) * 3)


@pytest.mark.parametrize("rectifies", [False, True], ids=["plain", "of-relu"])
def test_what_is_no_number_stays_none(rectifies: bool, device: str) -> None:
    x = _normal(2, 16, 4, 4, seed=0, device=device)
    x[1, 3, 2, 1] = torch.nan
    y, mean, rate = kernels.group_norm(x, 4, None, None, 1e-5, rectifies=rectifies)
    assert y[0].isfinite().all()
    assert not y[1, :4].isfinite().any()
    _, of_scale, _ = kernels.group_norm_backward(x, x, mean, rate, None, rectifies=rectifies)
    assert of_scale[0].isfinite().all()
    assert not of_scale[1, :4].isfinite().any()


def _check_close(found, expected, tolerances) -> None:
    for own, true, tolerance in zip(found, expected, tolerances, strict=True):
        apart = float((own.double() - true).abs().max())
        assert apart <= tolerance * max(1.0, float(true.abs().max()))


def test_rows_of_standardised_weights_lose_their_mean_and_what_is_along_the_weight(
    device: str,
) -> None:
    rows = _normal(3, 5, 27, seed=0, device=device)
    unit = _normal(5, 27, seed=1, device=device)
    unit = functional.normalize(unit - unit.mean(1, keepdim=True), dim=1)
    factor, is_free = torch.rand(5).to(device), torch.tensor([1, 0, 1, 1, 0]).bool().to(device)
    gain = (rows * unit).sum(2)
    taken = (gain * is_free)[..., None] * unit
    expected = (rows - rows.mean(2, keepdim=True) - taken) * factor[:, None]

    got = rows.clone()
    of_gain, squared = kernels.standardise(got, unit, factor, is_free)

    assert torch.allclose(got, expected, atol=1e-6)
    assert torch.allclose(of_gain, gain, atol=1e-6)
    assert torch.allclose(squared, expected.square().sum(2), rtol=1e-5)
