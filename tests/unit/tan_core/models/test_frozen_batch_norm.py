"""Batch normalisation by the numbers of a checkpoint: what the network was, and nothing of other examples."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tan_core.engine import check_model
from tan_core.engine.independence import check_independence
from tan_core.errors import ModelError, ParameterError, PretrainedError
from tan_core.models import build, replace_batch_norm
from tan_core.models.checkpoint_file import Checkpoint
from tan_core.models.frozen_batch_norm import FrozenBatchNorm
from tan_core.testing.conformance import ModelConformance
from tests.unit.tan_core.engine.oracle import books_are_enough
from tests.unit.tan_core.engine.support import NUM_EXAMPLES, make_run, make_trainer, run
from tests.unit.tan_core.models.test_batch_norm import (
    CLASSES,
    FACTORIES,
    SHAPE,
    begins,
    importable,  # noqa: F401  a fixture
    make,
    of_batch_norm,
    spec_of,
)

FROZEN = {"replace_batch_norm": "frozen"}
KINDS = [
    (nn.BatchNorm1d, (4,)),
    (nn.BatchNorm1d, (4, 5)),
    (nn.BatchNorm2d, (4, 3, 3)),
    (nn.BatchNorm3d, (4, 2, 2, 2)),
    (nn.SyncBatchNorm, (4, 3, 3)),
]


def used(layer: Any, *, seed: int = 0) -> Any:
    """A batch normalisation that has seen other data."""
    generator = torch.Generator().manual_seed(seed)
    for tensor in (layer.weight, layer.bias, layer.running_mean, layer.running_var):
        if tensor is not None:
            nn.init.uniform_(tensor, 0.5, 2, generator=generator)
    return layer


def weights_of(name: str, **more: Any) -> dict[str, Tensor]:
    """A checkpoint of the network with batch normalisation, all of whose numbers are those of a run."""
    generator, weights = torch.Generator().manual_seed(4), of_batch_norm(name, **more)
    for key, value in weights.items():
        if "running" in key:
            nn.init.uniform_(value, 0.5, 2, generator=generator)
    return weights


def begun(name: str, train: str = "all", weights: dict[str, Tensor] | None = None) -> Any:
    given = Checkpoint(path="a.pt", weights=weights_of(name) if weights is None else weights)
    return make(**begins(name, train), **FROZEN, checkpoint=given)


class TestLayer:
    @pytest.mark.parametrize("is_affine", [True, False])
    @pytest.mark.parametrize(("kind", "shape"), KINDS)
    def test_it_computes_what_the_layer_does_when_it_is_used(
        self, kind: Any, shape: tuple[int, ...], is_affine: bool
    ) -> None:
        layer = used(kind(4, eps=0.1, affine=is_affine))
        x = torch.randn(3, *shape, generator=torch.Generator().manual_seed(1))

        frozen = FrozenBatchNorm(layer)

        expected = copy.deepcopy(layer).eval()(x)
        torch.testing.assert_close(frozen.train()(x), expected)
        torch.testing.assert_close(frozen.eval()(x), expected)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
    def test_it_answers_in_the_type_of_what_it_reads(self, dtype: torch.dtype) -> None:
        layer = used(nn.BatchNorm2d(4)).to(dtype)
        x = torch.randn(3, 4, 5, 5, generator=torch.Generator().manual_seed(1)).to(dtype)

        found = FrozenBatchNorm(layer)(x)

        assert found.dtype == dtype
        torch.testing.assert_close(found, copy.deepcopy(layer).eval()(x))

    def test_another_number_of_channels_is_refused(self) -> None:
        with pytest.raises(RuntimeError, match=r"4 channels, got shape \[3, 1, 5, 5\]"):
            FrozenBatchNorm(nn.BatchNorm2d(4))(torch.zeros(3, 1, 5, 5))

    @pytest.mark.parametrize("height", [1, 4])
    @pytest.mark.parametrize("num_examples", [1, 3])
    def test_gradients_are_right_in_whatever_layout_they_come(
        self, num_examples: int, height: int
    ) -> None:
        """Those of torch's own are not, where one side is 1."""
        generator = torch.Generator().manual_seed(2)
        frozen = FrozenBatchNorm(used(nn.BatchNorm2d(8)))
        x = torch.randn(num_examples, 8, height, 4, generator=generator)
        g = torch.randn(num_examples, height * 4, 8, generator=generator)

        def gradients(layer: nn.Module, x: Tensor) -> list[Tensor]:
            x = x.detach().requires_grad_()
            sequence = layer(x).flatten(2).transpose(1, 2)
            return [*torch.autograd.grad(sequence, [x, *layer.parameters()], g.to(x.dtype))]

        expected = gradients(copy.deepcopy(frozen).double(), x.double())
        for each in (x, x.to(memory_format=torch.channels_last)):
            for found, truth in zip(gradients(frozen, each), expected, strict=True):
                torch.testing.assert_close(found, truth.float())

    def test_nothing_but_a_checkpoint_changes_its_statistics(self) -> None:
        frozen = FrozenBatchNorm(used(nn.BatchNorm2d(4))).train()
        before = {key: value.clone() for key, value in frozen.state_dict().items()}

        frozen(torch.randn(8, 4, 3, 3))

        assert all(torch.equal(value, before[key]) for key, value in frozen.state_dict().items())

    def test_its_names_are_those_of_the_layer(self) -> None:
        layer = used(nn.BatchNorm2d(4))
        plain = nn.BatchNorm2d(4)

        plain.load_state_dict({**FrozenBatchNorm(layer).state_dict()})

        x = torch.randn(2, 4, 3, 3)
        assert torch.equal(plain.eval()(x), layer.eval()(x))

    def test_it_is_shown_as_what_it_is(self) -> None:
        assert (
            repr(FrozenBatchNorm(nn.BatchNorm2d(4))) == "FrozenBatchNorm(4, eps=1e-05, affine=True)"
        )


