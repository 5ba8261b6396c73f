import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from tan_core.engine import checkpoint
from tan_core.errors import PretrainedError
from tan_core.models import (
    BUILDERS,
    Checkpoint,
    build,
    build_backbone,
    build_classifier,
    build_head,
    has_backbone,
)
from tan_core.models.checkpoint_file import read
from tan_core.models.pretrained import begin_from
from tan_core.spec.models import (
    LinearModel,
    MlpModel,
    ModelSpec,
    NfResNetModel,
    ScatterCnnModel,
    TanhCnnModel,
    VitModel,
    WideResNetModel,
)
from tests.support.models import SMALL_MODELS
from tests.unit.tan_core.engine.oracle import assert_exact
from tests.unit.tan_core.engine.support import make_run, make_trainer, run

SHAPE, CLASSES = (1, 8, 8), 3
TANH = TanhCnnModel(width=4, hidden=8)
VIT = VitModel(depth=2, width=12)
SHA256 = "ab" * 32


def begun(spec: ModelSpec, train: str = "all") -> ModelSpec:
    """The same model, which begins from a file."""
    pretrained = {"path": "a.safetensors", "data": "public", "train": train, "sha256": SHA256}
    return type(spec).model_validate({**spec.model_dump(), "pretrained": pretrained})


def fresh(spec: ModelSpec, *, seed: int = 0, num_classes: int = CLASSES, **more: Any) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    return build(spec, shape=SHAPE, num_classes=num_classes, generator=generator, **more)


def weights_of(spec: ModelSpec, **changes: Any) -> dict[str, Tensor]:
    """What was trained elsewhere: other values than those of a fresh model."""
    return dict(fresh(spec, seed=1, **changes).state_dict())


def given(weights: Mapping[str, Tensor]) -> Checkpoint:
    return Checkpoint(path="a.safetensors", weights=weights)


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


class TestRead:
    @pytest.mark.parametrize("nested", [None, "state_dict", "model_state_dict", "model"])
    @pytest.mark.parametrize("suffix", ["pt", "pth"])
    def test_torch_files_of_tensors(self, tmp_path: Path, suffix: str, nested: str | None) -> None:
        weights, file = weights_of(TANH), tmp_path / f"a.{suffix}"
        torch.save({nested: weights, "epoch": 3} if nested else weights, file)

        found = read(file, sha256(file))

        assert found.model is None
        assert {name: value.tolist() for name, value in found.weights.items()} == {
            name: value.tolist() for name, value in weights.items()
        }

    @pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {"model": "not json"}])
    def test_safetensors_of_others(self, tmp_path: Path, metadata: dict[str, str] | None) -> None:
        file = tmp_path / "a.safetensors"
        save_file(weights_of(TANH), file, metadata)

        found = read(file, sha256(file))

        assert found.model is None
        assert found.weights.keys() == weights_of(TANH).keys()

    def test_released_weights_say_of_which_model_they_are(self, tmp_path: Path) -> None:
        file = tmp_path / "model.safetensors"
        metadata = {"study_id": "s-1", "model": TANH.model_dump(mode="json")}
        digest = checkpoint.save_weights(file, weights_of(TANH), metadata)

        assert read(file, digest).model == TANH

    def test_code_in_a_torch_file_is_not_run(self, tmp_path: Path) -> None:
        file, trace = tmp_path / "a.pt", tmp_path / "trace"
        torch.save({"weight": Runs(trace)}, file)

        with pytest.raises(PretrainedError, match="expected a file of named tensors"):
            read(file, sha256(file))

        assert not trace.exists()

    def test_a_whole_model_is_refused_with_what_to_save_of_it(self, tmp_path: Path) -> None:
        file = tmp_path / "a.pt"
        torch.save(fresh(TANH), file)

        with pytest.raises(PretrainedError) as caught:
            read(file, sha256(file))

        assert str(caught.value) == (
            f"{file}: expected a file of named tensors and nothing else, as torch.save(model.state_dict(), PATH) writes: "
            "it holds a torch.nn.modules.container.Sequential, which is code"
        )

    @pytest.mark.parametrize("content", [torch.zeros(2), {"epoch": 3}, {1: torch.zeros(2)}, [1]])
    def test_torch_files_of_other_things(self, tmp_path: Path, content: Any) -> None:
        file = tmp_path / "a.pt"
        torch.save(content, file)

        with pytest.raises(PretrainedError, match="expected a file of named tensors"):
            read(file, sha256(file))

    @pytest.mark.parametrize("suffix", ["pt", "safetensors"])
    @pytest.mark.parametrize("content", [b"", b"weights", b"\xff" * 64, b"PK\x03\x04"])
    def test_malformed_files(self, tmp_path: Path, suffix: str, content: bytes) -> None:
        file = tmp_path / f"a.{suffix}"
        file.write_bytes(content)

        with pytest.raises(PretrainedError, match="expected a file of named tensors") as caught:
            read(file, sha256(file))

        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("expected", [None, SHA256])
    def test_another_file_than_was_submitted(self, tmp_path: Path, expected: str | None) -> None:
        file = tmp_path / "a.safetensors"
        save_file(weights_of(TANH), file)

        with pytest.raises(PretrainedError, match=f"expected {expected}") as caught:
            read(file, expected)

        assert caught.value.field == "model.pretrained.sha256"

    def test_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(PretrainedError, match="No such file"):
            read(tmp_path / "a.pt", SHA256)


