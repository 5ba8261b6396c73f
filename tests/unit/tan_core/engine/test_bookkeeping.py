"""Books against one backward pass per example: any layer, shared, frozen, nested, run again."""

import copy
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from tan_core import models
from tan_core.engine import bookkeeping, clipped_sum
from tan_core.engine.audit import differences
from tan_core.models.gain import Gain
from tan_core.models.prepared_input import with_input
from tan_core.spec.models import ModelInput
from tan_core.testing.oracle import example_gradients
from tests.support.models import SMALL_MODELS, frozen_batch_norm
from tests.unit.tan_core.engine.oracle import assert_exact, books_are_enough

VIEWS = [1, 4]


class Wired(nn.Module):
    """Named layers, and a forward pass that uses them as it likes."""

    def __init__(self, wiring, **layers: nn.Module) -> None:
        super().__init__()
        self.wiring = wiring
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.wiring(self, x)


class Offset(nn.Module):
    """Adds a parameter of its own around a layer."""

    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.layer = layer
        self.offset = nn.Parameter(torch.randn(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x + self.offset) * self.offset


def two_linears(wiring) -> nn.Module:
    return Wired(wiring, first=nn.Linear(3, 3), second=nn.Linear(3, 3))


def make_batch(*shape: int, examples: int = 4, views: int = 1, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(examples * views, *shape, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(0, 3, (examples,), generator=generator)


def make_words(length: int, *, views: int, examples: int = 4):
    generator = torch.Generator().manual_seed(0)
    words = torch.randint(0, 7, (examples * views, length), generator=generator)
    return words, torch.randint(0, 3, (examples,), generator=generator)


WRONG = {
    "skipped": (
        lambda m, x: m.first(x) if x.sum() > 0 else m.second(m.first(x)),
        "'second' did not run",
    ),
    "by-its-parameters": (
        lambda m, x: functional.linear(m.first(x), m.second.weight, m.second.bias),
        "'second' did not run",
    ),
    "without-gradients": (
        lambda m, x: m.second(torch.no_grad()(m.first)(x)),
        "'first' did not run",
    ),
    "unused": (lambda m, x: (m.first(x), m.second(x))[1], "'first' does not reach the loss"),
    "detached": (lambda m, x: m.second(m.first(x)).detach(), "no layer .* reaches the loss"),
    "not-first": (lambda m, x: m.second(m.first(x[None])[0]), "'first' .* first dimension"),
    "input-overwritten": (
        lambda m, x: (lambda y: (m.second(m.first(y)), y.mul_(2))[0])(x * 1),
        "'first' .* in place",
    ),
}

TWICE = {
    "one-shape": lambda m, x: m.second(m.first(m.first(x).tanh())),
    "two-shapes": lambda m, x: m.second(m.first(m.first(x[:, None].repeat(1, 2, 1)).sum(1))),
    "once-unused": lambda m, x: (m.first(x), m.second(m.first(x)))[1],
    "beside-itself": lambda m, x: m.second(m.first(x) * m.first(2 * x)),
}

FROZEN = {
    "below": ["0.weight", "0.bias"],
    "above": ["4.weight", "4.bias"],
    "all-but-biases": ["0.weight", "2.weight", "4.weight"],
    "one-bias": ["2.bias"],
    "one-weight": ["0.weight"],
}


def added(y, x):
    y += x
    return y


WRITTEN = {
    "added": added,
    "scaled": lambda y, x: y.mul_(x.cos()),
    "rectified": lambda y, _: functional.relu(y, inplace=True),
    "twice": lambda y, x: y.mul_(2).add_(x).relu_(),
    "a-part": lambda y, _: (y[:, 1:].zero_(), y)[1],
}
"""What a network does to the output of a layer, as residual networks do."""


class TestBatchGradients:
    @pytest.mark.parametrize("views", VIEWS)
    @pytest.mark.parametrize("write", WRITTEN.values(), ids=WRITTEN)
    @pytest.mark.parametrize(
        ("layer", "shape"),
        [
            (nn.Linear(4, 4), (4,)),
            (nn.Conv2d(4, 4, 3, padding=1), (4, 3, 3)),
            (nn.GroupNorm(2, 4), (4, 3, 3)),
            (frozen_batch_norm(4), (4, 3, 3)),
            (nn.LayerNorm(4), (5, 4)),
            (Gain(4), (4, 3)),
        ],
        ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
    )
    def test_what_leaves_a_layer_may_be_written_to(self, layer, shape, write, views: int) -> None:
        """First behind a layer that is trained, then behind one that no gradient reaches."""

        def wiring(m, x):
            x = write(m.layer(x), x.sin())
            x = write(m.second(x.tanh()), x.cos())
            return m.head(x.flatten(1)).mul_(2)

        head = nn.Linear(torch.Size(shape).numel(), 3)
        model = Wired(wiring, layer=layer, second=copy.deepcopy(layer), head=head).double()

        assert_exact(model, *make_batch(*shape, views=views), views=views)

    @pytest.mark.parametrize("views", VIEWS)
    @pytest.mark.parametrize("wiring", TWICE.values(), ids=TWICE)
    def test_a_layer_that_runs_again_adds_its_gradients(self, wiring, views: int) -> None:
        inputs, labels = make_batch(3, views=views)

        assert_exact(two_linears(wiring).double(), inputs, labels, views=views)

    @pytest.mark.parametrize("views", VIEWS)
    @pytest.mark.parametrize(
        ("layer", "shape"),
        [
            (nn.Conv2d(2, 2, 3, padding=1), (2, 4, 4)),
            (nn.GroupNorm(2, 4), (4, 3)),
            (frozen_batch_norm(4), (4, 3)),
            (nn.LSTMCell(4, 4), (4,)),
        ],
        ids=["convolution", "group-norm", "frozen-batch-norm", "lstm-cell"],
    )
    def test_layers_of_every_sort_may_run_again(self, layer, shape, views: int) -> None:
        def wiring(m, x):
            for _ in range(3):
                x = m.layer(x)
                x = x[0] if isinstance(x, tuple) else x.tanh()
            return m.head(x.flatten(1))

        head = nn.Linear(torch.Size(shape).numel(), 3)
        model = Wired(wiring, layer=layer, head=head).double()

        assert_exact(model, *make_batch(*shape, views=views), views=views)

    @pytest.mark.parametrize("views", VIEWS)
    def test_a_known_layer_may_be_called_by_keyword(self, views: int) -> None:
        model = Wired(
            lambda m, x: m.head(m.norm(input=x)), norm=nn.LayerNorm(3), head=nn.Linear(3, 3)
        )

        assert_exact(model.double(), *make_batch(3, views=views), views=views)

    @pytest.mark.parametrize("views", VIEWS)
    def test_layers_that_share_a_weight_add_their_gradients(self, views: int) -> None:
        model = Wired(
            lambda m, x: m.head(m.embedding(x).mean(1)),
            embedding=nn.Embedding(7, 5),
            head=nn.Linear(5, 7),
        ).double()
        model.head.weight = model.embedding.weight

        assert_exact(model, *make_words(6, views=views), views=views)

    def test_the_norm_of_a_shared_weight_is_not_a_sum_of_squares(self) -> None:
        """Two uses that cancel each other leave no gradient; added squares would say otherwise."""
        model = Wired(
            lambda m, x: m.first(x) - m.second(x), first=nn.Linear(3, 3), second=nn.Linear(3, 3)
        )
        model.double().second.weight = model.first.weight
        model.second.bias = model.first.bias

        got = clipped_sum(model, *make_batch(3), clip_norm=1.0)

        assert float(got.norms.max()) < 1e-12

    @pytest.mark.parametrize("views", VIEWS)
    @pytest.mark.parametrize("frozen", FROZEN.values(), ids=FROZEN)
    def test_what_is_frozen_takes_no_part(self, frozen, views: int) -> None:
        model = nn.Sequential(
            nn.Linear(3, 4), nn.Tanh(), nn.LayerNorm(4), nn.Flatten(), nn.Linear(4, 3)
        ).double()
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name not in frozen)

        assert_exact(model, *make_batch(3, views=views), views=views)

    def test_no_gradient_flows_below_the_lowest_trained_layer(self) -> None:
        seen = []
        model = nn.Sequential(
            nn.Linear(3, 3),
            Wired(lambda _, x: (seen.append(x.requires_grad), x)[1]),
            nn.Linear(3, 3),
            Wired(lambda _, x: (seen.append(x.requires_grad), x)[1]),
        ).double()
        model[0].requires_grad_(False)

        books = bookkeeping.Books(model)
        with books.opened():
            books.batch_gradients(*make_batch(3), views=1)

        assert seen == [False, True]

    @pytest.mark.parametrize("views", VIEWS)
    def test_a_parameter_around_known_layers_leaves_their_books_alone(self, views: int) -> None:
        inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), Offset(nn.Linear(4, 4), 4))
        model = nn.Sequential(Offset(inner, 4), nn.Linear(4, 3)).double()

        assert_exact(model, *make_batch(4, views=views), views=views)

    def test_a_layer_that_works_in_place_is_none_while_books_are_kept(self) -> None:
        model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True), nn.Linear(3, 3)).double()

        assert_exact(model, *make_batch(3))

        assert model[1].inplace

    @pytest.mark.parametrize("views", VIEWS)
    def test_an_example_that_is_not_finite_is_left_out_whatever_the_layers(self, views) -> None:
        model = Wired(
            lambda m, x: m.second(m.first(m.first(x)).exp()),
            first=nn.PReLU(),
            second=nn.Linear(3, 3),
        )
        inputs, labels = make_batch(3, views=views)
        inputs[-1] = 1e6

        got = clipped_sum(model.double(), inputs, labels, clip_norm=0.1, views=views)
        kept = clipped_sum(model, inputs[:-views], labels[:-1], clip_norm=0.1, views=views)

        assert not got.norms[-1].isfinite()
        assert torch.allclose(got.sum, kept.sum, atol=1e-12)

    @pytest.mark.parametrize(("wiring", "message"), WRONG.values(), ids=WRONG)
    def test_a_model_whose_norms_would_be_wrong_is_refused(self, wiring, message: str) -> None:
        books = bookkeeping.Books(two_linears(wiring))

        with pytest.raises(RuntimeError, match=message), books.opened():
            books.batch_gradients(torch.ones(2, 3), torch.tensor([0, 1]), views=1)

    def test_more_scores_than_labels_are_refused(self) -> None:
        books = bookkeeping.Books(two_linears(lambda m, x: m.second(m.first(x)).repeat(2, 1)))
        labels = torch.zeros(9, dtype=torch.int64)[:2]  # what lies behind them would be labels, too

        with pytest.raises(ValueError, match="batch_size"), books.opened():
            books.batch_gradients(torch.ones(2, 3), labels, views=1)

    def test_no_hook_is_left_on_the_model(self) -> None:
        model = nn.Sequential(nn.Linear(3, 3))

        books = bookkeeping.Books(model)
        with books.opened():
            books.batch_gradients(torch.ones(2, 3), torch.tensor([0, 1]), views=1)

        assert not model[0]._forward_hooks


