"""How far features are, as the log says it, and who ends their computation."""

import logging
import pickle
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from torch import Tensor

from tan_core.data import has_features, inspect
from tan_core.data.part import ROLES
from tan_core.engine.features import features_of, load_inputs
from tan_core.errors import DatasetError
from tan_core.models.extractor import Extractor
from tests.support.assignments import private_assignment
from tests.support.datasets import dataset_ref
from worker import features
from worker.features import Sharing, Told, UnwantedError, keep_features
from worker.reasons import reason_of
from worker.resources import Ranks
from worker.settings import WorkerSettings

SETTINGS = WorkerSettings(api_url="http://x", run_id="r", fence=1, run_token="t")


class Flat(Extractor):
    fingerprint = "flat"
    seen: ClassVar[list[int]] = []

    def forward(self, images: Tensor) -> Tensor:
        self.seen.append(len(images))
        return images.flatten(1)


def test_every_block_is_told_of() -> None:
    ref, told = dataset_ref(inspect(None, source="digits")), []
    Flat.seen.clear()

    load_inputs(ref, "test", Flat(), progressed=lambda done, number: told.append((done, number)))

    assert {number for _, number in told} == {ref.num_test}
    assert [done for done, _ in told] == [*np.cumsum(Flat.seen)]
    assert told[-1][0] == ref.num_test


def test_who_raises_ends_the_work_and_nothing_is_kept(tmp_path) -> None:
    ref = dataset_ref(inspect(None, source="digits"))

    def stop(done: int, number: int) -> None:
        raise UnwantedError

    with pytest.raises(UnwantedError):
        load_inputs(ref, "test", Flat(), cache_dir=tmp_path, progressed=stop)

    whole = load_inputs(ref, "test", Flat(), cache_dir=tmp_path)
    assert len(whole) == len(whole.inputs) == ref.num_test


def test_a_driver_that_has_one_core_computes_all_itself() -> None:
    records = np.arange(60, dtype=np.float32).reshape(20, 3)

    with Sharing({"cpu": 1}, 1, SETTINGS, is_unwanted=lambda: False) as sharing:
        blocks = [*sharing(Flat(), records, range(20))]

    assert [len(block) for block in blocks] == [8, 8, 4]
    assert np.array_equal(np.concatenate(blocks), records)


class Preparing(Flat):
    """Takes long once, and no time for records."""

    def __init__(self, clock: list[float]) -> None:
        super().__init__()
        self.clock = clock

    def forward(self, images: Tensor) -> Tensor:
        self.clock[0] += 1.0 if self.clock[0] > 100 else 60.0
        return super().forward(images)