class TestReplace:
    def test_a_network_is_as_it_is_used(self) -> None:
        model = nn.Sequential(
            nn.Conv2d(1, 4, 3), used(nn.BatchNorm2d(4)), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2)
        )
        x = torch.randn(3, 1, 4, 4)
        expected = copy.deepcopy(model).eval()(x)

        assert replace_batch_norm(model, (1, 4, 4), by="frozen") == {"1": "1"}

        torch.testing.assert_close(model(x), expected)
        check_model(model)
        check_independence(model, (1, 4, 4))
        assert books_are_enough(model)

    def test_a_layer_without_statistics_has_none_to_freeze(self) -> None:
        layer = nn.BatchNorm2d(4, track_running_stats=False)
        model = nn.Sequential(nn.Conv2d(1, 4, 1), layer)

        with pytest.raises(
            ModelError, match=r"layer '1' is BatchNorm2d with track_running_stats=False"
        ):
            replace_batch_norm(model, (1, 4, 4), by="frozen")

        assert model[1] is layer

    def test_a_layer_that_is_shared_stays_shared(self) -> None:
        layer = used(nn.BatchNorm2d(1))
        model = nn.Sequential(layer, nn.Tanh(), layer)

        replace_batch_norm(model, (1, 2, 2), by="frozen")

        assert model[0] is model[2]

    def test_anything_else_is_refused(self) -> None:
        with pytest.raises(
            ParameterError, match="by must be group or frozen, got 'instance'"
        ) as caught:
            replace_batch_norm(nn.Sequential(nn.Linear(1, 1)), (1,), by="instance")  # type: ignore[arg-type]

        assert caught.value.field == "by"


@pytest.mark.usefixtures("importable")
@pytest.mark.parametrize("name", FACTORIES)
class TestFromACheckpoint:
    @pytest.mark.parametrize("prefix", ["", "module."])
    def test_a_model_is_the_network_that_was_trained(self, name: str, prefix: str) -> None:
        weights = weights_of(name)
        plain = build(
            spec_of(name, replace_batch_norm=None),
            shape=SHAPE,
            num_classes=CLASSES,
            generator=torch.Generator(),
        )
        plain.load_state_dict(weights)
        x = torch.randn(4, *SHAPE)

        model = begun(name, weights={prefix + key: value for key, value in weights.items()})

        torch.testing.assert_close(model(x), plain.eval()(x))

    def test_training_leaves_the_statistics_as_they_are(self, name: str) -> None:
        model = begun(name)
        before = {key: value.clone() for key, value in model.state_dict().items()}
        generator = torch.Generator().manual_seed(0)
        inputs = torch.randn(NUM_EXAMPLES, *SHAPE, generator=generator)
        labels = torch.randint(0, CLASSES, (NUM_EXAMPLES,), generator=generator)
        trainer = make_trainer(make_run(), model=model, inputs=inputs, labels=labels)

        run(trainer, 4)

        released = trainer.released_weights()
        moved = {key for key, value in released.items() if not torch.equal(value, before[key])}
        assert moved == {key for key in before if "running" not in key}

    def test_of_norms_scale_and_shift_are_trained(self, name: str) -> None:
        model = begun(name, "norms")

        trained = {key for key, p in model.named_parameters() if p.requires_grad}
        norms = {
            key: layer for key, layer in model.named_modules() if isinstance(layer, FrozenBatchNorm)
        }
        of_norms = {
            f"{at}.{own}" for at, layer in norms.items() for own, _ in layer.named_parameters()
        }
        assert of_norms < trained
        assert len(trained - of_norms) == 2  # the classifier
        assert books_are_enough(model)

    def test_statistics_that_are_missing_are_named_with_what_does_without(self, name: str) -> None:
        weights = weights_of(name)
        missing = next(key for key in weights if key.endswith("running_var"))
        del weights[missing]

        message = r"frozen takes .*, and it lacks \S+running_var; .* or replace_batch_norm: group$"
        with pytest.raises(PretrainedError, match=message):
            begun(name, weights=weights)

    def test_a_variance_below_zero_is_refused(self, name: str) -> None:
        weights = weights_of(name)
        next(value for key, value in weights.items() if key.endswith("running_var"))[1] = -1e-3

        with pytest.raises(PretrainedError, match="running_var holds a variance below 0"):
            begun(name, weights=weights)

    def test_what_is_released_can_be_begun_from(self, name: str) -> None:
        weights = begun(name).state_dict()

        model = begun(name, weights=weights)

        assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())


@pytest.mark.usefixtures("importable")
@pytest.mark.parametrize("name", FACTORIES)
class TestEachModel(ModelConformance):
    """Norms and sums of the engine are those of one backward pass for each example, in either order of memory."""

    shape, num_classes = SHAPE, CLASSES

    @pytest.fixture(autouse=True)
    def _named(self, name: str) -> None:
        self.name = name

    def make_model(self) -> nn.Module:
        return begun(self.name)
