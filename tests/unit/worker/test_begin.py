"""What a run begins from, and how an attempt ends whose checkpoint is not to be had."""

import sys
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

from tan_core.data import Split, inspect
from tan_core.data.pretrained import sha256_of
from tan_core.engine import SeededRandomness, Trainer, checkpoint
from tan_core.engine.features import load_inputs
from tan_core.engine.inputs import as_floats
from tan_core.errors import ModelError, ParameterError, PretrainedError
from tan_core.execution import Simulation
from tan_core.mechanism import Mechanism
from tan_core.models import Checkpoint, build, extractor_of
from tan_core.models.backbone import FrozenBackbone, ListenedBackbone
from tan_core.spec import TrainerConfig
from tan_core.spec.models import MODEL_TYPES, PythonModel, ScatterLinearModel, TanhCnnModel
from tan_core.wire import (
    DatasetRef,
    MechanismMessage,
    PrivateAssignment,
    SearchAssignment,
    TrialWeights,
)
from tests.support.assignments import search_assignment
from tests.support.datasets import dataset_ref
from worker import driver
from worker.begin import (
    checkpoint_of,
    extractor_for,
    extractors_for,
    go_on_from,
    model_for,
    weights_left,
)
from worker.driver import Driver, Outcome
from worker.rung import Data, chosen, run_rung
from worker.settings import WorkerSettings

SPEC = TanhCnnModel(width=4, hidden=8)
MECHANISM = Mechanism(sampling_rate=0.2, noise_multiplier=1.0, clip_norm=1.0, steps=12)
SPACE = {"learning_rate": 1.0}