@st.composite
def sequence_models(draw):
    """Layers that nobody keeps books of, among layers that somebody does: reads [V, T, width]."""
    heads = draw(st.integers(1, 3))
    width, length = heads * draw(st.integers(1, 3)), draw(st.integers(1, 4))
    bias, both = draw(st.booleans()), draw(st.booleans())
    hidden = draw(st.integers(2, 4))
    recurrent = {"hidden_size": hidden, "num_layers": draw(st.integers(1, 2)), "bias": bias}
    recurrent |= {"bidirectional": both, "batch_first": True}
    attention = nn.MultiheadAttention(width, heads, bias=bias, add_bias_kv=both, batch_first=True)
    block = nn.TransformerEncoderLayer(
        width, heads, hidden, dropout=0.0, batch_first=True, norm_first=both, bias=bias
    )
    first, out = draw(
        st.sampled_from(
            [
                (Wired(lambda m, x: x + m.layer(x, x, x)[0], layer=attention), width),
                (
                    Wired(
                        lambda m, x: m.layer(x, key=2 * x, value=x, need_weights=False)[0],
                        layer=attention,
                    ),
                    width,
                ),
                (nn.TransformerEncoder(block, 2, enable_nested_tensor=False), width),
                (
                    Wired(lambda m, x: m.layer(x)[0], layer=nn.LSTM(width, **recurrent)),
                    hidden * (1 + both),
                ),
                (
                    Wired(lambda m, x: m.layer(x)[0], layer=nn.GRU(width, **recurrent)),
                    hidden * (1 + both),
                ),
                (
                    Wired(
                        lambda m, x: m.layer(x)[1][0].mT.movedim(1, 0),
                        layer=nn.LSTM(width, **recurrent),
                    ),
                    None,
                ),
                (nn.Sequential(nn.Linear(width, hidden), nn.PReLU(length)), hidden),
                (nn.utils.parametrizations.weight_norm(nn.Linear(width, hidden)), hidden),
                (Offset(nn.Linear(width, width), width), width),
            ]
        )
    )
    features = out * length if out else hidden * recurrent["num_layers"] * (1 + both)
    model = nn.Sequential(nn.Linear(width, width), first, nn.Flatten(), nn.Linear(features, 3))
    return model.double().train(draw(st.booleans())), (length, width)


