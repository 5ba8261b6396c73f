"""Parts of a checkpoint that are trained beside its classifier: which they are, how exactly, and that no more moves."""

from collections.abc import Mapping
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn

from tan_core.engine import audit, check_model, clipped_sum, native
from tan_core.engine.bookkeeping import Books
from tan_core.engine.coverage import check_coverage
from tan_core.engine.independence import check_independence
from tan_core.errors import PretrainedError
from tan_core.models import Checkpoint, build
from tan_core.models.parts import parameters_of
from tan_core.models.pretrained import _has as has
from tan_core.models.pretrained import begin_from
from tan_core.spec.models import (
    MODEL_TYPES,
    ModelSpec,
    NfResNetModel,
    PythonModel,
    VitModel,
    WideResNetModel,
)
from tan_core.spec.pretrained import Beside
from tan_core.spec.train import Precision
from tan_core.testing.oracle import clipped, example_gradients
from tests.support.models import SMALL_MODELS
from tests.unit.tan_core.engine.oracle import books_are_enough
from tests.unit.tan_core.engine.support import make_run, make_trainer, run

SHAPE, CLASSES = (3, 8, 8), 3
GENERATOR = torch.Generator()
PARTS = ("norms", "biases")
SPECS: dict[str, ModelSpec] = SMALL_MODELS | {
    "wrn standardised": WideResNetModel(weight_standardization=True),
    "wrn norm first": WideResNetModel(order="norm_relu", groups=4),
    "vit with an edge": VitModel(patch_size=3, depth=1, width=8, heads=2),
}
CASES = {
    f"{name}, {part}": (spec, part) for name, spec in SPECS.items() for part in spec.parts or ()
}
OF_A_USER = PythonModel(name="python:tests.unit.tan_core.models.test_parts:attentive")


