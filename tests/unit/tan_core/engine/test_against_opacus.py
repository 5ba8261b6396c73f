"""Where Opacus lets an example exceed the clipping norm, and this engine does not."""

import pytest
import torch
from torch import nn

from tan_core.engine import clipped_sum

pytest.importorskip("opacus", reason="Opacus is compared with, and not installed")
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

CLIP_NORM = 0.1
LAYOUTS = [torch.contiguous_format, torch.channels_last]


def make_model() -> nn.Module:
    """Nearly all of its gradient is the convolution's."""
    layers = nn.Conv2d(4, 8, 3, padding=1, bias=False), nn.Linear(8, 3)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for layer, size in zip(layers, (0.01, 1.0), strict=True):
            layer.weight.normal_(0, size, generator=generator)
    return nn.Sequential(layers[0], nn.AdaptiveAvgPool2d(1), nn.Flatten(), layers[1])


def make_example(layout: torch.memory_format) -> tuple[torch.Tensor, torch.Tensor]:
    """Channels that cancel one another wherever they are taken for pixels."""
    channels = torch.tensor([3.0, -3.0, 3.0, -3.0]).view(1, 4, 1, 1)
    return channels.expand(1, 4, 8, 8).contiguous(memory_format=layout), torch.tensor([0])


def opacus_norm(inputs: torch.Tensor, labels: torch.Tensor) -> float:
    """Of the clipped sum by Opacus' ghost mode, without noise."""
    model = GradSampleModuleFastGradientClipping(
        make_model(), max_grad_norm=CLIP_NORM, use_ghost_clipping=True
    )
    optimizer = DPOptimizerFastGradientClipping(
        torch.optim.SGD(model.parameters(), lr=1.0),
        noise_multiplier=0.0,
        max_grad_norm=CLIP_NORM,
        expected_batch_size=1,
    )
    criterion = DPLossFastGradientClipping(model, optimizer, nn.CrossEntropyLoss())
    criterion(model(inputs), labels).backward()
    return float(torch.cat([p.grad.flatten() for p in model.parameters()]).norm())


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("layout", LAYOUTS, ids=["contiguous", "channels-last"])
def test_channels_last_lets_an_example_count_several_times_c_there_and_c_here(layout) -> None:
    inputs, labels = make_example(layout)

    theirs = opacus_norm(inputs, labels)
    found = clipped_sum(make_model(), inputs, labels, clip_norm=CLIP_NORM)

    assert float(found.sum.norm()) == pytest.approx(CLIP_NORM, rel=1e-6)
    if layout is torch.channels_last:
        assert theirs > 5 * CLIP_NORM
    else:
        assert theirs == pytest.approx(CLIP_NORM, rel=1e-5)
