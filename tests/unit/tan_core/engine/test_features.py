"""A head on kept features is the whole model on images: trained, evaluated and loaded back."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tan_core import data
from tan_core.engine import SeededRandomness, Trainer, checkpoint
from tan_core.engine.features import load_inputs
from tan_core.engine.inputs import as_floats, as_tensor
from tan_core.errors import ModelError
from tan_core.execution import PrivateRun, Simulation
from tan_core.mechanism import Mechanism
from tan_core.models import build, build_head, extractor_of
from tan_core.models.extractor import Extractor
from tan_core.spec.models import LinearModel, ModelSpec, ScatterCnnModel, ScatterLinearModel
from tan_core.spec.train import TrainerConfig
from tan_core.wire import DatasetRef
from tests.support.datasets import dataset_ref
from tests.unit.tan_core.engine.support import run

STEPS = 30
SCATTER: list[ModelSpec] = [
    ScatterLinearModel(),
    ScatterLinearModel(normalization="none"),
    ScatterCnnModel(groups=9),
]


@pytest.fixture(scope="module")
def digits() -> DatasetRef:
    return dataset_ref(data.inspect(None, source="digits"))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def make(kind: Any, spec: ModelSpec) -> torch.nn.Module:
    return kind(spec, shape=(1, 8, 8), num_classes=10, generator=torch.Generator())


def trainer_of(model: torch.nn.Module, train: data.Split) -> Trainer:
    mechanism = Mechanism(
        sampling_rate=128 / len(train), noise_multiplier=1.0, clip_norm=0.1, steps=STEPS
    )
    execution = PrivateRun(mechanism=mechanism, num_examples=len(train))
    return Trainer(
        model=model,
        execution=Simulation.of(execution, expected_batch_size=64),
        config=TrainerConfig(clip_norm=0.1, learning_rate=0.4, momentum=0.9),
        inputs=train.inputs,
        labels=train.labels,
        randomness=SeededRandomness(0),
    )


@pytest.mark.parametrize("spec", SCATTER, ids=str)
def test_the_whole_model_is_the_head_on_the_features(spec: ModelSpec, digits: DatasetRef) -> None:
    split = data.load_split(digits, "test")
    features = load_inputs(digits, "test", extractor_of(spec))
    whole, head = make(build, spec), make(build_head, spec)

    with torch.no_grad():
        expected = whole(as_floats(as_tensor(split.inputs), torch.float32))
        found = head(as_floats(as_tensor(features.inputs), torch.float32))

    assert features.inputs.dtype == np.float16
    assert np.array_equal(features.labels, split.labels)
    # Float16 features: their rounding, seen through a normalisation.
    torch.testing.assert_close(found, expected, atol=0.01, rtol=0)


@pytest.mark.parametrize("spec", SCATTER[::2], ids=str)
def test_released_weights_load_into_the_model_of_images(
    spec: ModelSpec, digits: DatasetRef, cache: Path, tmp_path: Path
) -> None:
    train, test = (
        load_inputs(digits, split, extractor_of(spec), cache_dir=cache)
        for split in ("train", "test")
    )
    trainer = trainer_of(make(build_head, spec), train)
    run(trainer, STEPS)
    checkpoint.save_weights(tmp_path / "model", trainer.released_weights(), metadata={})
    model = make(build, spec)

    model.load_state_dict(load_file(tmp_path / "model"))

    images = data.load_split(digits, "test")
    with torch.no_grad():
        logits = model(as_floats(as_tensor(images.inputs), torch.float32))
    accuracy = float((logits.argmax(1).numpy() == images.labels).mean())
    assert accuracy > 0.4  # guessing has a tenth
    assert accuracy == pytest.approx(trainer.evaluate(test.inputs, test.labels), abs=0.01)


def test_training_on_features_is_training_the_whole_model(digits: DatasetRef, cache: Path) -> None:
    spec = ScatterLinearModel()
    features = load_inputs(digits, "train", extractor_of(spec), cache_dir=cache)
    head = trainer_of(make(build_head, spec), features)
    whole = trainer_of(make(build, spec), data.load_split(digits, "train"))

    run(head, 5)
    run(whole, 5)

    weights, others = head.released_weights(), whole.released_weights()
    assert weights.keys() == others.keys()
    for name, weight in weights.items():
        torch.testing.assert_close(weight, others[name], atol=2e-3, rtol=0)


class Loud(Extractor):
    """Makes of an image what no float16 holds."""

    fingerprint = "loud"

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.flatten(1) * 1e9


def test_features_that_are_too_large_become_the_largest_there_are(digits: DatasetRef) -> None:
    """Infinite ones would leave their record out of every step."""
    features = load_inputs(digits, "test", Loud()).inputs

    assert np.isfinite(features).all()
    assert (features == 65504).any()
    assert (features == -65504).any()


class Joining(Extractor):
    """Makes one of every two images, where there are more than two."""

    fingerprint = "joining"

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.flatten(1)[:: 2 if len(images) > 2 else 1]


def test_features_of_fewer_records_than_were_read_are_refused(digits: DatasetRef) -> None:
    with pytest.raises(ModelError, match="features of 4 records were made of 8"):
        load_inputs(digits, "test", Joining())


def test_a_model_without_an_extractor_reads_the_records(digits: DatasetRef) -> None:
    assert extractor_of(LinearModel()) is None

    split = load_inputs(digits, "test", None)

    assert split.inputs.dtype == np.uint8