@pytest.fixture(scope="module")
def digits() -> DatasetRef:
    return dataset_ref(inspect(None, source="digits"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, digits: DatasetRef) -> Path:
    """Where checkpoints may be read, with one that was trained before, without privacy."""
    folder = tmp_path_factory.mktemp("pretrained")
    generator = torch.Generator().manual_seed(1)
    model = build(SPEC, shape=(1, 8, 8), num_classes=10, generator=generator)
    inputs, labels = tensors(load_inputs(digits, "train", None))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(40):
        optimizer.zero_grad()
        functional.cross_entropy(model(as_floats(inputs, torch.float32)), labels).backward()
        optimizer.step()
    save_file(model.state_dict(), folder / "a.safetensors")
    return folder


def settings_of(folder: Path | None) -> WorkerSettings:
    known: dict[str, Any] = {
        "api_url": "http://127.0.0.1:1",
        "run_id": "s-search",
        "fence": 1,
        "run_token": "secret",
        "pretrained_dir": folder,
    }
    return WorkerSettings.model_validate(known)


def model_of(folder: Path, *, train: str = "classifier", **changes: Any) -> dict[str, Any]:
    pretrained = {
        "path": "a.safetensors",
        "data": "public",
        "train": train,
        "sha256": sha256_of(folder / "a.safetensors"),
        **changes,
    }
    return {**SPEC.model_dump(), "pretrained": pretrained}


def search_of(digits: DatasetRef, model: dict[str, Any], **changes: Any) -> SearchAssignment:
    space = changes.pop("space", SPACE)
    return search_assignment(
        digits, mechanism=MECHANISM, search={"space": space}, model=model, **changes
    )


def private_of(digits: DatasetRef, model: dict[str, Any], **changes: Any) -> PrivateAssignment:
    return PrivateAssignment.model_validate(
        {
            "run_id": "s-private",
            "study_id": "s",
            "study_name": "digits",
            "attempt": 1,
            "fence": 1,
            "mechanism": MechanismMessage(event=MECHANISM.to_json()),
            "num_examples": digits.num_train,
            "model": model,
            "trainer": TrainerConfig(),
            "workers": 1,
            "microbatch_size": 64,
            "segment_steps": 4,
            "dataset": digits,
            "checkpoint": None,
            "storage_path": "/nowhere",
            **changes,
        }
    )


class TestCheckpointOf:
    @pytest.mark.slow
    def test_it_is_the_file_that_was_fixed(self, digits: DatasetRef, folder: Path) -> None:
        found = checkpoint_of(search_of(digits, model_of(folder)), settings_of(folder))

        assert found is not None
        assert found.path == str(folder / "a.safetensors")

    def test_there_need_not_be_one(self, digits: DatasetRef) -> None:
        assert checkpoint_of(search_of(digits, {"name": "linear"}), settings_of(None)) is None

    @pytest.mark.parametrize(
        ("allowed", "changes", "message"),
        [
            (False, {}, "allowed by TAN_PRETRAINED_DIR: none"),
            (True, {"path": "../a.safetensors"}, "does not lie below"),
            (True, {"path": "/etc/shadow.pt"}, "does not lie below"),
            (True, {"path": "b.safetensors"}, "is not a file"),
            (True, {"sha256": "ab" * 32}, "is not the file that was submitted"),
            (True, {"sha256": None}, "is not the file that was submitted"),
        ],
    )
    def test_whatever_the_assignment_says_the_job_has_the_last_word(
        self,
        digits: DatasetRef,
        folder: Path,
        allowed: bool,
        changes: dict[str, Any],
        message: str,
    ) -> None:
        assignment = search_of(digits, model_of(folder, **changes))

        with pytest.raises(PretrainedError, match=message):
            checkpoint_of(assignment, settings_of(folder if allowed else None))

    def test_an_empty_setting_allows_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in {"API_URL": "u", "RUN_ID": "r", "FENCE": "1", "RUN_TOKEN": "t"}.items():
            monkeypatch.setenv(f"TAN_{name}", value)
        monkeypatch.setenv("TAN_PRETRAINED_DIR", "")

        assert WorkerSettings.model_validate({}).pretrained_dir is None

    def test_another_attempt_would_end_the_same_way(self, digits: DatasetRef, folder: Path) -> None:
        assignment = search_of(digits, model_of(folder, path="b.safetensors"))
        settings = settings_of(folder)
        nobody = cast("Any", None)

        def work(assignment: SearchAssignment, driver: Driver) -> Outcome:
            checkpoint_of(assignment, driver.settings)
            raise AssertionError

        outcome = driver._attempt(
            assignment, work, Driver(settings=settings, control=nobody, heartbeats=nobody)
        )

        assert (outcome.outcome, outcome.retryable) == ("failed", False)
        assert "'b.safetensors' is not a file" in str(outcome.reason)


class TestFeatures:
    """A backbone is computed once where no candidate could change it or what it sees."""

    @pytest.mark.parametrize("make", [search_of, private_of])
    def test_a_classifier_is_trained_on_what_the_backbone_makes(
        self, digits: DatasetRef, folder: Path, make: Any
    ) -> None:
        assignment = make(digits, model_of(folder))
        checkpoint = checkpoint_of(assignment, settings_of(folder))

        extractor = extractor_for(assignment, checkpoint)
        model = begun(assignment, checkpoint)

        assert isinstance(extractor, FrozenBackbone)
        assert [type(layer) for layer in model.modules()] == [nn.Sequential, nn.Linear]
        features = load_inputs(digits, "test", extractor)
        assert features.inputs.dtype == np.float16
        with torch.no_grad():
            assert model(torch.from_numpy(features.inputs[:3]).float()).shape == (3, 10)

    @pytest.mark.parametrize(
        "changes",
        [
            {"trainer": TrainerConfig(augmentation_multiplicity=4)},
            {"trainer": TrainerConfig(horizontal_flip=True)},
            {"space": {**SPACE, "augmentation_multiplicity": {"choices": [1, 4]}}},
            {"space": {**SPACE, "train.color_jitter": {"low": 0.0, "high": 0.5}}},
            {"space": {**SPACE, "width": {"choices": [4, 8]}}},
            {"space": {**SPACE, "model.hidden": 8}},
        ],
        ids=str,
    )
    def test_otherwise_frozen_layers_run_at_every_step(
        self, digits: DatasetRef, folder: Path, changes: dict[str, Any]
    ) -> None:
        self.assert_whole(search_of(digits, model_of(folder), **changes), folder)

    @pytest.mark.parametrize("make", [search_of, private_of])
    def test_whoever_trains_all_trains_on_the_records(
        self, digits: DatasetRef, folder: Path, make: Any
    ) -> None:
        self.assert_whole(make(digits, model_of(folder, train="all")), folder)

    def test_an_augmented_private_run_trains_on_the_records(
        self, digits: DatasetRef, folder: Path
    ) -> None:
        config = TrainerConfig(augmentation_multiplicity=2)
        self.assert_whole(private_of(digits, model_of(folder), trainer=config), folder)

    @staticmethod
    def assert_whole(assignment: SearchAssignment | PrivateAssignment, folder: Path) -> None:
        checkpoint = checkpoint_of(assignment, settings_of(folder))
        assert checkpoint is not None

        state = begun(assignment, checkpoint).state_dict()

        assert extractor_for(assignment, checkpoint) is None
        assert state.keys() == checkpoint.weights.keys()
        assert torch.equal(state["0.weight"], checkpoint.weights["0.weight"])


ZOO = """
from torch import nn

class Network(nn.Module):
    def __init__(self, num_classes, mixes):
        super().__init__()
        self.mixes, self.body = mixes, nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Tanh(), nn.Flatten())
        self.fc = nn.Linear(144, num_classes)

    def forward(self, x):
        x = self.body(x)
        return self.fc(x - x.mean(0) if self.mixes else x)

def network(*, shape, num_classes, mixes=False):
    return Network(num_classes, mixes)
"""


class TestCodeOfOthers:
    @pytest.fixture(autouse=True)
    def zoo(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "lab_of_beginnings.py").write_text(ZOO)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "lab_of_beginnings", raising=False)

    @staticmethod
    def model_of(
        folder: Path, *, train: str = "classifier", by: str | None = "frozen", **options: Any
    ) -> dict[str, Any]:
        given: dict[str, Any] = {"name": "python:lab_of_beginnings:network", "options": options}
        spec, file = PythonModel.model_validate(given), folder / "of-others.pt"
        generator = torch.Generator().manual_seed(1)
        network = build(spec, shape=(1, 8, 8), num_classes=10, generator=generator)
        torch.save(network.state_dict(), file)
        pretrained = {
            "path": file.name,
            "data": "public",
            "train": train,
            "sha256": sha256_of(file),
        }
        return {**given, "replace_batch_norm": by, "pretrained": pretrained}

    @pytest.mark.parametrize("by", ["frozen", None])
    @pytest.mark.parametrize("make", [search_of, private_of])
    def test_the_classifier_is_trained_on_features_that_are_computed_once(
        self, digits: DatasetRef, folder: Path, make: Any, by: str | None
    ) -> None:
        """Batch normalisation needs no other in its place: below the classifier the network is only used."""
        assignment = make(digits, self.model_of(folder, by=by))
        checkpoint = checkpoint_of(assignment, settings_of(folder))

        extractor = extractor_for(assignment, checkpoint)
        model = begun(assignment, checkpoint)

        assert isinstance(extractor, ListenedBackbone)
        assert [*model.state_dict()] == ["fc.weight", "fc.bias"]
        features = load_inputs(digits, "test", extractor)
        assert features.inputs.shape[1:] == (144,)
        whole = build(
            assignment.model,
            shape=(1, 8, 8),
            num_classes=10,
            generator=torch.Generator(),
            checkpoint=checkpoint,
        )
        whole.load_state_dict(extractor.weights() | model.state_dict())
        images, _ = tensors(load_inputs(digits, "test", None))
        with torch.no_grad():
            expected = whole.eval()(as_floats(images[:32], torch.float32))
            found = model(torch.from_numpy(features.inputs[:32]).float())
        torch.testing.assert_close(found, expected, rtol=0, atol=2e-3)

    @pytest.mark.parametrize("make", [search_of, private_of])
    def test_features_that_depend_on_other_records_are_refused_before_any_is_computed(
        self, digits: DatasetRef, folder: Path, make: Any
    ) -> None:
        assignment = make(digits, self.model_of(folder, mixes=True))
        checkpoint = checkpoint_of(assignment, settings_of(folder))

        with pytest.raises(ModelError, match="mixes the examples of a batch"):
            extractor_for(assignment, checkpoint)

    @pytest.mark.parametrize(
        "changes",
        [
            {"trainer": TrainerConfig(horizontal_flip=True)},
            {"space": {**SPACE, "model.options.mixes": {"choices": [False]}}},
        ],
        ids=str,
    )
    def test_what_is_varied_before_the_classifier_runs_at_every_step(
        self, digits: DatasetRef, folder: Path, changes: dict[str, Any]
    ) -> None:
        assignment = search_of(digits, self.model_of(folder), **changes)
        checkpoint = checkpoint_of(assignment, settings_of(folder))

        assert extractor_for(assignment, checkpoint) is None
        assert len(begun(assignment, checkpoint).state_dict()) > 2


