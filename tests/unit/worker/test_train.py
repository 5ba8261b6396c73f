"""How the end of the ranks becomes the outcome of an attempt."""

import hashlib
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import SecretStr
from ray.train import PreemptionError, PreemptionInfo
from ray.train.v2._internal.execution.failure_handling.default import DefaultFailurePolicy
from ray.train.v2._internal.execution.failure_handling.failure_policy import FailureDecision

from tan_core.data import inspect, verify
from tan_core.errors import AuditError, DatasetError, ModelError, ParameterError, PretrainedError
from tan_core.wire import DatasetRef, PrivateResult, TrialWeights
from tests.support.assignments import DIGITS, private_assignment
from worker import train
from worker.driver import Driver, Outcome
from worker.report import ControlPlane, Heartbeats
from worker.settings import WorkerSettings
from worker.train import is_final


class FailedError(Exception):
    """Stands for Ray Train's own error, which needs Ray."""

    def __init__(self, **failures: Exception) -> None:
        super().__init__("Training failed due to worker errors")
        self.worker_failures = dict(enumerate(failures.values()))


def as_ray_hands_it_over(error: Exception) -> Exception:
    """An exception whose text is the traceback of the one that a rank raised."""
    try:
        raise error
    except Exception:
        return RuntimeError(traceback.format_exc())


def registered(path: Path) -> DatasetRef:
    path.write_text("a,label\n" + "".join(f"{row},{row % 2}\n" for row in range(100)))
    facts = inspect(str(path))
    return DatasetRef(
        name="table",
        source=facts.source,
        path=str(path),
        content_sha256=facts.content_sha256,
        num_classes=facts.num_classes,
        shape=facts.shape,
        num_train=facts.num_train,
        num_validation=facts.num_validation,
        num_test=facts.num_test,
    )


def of_changed_data(folder: Path) -> DatasetError:
    """What a worker meets where somebody wrote to the file."""
    ref = registered(folder / "changed.csv")
    with (folder / "changed.csv").open("a") as file:
        file.write("7,1\n")
    with pytest.raises(DatasetError) as error:
        verify(ref)
    return error.value


def of_no_data(folder: Path) -> DatasetError:
    """What a worker meets where the file is away."""
    ref = registered(folder / "away.csv")
    (folder / "away.csv").unlink()
    with pytest.raises(DatasetError) as error:
        verify(ref)
    return error.value


class TestIsFinal:
    @pytest.mark.parametrize("kind", [AuditError, ModelError, PretrainedError])
    def test_what_would_fail_again_on_any_rank_ends_the_run(self, kind: type[Exception]) -> None:
        lost = RuntimeError("connection closed by peer")

        assert is_final(FailedError(one=lost, two=as_ray_hands_it_over(kind("no good"))))
        assert is_final(kind("no good"))  # of the driver's own

    def test_data_that_were_changed_end_it_and_data_that_are_away_do_not(
        self, tmp_path: Path
    ) -> None:
        changed, away = (
            as_ray_hands_it_over(error)
            for error in (of_changed_data(tmp_path), of_no_data(tmp_path))
        )

        assert is_final(FailedError(one=changed))
        assert not is_final(FailedError(one=away))

    @pytest.mark.parametrize(
        "error",
        [
            FailedError(one=RuntimeError("connection closed by peer")),
            FailedError(one=as_ray_hands_it_over(ParameterError("inputs hold 3 examples"))),
            RuntimeError("the cluster is gone"),
        ],
        ids=["lost", "refused", "no-rank"],
    )
    def test_anything_else_may_be_tried_again(self, error: Exception) -> None:
        assert not is_final(error)


