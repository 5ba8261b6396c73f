"""The closed forms against the real models: torch builds them, and hooks count what flows."""

from typing import Any

import pytest
import torch
from torch import nn

from tan_core.errors import ParameterError
from tan_core.models import BUILDERS, Checkpoint, build
from tan_core.models.extractor import Extractor
from tan_core.planner import ModelCost, model_cost
from tan_core.planner.memory import memory_bytes
from tan_core.spec import StudySpec
from tan_core.spec.models import (
    MODEL_TYPES,
    LinearModel,
    MlpModel,
    ModelSpec,
    NfResNetModel,
    PythonModel,
    ScatterCnnModel,
    ScatterLinearModel,
    TanhCnnModel,
    TimmModel,
    VitModel,
    WideResNetModel,
)
from tests.support.models import SMALL_MODELS

IMAGES = [(1, 28, 28), (3, 32, 32), (1, 8, 8), (3, 17, 23), (3, 15, 64), (2, 16, 16)]
CASES: list[tuple[ModelSpec, tuple[int, ...]]] = [
    *((LinearModel(), shape) for shape in [(7,), (3, 32, 32)]),
    *((MlpModel(hidden=hidden), (1, 8, 8)) for hidden in ([64], [5, 3, 9])),
    *((TanhCnnModel(), shape) for shape in IMAGES),
    (TanhCnnModel(width=3, hidden=7), (1, 4, 5)),
    *((ScatterLinearModel(), shape) for shape in [(1, 28, 28), (3, 32, 32), (2, 8, 17)]),
    (ScatterLinearModel(normalization="none"), (1, 8, 8)),
    *((ScatterLinearModel(patches=True), shape) for shape in [(1, 28, 28), (3, 8, 17)]),
    *((ScatterCnnModel(), shape) for shape in [(1, 28, 28), (3, 32, 32), (2, 9, 15), (1, 17, 8)]),
    (ScatterCnnModel(normalization="none"), (1, 8, 8)),
    *((ScatterCnnModel(patches=True), shape) for shape in [(1, 28, 28), (3, 8, 17)]),
    (WideResNetModel(), (3, 32, 32)),
    (WideResNetModel(groups=4), (1, 9, 15)),
    (WideResNetModel(weight_standardization=True), (3, 9, 12)),
    (WideResNetModel(order="norm_relu"), (1, 8, 8)),
    (WideResNetModel(name="wrn-40-4"), (3, 9, 15)),
    (WideResNetModel(name="wrn-28-10", weight_standardization=True), (1, 8, 9)),
    (NfResNetModel(), (3, 8, 11)),
    *((NfResNetModel(width=1), shape) for shape in [(1, 28, 28), (3, 63, 65), (3, 64, 71)]),
    (VitModel(), (3, 32, 32)),
    *((VitModel(depth=2, width=12), shape) for shape in [(1, 28, 28), (3, 17, 23), (2, 4, 4)]),
    (VitModel(patch_size=16, depth=1, width=10, heads=5), (3, 50, 64)),
]


def really(spec: ModelSpec, shape: tuple[int, ...], num_classes: int) -> ModelCost:
    """Counted on the meta device, where layers have shapes and no values."""
    floats = 0

    def count(_layer: nn.Module, _inputs: Any, output: torch.Tensor) -> None:
        nonlocal floats
        floats += output.numel()

    with torch.device("meta"), torch.no_grad():
        model = BUILDERS[type(spec)](spec, shape, num_classes)
        for layer in model.modules():
            if not any(layer.children()) and not isinstance(layer, nn.Flatten | Extractor):
                layer.register_forward_hook(count)
        model(torch.zeros(1, *shape))
    return ModelCost(
        num_parameters=sum(p.numel() for p in model.parameters()),
        activation_floats_per_example=floats,
    )


@pytest.mark.parametrize(("spec", "shape"), CASES, ids=str)
@pytest.mark.parametrize("num_classes", [2, 10])
def test_the_closed_forms_count_what_torch_builds(
    spec: ModelSpec, shape: tuple[int, ...], num_classes: int
) -> None:
    assert model_cost(spec, shape=shape, num_classes=num_classes) == really(
        spec, shape, num_classes
    )


PARTLY_TRAINED = [
    (spec, train)
    for spec in (*SMALL_MODELS.values(), WideResNetModel(weight_standardization=True))
    for train in ("all", *(() if spec.is_one_layer else ("classifier",)), *(spec.parts or ()))
]


@pytest.mark.parametrize(("spec", "train"), PARTLY_TRAINED, ids=str)
def test_so_do_those_of_what_is_trained_of_a_checkpoint(spec: ModelSpec, train: str) -> None:
    pretrained = {"path": "a.pt", "data": "public", "train": train, "sha256": "ab" * 32}
    begun = type(spec).model_validate({**spec.model_dump(), "pretrained": pretrained})
    arguments: dict[str, Any] = {"shape": (3, 32, 32), "num_classes": 10}
    weights = build(spec, generator=torch.Generator(), **arguments).state_dict()
    checkpoint = Checkpoint(path="a.pt", weights=weights)

    model = build(begun, generator=torch.Generator(), checkpoint=checkpoint, **arguments)

    found = model_cost(begun, **arguments)
    assert found is not None
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    whole = sum(p.numel() for p in model.parameters())
    assert (found.num_trained, found.num_parameters) == (trained, whole)
    if train != "lora":
        assert whole == really(spec, **arguments).num_parameters