def test_tasks_are_as_large_as_the_pace_behind_the_first_call_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [100.0]
    monkeypatch.setattr(features.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(features, "nodes_now", lambda: [{"CPU": 2}])
    shared: list[tuple[range, int]] = []
    monkeypatch.setattr(
        Sharing, "_shared", lambda self, _, records, rows, size: shared.append((rows, size)) or []
    )

    with Sharing({"cpu": 1}, 4, SETTINGS, is_unwanted=lambda: False) as sharing:
        alone = [*sharing(Preparing(clock), np.zeros((900, 3), np.float32), range(900))]

    assert [len(block) for block in alone] == [8, 8]
    assert shared == [(range(16, 900), 5 * 8)]  # five seconds of eight records each


def test_it_is_said_what_tasks_wait_for_where_none_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two tasks the first has no place for a minute, the second has one at once, and both then take a minute."""
    clock, ready = (
        [0.0],
        iter([*[False] * 60, True, *[False] * 60, True, True, *[False] * 60, True]),
    )
    block = np.ones((8, 3), np.float32)

    def wait(tasks: list[object], timeout: float) -> tuple[list[object], list[object]]:
        clock[0] += timeout
        return (tasks, []) if next(ready) else ([], tasks)

    task = SimpleNamespace(remote=lambda *_: iter([None, (block, None)]))
    monkeypatch.setattr(features, "nodes_now", lambda: [{"CPU": 2, "GPU": 2}])
    monkeypatch.setattr(features.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(
        features,
        "ray",
        SimpleNamespace(
            remote=lambda _: SimpleNamespace(options=lambda **_: task),
            put=lambda value: value,
            get=lambda value: value,
            wait=wait,
            cancel=lambda *_, **__: None,
        ),
    )
    told: list[tuple[str | None, float]] = []
    heard = lambda waits_for, seconds: told.append((waits_for, seconds))  # noqa: E731

    with Sharing({"cpu": 1, "gpu": 1}, 2, SETTINGS, lambda: False, heard) as sharing:
        found = [*sharing(Flat(), np.zeros((16, 3), np.float32), range(16))]

    assert [len(each) for each in found] == [8, 8]
    waits = "waiting for a place with 1 CPU and 1 GPU: the Ray cluster has 2, and others use them"
    assert told == [*[(waits, 1.0)] * 31, (None, 0.0), (None, 0.0)]


def test_a_rank_finds_its_features_and_waits_for_nobody_also_where_it_is_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is lent a core and waits for a file would wait for ever for one whose tasks wait for that core."""
    monkeypatch.setattr(features, "nodes_now", lambda: [{"CPU": 1.0}])
    extractor = Flat()
    monkeypatch.setattr(features, "extractor_for", lambda *_: extractor)
    ref = dataset_ref(inspect(None, source="digits"))
    assignment = private_assignment(ref, model={"name": "scatter-linear"})
    settings = WorkerSettings.model_validate(
        {"api_url": "http://x", "run_id": "r", "fence": 1, "run_token": "t", "cache_dir": tmp_path}
    )

    keep_features(
        assignment,
        settings,
        Ranks(1, use_gpu=False),
        is_unwanted=lambda: False,
        note=lambda made: None,
    )

    kept = [has_features(ref, role, fingerprint="flat", cache_dir=tmp_path) for role in ROLES]
    assert dict(zip(ROLES, kept, strict=True)) == {"train": True, "validation": False, "test": True}


class OddError(Exception):
    def __init__(self, wanted: int, found: int) -> None:
        super().__init__(f"wanted {wanted}, found {found}")


class HoldingError(Exception):
    def __init__(self) -> None:
        super().__init__("held")
        self.lock = threading.Lock()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (DatasetError("no such file", field="path"), "DatasetError: no such file"),
        (OddError(2, 1), "RuntimeError: OddError: wanted 2, found 1"),
        (HoldingError(), "RuntimeError: HoldingError: held"),
    ],
)
def test_what_a_task_fails_with_is_what_is_told(error: Exception, told: str) -> None:
    """Whatever of it can be sent to another process."""

    class Failing(Flat):
        def forward(self, images: Tensor) -> Tensor:
            raise error

    begun, (block, sent) = features._features(Failing(), np.zeros((9, 3), np.float32), range(9))

    assert begun is block is None
    assert reason_of(pickle.loads(pickle.dumps(sent))) == told


@pytest.mark.parametrize("rows", [range(0), range(5), range(3, 20), range(8, 16)])
def test_some_records_are_those_and_no_others(rows: range) -> None:
    records = np.arange(60, dtype=np.float32).reshape(20, 3)

    found = [row for block in features_of(Flat(), records, rows) for row in block]

    assert len(found) == len(rows)
    assert all(np.array_equal(row, records[at]) for row, at in zip(found, rows, strict=True))


def test_the_log_says_now_and_then_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock, beats = [100.0], []
    monkeypatch.setattr(features.time, "monotonic", lambda: clock[0])
    caplog.set_level(logging.INFO, logger="worker.features")
    told = Told("features of train", lambda: beats.append(1))

    for second in range(1, 71):
        clock[0] = 100.0 + second
        told(50 * second, 45_000)

    assert caplog.messages == [
        "features of train: 1,500 of 45,000 records, 50 a second",
        "features of train: 3,000 of 45,000 records, 50 a second",
    ]
    assert len(beats) == 70