class Runs:
    """Unpickled, it would leave a trace."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return Path.touch, (self.trace,)


class TestBuild:
    @pytest.mark.parametrize("spec", SMALL_MODELS.values(), ids=SMALL_MODELS)
    def test_every_model_begins_from_its_weights(self, spec: ModelSpec) -> None:
        weights = weights_of(spec)

        model = fresh(begun(spec), checkpoint=given(weights))

        for name, value in model.state_dict().items():
            assert torch.equal(value, weights[name])
        assert all(parameter.requires_grad for parameter in model.parameters())

    @pytest.mark.parametrize("train", ["all", "classifier"])
    def test_a_classifier_for_other_classes_starts_anew(self, train: str) -> None:
        weights = weights_of(TANH, num_classes=7)

        model = fresh(begun(TANH, train), checkpoint=given(weights))

        assert_begun(model, weights, anew=fresh(TANH))

    def test_a_classifier_that_is_trained_alone_starts_anew(self) -> None:
        weights = weights_of(TANH)

        model = fresh(begun(TANH, "classifier"), checkpoint=given(weights))

        assert_begun(model, weights, anew=fresh(TANH))
        trained = [name for name, p in model.named_parameters() if p.requires_grad]
        assert trained == classifier_of(model)

    def test_a_checkpoint_without_a_classifier_is_enough_to_train_one(self) -> None:
        weights = weights_of(TANH)
        for name in classifier_of(fresh(TANH)):
            del weights[name]

        model = fresh(begun(TANH, "classifier"), checkpoint=given(weights))

        assert_begun(model, weights, anew=fresh(TANH))

    @pytest.mark.parametrize("prefix", ["module.", "_module.", "_orig_mod.", "module._orig_mod."])
    @pytest.mark.parametrize("num_classes", [CLASSES, 5])
    def test_what_a_wrapper_put_before_every_name_is_left_out(
        self, prefix: str, num_classes: int
    ) -> None:
        weights = weights_of(TANH, num_classes=num_classes)
        wrapped = given({prefix + name: value for name, value in weights.items()})

        found, expected = (
            fresh(begun(TANH), checkpoint=each) for each in (wrapped, given(weights))
        )

        for name, value in expected.state_dict().items():
            assert torch.equal(found.state_dict()[name], value)

    def test_a_prefix_that_some_names_lack_is_a_part_of_them(self) -> None:
        weights = weights_of(TANH)
        first = next(iter(weights))
        mixed = {first if name == first else f"module.{name}": weights[name] for name in weights}

        with pytest.raises(PretrainedError, match=r"the model has no module\."):
            fresh(begun(TANH), checkpoint=given(mixed))

    def test_a_head_behind_an_extractor_begins_from_the_whole_model(self) -> None:
        spec = ScatterCnnModel(groups=9)
        weights, arguments = weights_of(spec), {"shape": SHAPE, "num_classes": CLASSES}

        head = build_head(
            begun(spec), generator=torch.Generator(), checkpoint=given(weights), **arguments
        )

        assert head.state_dict().keys() == weights.keys()
        assert all(torch.equal(value, weights[name]) for name, value in head.state_dict().items())

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
    def test_floats_of_another_width_become_the_models(self, dtype: torch.dtype) -> None:
        weights = {name: value.to(dtype) for name, value in weights_of(TANH).items()}

        model = fresh(begun(TANH), checkpoint=given(weights))

        for name, value in model.state_dict().items():
            assert torch.equal(value, weights[name].float())

    @pytest.mark.parametrize("checkpoint", [None, given({})])
    def test_a_checkpoint_comes_exactly_where_one_is_named(
        self, checkpoint: Checkpoint | None
    ) -> None:
        with pytest.raises(PretrainedError, match="given is"):
            fresh(TANH if checkpoint else begun(TANH), checkpoint=checkpoint)


def classifier_of(model: nn.Module) -> list[str]:
    return [name for name, _ in model.named_parameters()][-2:]


def assert_begun(model: nn.Module, weights: Mapping[str, Tensor], *, anew: nn.Module) -> None:
    """The classifier has the values of ``anew``, all else those of ``weights``."""
    initial = anew.state_dict()
    for name, value in model.state_dict().items():
        expected = initial if name in classifier_of(model) else weights
        assert torch.equal(value, expected[name]), name


class TestRefusals:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"0.weight": None}, r"it lacks 0\.weight$"),
            ({"epoch": torch.zeros(1)}, r"the model has no epoch$"),
            ({f"x{i}": torch.zeros(1) for i in range(7)}, r"x0, x1, x2, x3, x4 and 2 more"),
            ({"0.bias": torch.zeros(5)}, r"0\.bias has shape \[5\], expected \[4\]"),
            ({"0.bias": torch.tensor([0.0, 1, float("nan"), 2])}, r"0\.bias holds a value that"),
            ({"0.bias": torch.full((4,), 1e300, dtype=torch.float64)}, r"not a finite torch\.float32"),
            ({"0.bias": torch.zeros(4, dtype=torch.int64)}, r"0\.bias holds torch\.int64"),
            ({"0.bias": torch.zeros(4, dtype=torch.complex64)}, r"0\.bias holds torch\.complex64"),
            ({"0.bias": torch.zeros(4).to_sparse()}, r"0\.bias holds torch\.float32 \(torch\.sparse"),
            ({"0.bias": torch.zeros(4, device="meta")}, r"0\.bias holds .*meta"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )  # fmt: skip
    def test_what_is_wrong_is_named_and_nothing_is_changed(
        self, change: dict[str, Tensor | None], message: str
    ) -> None:
        weights = {k: v for k, v in (weights_of(TANH) | change).items() if v is not None}
        model = fresh(TANH)
        with pytest.raises(PretrainedError, match=message) as caught:
            begin_from(
                given(weights), model, begun(TANH), num_classes=CLASSES, generator=torch.Generator()
            )

        assert caught.value.field == "model.pretrained.path"
        assert str(caught.value).startswith("a.safetensors: ")
        for name, value in model.state_dict().items():
            assert torch.equal(value, fresh(TANH).state_dict()[name])

    def test_features_of_another_width_are_no_other_number_of_classes(self) -> None:
        wide = TanhCnnModel(width=4, hidden=9)

        with pytest.raises(PretrainedError, match=r"has shape \[9, .*expected \[8, "):
            fresh(begun(TANH), checkpoint=given(weights_of(wide)))

    def test_inputs_of_another_size_are_no_other_number_of_classes(self) -> None:
        weights = {"1.weight": torch.zeros(7, 100), "1.bias": torch.zeros(7)}

        with pytest.raises(PretrainedError, match=r"has shape \[7, 100\], expected \[3, 64\]"):
            fresh(begun(LinearModel()), checkpoint=given(weights))

    @pytest.mark.parametrize(("train", "num_classes"), [("classifier", CLASSES), ("all", 7)])
    def test_a_model_that_is_a_classifier_has_nothing_to_begin_from(
        self, train: str, num_classes: int
    ) -> None:
        weights = weights_of(LinearModel(), num_classes=num_classes)

        with pytest.raises(PretrainedError, match="nothing of it would be used"):
            fresh(begun(LinearModel(), train), checkpoint=given(weights))

    def test_weights_mean_nothing_under_another_activation(self) -> None:
        stated = Checkpoint(
            path="a.safetensors",
            weights=weights_of(MlpModel(activation="relu")),
            model=begun(MlpModel(activation="relu")),
        )
        assert fresh(begun(MlpModel(activation="relu")), checkpoint=stated)

        with pytest.raises(PretrainedError, match=r"'relu'.*the study's is .*'tanh'"):
            fresh(begun(MlpModel()), checkpoint=stated)

    def test_a_model_whose_last_linear_layer_gives_no_logits(self) -> None:
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Unflatten(1, (5, 1)))
        with pytest.raises(PretrainedError, match="no linear layer of 3 classes"):
            begin_from(
                given({}),
                model,
                begun(TANH, "classifier"),
                num_classes=CLASSES,
                generator=torch.Generator(),
            )


class TestTraining:
    @pytest.mark.parametrize("views", [1, 4])
    @pytest.mark.parametrize("spec", [TANH, VIT], ids=lambda spec: spec.name)
    def test_the_clipped_sum_of_a_classifier_alone_is_exact(
        self, spec: ModelSpec, views: int
    ) -> None:
        model = fresh(begun(spec, "classifier"), checkpoint=given(weights_of(spec))).double()
        generator = torch.Generator().manual_seed(3)
        inputs = torch.randn(6 * views, *SHAPE, generator=generator, dtype=torch.float64)
        labels = torch.randint(CLASSES, (6,), generator=generator)

        assert_exact(model, inputs, labels, views=views)

    @pytest.mark.parametrize("train", ["all", "classifier"])
    def test_nothing_but_what_is_trained_moves(self, train: str) -> None:
        weights = weights_of(TANH)
        model = fresh(begun(TANH, train), checkpoint=given(weights))
        trainer = make_trainer(make_run(), model=model)

        run(trainer, 5)

        for name, value in trainer.released_weights().items():
            is_trained = train == "all" or name in classifier_of(model)
            assert torch.equal(value, weights[name]) != is_trained, name

    def test_released_weights_are_a_checkpoint(self, tmp_path: Path) -> None:
        trainer = make_trainer(make_run(), model=fresh(TANH))
        run(trainer, 3)
        released = trainer.released_weights()
        file = tmp_path / "model.safetensors"
        metadata = {"study_id": "s-1", "model": TANH.model_dump(mode="json")}
        digest = checkpoint.save_weights(file, released, metadata)

        model = fresh(begun(TANH), checkpoint=read(file, digest))

        assert all(torch.equal(value, released[k]) for k, value in model.state_dict().items())


class TestBackbone:
    @pytest.mark.parametrize("kind", BUILDERS, ids=lambda kind: kind.__name__)
    def test_every_model_with_a_name_ends_in_its_classifier(self, kind: type) -> None:
        """What :func:`has_backbone` takes for granted."""
        spec = next(spec for spec in SMALL_MODELS.values() if type(spec) is kind)
        model = fresh(spec)

        assert isinstance(model, nn.Sequential)
        assert isinstance(model[-1], nn.Linear)
        assert model[-1].out_features == CLASSES

    @pytest.mark.parametrize(
        "spec", [TANH, VIT, WideResNetModel(), NfResNetModel(width=1)], ids=lambda spec: spec.name
    )
    def test_backbone_and_classifier_are_the_model(self, spec: ModelSpec) -> None:
        frozen, weights = begun(spec, "classifier"), given(weights_of(spec))
        model = fresh(frozen, checkpoint=weights)
        arguments: dict[str, Any] = {"shape": SHAPE, "num_classes": CLASSES}
        backbone = build_backbone(frozen, checkpoint=weights, **arguments)
        classifier = build_classifier(frozen, generator=torch.Generator(), **arguments)
        state = backbone.state_dict() | classifier.state_dict()

        assert state.keys() == model.state_dict().keys()
        assert not [p for p in backbone.parameters() if p.requires_grad]
        model.load_state_dict(state)
        inputs = torch.rand(5, *SHAPE)
        torch.testing.assert_close(classifier(backbone(inputs)), model(inputs))

    def test_it_is_asked_for_where_the_classifier_is_trained_alone(self) -> None:
        def has(spec: ModelSpec) -> bool:
            return has_backbone(spec, shape=SHAPE, num_classes=CLASSES)

        assert has(begun(TANH, "classifier"))
        assert not has(begun(TANH))
        assert not has(TANH)
        assert not has(begun(ScatterCnnModel(), "classifier"))

    def test_features_are_named_by_the_file_and_the_model(self) -> None:
        weights = given(weights_of(MlpModel()))

        def fingerprint(spec: ModelSpec) -> str:
            return build_backbone(
                spec, shape=SHAPE, num_classes=CLASSES, checkpoint=weights
            ).fingerprint

        frozen = begun(MlpModel(), "classifier")
        other_file = MlpModel.model_validate_json(
            frozen.model_dump_json().replace(SHA256, "cd" * 32)
        )
        specs = [frozen, begun(MlpModel(activation="relu"), "classifier"), other_file]

        assert len({fingerprint(spec) for spec in specs}) == len(specs)
        assert SHA256 in fingerprint(frozen)
