"""Gradients of each example of one layer: what is cut into examples, how, and what is refused."""

import pytest
import torch
from torch import nn

from tan_core.engine.layers import any_layer
from tan_core.engine.layers.any_layer import Call, _check_equal, per_example_gradients

WIDTH, EXAMPLES, VIEWS = 4, 3, 2
NUM_VIEWS = EXAMPLES * VIEWS


class Computes(nn.Module):
    """A weight, a buffer as long as the batch, and whatever is done with them."""

    def __init__(self, forward) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(torch.randn(WIDTH, generator=generator))
        self.register_buffer("table", torch.randn(NUM_VIEWS, WIDTH, generator=generator))
        self.computes = forward

    def forward(self, *args, **kwargs):
        return self.computes(self, *args, **kwargs)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def rows_of(layer: nn.Module, *args, names=None, **kwargs):
    """By the function under test, for random gradients of everything that leaves the layer."""
    call, _ = Call.of(args, kwargs, layer.double()(*args, **kwargs))
    gradients = [random(*output.shape, seed=1) for output in call.outputs]
    names = names or [name for name, _ in layer.named_parameters()]
    return per_example_gradients(layer, names, call, gradients, num_views=NUM_VIEWS, views=VIEWS)


def by_masking(layer: nn.Module, *args, **kwargs):
    """By plain autograd on the whole batch: an example's gradient is that of its own outputs."""
    outputs = any_layer._floating(layer.double()(*args, **kwargs))
    names, parameters = zip(*layer.named_parameters(), strict=True)
    rows = []
    for example in range(EXAMPLES):
        kept = torch.zeros(NUM_VIEWS, dtype=torch.float64)
        kept[example * VIEWS : (example + 1) * VIEWS] = 1
        total = sum(
            (output * random(*output.shape, seed=1) * _along(kept, output, layer, at)).sum()
            for at, output in enumerate(outputs)
        )
        rows.append(torch.autograd.grad(total, parameters, retain_graph=True))
    return dict(zip(names, map(torch.stack, zip(*rows, strict=True)), strict=True))


def _along(kept_V, output, layer, at):
    dim = 1 if at > 0 and isinstance(layer, nn.RNNBase) else 0
    return kept_V.view(*[1] * dim, -1, *[1] * (output.dim() - dim - 1))


def gates(m, x):
    """Looks at a value, as a loop with an early end would."""
    return x * m.weight if x.sum().item() > 0 else x * m.weight.exp()


EXACT = {
    "scalar": (nn.PReLU(), [random(NUM_VIEWS, 3)], {}),
    "bilinear": (nn.Bilinear(2, 3, 4), [random(NUM_VIEWS, 2), random(NUM_VIEWS, 3)], {}),
    "transposed": (nn.ConvTranspose2d(2, 3, 3, stride=2), [random(NUM_VIEWS, 2, 4, 4)], {}),
    "reflected": (
        nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"),
        [random(NUM_VIEWS, 2, 4, 4)],
        {},
    ),
    "bag": (nn.EmbeddingBag(5, 2), [torch.arange(NUM_VIEWS * 3).view(-1, 3) % 5], {}),
    "instance-norm": (nn.InstanceNorm1d(4, affine=True), [random(NUM_VIEWS, 4, 5)], {}),
    "states": (
        nn.LSTM(WIDTH, 3, 2, batch_first=True),
        [random(NUM_VIEWS, 5, WIDTH), (random(2, NUM_VIEWS, 3), random(2, NUM_VIEWS, 3))],
        {},
    ),
    "no-states": (nn.GRU(WIDTH, 3, batch_first=True), [random(NUM_VIEWS, 5, WIDTH)], {}),
    "mask-as-long-as-the-batch": (
        nn.MultiheadAttention(WIDTH, 2, batch_first=True),
        [random(NUM_VIEWS, NUM_VIEWS, WIDTH)] * 3,
        {"attn_mask": torch.ones(NUM_VIEWS, NUM_VIEWS).triu(1).bool(), "need_weights": False},
    ),
    "padding-mask": (
        nn.MultiheadAttention(WIDTH, 2, batch_first=True),
        [random(NUM_VIEWS, 3, WIDTH)] * 3,
        {"key_padding_mask": torch.arange(NUM_VIEWS * 3).view(-1, 3) % 3 == 2},
    ),
    "buffer-as-an-argument": (
        Computes(lambda m, x, table: (x[:, None] * table).sum(1) * m.weight),
        None,
        {},
    ),
    "nested": (
        Computes(lambda m, parts, scale: {"out": [parts["a"] * m.weight * scale, 2]}),
        [{"a": random(NUM_VIEWS, WIDTH)}, 3.0],
        {},
    ),
}


