"""A simulation's trainer may be copied, here and into another process; a private run's may not."""

import copy
import pickle
from pathlib import Path

import pytest
import torch

from tan_core.data import Records
from tan_core.data.records import write
from tan_core.engine import PrivateRandomness, Trainer
from tan_core.engine.inputs import ByIndex
from tan_core.execution import Simulation
from tan_core.spec.models import MODEL_TYPES
from tan_core.testing.tiny import tiny_images
from tests.support.image_files import png
from tests.unit.tan_core.engine.support import (
    KEY,
    SHAPE,
    make_run,
    make_trainer,
    run,
    vector,
)
from tests.unit.tan_core.engine.test_trainer import FixedRandomness

WAYS = {"pickled": lambda x: pickle.loads(pickle.dumps(x)), "copied": copy.deepcopy}
CONFIGS = {
    "sgd": {},
    "momentum-average": {"momentum": 0.9, "ema_decay": 0.9},
    "adam-views": {"optimizer": "adam", "learning_rate": 0.01, "augmentation_multiplicity": 2},
}

each_way = pytest.mark.parametrize("copied", WAYS.values(), ids=WAYS)


def simulated(**changes) -> Trainer:
    return make_trainer(Simulation.of(make_run(), expected_batch_size=6), **changes)


@each_way
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("model", ["linear", "mlp", "tanh-cnn"])
def test_a_copy_goes_on_as_the_trainer_does_and_apart_from_it(copied, config, model: str) -> None:
    trainer = run(simulated(spec=MODEL_TYPES[model](), config=config), 3)

    other = copied(trainer)
    stood = vector(other).clone()
    run(trainer, 4)

    assert torch.equal(vector(other), stood)
    assert [other.step() for _ in range(4)][-1].step == 7
    for name, tensor in trainer.state().tensors.items():
        assert torch.equal(other.state().tensors[name], tensor)
    assert other.evaluate(*tiny_images()) == trainer.evaluate(*tiny_images())
    for name, weight in trainer.released_weights().items():
        assert torch.equal(other.released_weights()[name], weight)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_shallow_copy_moves_nothing_of_the_trainer(config) -> None:
    """Its weights were its own, and its average, momentum and moments the trainer's."""
    trainer = run(simulated(config=config), 3)
    stood = trainer.state().tensors

    run(copy.copy(trainer), 2)

    assert all(torch.equal(value, stood[name]) for name, value in trainer.state().tensors.items())


@each_way
def test_a_copy_gives_no_signs_of_life_for_another(copied) -> None:
    trainer, beats = simulated(), list[int]()
    trainer.progressed = lambda: beats.append(1)
    copied(trainer).step()
    assert beats == []


@each_way
def test_shared_and_frozen_parameters_stay_so(copied) -> None:
    first, second = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)
    second.weight = first.weight
    first.bias.requires_grad_(False)
    model = torch.nn.Sequential(torch.nn.Flatten(), first, second, torch.nn.Linear(64, 3))
    trainer = simulated(model=model)

    other = copied(trainer)

    assert torch.equal(vector(run(other, 3)), vector(run(trainer, 3)))


def test_a_copy_that_is_written_holds_every_weight_once() -> None:
    trainer = simulated(spec=MODEL_TYPES["mlp"](hidden=[500, 500]))
    [data] = {each.nbytes for each in tiny_images()[:1]}

    assert len(pickle.dumps(trainer)) < data + 1.5 * 4 * len(vector(trainer))


@each_way
def test_records_that_are_read_by_index_are_opened_again(copied, tmp_path: Path) -> None:
    inputs, labels = tiny_images()
    write(tmp_path, lambda _: None, [png(image[0]) for image in inputs], labels)
    records = ByIndex(opened(tmp_path))
    records.expect(torch.tensor([3]))

    assert torch.equal(copied(records)[:], torch.from_numpy(inputs))
    trainer = simulated(inputs=opened(tmp_path))
    assert torch.equal(vector(run(copied(trainer), 2)), vector(run(trainer, 2)))


def opened(folder: Path) -> Records:
    return Records(folder, SHAPE, "made", (opened, (folder,)))


@each_way
@pytest.mark.parametrize(
    "randomness", [PrivateRandomness(KEY, 1), FixedRandomness([])], ids=["private", "own"]
)
def test_a_private_run_is_never_copied(copied, randomness) -> None:
    """Whatever its randomness is: a copy would add the same noise to other gradients."""
    trainer = make_trainer(randomness=randomness)

    with pytest.raises(TypeError, match="a private run is never copied or pickled"):
        copied(trainer)