def test_factors_put_out_numbers_too() -> None:
    named = {"path": "a.pt", "data": "public", "train": "lora", "rank": 3, "sha256": "ab" * 32}
    sizes: dict[str, Any] = {"shape": [64], "num_classes": 10}
    plain, adapted = (
        model_cost(MlpModel(hidden=[20], pretrained=given), **sizes) for given in (None, named)
    )

    assert plain is not None
    assert plain.activation_floats_per_example is not None
    assert adapted == ModelCost(
        num_parameters=plain.num_parameters + 3 * (64 + 20),
        num_trained=3 * (64 + 20) + 21 * 10,
        activation_floats_per_example=plain.activation_floats_per_example + 3 + 20,
    )


def test_every_model_with_a_name_of_its_own_is_counted() -> None:
    assert {spec.name for spec, _ in CASES} == set(MODEL_TYPES)


@pytest.mark.parametrize("spec", [TimmModel(name="timm:vgg11"), PythonModel(name="python:lab:cnn")])
def test_nothing_is_said_of_a_model_that_only_building_would_tell(spec: ModelSpec) -> None:
    assert model_cost(spec, shape=(3, 32, 32), num_classes=10) is None


def test_a_model_of_images_refuses_a_table_by_field() -> None:
    with pytest.raises(ParameterError, match=r"\[C, H, W\], got \[30\]") as caught:
        model_cost(TanhCnnModel(), shape=[30], num_classes=2)

    assert caught.value.field == "model.name"


def test_a_model_without_parameters_is_refused() -> None:
    with pytest.raises(ParameterError, match="num_parameters"):
        ModelCost(num_parameters=0)


class TestMemory:
    @staticmethod
    def study(space: dict[str, Any] | None = None, **train: Any) -> StudySpec:
        return StudySpec.model_validate(
            {
                "name": "study",
                "privacy": {"epsilon": 3.0, "delta": 1e-5},
                "dataset": "data",
                "model": {"name": "linear"},
                "search": {
                    "accounting": "public_proxy",
                    "space": {"learning_rate": 1.0, **(space or {})},
                },
                "train": {"microbatch_size": 64, **train},
            }
        )

    @pytest.mark.parametrize(
        ("study", "vectors"),
        [
            (study(), 5),
            (study(ema_decay=0.9), 6),
            (study({"ema_decay": {"choices": [0.0, 0.9]}}), 6),
            (study(momentum=0.9), 6),
            (study(optimizer="adam"), 7),
            (study(optimizer="adamw"), 7),
            (study({"optimizer": {"choices": ["sgd", "adam"]}}, momentum=0.9), 7),
            (study({"optimizer": "adam"}, ema_decay=0.5), 8),
        ],
    )
    def test_the_state_that_a_study_may_use_is_counted_in_vectors(
        self, study: StudySpec, vectors: int
    ) -> None:
        model = ModelCost(num_parameters=1000, activation_floats_per_example=30)

        assert memory_bytes(model, study) == 4 * (vectors * 1000 + 64 * (2 * 30 + 1000))

    def test_what_is_frozen_is_held_once_and_has_no_gradient(self) -> None:
        model = ModelCost(num_parameters=1000, activation_floats_per_example=30, num_trained=10)

        found = memory_bytes(model, self.study(optimizer="adam"))

        assert found == 4 * (1000 + 6 * 10 + 64 * (2 * 30 + 10))

    def test_it_holds_the_tensors_that_a_step_really_keeps(self) -> None:
        """Weights, activations and per-example gradients of one plain microbatch, as torch makes them."""
        spec = TanhCnnModel()
        model = build(spec, shape=(1, 28, 28), num_classes=10, generator=torch.Generator())
        per_example = torch.func.vmap(
            torch.func.grad(
                lambda weights, x: torch.func.functional_call(model, weights, (x[None],)).sum()
            ),
            in_dims=(None, 0),
        )
        weights = {name: p.detach() for name, p in model.named_parameters()}
        made = per_example(weights, torch.zeros(64, 1, 28, 28))
        kept = sum(4 * tensor.numel() for tensor in [*weights.values(), *made.values()])

        size = model_cost(spec, shape=(1, 28, 28), num_classes=10)
        assert size is not None
        estimate = memory_bytes(size, self.study())

        assert estimate is not None
        assert kept < estimate < 2 * kept

    def test_unknown_activations_are_no_estimate(self) -> None:
        assert memory_bytes(ModelCost(num_parameters=10), self.study()) is None