class TestRanks:
    def test_are_those_that_fit_when_the_features_are_there(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Which takes hours: for a rank whose node went meanwhile Ray Train would wait for ever."""
        gpus, given, kept = [4], list[Any](), list[Any]()
        monkeypatch.setattr(train, "connect", lambda _: None)
        monkeypatch.setattr(
            "worker.places.nodes_now", lambda: [{"CPU": 8.0, "GPU": float(gpus[0])}]
        )
        monkeypatch.setattr(
            "worker.features.keep_features", lambda *_, **__: gpus.append(gpus.pop() - 1)
        )

        def trainer(*_: Any, scaling_config: Any, run_config: Any, **__: Any) -> Any:
            given.append(scaling_config)
            kept.append(run_config.failure_config)
            ended = SimpleNamespace(return_value=Outcome(outcome="cancelled"))
            return SimpleNamespace(fit=lambda: ended)

        monkeypatch.setattr("ray.train.torch.TorchTrainer", trainer)
        settings = WorkerSettings(
            api_url="http://tan",
            run_id="r1",
            fence=1,
            run_token=SecretStr("secret"),
            progress_timeout_seconds=0,
        )
        heartbeats, told = Heartbeats(ControlPlane(settings)), list[int]()
        monkeypatch.setattr(heartbeats, "note_ranks", told.append)
        driver: Any = SimpleNamespace(settings=settings, heartbeats=heartbeats)

        train.train(private_assignment(DIGITS, workers=5), driver)

        assert [each.num_workers for each in given] == [3]
        assert told == [4, 3]
        # Begun again in the same attempt they would begin at its own checkpoint, and all steps since would be charged anew.
        taken_back = PreemptionError(PreemptionInfo(deadline_ms=0, preempted_node_to_ranks={}))
        assert DefaultFailurePolicy(kept[0]).make_decision(taken_back) == FailureDecision.RAISE
        assert not is_final(taken_back)


class Looks:
    """What a driver sees of its ranks at each look, which lasts a second; the last look again and again."""

    period = 0.001

    def __init__(self, *seen: set[str]) -> None:
        self._seen = list(seen)
        self.is_closed = False
        self.number = 0

    def look(self) -> tuple[float, set[str]]:
        self.number += 1
        return 1.0, self._seen.pop(0) if len(self._seen) > 1 else self._seen[0]

    def close(self) -> None:
        self.is_closed = True


class TestHungRanks:
    @pytest.fixture
    def given_up(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        said: list[str] = []

        def give_up(driver: Driver, reason: str) -> None:
            said.append(reason)  # the real one ends the process

        monkeypatch.setattr(train, "give_up", give_up)
        return said

    @pytest.fixture
    def watch(
        self, monkeypatch: pytest.MonkeyPatch, given_up: list[str]
    ) -> Callable[[Looks], None]:
        return partial(self.watched, monkeypatch, given_up)

    @staticmethod
    def watched(monkeypatch: pytest.MonkeyPatch, given_up: list[str], looks: Looks) -> None:
        """For fifty looks, that is 50 s, or until it is given up."""
        monkeypatch.setattr(train, "Pulses", lambda *_: looks)
        assignment: Any = SimpleNamespace(run_id="r1", attempt=1)
        driver: Any = SimpleNamespace(settings=SimpleNamespace(progress_timeout_seconds=20.0))
        with train._ended_when_hung(assignment, driver):  # pyright: ignore[reportPrivateUsage]
            deadline = time.monotonic() + 30
            while looks.number < 50 and not given_up and time.monotonic() < deadline:
                time.sleep(0.01)
        assert looks.is_closed
        assert looks.number > 20

    def test_once_no_rank_does_anything_the_attempt_is_given_up(
        self, watch: Callable[[Looks], None], given_up: list[str]
    ) -> None:
        watch(Looks({"rank 0", "rank 1"}, set()))
        assert set(given_up) == {"no rank made progress for 20 s"}

    def test_one_that_waits_for_another_is_left_alone(
        self, watch: Callable[[Looks], None], given_up: list[str]
    ) -> None:
        watch(Looks({"rank 0", "rank 1"}, {"rank 1"}))
        assert given_up == []

    def test_before_the_first_step_nobody_is_watched(
        self, watch: Callable[[Looks], None], given_up: list[str]
    ) -> None:
        watch(Looks(set()))
        assert given_up == []


class TestCheckpointsOfAReleasedModel:
    @pytest.fixture
    def run(self, tmp_path: Path) -> Path:
        """What two attempts, the first of them killed, left on storage."""
        for name in ("attempt-1/step-10", "attempt-1/.step-20.77.tmp", "attempt-2/step-40"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(b"state")
        (tmp_path / "attempt-2/model.safetensors").write_bytes(b"weights")
        return tmp_path

    def drop(self, run: Path, begun_from: TrialWeights | None = None, **outcome: Any) -> list[str]:
        """What is on storage after the attempt has ended so."""
        assignment: Any = SimpleNamespace(storage_path=str(run), begin_from=begun_from)
        ended = Outcome(**{"outcome": "succeeded", "result": self.result(run), **outcome})
        train.drop_checkpoints(assignment, ended)
        return sorted(str(file.relative_to(run)) for file in run.rglob("*") if file.is_file())

    def result(self, run: Path, weights: bytes = b"weights") -> PrivateResult:
        return PrivateResult(
            steps=40,
            test_accuracy=0.9,
            num_test=100,
            model_path=str(run / "attempt-2/model.safetensors"),
            model_sha256=hashlib.sha256(weights).hexdigest(),
            train_seconds=1.0,
            software={},
        )

    def test_go_with_those_of_earlier_attempts(self, run: Path) -> None:
        assert self.drop(run) == ["attempt-2/model.safetensors"]
        assert self.drop(run) == ["attempt-2/model.safetensors"]

    def test_go_with_the_weights_that_trials_left(self, run: Path) -> None:
        folder = run / "search"
        folder.mkdir()
        for name in ("trial-0-aa.safetensors", "trial-3-bb.safetensors", ".trial-4.7.tmp"):
            (folder / name).write_bytes(b"weights")
        begun = TrialWeights(trial=3, path=str(folder / "trial-3-bb.safetensors"), sha256="bb" * 32)

        assert len(self.drop(run, begun, outcome="failed", result=None)) == 7
        assert self.drop(run, begun) == ["attempt-2/model.safetensors"]

    @pytest.mark.parametrize("outcome", ["failed", "cancelled"])
    def test_stay_where_nothing_was_released(self, run: Path, outcome: str) -> None:
        assert len(self.drop(run, outcome=outcome, result=None)) == 4

    def test_stay_where_the_model_is_not_what_was_reported(self, run: Path) -> None:
        assert len(self.drop(run, result=self.result(run, b"other weights"))) == 4

    def test_stay_where_the_model_cannot_be_read(self, run: Path) -> None:
        (run / "attempt-2/model.safetensors").unlink()
        assert len(self.drop(run)) == 3
