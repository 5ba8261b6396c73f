"""Passes in bfloat16: what is clipped and what is added are made of the same numbers in float32."""

import copy
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from tan_core import models
from tan_core.engine import PrivateRandomness, Trainer, bookkeeping, clipped_sum
from tan_core.engine.bookkeeping import Books
from tan_core.engine.check import check_model
from tan_core.engine.coverage import check_coverage
from tan_core.engine.fast_layers import fast_methods
from tan_core.engine.layers import LayerGradients
from tan_core.engine.layers.base import as_positions
from tan_core.errors import ParameterError
from tan_core.execution import PrivateRun, Simulation
from tan_core.mechanism import Mechanism
from tan_core.spec.train import Precision, TrainerConfig
from tests.support.models import SMALL_MODELS
from tests.unit.tan_core.engine.oracle import one_at_a_time
from tests.unit.tan_core.engine.support import KEY, make_run, make_trainer, run, run_ranks, vector

BFLOAT16 = Precision.BFLOAT16
VIEWS = (1, 4)
EXAMPLES = 5
ROUNDED = (nn.Linear, nn.Conv2d)
CLIP_NORM = 0.1
CONFIG = {"precision": "bfloat16"}

several = pytest.mark.parametrize("views", VIEWS)
every = pytest.mark.parametrize("name", SMALL_MODELS)


def make_model(name: str) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    model = models.build(SMALL_MODELS[name], shape=(3, 8, 8), num_classes=3, generator=generator)
    with torch.no_grad():
        for parameter in model.parameters():  # a branch that starts at zero hides what is in it
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    return model


def make_batch(views: int, *, scale: float = 1.0):
    generator = torch.Generator().manual_seed(1)
    inputs = scale * torch.randn(EXAMPLES * views, 3, 8, 8, generator=generator)
    return inputs, torch.randint(0, 3, (EXAMPLES,), generator=generator)


@dataclass
class Seen:
    """What the gradients of one batch are made of, by parameter: the gradient of each example, float64."""

    rows: dict[nn.Parameter, torch.Tensor] = field(default_factory=dict)
    rounded: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    """What entered a layer that rounds, and the gradient of what left it."""


def in_float64(layer: nn.Module) -> nn.Module:
    """A copy by its class, without the fast ways of open books."""
    own = copy.deepcopy(layer)
    for method in ("forward", "standardised", "channel_sums", "squared_inputs"):
        vars(own).pop(method, None)
    return own.double()


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Of the next batch."""
    kept = Seen()
    keep_books, sum_channels = bookkeeping.layer_gradients, bookkeeping.of_channel_sums

    def layer_gradients(layer, a, g, views):
        rows = one_at_a_time(in_float64(layer), a.double(), g.double(), views)
        kept.rows.update({p: rows[name] for name, p in layer.named_parameters(recurse=False)})
        if isinstance(layer, ROUNDED):
            kept.rounded.append((a, g))
        return keep_books(layer, a, g, views)

    def of_channel_sums(layer, runs, views):
        [of_views] = runs
        for parameter, sums in zip(layer.parameters(), of_views, strict=True):
            kept.rows[parameter] = as_positions(sums.double()[:, None], views).sum(1)
        return sum_channels(layer, runs, views)

    monkeypatch.setattr(bookkeeping, "layer_gradients", layer_gradients)
    monkeypatch.setattr(bookkeeping, "of_channel_sums", of_channel_sums)
    return kept


def contributions(model: nn.Module, views: int, *, scale: float) -> torch.Tensor:
    """[B]: how long what each example adds to a clipped sum is, the others' weights being zero; in C."""
    inputs, labels = make_batch(views, scale=scale)
    books = Books(model, BFLOAT16)
    with books.opened():
        batch = books.batch_gradients(inputs, labels, views=views)
    weights_B = (CLIP_NORM / batch.norms).clamp_max(1).float()
    added = [
        books.joined(batch.weighted_sum(weights_B * alone)).double().norm()
        for alone in torch.eye(EXAMPLES)
    ]
    return torch.stack(added) / CLIP_NORM


# Rounding errs to either side, and on which one five examples lie is the processor's choice: both are
# moved by twice what rounding may take back.
def with_rough_norms(found: LayerGradients) -> LayerGradients:
    return LayerGradients(0.996 * found.squared_norms.bfloat16().double(), found.weighted_sum)


def with_rough_sums(found: LayerGradients) -> LayerGradients:
    def weighted_sum(weights_B):
        return {
            name: 1.004 * each.bfloat16().float()
            for name, each in found.weighted_sum(weights_B).items()
        }

    return LayerGradients(found.squared_norms, weighted_sum)