class TestKindsOfFeatures:
    SPACE: ClassVar = {
        "normalization": {"choices": ["group", "none", "whitened"]},
        "patches": {"choices": [False, True]},
        "model.flip_invariant": {"choices": [False, True]},
    }

    def test_every_candidate_finds_its_own_and_each_is_there_once(self, digits: DatasetRef) -> None:
        assignment = search_of(digits, ScatterLinearModel(), space=self.SPACE)

        extractors = extractors_for(assignment, None)

        assert len({each.fingerprint for each in extractors.values() if each}) == 8
        for values in product(*(each["choices"] for each in self.SPACE.values())):
            params = dict(zip(self.SPACE, values, strict=True))
            model = chosen(assignment, params).model
            found, own = extractors[model.features], extractor_of(model)
            assert found is not None
            assert own is not None
            assert found.fingerprint == own.fingerprint

    def test_the_private_run_reads_those_of_the_promoted_trial(self, digits: DatasetRef) -> None:
        assignment = search_of(digits, ScatterLinearModel(), space=self.SPACE)
        params = {"normalization": "whitened", "patches": True, "model.flip_invariant": True}
        promoted = chosen(assignment, params).model

        found = extractor_for(private_of(digits, promoted), None)

        assert found is not None
        assert found.fingerprint == extractors_for(assignment, None)[promoted.features].fingerprint  # type: ignore[union-attr]

    def test_other_models_have_one(self, digits: DatasetRef) -> None:
        assert extractors_for(search_of(digits, SPEC), None) == {(): None}