def as_sequence(m, images):
    """The places of an image, as networks read them that are half a transformer."""
    sequence = m.norm(m.patches(images)).flatten(2).transpose(1, 2)
    return m.head((sequence + m.mixed(sequence.mean(1, keepdim=True))).mean(1))


class CalledNorm(nn.Module):
    """A norm that is no layer of torch's."""

    def __init__(self, channels: int, call: Callable[..., Tensor], *, is_trained: bool) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("variance", torch.ones(channels))
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, channels)) if is_trained else None
        self.call = call

    def forward(self, x: Tensor) -> Tensor:
        return self.call(x, self.mean, self.variance, self.scale)


def instance_norm(x: Tensor, _mean: Tensor, _variance: Tensor, scale: Tensor | None) -> Tensor:
    return functional.instance_norm(x, weight=scale)


def assert_alone_as_among_others(model: nn.Module, *, channels: int) -> None:
    """Else leaving out the other one of two moves the sum by more than the clipping norm."""
    inputs, labels = make_batch(channels, 8, 8, examples=2)
    inputs = inputs.float()

    both = clipped_sum(model, inputs, labels, clip_norm=0.1)

    alone = [clipped_sum(model, inputs[[at]], labels[[at]], clip_norm=0.1).sum for at in range(2)]
    torch.testing.assert_close(both.sum, alone[0] + alone[1], rtol=1e-4, atol=1e-6)
    assert max(differences(model, inputs, labels, both.norms, clip_norm=0.1)) < 1e-3
    defined = example_gradients(model, inputs, labels).norm(dim=1)
    torch.testing.assert_close(both.norms, defined, rtol=1e-4, atol=1e-6)