class Attentive(nn.Module):
    """What the books are not kept for: attention of torch's, and a norm that runs twice."""

    def __init__(self, width: int, num_classes: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(SHAPE[0], width, 2, stride=2)
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.table = nn.Parameter(torch.zeros(16, width))
        self.classifier = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.norm(self.patches(x).flatten(2).transpose(1, 2) + self.table)
        seen, _ = self.attention(tokens, tokens, tokens, need_weights=False)
        return self.classifier(self.norm(tokens + seen).mean(1))


class Pyramid(nn.Module):
    """One convolution and one norm, on an image and on its half."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(SHAPE[0], 4, 3)
        self.norm = nn.GroupNorm(2, 4)
        self.classifier = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        both = [x, nn.functional.avg_pool2d(x, 2)]
        seen = [self.norm(self.convolution(each).tanh()).mean((2, 3)) for each in both]
        return self.classifier(seen[0] * seen[1])


def attentive(*, shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """A factory as a user would write it."""
    return Attentive(8, num_classes)


def begun(spec: ModelSpec, train: str, *, shape: tuple[int, ...] = SHAPE) -> nn.Module:
    """A model that begins from weights away from initial ones: no gain of a branch is 0."""
    generator = torch.Generator().manual_seed(1)
    arguments: dict[str, Any] = {"shape": shape, "num_classes": CLASSES}
    own = build(spec, generator=generator, **arguments).state_dict()
    weights = {
        name: value + 0.02 * torch.randn(value.shape, generator=generator)
        for name, value in own.items()
    }
    return build(
        _naming_a_file(spec, train),
        generator=torch.Generator().manual_seed(0),
        checkpoint=given(weights),
        **arguments,
    )


def given(weights: Mapping[str, Tensor]) -> Checkpoint:
    return Checkpoint(path="a.safetensors", weights=weights)


def _naming_a_file(spec: ModelSpec, train: str) -> ModelSpec:
    pretrained = {"path": "a.safetensors", "data": "public", "train": train, "sha256": "ab" * 32}
    return type(spec).model_validate({**spec.model_dump(), "pretrained": pretrained})


def trained(model: nn.Module) -> set[str]:
    return {name for name, p in model.named_parameters() if p.requires_grad}


def batch(
    examples: int, views: int, *, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(examples)
    inputs = torch.randn(examples * views, *SHAPE, generator=generator, dtype=dtype)
    return inputs, torch.randint(CLASSES, (examples,), generator=generator)


def assert_exact(model: nn.Module, inputs: Tensor, labels: Tensor, views: int) -> None:
    """Sum and norms are those of one backward pass per example, in both memory formats; about half are clipped."""
    rows = example_gradients(model, inputs, labels, views=views)
    norms = rows.norm(dim=1)
    clip_norm = 0.99 * float(norms.median()) if len(norms) else 1.0
    expected = clipped(rows, clip_norm)
    for memory in (torch.contiguous_format, torch.channels_last):
        given = inputs.contiguous(memory_format=memory)

        got = clipped_sum(model, given, labels, clip_norm=clip_norm, views=views)

        assert float((got.sum - expected).norm()) <= 1e-6 * float(expected.norm())
        torch.testing.assert_close(got.norms, norms, rtol=1e-6, atol=0)


class TestWhichTheyAre:
    @pytest.mark.parametrize("name", SMALL_MODELS)
    def test_models_with_a_name_say_which_they_have(self, name: str) -> None:
        spec = SMALL_MODELS[name]
        model = build(spec, shape=SHAPE, num_classes=CLASSES, generator=torch.Generator())
        classifier = {name for name, _ in [*model.named_parameters()][-2:]}

        found = [part for part in get_args(Beside) if has(part, model, classifier)]

        assert found == [*(spec.parts or ())]
        assert all(type(spec).parts is not None for spec in SMALL_MODELS.values())
        assert {spec.name for spec in SMALL_MODELS.values()} | {"wrn-40-4", "wrn-28-10"} == {
            *MODEL_TYPES
        }

    def test_norms_are_scales_and_shifts_and_what_stands_for_them(self) -> None:
        model = begun(NfResNetModel(width=1), "norms")

        own = {name.split(".")[-1] for name in trained(model) if "conv" in name}
        assert own == {"gain", "bias"}
        assert {"1.gain.weight", "1.conv1.gain", "1.shortcut.bias"} < trained(model)
        assert not [name for name in trained(model) if name.endswith("conv1.weight")]

    def test_norms_of_a_kind_of_their_own_are_norms(self) -> None:
        class Norm(nn.LayerNorm):
            pass

        model = nn.Sequential(Norm(3), nn.RMSNorm(3), nn.InstanceNorm2d(3, affine=True))

        found = {"0.weight", "0.bias", "1.weight", "2.weight", "2.bias"}
        assert parameters_of("norms", model) == found

    def test_biases_are_vectors_of_that_name(self) -> None:
        model = Attentive(8, CLASSES)
        model.register_parameter("relative_bias_table", nn.Parameter(torch.zeros(4, 4)))
        model.register_parameter("query_bias", nn.Parameter(torch.zeros(4)))

        assert parameters_of("biases", model) == {
            "patches.bias",
            "norm.bias",
            "attention.in_proj_bias",
            "attention.out_proj.bias",
            "classifier.bias",
            "query_bias",
        }

    def test_a_shift_of_several_dimensions_is_a_bias(self) -> None:
        assert parameters_of("biases", nn.LayerNorm([2, 3])) == {"bias"}

    @pytest.mark.parametrize("part", PARTS)
    def test_the_classifier_is_trained_as_well_and_goes_on_from_the_file(self, part: str) -> None:
        spec = SMALL_MODELS["vit-tiny"]
        weights = build(
            spec, shape=SHAPE, num_classes=CLASSES, generator=torch.Generator()
        ).state_dict()

        model = build(
            _naming_a_file(spec, part),
            shape=SHAPE,
            num_classes=CLASSES,
            generator=torch.Generator().manual_seed(7),
            checkpoint=given(weights),
        )

        assert {"5.weight", "5.bias"} < trained(model)
        assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())

    @pytest.mark.parametrize(
        ("part", "told"),
        [
            ("norms", "train: norms: model python:.* has no normalisation .*; accepted: all, classifier$"),
            ("biases", "train: biases: model python:.* has no bias .*; accepted: all, classifier$"),
            ("lora", "train: lora: model python:.* has no linear layer .*; accepted: all, classifier$"),
        ],
    )  # fmt: skip
    def test_a_model_without_such_parameters_is_refused(self, part: str, told: str) -> None:
        layers = [nn.Conv2d(3, 4, 8, bias=False), nn.Flatten(), nn.Linear(4, CLASSES)]
        model, spec = nn.Sequential(*layers), _naming_a_file(OF_A_USER, part)

        with pytest.raises(PretrainedError, match=told) as caught:
            begin_from(
                given(model.state_dict()), model, spec, num_classes=CLASSES, generator=GENERATOR
            )

        assert caught.value.field == "model.pretrained.train"
        assert trained(model) == {"0.weight", "2.weight", "2.bias"}

    @pytest.mark.parametrize("part", get_args(Beside))
    def test_a_model_without_a_classifier_is_refused(self, part: str) -> None:
        model = nn.Sequential(nn.Conv2d(3, 4, 8), nn.GroupNorm(2, 4), nn.Flatten())
        spec = _naming_a_file(OF_A_USER, part)

        with pytest.raises(PretrainedError, match=r"no linear layer of 3 classes .* train: all"):
            begin_from(
                given(model.state_dict()), model, spec, num_classes=CLASSES, generator=GENERATOR
            )


@pytest.fixture(params=["kernels", "torch"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With our kernels, channels last, and without them, where group norms keep images contiguous."""
    if request.param == "torch":
        monkeypatch.setattr(native, "is_available", lambda: False)
        monkeypatch.setattr(native, "accepts", lambda *_: False)
    elif not native.is_available():
        pytest.skip("the kernels are not compiled here")


@pytest.mark.usefixtures("kernels")
class TestExactness:
    @pytest.mark.parametrize("views", [1, 4])
    @pytest.mark.parametrize("case", CASES)
    def test_sums_and_norms_are_those_of_one_backward_pass_per_example(
        self, case: str, views: int
    ) -> None:
        model = begun(*CASES[case]).double()

        for examples in (0, 1, 3):
            assert_exact(model, *batch(examples, views), views)

    @pytest.mark.parametrize("views", [1, 4])
    @pytest.mark.parametrize("part", PARTS)
    def test_so_are_those_of_a_users_own_model(self, part: str, views: int) -> None:
        model = begun(OF_A_USER, part).double()

        for examples in (0, 1, 3):
            assert_exact(model, *batch(examples, views), views)

    @pytest.mark.parametrize("part", PARTS)
    def test_so_are_those_of_a_layer_that_runs_on_images_of_several_sizes(self, part: str) -> None:
        model = Pyramid().double()
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name in parameters_of(part, model) or "classifier" in name)

        assert_exact(model, *batch(3, 1), 1)