def begun(assignment: Any, checkpoint: Any) -> nn.Module:
    return model_for(
        assignment, assignment.model, generator=torch.Generator(), checkpoint=checkpoint
    )


class TestTrial:
    @pytest.mark.parametrize(("train", "learning_rate"), [("all", 1e-6), ("classifier", 1.0)])
    def test_a_rung_begins_from_the_checkpoint(
        self, digits: DatasetRef, folder: Path, train: str, learning_rate: float
    ) -> None:
        """Too few steps to come so far from a random start."""
        assignment = search_of(digits, model_of(folder, train=train))
        checkpoint = checkpoint_of(assignment, settings_of(folder))
        extractor = extractor_for(assignment, checkpoint)
        splits = {
            role: tensors(load_inputs(digits, role, extractor)) for role in ("train", "validation")
        }

        candidate = chosen(assignment, {"learning_rate": learning_rate})
        score = run_rung(assignment, candidate, 0, Data(checkpoint=checkpoint, **splits)).score

        assert score.accuracy is not None
        assert score.accuracy > 0.7

    def test_a_checkpoint_that_is_forgotten_is_no_random_start(
        self, digits: DatasetRef, folder: Path
    ) -> None:
        assignment = search_of(digits, model_of(folder, train="all"))

        with pytest.raises(PretrainedError, match="given is None"):
            begun(assignment, None)

    def test_models_of_the_registry_can_be_pretrained(self, folder: Path) -> None:
        pretrained = model_of(folder)["pretrained"]
        for name, kind in MODEL_TYPES.items():
            assert kind.model_validate({"name": name, "pretrained": pretrained}).pretrained


def tensors(split: Split) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(np.array(split.inputs)), torch.from_numpy(np.array(split.labels))


