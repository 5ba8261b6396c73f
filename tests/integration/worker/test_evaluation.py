"""A private run of users from its data to what it tells of classes and groups: one rank, without Ray."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import SecretStr
from safetensors import safe_open
from sklearn.datasets import load_digits

from tan_core.data import Split, inspect
from tan_core.data.part import Role
from tan_core.engine.features import load_inputs
from tan_core.errors import DatasetError
from tan_core.mechanism import Mechanism
from tan_core.wire import DatasetRef, MechanismMessage, PrivateAssignment, PrivateResult
from tests.support.datasets import dataset_ref
from tests.support.teams import OneRank
from worker.leader import Leader
from worker.settings import WorkerSettings
from worker.train_loop import _train

if TYPE_CHECKING:
    from conftest import Books, ControlPlaneServer

TOKEN = "token-of-one-attempt"
NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


@pytest.fixture
def writers(tmp_path: Path) -> DatasetRef:
    """The digits as those of 600 users, with a column of groups, and with names."""
    images, labels = load_digits(return_X_y=True)
    drawn = np.random.default_rng(0).integers(0, 600, len(labels) - 600)
    users = np.concatenate([np.arange(600), drawn])
    columns = {f"p{i}": images[:, i].astype(np.float32) / 8 - 1 for i in range(64)}
    columns |= {"label": labels.astype(np.int64), "writer": users}
    columns["hand"] = ["left" if user % 3 == 0 else "right" for user in users]
    path = tmp_path / "digits.parquet"
    about = {"info": {"features": {"label": {"names": NAMES}}}}
    table = pa.table(columns).replace_schema_metadata({"huggingface": json.dumps(about)})
    pq.write_table(table, path)
    named = {"unit": "writer", "group": "hand"}
    facts = inspect(str(path), records_per_unit=4, **named)
    return dataset_ref(facts, name="writers", path=path, **named)


@pytest.fixture
def run(
    plane: "ControlPlaneServer",
    new_books: Callable[..., "Books"],
    private_of: Callable[..., PrivateAssignment],
    writers: DatasetRef,
) -> Callable[..., PrivateResult]:
    def make(**changes) -> PrivateResult:
        mechanism = Mechanism(
            sampling_rate=64 / writers.num_train, noise_multiplier=1.5, clip_norm=1.0, steps=60
        )
        assignment = private_of(
            dataset=writers, num_examples=writers.num_train, workers=1,
            mechanism=MechanismMessage(event=mechanism.to_json()), **changes,
        )  # fmt: skip
        plane.books = new_books(assignment)
        settings = WorkerSettings(
            api_url=plane.url, run_id=assignment.run_id, fence=1, run_token=SecretStr(TOKEN)
        )
        with ExitStack() as stack:
            outcome = _train(assignment, settings, OneRank(), Leader(assignment, settings, stack))
        assert outcome is not None
        assert isinstance(outcome.result, PrivateResult), outcome.reason
        assert plane.books.faults == []
        assert plane.books.charged == outcome.result.steps == 60
        return outcome.result

    return make


def test_it_counts_every_test_record_once_and_beside_a_model_without_privacy(
    run: Callable[..., PrivateResult],
) -> None:
    result = run(by_class=True, baseline=True)

    told = result.evaluation
    assert told is not None
    assert told.baseline is not None, told.baseline_reason
    assert (told.group, [part.name for part in told.private.groups]) == ("hand", ["left", "right"])
    for scores in (told.private, told.baseline):
        assert scores.num == result.num_test
        for parts in (scores.classes, scores.groups):
            assert sum(part.num for part in parts) == result.num_test
            assert sum(part.correct for part in parts) == scores.correct
    assert told.private.correct / told.private.num == result.test_accuracy > 0.7
    assert told.baseline.correct > 0.9 * told.baseline.num


@pytest.mark.slow
def test_nothing_is_told_that_nobody_asked_for_and_only_one_model_is_written(
    run: Callable[..., PrivateResult], tmp_path: Path
) -> None:
    plain = run()
    assert plain.evaluation is None
    with safe_open(plain.model_path, framework="np") as file:
        assert json.loads(file.metadata()["class_names"]) == NAMES

    by_class = run(by_class=True).evaluation

    assert by_class is not None
    assert (by_class.baseline, by_class.baseline_reason) == (None, None)
    run(by_class=True, baseline=True)
    written = {file.name for file in (tmp_path / "runs").rglob("*.safetensors")}
    assert written == {"model.safetensors"}


@pytest.mark.parametrize("missing", ["test", "validation"])
def test_a_split_that_cannot_be_read_costs_no_step(
    run: Callable[..., PrivateResult],
    plane: "ControlPlaneServer",
    monkeypatch: pytest.MonkeyPatch,
    missing: Role,
) -> None:
    """Its features may not fit on the disk: that is found out before anything is charged."""

    def load(dataset: DatasetRef, split: Role, *rest: Any, **options: Any) -> Split:
        if split == missing:
            raise DatasetError("no space left")
        return load_inputs(dataset, split, *rest, **options)

    monkeypatch.setattr("worker.train_loop.load_inputs", load)

    with pytest.raises(DatasetError, match="no space left"):
        run(by_class=True, baseline=True)

    assert plane.books.charged == 0