class TestBooks:
    @pytest.mark.parametrize("case", CASES)
    def test_no_registered_model_needs_the_gradients_of_each_example(self, case: str) -> None:
        assert books_are_enough(begun(*CASES[case]))

    @pytest.mark.parametrize("case", CASES)
    def test_the_checks_of_every_run_pass(self, case: str) -> None:
        model = begun(*CASES[case])

        check_model(model)
        check_independence(model, SHAPE)
        check_coverage(model, SHAPE)

    @pytest.mark.parametrize("views", [1, 4])
    @pytest.mark.parametrize("precision", Precision)
    @pytest.mark.parametrize(
        "case", ["wrn-16-4, norms", "nf-resnet-50, norms", "vit-tiny, biases", "vit-tiny, lora"]
    )
    def test_an_audit_agrees(self, case: str, precision: Precision, views: int) -> None:
        model, (inputs, labels) = begun(*CASES[case]), batch(3, views, dtype=torch.float32)
        books = Books(model, precision)
        kept = clipped_sum(books, inputs, labels, clip_norm=1.0, views=views).norms

        audit.audit(model, inputs, labels, kept, clip_norm=1.0, views=views, precision=precision)

    @pytest.mark.parametrize("part", PARTS)
    def test_an_audit_survives_images_of_one_channel_in_any_layout(self, part: str) -> None:
        """Torch's group norm behind a frozen convolution does not, on its own."""
        model = begun(WideResNetModel(), part, shape=(1, 8, 8))
        inputs, labels = torch.randn(2, 8, 8, 1).permute(0, 3, 1, 2), torch.tensor([0, 1])
        kept = clipped_sum(model, inputs, labels, clip_norm=1.0).norms

        audit.audit(model, inputs, labels, kept, clip_norm=1.0)
        check_coverage(model.to(memory_format=torch.channels_last), (1, 8, 8))

    @pytest.mark.parametrize("part", PARTS)
    def test_nothing_flows_back_below_the_first_trained_layer(self, part: str) -> None:
        model, seen = begun(WideResNetModel(), part), list[bool]()
        for layer in (model[0], model[1].conv1):
            layer.register_forward_hook(lambda *call: seen.append(call[-1].requires_grad))

        clipped_sum(model, *batch(2, 1, dtype=torch.float32), clip_norm=1.0)

        assert seen == [False, True]

    def test_a_layer_that_does_not_run_is_refused(self) -> None:
        model = begun(SMALL_MODELS["vit-tiny"], "biases")
        model[1].mlp.forward = lambda x: x

        with pytest.raises(RuntimeError, match=r"'1\.mlp\.0' did not run"):
            clipped_sum(model, *batch(2, 1, dtype=torch.float32), clip_norm=1.0)

    @pytest.mark.parametrize("part", PARTS)
    def test_inputs_of_biases_are_not_kept_and_those_of_norms_are(self, part: str) -> None:
        books = Books(begun(SMALL_MODELS["vit-tiny"], part))

        reading = {unit.name for unit in books._units if unit.reads_inputs}

        assert ("1.norm1" in reading) == (part == "norms")
        assert "1.mlp.0" not in reading
        assert "5" in reading


CONFIGS = [
    {"optimizer": "adamw", "weight_decay": 0.1, "ema_decay": 0.9, "learning_rate": 0.01},
    {"momentum": 0.9, "weight_decay": 0.1, "ema_decay": 0.5, "learning_rate": 0.1},
]


@pytest.mark.parametrize("config", CONFIGS, ids=["adamw", "momentum"])
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", ["vit-tiny", "nf-resnet-50"])
def test_what_is_frozen_stays_to_the_last_bit(name: str, part: str, config: dict[str, Any]) -> None:
    model = begun(SMALL_MODELS[name], part, shape=(1, 8, 8))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    moving = trained(model)
    trainer = make_trainer(make_run(), model=model, config=config)

    run(trainer, 4)

    for weights in (trainer.released_weights(), model.state_dict()):
        moved = {key for key, value in weights.items() if not torch.equal(value, before[key])}
        assert moved == moving
    assert all(p.grad is None for p in model.parameters())