class TestAlone:
    """A batch is of one view now and then. On the way back through torch's norms its layout is taken for another."""

    @pytest.mark.parametrize(
        "norm",
        [
            frozen_batch_norm(8),
            nn.InstanceNorm2d(8, affine=True),
            nn.InstanceNorm2d(8),
            *(
                CalledNorm(8, call, is_trained=is_trained)
                for call in (functional.batch_norm, instance_norm)
                for is_trained in (True, False)
            ),
        ],
        ids=[
            "frozen",
            "instance",
            "instance-untrained",
            "called-batch",
            "called-batch-untrained",
            "called-instance",
            "called-instance-untrained",
        ],
    )
    @pytest.mark.parametrize("is_trained_whole", [True, False])
    @pytest.mark.parametrize("channels", [1, 3])
    def test_an_example_adds_what_it_adds_among_others(
        self, norm: nn.Module, is_trained_whole: bool, channels: int
    ) -> None:
        torch.manual_seed(0)
        network = Wired(
            as_sequence, patches=nn.Conv2d(3, 8, 4, 4), norm=copy.deepcopy(norm), mixed=nn.Linear(8, 8), head=nn.Linear(8, 3)
        )  # fmt: skip
        network.patches.bias.requires_grad_(is_trained_whole)
        model = with_input(ModelInput(mean=[0.5] * 3, std=[0.5] * 3), network)

        assert_alone_as_among_others(model, channels=channels)


