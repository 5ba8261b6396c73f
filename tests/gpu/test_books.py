"""The engine's sums where its group norms and standardised weights go through the kernels, interpreted or not."""

import copy

import pytest
import torch
from torch import nn

from tan_core.engine import clipped_sum, native
from tan_core.engine import gpu as kernels
from tan_core.models.relu_group_norm import ReluGroupNorm
from tan_core.models.weight_standardised import WeightStandardisedConv2d
from tan_core.testing.oracle import example_gradients

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("views", [1, 3])
def test_norms_and_standardised_weights_by_the_kernels(
    views: int, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    for name in ("group_norm", "group_norm_backward", "standardise"):
        own = getattr(kernels, name)

        def noted(*args, own=own, name=name, **options):
            called.append(name)
            return own(*args, **options)

        monkeypatch.setattr(kernels, name, noted)
    monkeypatch.setattr(kernels, "is_available", lambda _: True)
    monkeypatch.setattr(native, "is_available", lambda: False)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 8, 3, padding=1),
        nn.GroupNorm(4, 8),
        nn.Tanh(),
        WeightStandardisedConv2d(8, 16, 3, stride=2, padding=1),
        ReluGroupNorm(8, 16),
        nn.Flatten(),
        nn.Linear(16 * 3 * 3, 5),
    ).to(device)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    inputs, labels = torch.randn(4 * views, 2, 6, 6).to(device), torch.arange(4).to(device)
    exact = copy.deepcopy(model).double()
    rows = example_gradients(exact, inputs.double(), labels, views=views)
    norms = rows.norm(dim=1)
    clip_norm = float(norms.median())

    got = clipped_sum(model, inputs, labels, clip_norm=clip_norm, views=views)

    assert {"group_norm", "group_norm_backward", "standardise"} == set(called)
    assert torch.allclose(got.norms.double(), norms, rtol=1e-4)
    expected = (clip_norm / norms).clamp_max(1) @ rows
    assert float((got.sum.double() - expected).norm()) <= 1e-4 * float(expected.norm())