class TestWhatIsAdded:
    @every
    @several
    @pytest.mark.parametrize("scale", [1.0, 1e6])
    def test_no_example_adds_more_than_the_clipping_norm(self, name, views, scale) -> None:
        found = contributions(make_model(name), views, scale=scale)

        assert float(found.max()) <= 1 + 1e-5
        assert float(found.max()) > 0.99

    @pytest.mark.parametrize("wrong", [with_rough_norms, with_rough_sums])
    @pytest.mark.parametrize("name", ["mlp", "tanh-cnn", "vit-tiny"])
    def test_norms_or_sums_in_lower_precision_would_be_found(
        self, name, wrong, monkeypatch
    ) -> None:
        rightly = bookkeeping.layer_gradients
        monkeypatch.setattr(bookkeeping, "layer_gradients", lambda *of: wrong(rightly(*of)))

        assert float(contributions(make_model(name), 1, scale=1.0).max()) > 1 + 1e-4

    @every
    @several
    def test_the_sum_is_that_of_the_kept_numbers_in_float64(self, name, views, seen) -> None:
        model = make_model(name)
        inputs, labels = make_batch(views)

        got = clipped_sum(Books(model, BFLOAT16), inputs, labels, clip_norm=CLIP_NORM, views=views)

        rows_BP = torch.cat([seen.rows[p].view(EXAMPLES, -1) for p in model.parameters()], dim=1)
        norms_B, truth_B = got.norms.double(), rows_BP.norm(dim=1)
        truth = (CLIP_NORM / norms_B).clamp_max(1) @ rows_BP
        # A norm may be larger, by what a sum in float32 may lose, but not smaller.
        assert bool((norms_B >= truth_B * (1 - 1e-6)).all())
        assert torch.allclose(norms_B, truth_B, rtol=1e-4)
        assert float((got.sum.double() - truth).norm()) <= 1e-6 * float(truth.norm())

    @every
    def test_products_are_of_numbers_in_bfloat16(self, name, seen) -> None:
        clipped_sum(Books(make_model(name), BFLOAT16), *make_batch(1), clip_norm=CLIP_NORM)

        assert seen.rounded
        for each in (x for pair in seen.rounded for x in pair):
            assert each.dtype == torch.float32
            assert torch.equal(each, each.bfloat16().float())

    @pytest.mark.parametrize("name", ["linear", "mlp", "vit-tiny"])
    def test_the_kept_numbers_are_those_of_plain_autograd(self, name, seen) -> None:
        """Of all layers together: by the gradient of the weights that torch itself computes."""
        model = make_model(name)
        inputs, labels = make_batch(1)
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(inputs)
        loss = nn.functional.cross_entropy(logits.float(), labels, reduction="sum")
        truth = torch.autograd.grad(loss, list(model.parameters()))

        clipped_sum(Books(model, BFLOAT16), inputs, labels, clip_norm=CLIP_NORM)

        for parameter, expected in zip(model.parameters(), truth, strict=True):
            found = seen.rows[parameter].sum(0)
            # Torch rounds the sum itself.
            assert float((found - expected).norm()) <= 2**-7 * float(expected.norm())

    @every
    def test_an_example_that_is_not_finite_adds_nothing(self, name) -> None:
        books, (inputs, labels) = Books(make_model(name), BFLOAT16), make_batch(1)
        without = clipped_sum(books, inputs[1:], labels[1:], clip_norm=CLIP_NORM).sum
        inputs[0, 0, 0, 0] = torch.inf

        got = clipped_sum(books, inputs, labels, clip_norm=CLIP_NORM)

        assert not got.norms[0].isfinite()
        assert torch.allclose(got.sum, without, atol=1e-3 * CLIP_NORM)

    def test_a_layer_of_no_known_kind_has_rows_in_float32(self) -> None:
        model = nn.Sequential(nn.Linear(6, 6), nn.PReLU(), nn.Linear(6, 3))
        inputs = 1e6 * torch.randn(1, 6, generator=torch.Generator().manual_seed(0))

        found = clipped_sum(Books(model, BFLOAT16), inputs, torch.tensor([0]), clip_norm=CLIP_NORM)

        assert found.sum.dtype == torch.float32
        assert float(found.sum.double().norm()) <= CLIP_NORM * (1 + 1e-5)


@pytest.mark.parametrize("layer", [nn.Tanh(), nn.MaxPool2d(2, 1), nn.MaxPool2d(3, 2, padding=1)])
def test_a_kernel_in_float32_rounds_once_there_and_once_back(layer: nn.Module) -> None:
    prepare = fast_methods(layer, is_channels_last=True)
    if prepare is None:
        pytest.skip("needs the kernels in C")
    generator = torch.Generator().manual_seed(0)
    x = 4 * torch.randn(2, 16, 16, 16, generator=generator).bfloat16()
    x = x.contiguous(memory_format=torch.channels_last).requires_grad_()
    exact = x.detach().double().requires_grad_()
    truth = layer(exact)
    g = torch.randn(truth.shape, generator=generator).bfloat16()

    found = prepare()["forward"](x)
    (back,) = torch.autograd.grad(found, x, g)

    assert found.dtype == back.dtype == torch.bfloat16
    one_rounding = {"rtol": 2**-8, "atol": 2e-6}
    assert torch.allclose(found.double(), truth, **one_rounding)
    (expected,) = torch.autograd.grad(truth, exact, g.double())
    assert torch.allclose(back.double(), expected, **one_rounding)


