"""Models passed through by hand give what autograd gives, to the last bit."""

import copy

import pytest
import torch
from torch import nn

from tan_core.engine import clipped_sum, native
from tan_core.engine.bookkeeping import Books
from tan_core.engine.chain import Chain
from tan_core.engine.units import units_of
from tan_core.models import build
from tan_core.models.relu_group_norm import ReluGroupNorm
from tan_core.spec.models import MODEL_TYPES

needs_kernels = pytest.mark.skipif(not native.is_available(), reason="the kernels are not compiled")


class ByAutograd(nn.Sequential):
    """What is no plain sequence may do anything between its layers."""


def norm_first() -> list[nn.Module]:
    return [nn.GroupNorm(1, 3), nn.Conv2d(3, 16, 3, bias=False), nn.GroupNorm(4, 16), nn.ReLU()]


def relu_first() -> list[nn.Module]:
    return [nn.Conv2d(3, 16, 3, bias=False), ReluGroupNorm(4, 16), nn.Conv2d(16, 8, 3)]


CHAINS = {
    "small convolutions": lambda: [
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        nn.Tanh(),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(16, 32, 2),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(32 * 6 * 6, 8),
        nn.Tanh(),
        nn.Linear(8, 5),
    ],
    "large and grouped convolutions": lambda: [
        nn.Conv2d(3, 24, 5, padding=2),
        nn.ReLU(inplace=True),
        nn.Conv2d(24, 24, 3, groups=4, dilation=2),
        nn.Identity(),
        nn.Flatten(),
        nn.Linear(24 * 12 * 12, 5),
    ],
    "group norms": lambda: [*norm_first(), nn.Flatten(), nn.Linear(16 * 14 * 14, 5)],
    "norms of what a ReLU lets through": lambda: [
        *relu_first(),
        nn.Flatten(),
        nn.Linear(8 * 12 * 12, 5),
    ],
    "a sequence in a sequence": lambda: [
        nn.Sequential(nn.Flatten(), nn.Linear(768, 20), nn.ReLU()),
        nn.Sequential(nn.Linear(20, 20, bias=False), nn.Sequential(nn.Tanh(), nn.Linear(20, 5))),
    ],
    "pixels first": lambda: [nn.MaxPool2d(2), nn.Sigmoid(), nn.Flatten(), nn.Linear(192, 5)],
}


def two(layers: list[nn.Module]) -> tuple[nn.Sequential, ByAutograd]:
    """The same model, as a chain and as none."""
    return nn.Sequential(*layers), ByAutograd(*copy.deepcopy(layers))


def make_batch(examples: int, views: int, dtype=torch.float32):
    generator = torch.Generator().manual_seed(examples)
    inputs = torch.randn(examples * views, 3, 16, 16, generator=generator, dtype=dtype)
    return inputs, torch.randint(5, (examples,), generator=generator)


def is_chain(model: nn.Module) -> bool:
    return Chain.of(model, units_of(model)) is not None


def both(models, inputs, labels, **options):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return [clipped_sum(model, inputs, labels, clip_norm=0.5, **options) for model in models]


def assert_same(own, other) -> None:
    assert torch.equal(own.sum, other.sum)
    assert torch.equal(own.norms, other.norms)
    assert torch.equal(own.losses, other.losses)
    assert own.norms.gt(0).all()