def with_frozen_draws(seed: int) -> nn.Module:
    """As code of a user's may make it: features at random, and a classifier on them that is trained."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(3, 4).requires_grad_(False), nn.Linear(4, 2))


class TestGoOnFrom:
    """A private run that begins with the weights of its trial."""

    def left(self, folder: Path, model: nn.Module) -> TrialWeights:
        weights = {name: p.detach() + 1 for name, p in model.named_parameters() if p.requires_grad}
        sha256 = checkpoint.keep_weights(weights, lambda digest: folder / f"{digest}.safetensors")
        return TrialWeights(trial=3, path=str(folder / f"{sha256}.safetensors"), sha256=sha256)

    def model(self, digits: DatasetRef, spec: dict[str, Any], **changes: Any) -> nn.Module:
        generator = torch.Generator().manual_seed(2)
        assignment = private_of(digits, spec, **changes)
        return model_for(assignment, assignment.model, generator=generator, checkpoint=None)

    def test_all_that_is_trained_is_the_trials(self, digits: DatasetRef, tmp_path: Path) -> None:
        model = self.model(digits, SPEC.model_dump())
        before = {name: p.detach().clone() for name, p in model.named_parameters()}

        go_on_from(model, self.left(tmp_path, model))

        for name, parameter in model.named_parameters():
            assert torch.equal(parameter, before[name] + 1)

    @pytest.mark.parametrize("train", ["classifier", "all"])
    def test_a_trial_on_the_whole_model_and_a_run_on_its_backbone_call_weights_the_same(
        self, digits: DatasetRef, folder: Path, tmp_path: Path, train: str
    ) -> None:
        """What is searched decides which of both a trial has; the run's model is searched no more."""
        spec = model_of(folder, train=train)
        searched = {"learning_rate": 1.0, "augmentation_multiplicity": {"choices": [1, 2]}}
        search = search_of(digits, spec, space=searched)
        begun = checkpoint_of(search, settings_of(folder))
        generator = torch.Generator().manual_seed(2)
        of_trial = model_for(search, search.model, generator=generator, checkpoint=begun)
        run = private_of(digits, spec)
        of_run = model_for(run, run.model, generator=generator, checkpoint=begun)

        go_on_from(of_run, self.left(tmp_path, of_trial))

    def test_what_a_models_code_has_drawn_and_frozen_is_the_trials_too(
        self, tmp_path: Path
    ) -> None:
        """Each run draws it anew: what is trained on it would make no sense."""
        of_trial, of_run = (with_frozen_draws(seed) for seed in (1, 2))
        trainer = Trainer(
            model=of_trial,
            execution=Simulation(dynamics=MECHANISM, num_examples=10, scale_factor=1.0),
            config=TrainerConfig(),
            inputs=torch.arange(30.0).reshape(10, 3),
            labels=torch.arange(10) % 2,
            randomness=SeededRandomness(0),
        )
        trainer.step()
        weights = weights_left(trainer, trainer.released, None)
        sha256 = checkpoint.keep_weights(weights, lambda digest: tmp_path / digest)
        before = of_run.state_dict()
        assert not torch.equal(before["0.weight"], of_trial.state_dict()["0.weight"])

        go_on_from(of_run, TrialWeights(trial=3, path=str(tmp_path / sha256), sha256=sha256))

        state = of_run.state_dict()
        assert all(torch.equal(value, state[name]) for name, value in of_trial.state_dict().items())
        assert weights_left(trainer, trainer.released, Checkpoint(path="", weights={})).keys() == {
            "1.weight",
            "1.bias",
        }

    def test_what_is_gone_or_changed_may_be_back_by_the_next_attempt(
        self, digits: DatasetRef, tmp_path: Path
    ) -> None:
        model = self.model(digits, SPEC.model_dump())
        left = self.left(tmp_path, model)

        Path(left.path).write_bytes(b"other")
        with pytest.raises(
            ParameterError, match=r"weights of trial 3, .* cannot be read: .*sha256"
        ) as refused:
            go_on_from(model, left)
        assert refused.value.field == "begin_from"
        assert type(refused.value) is ParameterError
        Path(left.path).unlink()
        with pytest.raises(ParameterError, match="No such file") as refused:
            go_on_from(model, left)
        assert type(refused.value) is ParameterError

    @pytest.mark.parametrize(
        "other", [TanhCnnModel(width=8, hidden=8).model_dump(), {"name": "linear"}]
    )
    def test_what_is_of_another_model_is_refused_by_name(
        self, digits: DatasetRef, tmp_path: Path, other: dict[str, Any]
    ) -> None:
        left = self.left(tmp_path, self.model(digits, SPEC.model_dump()))

        with pytest.raises(PretrainedError, match=r"weights of trial 3, .* are of another model"):
            go_on_from(self.model(digits, other), left)

    def test_a_layer_that_the_trial_has_not_left_is_missed(self, tmp_path: Path) -> None:
        left = self.left(tmp_path, nn.Sequential(nn.Linear(3, 2)))

        with pytest.raises(PretrainedError, match=r"of another model: 1\.bias"):
            go_on_from(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2)), left)