class Fragile(nn.Module):
    """Adds up in one type what comes in another."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(x), 3).index_add(0, torch.arange(len(x)), self.layer(x))


class TestRefusals:
    def test_a_layer_that_does_not_run_in_bfloat16_is_named(self) -> None:
        model = nn.Sequential(Fragile())
        check_coverage(model, (4,))

        with pytest.raises(ParameterError, match=r"layer '0' does not run in bfloat16.*accepted: float32") as error:  # fmt: skip
            check_coverage(model, (4,), BFLOAT16)

        assert error.value.field == "precision"

    def test_a_model_in_float64_is_refused_by_name(self) -> None:
        model = nn.Linear(3, 2).double()
        check_model(model)

        with pytest.raises(ParameterError, match=r"'weight' is torch\.float64") as error:
            Books(model, BFLOAT16)

        assert error.value.field == "precision"

    @every
    def test_every_registered_model_runs(self, name: str) -> None:
        check_coverage(make_model(name), (3, 8, 8), BFLOAT16)


class TestInTheTrainer:
    def test_passes_in_bfloat16_change_the_update_by_what_they_round(self) -> None:
        exact = vector(run(make_trainer(), 3))
        rounded = vector(run(make_trainer(config=CONFIG), 3))

        assert not torch.equal(rounded, exact)
        assert rounded.dtype == torch.float32
        assert torch.allclose(rounded, exact, atol=2**-6)

    def test_a_simulation_has_the_precision_of_its_configuration(self) -> None:
        def after(config) -> torch.Tensor:
            execution = Simulation(
                dynamics=make_run().mechanism,
                num_examples=make_run().num_examples,
                scale_factor=1.0,
            )
            return vector(run(make_trainer(execution, config=config), 3))

        assert not torch.equal(after(CONFIG), after({}))

    @pytest.mark.parametrize("name", ["mlp", "tanh-cnn"])
    @several
    def test_ranks_and_microbatches_are_no_part_of_the_update(self, name, views) -> None:
        """Of one: after it, weights that differ in their last digit may be rounded to other numbers."""
        arguments = {
            "spec": SMALL_MODELS[name],
            "config": CONFIG | {"augmentation_multiplicity": views},
        }
        expected = vector(run(make_trainer(**arguments), 1))

        for found in (
            *run_ranks(2, 1, **arguments),
            *run_ranks(3, 1, microbatch_size=7, **arguments),
            run(make_trainer(microbatch_size=1, **arguments), 1),
        ):
            assert torch.allclose(vector(found), expected, rtol=0, atol=1e-6)

    def test_an_older_checkpoint_was_in_float32(self) -> None:
        state = run(make_trainer(), 2).state()
        del state.meta["config"]["precision"]

        make_trainer().load_state(state)
        with pytest.raises(ParameterError, match="its config is"):
            make_trainer(config=CONFIG).load_state(state)

    @pytest.mark.slow
    @pytest.mark.timeout(900)
    @pytest.mark.usefixtures("one_thread")
    def test_it_learns_the_digits_as_float32_does(self) -> None:
        """Of five private runs each, by seed: means apart by less than three of their standard errors."""
        exact, rounded = (
            np.array([accuracy_on_digits(precision, seed) for seed in range(5)])
            for precision in Precision
        )

        error = np.sqrt((exact.var(ddof=1) + rounded.var(ddof=1)) / 5)
        assert exact.mean() > 0.85
        assert abs(exact.mean() - rounded.mean()) < max(3 * error, 0.01)


@pytest.fixture
def one_thread():
    """Images are tiny: threads only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def accuracy_on_digits(precision: Precision, seed: int) -> float:
    """Of tanh-cnn on the last 360 digits, trained on the others."""
    pixels, labels = load_digits(return_X_y=True)
    images = (pixels * 15).astype(np.uint8).reshape(-1, 1, 8, 8)
    train, num_train = slice(0, -360), len(images) - 360
    mechanism = Mechanism(sampling_rate=256 / num_train, noise_multiplier=2, clip_norm=1, steps=300)
    trainer = Trainer(
        model=models.build(
            SMALL_MODELS["tanh-cnn"],
            shape=(1, 8, 8),
            num_classes=10,
            generator=torch.Generator().manual_seed(seed),
        ),
        execution=PrivateRun(mechanism=mechanism, num_examples=num_train),
        config=TrainerConfig(learning_rate=2.0, ema_decay=0.9, precision=precision),
        inputs=images[train],
        labels=labels[train],
        randomness=PrivateRandomness(KEY, 1 + seed),
    )
    return run(trainer, mechanism.steps).evaluate(images[-360:], labels[-360:])