class Places(nn.Module):
    """A layer of a user's whose own code calls a norm, with a weight that torch may parametrise."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 4, 4)
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 8))

    def forward(self, x: Tensor) -> Tensor:
        found = functional.instance_norm(self.convolution(x), weight=self.weight)
        return found.flatten(2).transpose(1, 2).tanh().mean(1)


def hooked(layer: nn.Module) -> nn.Module:
    layer.register_forward_hook(lambda _layer, _inputs, output: functional.instance_norm(output))
    return layer


class TestCodeOfOthers:
    """However it is hidden behind classes of torch's."""

    def test_a_parametrised_layer_never_runs_alone(self) -> None:
        torch.manual_seed(0)
        places = nn.utils.parametrizations.weight_norm(Places(), dim=None)
        model = nn.Sequential(nn.Conv2d(3, 3, 1), places, nn.Linear(8, 3))

        assert_alone_as_among_others(model, channels=3)

    def test_nor_does_one_with_a_hook_or_another_forward(self) -> None:
        replaced = nn.ReLU()
        replaced.forward = functional.instance_norm
        for layer in (hooked(nn.Conv2d(3, 8, 4, 4)), replaced):
            model = nn.Sequential(layer, nn.Flatten(), nn.LazyLinear(3))
            model(torch.zeros(1, 3, 8, 8))
            assert bookkeeping.Books(model).runs_in_pairs

    @pytest.mark.parametrize("norm", [nn.InstanceNorm2d(8), nn.InstanceNorm3d(8, affine=True)])
    def test_nor_does_a_network_of_torch_alone_whose_layers_call_them(
        self, norm: nn.Module
    ) -> None:
        assert bookkeeping.Books(nn.Sequential(nn.Linear(2, 8), norm)).runs_in_pairs

    def test_layers_of_torch_run_as_they_are_given(self) -> None:
        layer = nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 8, 4, 4))
        for each in (layer, nn.Conv2d(3, 8, 4, 4)):
            assert not bookkeeping.Books(nn.Sequential(each, nn.Flatten())).runs_in_pairs


class TestAnyLayer:
    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(
        drawn=sequence_models(),
        examples=st.integers(1, 5),
        views=st.sampled_from(VIEWS),
        microbatch_size=st.sampled_from([1, 6, 256]),
        seed=st.integers(0, 1000),
    )
    def test_sums_and_norms_are_those_of_one_backward_per_example(
        self, drawn, examples, views, microbatch_size, seed
    ) -> None:
        model, shape = drawn
        inputs, labels = make_batch(*shape, examples=examples, views=views, seed=seed)

        assert_exact(model, inputs, labels, views=views, rtol=1e-6, microbatch_size=microbatch_size)


class TestBooksAreEnough:
    @pytest.mark.parametrize("name", SMALL_MODELS)
    def test_no_registered_model_needs_the_gradients_of_each_example(self, name: str) -> None:
        model = models.build(
            SMALL_MODELS[name], shape=(1, 8, 8), num_classes=3, generator=torch.Generator()
        )

        assert books_are_enough(model)

    @pytest.mark.parametrize(
        "layer",
        [
            type("Mine", (nn.Linear,), {})(3, 3),
            nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"),
            nn.PReLU(),
            nn.MultiheadAttention(4, 2, batch_first=True),
        ],
        ids=["subclass", "circular", "prelu", "attention"],
    )
    def test_a_layer_of_no_known_kind_does(self, layer: nn.Module) -> None:
        assert not books_are_enough(nn.Sequential(layer))
