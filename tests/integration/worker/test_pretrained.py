"""A released model goes into the next study: searched and trained on a real Ray, in part."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from tan_core.data import load_split
from tan_core.engine import checkpoint
from tan_core.engine.inputs import as_floats, as_tensor
from tan_core.models import build
from tan_core.spec import TrainerConfig
from tan_core.spec.models import MlpModel, ModelSpec, PythonModel
from tan_core.wire import DatasetRef, PrivateAssignment, SearchAssignment

if TYPE_CHECKING:
    from conftest import Books, ControlPlaneServer, Start

pytestmark = [pytest.mark.ray, pytest.mark.timeout(280)]

SPEC = MlpModel(hidden=[32])


@pytest.mark.parametrize(("train", "trained"), [("classifier", set[str]()), ("lora", {"1.weight"})])
def test_a_search_and_two_ranks_begin_from_one_file(
    plane: "ControlPlaneServer",
    start: "Start",
    search_of: Callable[..., SearchAssignment],
    private_of: Callable[..., PrivateAssignment],
    new_books: Callable[..., "Books"],
    digits: DatasetRef,
    tmp_path: Path,
    train: str,
    trained: set[str],
) -> None:
    folder, cache = tmp_path / "pretrained", tmp_path / "cache"
    begun_from = dict(whole(SPEC, digits).state_dict())
    spec = released(folder / "model.safetensors", begun_from, train)
    environment = {"TAN_PRETRAINED_DIR": str(folder), "TAN_CACHE_DIR": str(cache)}

    plane.books = books = new_books(search_of(model=spec))
    driver = start("worker.simulate", **environment)
    out, _ = driver.communicate(timeout=200)
    assert driver.returncode == 0, out
    assert max(trial.value or 0 for trial in books.trials.values()) > 0.5

    private = private_of(steps=30, model=spec, trainer=TrainerConfig(momentum=0.9))
    plane.books = books = new_books(private)
    driver = start("worker.train", **environment)
    out, _ = driver.communicate(timeout=200)
    assert driver.returncode == 0, out

    (finish,) = books.finishes
    assert finish.result is not None
    weights = load_file(finish.result.model_path)
    moved = {name for name, weight in weights.items() if not torch.equal(weight, begun_from[name])}
    assert weights.keys() == begun_from.keys()
    assert moved == {"3.weight", "3.bias"} | trained
    model = whole(SPEC, digits)
    model.load_state_dict(weights)
    test = load_split(digits, "test")
    with torch.no_grad():
        logits = model(as_floats(as_tensor(test.inputs), torch.float32))
    accuracy = float((logits.argmax(1).numpy() == test.labels).mean())
    assert accuracy == pytest.approx(finish.result.test_accuracy, abs=0.01)
    assert accuracy > 0.5


def test_a_job_without_the_folder_reads_no_file_and_is_not_tried_again(
    plane: "ControlPlaneServer",
    start: "Start",
    private_of: Callable[..., PrivateAssignment],
    new_books: Callable[..., "Books"],
    digits: DatasetRef,
    tmp_path: Path,
) -> None:
    spec = released(tmp_path / "model.safetensors", dict(whole(SPEC, digits).state_dict()))

    plane.books = books = new_books(private_of(model=spec))
    driver = start("worker.train")
    driver.communicate(timeout=200)

    (finish,) = books.finishes
    assert (finish.outcome, finish.retryable) == ("failed", False)
    assert "allowed by TAN_PRETRAINED_DIR: none" in (finish.reason or "")
    assert books.charged == 0


@pytest.mark.parametrize("by", ["ranks", "tasks"])
def test_a_run_that_is_cancelled_while_its_features_are_computed_ends_with_all_its_ranks(
    by: str,
    plane: "ControlPlaneServer",
    start: "Start",
    private_of: Callable[..., PrivateAssignment],
    new_books: Callable[..., "Books"],
    digits: DatasetRef,
    tmp_path: Path,
) -> None:
    """Whichever rank is told of it, the others are in no step whose end they could wait for.

    Where features are kept, tasks compute them before there are ranks.
    """
    calls = tmp_path / "calls"
    spec = PythonModel(name="python:tests.support.slow_model:slow", options={"calls": str(calls)})
    begun_from = dict(whole(spec, digits).state_dict())
    file = tmp_path / "pretrained" / "slow.safetensors"
    plane.books = books = new_books(
        private_of(model=released(file, begun_from, "classifier", spec))
    )
    driver = start(
        "worker.train",
        TAN_PRETRAINED_DIR=str(file.parent),
        TAN_ALLOWED_MODEL_PREFIXES="tests.support",
        **({"TAN_CACHE_DIR": str(tmp_path / "cache")} if by == "tasks" else {}),
    )
    # The first few look whether a feature depends on other records.
    deadline = time.monotonic() + 120
    while not (calls.exists() and calls.stat().st_size > 10):
        assert driver.poll() is None, driver.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.2)

    books.desired = "cancel"
    out, _ = driver.communicate(timeout=90)
    made = calls.stat().st_size
    time.sleep(3)

    assert driver.returncode == 0, out
    assert [finish.outcome for finish in books.finishes] == ["cancelled"]
    assert books.charged == 0
    assert calls.stat().st_size == made < digits.num_train / 8
    # The next run goes on from here.
    assert len([*(tmp_path / "cache").glob("*.rows")]) == (by == "tasks")


def released(
    file: Path,
    weights: dict[str, torch.Tensor],
    train: str = "classifier",
    spec: MlpModel | PythonModel = SPEC,
) -> ModelSpec:
    """The model that begins from ``file``, which is written as the result of a study."""
    metadata = {"study_id": "s0", "model": spec.model_dump(mode="json")}
    sha256 = checkpoint.save_weights(file, weights, metadata)
    pretrained = {"path": file.name, "data": "none", "train": train, "sha256": sha256}
    return type(spec).model_validate({**spec.model_dump(), "pretrained": pretrained})


def whole(spec: ModelSpec, digits: DatasetRef) -> nn.Module:
    return build(
        spec,
        shape=digits.shape,
        num_classes=digits.num_classes,
        generator=torch.Generator().manual_seed(1),
    )