class TestPerExampleGradients:
    @pytest.mark.parametrize(("layer", "args", "kwargs"), EXACT.values(), ids=EXACT)
    def test_rows_are_those_of_plain_autograd(self, layer, args, kwargs) -> None:
        if args is None:
            args = [random(NUM_VIEWS, WIDTH), layer.double().table]

        got = rows_of(layer, *args, **kwargs)

        expected = by_masking(layer, *args, **kwargs)
        assert got.keys() == expected.keys()
        for name, rows in expected.items():
            assert torch.allclose(got[name], rows, rtol=1e-10, atol=1e-12)

    @pytest.mark.parametrize(
        "forward",
        [
            lambda m, x: m.weight * torch.tensor(x.tolist(), dtype=x.dtype),
            lambda m, x: torch.stack([gates(m, each) for each in x]),
        ],
        ids=["leaves-torch", "looks-at-values"],
    )
    def test_what_cannot_be_mapped_is_run_example_by_example(self, forward) -> None:
        layer, x = Computes(forward), random(NUM_VIEWS, WIDTH)

        got = rows_of(layer, x)

        assert torch.allclose(got["weight"], by_masking(layer, x)["weight"], rtol=1e-10)

    @pytest.mark.parametrize(
        ("forward", "message"),
        [
            (lambda m, x: (x - x.mean(0)) * m.weight, "mixes the examples"),
            (lambda m, x: x * m.weight * torch.rand_like(x), "draws at random"),
            (lambda m, x: x * m.weight * m.table, "cannot run on one example alone"),
            (lambda m, x: (x * m.weight).mT, "first dimension"),
        ],
        ids=["mixed", "random", "table", "transposed"],
    )
    def test_what_is_another_thing_alone_is_refused(self, forward, message: str) -> None:
        with pytest.raises(RuntimeError, match=message):
            rows_of(Computes(forward), random(NUM_VIEWS, WIDTH))

    @pytest.mark.parametrize("size", [1e-20, 1.0, 1e20, 1e37])
    def test_rounding_is_no_difference_however_large_a_record_is(self, size: float) -> None:
        """The squares of a huge one are infinite in float32: one record ended the run."""
        in_batch = size * torch.tensor([[1.0, 2.0], [1e-9, 3.0]])

        _check_equal(in_batch, in_batch * (1 + 1e-6))

        with pytest.raises(RuntimeError, match="mixes the examples"):
            _check_equal(in_batch, in_batch * 1.1)

    def test_an_output_that_the_loss_does_not_see_adds_nothing(self) -> None:
        layer, x = Computes(lambda m, x: (x * m.weight, x * m.weight.exp())), random(6, WIDTH)
        call, _ = Call.of((x,), {}, layer.double()(x))
        gradient = random(NUM_VIEWS, WIDTH)

        got = per_example_gradients(
            layer, ["weight"], call, [gradient, None], num_views=NUM_VIEWS, views=VIEWS
        )

        expected = (x * gradient).unflatten(0, (-1, VIEWS)).sum(1)
        assert torch.allclose(got["weight"], expected)

    def test_a_frozen_parameter_has_no_rows(self) -> None:
        assert rows_of(nn.Linear(WIDTH, 2), random(NUM_VIEWS, WIDTH), names=["bias"]).keys() == {
            "bias"
        }


class TestCall:
    def test_outputs_that_depend_on_each_other_have_gradients_of_their_own(self) -> None:
        """Else the second would be counted twice: by itself and as a part of the first."""
        x = torch.ones(2, requires_grad=True)
        second = x * 3
        call, (first, second) = Call.of((x,), {}, (second * 5, second))

        gradients = torch.autograd.grad((first + second).sum(), call.outputs)

        assert [gradient.tolist() for gradient in gradients] == [[1, 1], [1, 1]]

    def test_a_tensor_that_was_written_to_is_noticed(self) -> None:
        x, y = torch.ones(2), torch.ones(2)
        call, _ = Call.of((x,), {}, y)
        assert call.is_untouched

        x.mul_(2)

        assert not call.is_untouched
