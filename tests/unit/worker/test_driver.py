"""The last check before code from elsewhere is imported."""

import os
import time
from pathlib import Path
from typing import Any, cast
from unittest.mock import MagicMock

import pytest
import ray
from ray._private.utils import check_version_info

from service.orchestrator.decide import OTHER_VERSION
from tan_core.errors import DatasetError
from tan_core.mechanism import Mechanism
from tan_core.wire import SearchAssignment
from worker import driver
from worker.driver import EXIT_DONE, Driver, Outcome
from worker.report import EXIT_FAILED, ControlPlaneError
from worker.settings import WorkerSettings

MECHANISM = Mechanism(sampling_rate=0.1, noise_multiplier=1.0, clip_norm=1.0, steps=10)


def assignment(model: str) -> SearchAssignment:
    return SearchAssignment.model_validate(
        {
            "run_id": "s-search",
            "study_id": "s",
            "study_name": "digits",
            "attempt": 1,
            "fence": 1,
            "search": {"accounting": "declared_unaccounted", "space": {"learning_rate": 1.0}},
            "model": {"name": model},
            "trainer": {},
            "reference": {"event": MECHANISM.to_json()},
            "target": None,
            "num_examples": 1000,
            "rungs": [32],
            "max_examples": 0,
            "dataset": {
                "name": "digits",
                "source": "digits",
                "content_sha256": "ab" * 32,
                "num_classes": 10,
                "shape": [1, 8, 8],
                "num_train": 1000,
                "num_validation": 100,
                "num_test": 100,
            },
            "trials": [],
        }
    )


def attempt(model: str, monkeypatch: pytest.MonkeyPatch, **environment: str) -> tuple[Outcome, int]:
    """How an attempt ends under the job's environment, and how often its work began."""
    for name, value in {
        "TAN_API_URL": "http://127.0.0.1:1",
        "TAN_RUN_ID": "s-search",
        "TAN_FENCE": "1",
        "TAN_RUN_TOKEN": "secret",
        **environment,
    }.items():
        monkeypatch.setenv(name, value)
    began: list[Any] = []

    def work(assignment: SearchAssignment, _driver: Driver) -> Outcome:
        began.append(assignment)
        return Outcome(outcome="succeeded")

    made = Driver(
        settings=WorkerSettings.model_validate({}),
        control=cast("Any", None),
        heartbeats=cast("Any", None),
    )
    return driver._attempt(assignment(model), work, made), len(began)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"TAN_ALLOWED_MODEL_PREFIXES": ""},
        {"TAN_ALLOWED_MODEL_PREFIXES": "lab.mod, zoo"},
    ],
    ids=str,
)
def test_nothing_begins_for_a_model_that_the_job_may_not_import(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome, began = attempt("python:lab.models:cnn", monkeypatch, **environment)

    assert (outcome.outcome, outcome.retryable, began) == ("failed", False, 0)
    assert "python:lab.models:cnn was not imported" in str(outcome.reason)


@pytest.mark.parametrize("model", ["linear", "python:lab.models:cnn", "python:zoo.cats:lion"])
def test_whatever_else_begins(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, began = attempt(model, monkeypatch, TAN_ALLOWED_MODEL_PREFIXES="lab.models, zoo")

    assert (outcome.outcome, began) == ("succeeded", 1)


@pytest.mark.parametrize(
    ("said", "is_retryable"),
    [("dataset 'd' is not the one that was registered: ...", False), ("d: no such file", True)],
)
def test_a_search_on_changed_data_is_not_tried_again(
    said: str, is_retryable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(_assignment: SearchAssignment, _driver: Driver) -> Outcome:
        raise DatasetError(said)

    outcome = driver._attempt(assignment("linear"), work, cast(Any, None))

    assert (outcome.outcome, outcome.retryable) == ("failed", is_retryable)


def test_a_cluster_of_another_ray_is_told_in_one_line_that_counts_as_no_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def init(**_: Any) -> None:
        metadata = {"ray_version": "2.59.0", "python_version": "3.11.99"}
        check_version_info(metadata, "node 127.0.0.2")

    monkeypatch.setattr(ray, "init", init)

    def work(_assignment: SearchAssignment, _driver: Driver) -> Outcome:
        driver.connect("s-search")
        raise AssertionError("it is connected")

    outcome = driver._attempt(assignment("linear"), work, cast(Any, None))

    assert (outcome.outcome, outcome.retryable) == ("failed", True)
    assert f"this driver runs Ray {ray.__version__} under Python " in str(outcome.reason)
    assert ", and its cluster Ray 2.59.0 under Python 3.11.99: install" in str(outcome.reason)
    assert any(words in str(outcome.reason) for words in OTHER_VERSION)


def driven(
    monkeypatch: pytest.MonkeyPatch, *, is_stored: bool = True, **environment: str
) -> tuple[list[str], int]:
    """What a whole driver told, of an attempt without work, and its exit code."""
    told: list[str] = []

    class Control:
        def assignment(self) -> SearchAssignment:
            return assignment("linear")

        def finish(self, outcome: str, **_: Any) -> None:
            told.append(outcome)
            if not is_stored:
                raise ControlPlaneError("no answer for minutes")

        def close(self) -> None:
            pass

    for name, value in {
        "API_URL": "http://x",
        "RUN_ID": "s",
        "FENCE": "1",
        "RUN_TOKEN": "t",
        **environment,
    }.items():
        monkeypatch.setenv(f"TAN_{name}", value)
    monkeypatch.setattr(driver, "ControlPlane", lambda _: Control())
    monkeypatch.setattr(driver, "Heartbeats", lambda _: MagicMock())
    monkeypatch.setattr(driver.signal, "signal", lambda *_: None)
    monkeypatch.setattr(driver, "write_log", lambda *_, **__: None)
    code = driver.drive(
        SearchAssignment,
        lambda *_: Outcome(outcome="succeeded"),
        tidy=lambda _, outcome: told.append(f"tidied, {outcome.outcome}"),
    )
    return told, code


@pytest.mark.parametrize("is_stored", [True, False])
def test_nothing_is_tidied_before_the_control_plane_has_stored_the_end(
    is_stored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, code = driven(monkeypatch, is_stored=is_stored)

    assert told == ["succeeded", *(["tidied, succeeded"] if is_stored else [])]
    assert code == (EXIT_DONE if is_stored else EXIT_FAILED)


@pytest.mark.parametrize(("days", "is_there"), [(29, True), (31, False)])
def test_features_that_nobody_reads_any_more_go_when_a_run_begins(
    days: int, is_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / f"abc{suffix}" for suffix in (".lock", ".npy", ".labels.npy")]
    for file in files:
        file.touch()
        os.utime(file, (time.time() - days * 86_400,) * 2)

    _, code = driven(monkeypatch, CACHE_DIR=str(tmp_path))

    assert code == EXIT_DONE
    assert all(file.exists() for file in files) == is_there


def test_a_folder_that_lets_nothing_be_deleted_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "abc.lock").mkdir()

    assert driven(monkeypatch, CACHE_DIR=str(tmp_path)) == (
        ["succeeded", "tidied, succeeded"],
        EXIT_DONE,
    )
