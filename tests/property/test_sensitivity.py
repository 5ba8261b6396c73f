"""One example moves the clipped sum by at most C, whatever it holds: every kind of layer and precision."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tan_core.engine import clipped_sum
from tan_core.engine.bookkeeping import Books
from tan_core.engine.layers import _KINDS
from tan_core.models.gain import Gain
from tan_core.models.position_embedding import PositionEmbedding
from tan_core.models.relu_group_norm import ReluGroupNorm
from tan_core.models.weight_standardised import WeightStandardisedConv2d
from tan_core.spec.train import Precision
from tests.support.models import frozen_batch_norm

FEW = settings(max_examples=40)
AT_MOST = 1 + 1e-6
LAYERS = {
    "linear": (nn.Linear(3, 2), (8, 3)),
    "wide linear": (nn.Linear(40, 40), (4, 40)),
    "linear alone": (nn.Linear(6, 4), (6,)),
    "conv1d": (nn.Conv1d(2, 3, 3), (2, 20)),
    "conv2d": (nn.Conv2d(2, 3, 3), (2, 6, 6)),
    "wide conv2d": (nn.Conv2d(16, 32, 3), (16, 4, 4)),
    "grouped conv2d": (nn.Conv2d(4, 6, 3, padding=1, groups=2), (4, 4, 4)),
    "conv3d": (nn.Conv3d(2, 2, 2), (2, 3, 3, 3)),
    "standardised": (WeightStandardisedConv2d(4, 6, 3, gain=True), (4, 6, 6)),
    "group norm": (nn.GroupNorm(2, 4), (4, 4, 4)),
    "group norm of a relu": (ReluGroupNorm(2, 4), (4, 4, 4)),
    "frozen batch norm": (frozen_batch_norm(4), (4, 4, 4)),
    "layer norm": (nn.LayerNorm(6), (5, 6)),
    "rms norm": (nn.RMSNorm(6), (5, 6)),
    "gain": (Gain(initial=0.5), (4, 5)),
    "gains": (Gain(3), (3, 5)),
    "shift": (PositionEmbedding(5, 6), (5, 6)),
    "embedding": (nn.Embedding(4, 5), (7,)),
    "unknown": (nn.PReLU(3), (3, 5)),
    "unknown product": (nn.ConvTranspose1d(2, 3, 3), (2, 5)),
}


class Weighed(nn.Module):
    """Makes of a layer's output two logits, so that its gradient is +-``weights``, or nothing."""

    def __init__(self, layer: nn.Module, weights_V: torch.Tensor) -> None:
        super().__init__()
        self.layer = layer
        self.register_buffer("weights", weights_V)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logit = (self.layer(x) * self.weights).flatten(1).sum(1)
        return torch.stack([logit, torch.zeros_like(logit)], 1)


def random(shape, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator)


def alternating(shape) -> torch.Tensor:
    """+1 and -1 in turn along all dimensions: what is equal cancels between neighbours."""
    places = torch.stack(torch.meshgrid(*map(torch.arange, shape), indexing="ij"))
    return 1.0 - 2.0 * (places.sum(0) % 2)


def even_shape(layer: nn.Module, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Of an input that is the same at all positions."""
    if isinstance(layer, (nn.Linear, nn.LayerNorm, nn.RMSNorm, PositionEmbedding)):
        return (1,) * len(shape) + shape[-1:]
    return (1, *shape[:1], *[1] * (len(shape) - 1))


def contribution(
    name: str,
    *,
    views: int,
    seed: int,
    scale: float,
    steepness: float,
    label: int,
    cancel: float,
    is_even: bool,
    is_last: bool,
    precision: Precision,
) -> float:
    """The norm of what one example adds to a clipped sum at C = 1."""
    layer, shape = LAYERS[name]
    generator = torch.Generator().manual_seed(seed)
    for parameter in layer.parameters():
        parameter.data.uniform_(-1, 1, generator=generator)
    if isinstance(layer, nn.Embedding):
        inputs = torch.randint(0, 4, (views, *shape), generator=generator)
    else:
        own = even_shape(layer, shape) if is_even else (views, *shape)
        inputs = scale * random(own, generator).expand(views, *shape).clone()
    if is_last and inputs.dim() == 4:
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        size = tuple(layer(inputs).shape)
    weights = steepness * (cancel * alternating(size) + random(size, generator))
    books = Books(Weighed(layer, weights), precision)
    found = clipped_sum(books, inputs, torch.tensor([label]), clip_norm=1.0, views=views)
    return float(found.sum.double().norm())


EXAMPLES = {
    "views": st.sampled_from([1, 4]),
    "seed": st.integers(0, 1000),
    "scale": st.integers(-30, 30).map(lambda power: 10.0**power),
    "steepness": st.integers(-10, 10).map(lambda power: 10.0**power),
    "label": st.integers(0, 1),
    "is_even": st.booleans(),
    "is_last": st.booleans(),
    "precision": st.sampled_from(Precision),
}


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Tensors are tiny: threads only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class TestOneExample:
    @pytest.mark.parametrize("name", LAYERS)
    @FEW
    @given(**EXAMPLES)
    def test_no_magnitude_takes_it_beyond_the_clipping_norm(self, name: str, **example) -> None:
        assert contribution(name, cancel=0.0, **example) <= AT_MOST

    @pytest.mark.parametrize("name", LAYERS)
    @FEW
    @given(
        cancel=st.integers(0, 12).map(lambda power: 10.0**power),
        **EXAMPLES,
    )
    def test_positions_and_views_that_cancel_do_not_either(self, name: str, **example) -> None:
        assert contribution(name, **example) <= AT_MOST

    def test_every_kind_of_layer_is_drawn(self) -> None:
        assert {type(layer) for layer, _ in LAYERS.values()} >= set(_KINDS)