@needs_kernels
class TestChain:
    @pytest.mark.parametrize("layers", CHAINS.values(), ids=CHAINS)
    @pytest.mark.parametrize("views", [1, 3])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_gives_what_autograd_gives(self, layers, views: int, dtype) -> None:
        models = [model.to(dtype) for model in two(layers())]
        assert [is_chain(model) for model in models] == [True, False]

        assert_same(*both(models, *make_batch(6, views, dtype), views=views, microbatch_size=7))

    @pytest.mark.parametrize("name", ["linear", "mlp", "tanh-cnn", "scatter-linear", "scatter-cnn"])
    def test_so_do_registered_models(self, name: str) -> None:
        model = build(
            MODEL_TYPES[name](),
            shape=(3, 16, 16),
            num_classes=5,
            generator=torch.Generator().manual_seed(0),
        )
        assert isinstance(model, nn.Sequential)

        # Two views: of one, a linear classifier has a kernel of its own.
        models = [model, ByAutograd(*copy.deepcopy(model))]
        assert_same(*both(models, *make_batch(6, 2), views=2))

    def test_shares_of_views_weigh_them(self) -> None:
        shares = torch.tensor([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]])

        assert_same(*both(two(CHAINS["group norms"]()), *make_batch(2, 3), views=3, shares=shares))

    @pytest.mark.parametrize("frozen", [[0], [0, 3], [3], [6]])
    def test_what_is_frozen_takes_no_part(self, frozen: list[int]) -> None:
        models = two(CHAINS["small convolutions"]())
        for model in models:
            for at in frozen:
                model[at].requires_grad_(False)
        assert is_chain(models[0])

        assert_same(*both(models, *make_batch(4, 1)))

    def test_an_example_that_is_not_finite_is_left_out(self) -> None:
        models = two(CHAINS["small convolutions"]())
        inputs, labels = make_batch(4, 1)
        inputs[1, 0, 0, 0] = torch.inf

        own, other = both(models, inputs, labels)

        assert torch.equal(own.sum, other.sum)
        assert own.sum.isfinite().all()
        assert not own.norms[1].isfinite()

    def test_the_inputs_stay_as_they_are(self) -> None:
        model = nn.Sequential(nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(768, 5))
        inputs, labels = make_batch(4, 1)
        before = inputs.clone()

        clipped_sum(model, inputs, labels, clip_norm=0.5)

        assert torch.equal(inputs, before)

    def test_a_hook_that_comes_later_is_called(self) -> None:
        model = nn.Sequential(nn.Flatten(), nn.Linear(768, 20), nn.Tanh(), nn.Linear(20, 5))
        books, seen = Books(model), []
        inputs, labels = make_batch(4, 1)
        first = clipped_sum(books, inputs, labels, clip_norm=0.5)

        with model[2].register_forward_hook(lambda _, x, y: seen.append(y)):
            second = clipped_sum(books, inputs, labels, clip_norm=0.5)

        assert len(seen) == 1
        assert_same(first, second)

    def test_a_hook_on_the_way_back_is_heard(self) -> None:
        layers = [nn.Flatten(), nn.Linear(768, 20), nn.Tanh(), nn.Linear(20, 5)]
        models = two(layers)
        for model in models:
            model[2].register_full_backward_hook(lambda _, back, __: (2 * back[0],))

        assert_same(*both(models, *make_batch(4, 1)))

    def test_a_layer_that_is_put_in_the_place_of_another_is_refused(self) -> None:
        model = nn.Sequential(nn.Flatten(), nn.Linear(768, 20), nn.Tanh(), nn.Linear(20, 5))
        books = Books(model)
        model[3] = nn.Linear(20, 5)

        with pytest.raises(RuntimeError, match="layer '3' did not run"):
            clipped_sum(books, *make_batch(4, 1), clip_norm=0.5)

    def test_a_layer_that_its_way_does_not_know_is_left_to_autograd(self) -> None:
        layers = [nn.Conv2d(3, 4, 3, padding="same"), nn.MaxPool2d(2, dilation=2), nn.Flatten()]
        models = two([*layers, nn.Linear(4 * 7 * 7, 5)])
        assert is_chain(models[0])

        # Eight examples, two at a time: the first ones are enough to know.
        assert_same(*both(models, *make_batch(8, 1), microbatch_size=2))

    @pytest.mark.parametrize("shape", [(4, 3, 2, 2), (4, 2, 16, 16), (4, 768)])
    def test_inputs_that_do_not_fit_are_refused_by_torch(self, shape) -> None:
        books = Books(nn.Sequential(*CHAINS["small convolutions"]()))
        inputs, labels = make_batch(4, 1)
        kept = clipped_sum(books, inputs, labels, clip_norm=0.5)

        with pytest.raises(RuntimeError):
            clipped_sum(books, torch.ones(shape), labels, clip_norm=0.5)

        assert_same(kept, clipped_sum(books, inputs, labels, clip_norm=0.5))

    def test_labels_out_of_range_are_refused_by_torch(self) -> None:
        inputs, _ = make_batch(2, 1)
        model = nn.Sequential(*CHAINS["group norms"]())

        with pytest.raises(IndexError, match="out of bounds"):
            clipped_sum(model, inputs, torch.tensor([0, 5]), clip_norm=0.5)

    def test_what_mixes_examples_before_it_is_refused(self) -> None:
        class Halved(nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return x[::2]

        model = nn.Sequential(Halved(), nn.Flatten(), nn.Linear(768, 5))
        assert is_chain(model)

        with pytest.raises(ValueError, match="to match target batch_size"):
            clipped_sum(model, *make_batch(4, 1), clip_norm=0.5)


class TestWhatIsNoChain:
    @pytest.mark.parametrize(
        "layers",
        [
            [nn.Linear(4, 4), nn.Sigmoid()],
            [nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 2)],
            [nn.Linear(4, 4), ByAutograd(nn.Linear(4, 2))],
            [nn.Linear(4, 4), nn.Flatten(0)],
            [nn.Tanh()],
            [],
        ],
        ids=["no way", "random", "own class", "flattens all", "nothing trained", "empty"],
    )
    def test_is_left_to_autograd(self, layers: list[nn.Module]) -> None:
        model = nn.Sequential(*layers)
        chain = Chain.of(model, units_of(model))

        assert chain is None or chain.there(chain.ways(), torch.ones(3, 4)) is None

    def test_a_layer_that_runs_twice(self) -> None:
        layer = nn.Linear(4, 4)

        assert not is_chain(nn.Sequential(layer, nn.Tanh(), layer))

    def test_layers_that_share_a_weight(self) -> None:
        first, second = nn.Linear(4, 4), nn.Linear(4, 4)
        second.weight = first.weight

        assert not is_chain(nn.Sequential(first, second))

    def test_a_layer_of_which_a_part_is_frozen(self) -> None:
        layer = nn.Linear(4, 4)
        layer.bias.requires_grad_(False)

        assert not is_chain(nn.Sequential(layer))

    def test_a_parameter_of_the_sequence_itself(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4))
        model.register_parameter("offset", nn.Parameter(torch.zeros(4)))

        assert not is_chain(model)
