"""A model with a frozen extractor, searched and trained on a real Ray from one cache of features."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file

from tan_core.data import Split, load_split
from tan_core.data.pretrained import sha256_of
from tan_core.engine.features import load_inputs
from tan_core.engine.inputs import as_floats, as_tensor
from tan_core.models import build, extractor_of
from tan_core.spec import SearchSpec, TrainerConfig
from tan_core.spec.models import PythonModel, ScatterLinearModel
from tan_core.wire import PrivateAssignment, SearchAssignment, TrialRecord, TrialState
from worker.rung import Data, chosen, run_rung

if TYPE_CHECKING:
    from conftest import Books, ControlPlaneServer, Start

pytestmark = [pytest.mark.ray, pytest.mark.timeout(280)]

MODEL = ScatterLinearModel()
SEARCH = {"accounting": "public_proxy"}


def test_a_search_and_two_ranks_read_the_same_features(
    plane: "ControlPlaneServer",
    start: "Start",
    search_of: Callable[..., SearchAssignment],
    private_of: Callable[..., PrivateAssignment],
    new_books: Callable[..., "Books"],
    tmp_path: Path,
) -> None:
    cache = tmp_path / "cache"

    plane.books = books = new_books(search_of(model=MODEL))
    driver = start("worker.simulate", TAN_CACHE_DIR=str(cache))
    out, _ = driver.communicate(timeout=200)
    assert driver.returncode == 0, out
    assert max(trial.value or 0 for trial in books.trials.values()) > 0.5
    searched = made(cache)
    assert len(searched) == 2  # train and validation

    private = private_of(steps=30, model=MODEL, trainer=TrainerConfig(momentum=0.9))
    plane.books = books = new_books(private)
    driver = start("worker.train", TAN_CACHE_DIR=str(cache))
    out, _ = driver.communicate(timeout=200)
    assert driver.returncode == 0, out
    assert "features of scatter-linear are there" in out
    assert len(made(cache)) == 3  # and test
    assert searched.items() <= made(cache).items()

    (finish,) = books.finishes
    assert finish.result is not None
    accuracy = accuracy_on_images(private, Path(finish.result.model_path))
    assert accuracy == pytest.approx(finish.result.test_accuracy, abs=0.01)
    assert accuracy > 0.5


def test_a_network_of_others_runs_once_for_each_record_and_is_released_whole(
    plane: "ControlPlaneServer",
    start: "Start",
    search_of: Callable[..., SearchAssignment],
    private_of: Callable[..., PrivateAssignment],
    new_books: Callable[..., "Books"],
    tmp_path: Path,
) -> None:
    """Neither batch normalisation nor dropout stands in the way: below its classifier it is only used."""
    cache, file = tmp_path / "cache", tmp_path / "network.pt"
    given: dict[str, object] = {"name": "python:tests.support.zoo:network", "input": {"size": 16}}
    generator = torch.Generator().manual_seed(1)
    network = build(
        PythonModel.model_validate(given), shape=(1, 8, 8), num_classes=10, generator=generator
    )
    images = as_floats(as_tensor(load_split(search_of().dataset, "train").inputs), torch.float32)
    with torch.no_grad():
        network(images)  # its statistics are of some data
    torch.save(network.state_dict(), file)
    pretrained = {"path": str(file), "data": "public", "train": "classifier"}
    model = {**given, "pretrained": {**pretrained, "sha256": sha256_of(file)}}
    environment = {
        "TAN_CACHE_DIR": str(cache),
        "TAN_PRETRAINED_DIR": str(tmp_path),
        "TAN_ALLOWED_MODEL_PREFIXES": "tests.support",
    }

    plane.books = books = new_books(search_of(model=model))
    driver = start("worker.simulate", **environment)
    out, _ = driver.communicate(timeout=200)
    assert driver.returncode == 0, out
    assert "features of python:tests.support.zoo:network are there" in out
    (*_, last) = [beat.features for _, beat in books.heartbeats if beat.features]
    assert last.done == last.number
    assert max(trial.value or 0 for trial in books.trials.values()) > 0.5
    searched = made(cache)
    assert len(searched) == 2  # train and validation

    private = private_of(steps=60, model=model, trainer=TrainerConfig(momentum=0.9))
    plane.books = books = new_books(private)
    driver = start("worker.train", **environment)
    out, _ = driver.communicate(timeout=200)
    assert driver.returncode == 0, out
    assert searched.items() <= made(cache).items()

    (finish,) = books.finishes
    assert finish.result is not None
    weights = Path(finish.result.model_path)
    assert load_file(weights).keys() == network.state_dict().keys()
    alone = private.model_copy(update={"model": PythonModel.model_validate(given)})
    accuracy = accuracy_on_images(alone, weights)
    assert accuracy == pytest.approx(finish.result.test_accuracy, abs=0.01)
    assert accuracy > 0.5


def test_trials_that_differ_in_their_features_each_read_their_own(
    plane: "ControlPlaneServer",
    start: "Start",
    search_of: Callable[..., SearchAssignment],
    new_books: Callable[..., "Books"],
    tmp_path: Path,
) -> None:
    """Trials of both kinds in the same processes, one after the other; groups where they are read alone."""
    space = {
        "normalization": {"choices": ["group", "whitened"]},
        "patches": {"choices": [False, True]},
        "groups": {"choices": [9, 81]},
        "learning_rate": {"low": 0.25, "high": 1.0, "log": True},
    }
    assignment = search_of(model=MODEL)
    own = SearchSpec.model_validate({**SEARCH, "space": space, "trials": 8})
    # One of each kind comes first, too few to be compared on the way; then Optuna's own.
    kinds = product(("group", "whitened"), (False, True))
    first = [
        TrialRecord(
            number=number,
            state=TrialState.INTERRUPTED,
            params={"normalization": normalization, "patches": patches, "learning_rate": 0.5}
            | ({"groups": 9} if normalization == "group" else {}),
        )
        for number, (normalization, patches) in enumerate(kinds)
    ]
    assignment = assignment.model_copy(update={"search": own, "trials": first})
    plane.books = books = new_books(assignment)

    driver = start("worker.simulate", TAN_CACHE_DIR=str(tmp_path))
    out, _ = driver.communicate(timeout=270)

    assert driver.returncode == 0, out
    assert len(made(tmp_path)) == 2 * 4
    trials = books.trials.values()
    assert not [trial for trial in trials if trial.state is TrialState.FAILED]
    assert len(books.trials) == 8
    assert all(
        ("groups" in trial.params) == (trial.params["normalization"] == "group") for trial in trials
    )
    # Scored as on features of its own kind: kinds of one shape would be learnt from, too.
    by_kind = {
        chosen(assignment, books.trials[number].params).model.features: books.trials[number]
        for number in range(4)
    }
    assert len(by_kind) == 4
    for features, trial in by_kind.items():
        candidate = chosen(assignment, trial.params)
        extractor = extractor_of(candidate.model)
        train, validation = (
            load_inputs(assignment.dataset, role, extractor, cache_dir=tmp_path)
            for role in ("train", "validation")
        )
        data = Data(train=tensors(train), validation=tensors(validation))
        score = run_rung(assignment, candidate, 0, data).score
        assert score.accuracy == trial.scores[0].accuracy, features


def tensors(split: Split) -> tuple[torch.Tensor, torch.Tensor]:
    return as_tensor(split.inputs), as_tensor(split.labels)


def made(cache: Path) -> dict[str, int]:
    """Files of features, and which each is: one that is made again takes the place of the old one."""
    files = [file for file in cache.glob("*.npy") if "labels" not in file.name]
    return {file.name: file.stat().st_ino for file in files}


def accuracy_on_images(private: PrivateAssignment, weights: Path) -> float:
    """The whole model of the released weights, on the images of the test split."""
    model = build(
        private.model,
        shape=private.dataset.shape,
        num_classes=private.dataset.num_classes,
        generator=torch.Generator(),
    )
    model.load_state_dict(load_file(weights))
    model.eval()
    test = load_split(private.dataset, "test")
    with torch.no_grad():
        logits = model(as_floats(as_tensor(test.inputs), torch.float32))
    return float((logits.argmax(1).numpy() == test.labels).mean())
