"""A trial's worker, or a rank, that lives and does nothing: its process is killed, and its study goes on."""

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.support.live import LiveService
from tests.support.studies import (
    AT_WORST,
    SLACK,
    STEPS,
    assert_nothing_was_lost,
    finished_trials,
    has_run,
    has_searched,
    searching,
    training,
)

pytestmark = [
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.ray,
    pytest.mark.timeout(420),
]

PATIENCE_SECONDS = 15
KILLED_SECONDS = 120
MODEL = """
import os, threading
from pathlib import Path
from torch import nn

FLAG = Path(os.environ["HANGS_ONCE"])

class HangsOnce(nn.Linear):
    def forward(self, inputs):
        try:
            FLAG.rename(FLAG.with_suffix(".taken"))  # by one of all processes
        except FileNotFoundError:
            return super().forward(inputs)
        FLAG.with_suffix(".pid").write_text(str(os.getpid()))
        threading.Event().wait()

def make(shape, num_classes):
    inputs = shape[0] * shape[1] * shape[2]
    return nn.Sequential(nn.Flatten(), HangsOnce(inputs, num_classes))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    (made / "stuck_model.py").write_text(MODEL)
    return made


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[LiveService]:
    live = LiveService(
        tmp_path_factory.mktemp("home"),
        TAN_PROGRESS_TIMEOUT_SECONDS=f"{PATIENCE_SECONDS}",
        TAN_ALLOWED_MODEL_PREFIXES="stuck_model",
        PYTHONPATH=str(folder),
        HANGS_ONCE=str(folder / "hang"),
    ).start()
    yield live
    live.stop()


class Deadlock:
    """Has the next process that runs a model of :data:`MODEL` hang, and knows which one did."""

    def __init__(self, folder: Path) -> None:
        self._flag = folder / "hang"

    def arm(self) -> None:
        self._flag.with_suffix(".pid").unlink(missing_ok=True)
        self._flag.touch()

    def victim(self) -> psutil.Process:
        pid = self._flag.with_suffix(".pid")
        deadline = time.monotonic() + 100
        while not (pid.exists() and pid.read_text()):
            assert time.monotonic() < deadline, "nobody hangs"
            time.sleep(0.05)
        return psutil.Process(int(pid.read_text()))


@pytest.fixture
def deadlock(folder: Path) -> Deadlock:
    return Deadlock(folder)


def stop_one(service: LiveService, *words: str) -> psutil.Process:
    """SIGSTOP to the first process that the words name."""
    deadline = time.monotonic() + 60
    while not (found := service.processes(*words)):
        assert time.monotonic() < deadline, f"no process with {words}"
        time.sleep(0.02)
    found[0].send_signal(signal.SIGSTOP)
    return found[0]


def assert_killed(process: psutil.Process) -> float:
    """How long it took."""
    start = time.monotonic()
    assert psutil.wait_procs([process], timeout=KILLED_SECONDS)[0], "it hangs for ever"
    return time.monotonic() - start


def events(service: LiveService, study_id: str, kind: str) -> list[dict[str, Any]]:
    """All of a finished study's events of a kind."""
    url, found = f"{service.url}/studies/{study_id}/events", []
    with httpx.stream("GET", url, timeout=60) as stream:
        name = None
        for line in stream.iter_lines():
            key, _, value = line.partition(": ")
            name = value if key == "event" else name
            if key == "data" and name == kind:
                found.append(json.loads(value))
    return found


class TestSearch:
    def test_a_stopped_trial_worker_is_killed_and_its_trial_runs_again(
        self, service: LiveService
    ) -> None:
        study_id = service.submit(searching("stop-trial", trials=30))
        service.wait(study_id, has_searched(4))
        before = finished_trials(service, study_id)
        stopped = stop_one(service, "ray::", "rial")

        assert assert_killed(stopped) > PATIENCE_SECONDS / 2

        # It may have been between two trials: then the next one had not begun.
        self.assert_told_and_complete(service, study_id, before)

    def test_a_trial_worker_in_a_deadlock_is_too(
        self, service: LiveService, deadlock: Deadlock
    ) -> None:
        study = searching("deadlocked-trial", trials=20)
        study["model"] = {"name": "python:stuck_model:make"}
        study_id = service.submit(study)
        service.wait(study_id, has_searched(4))
        before = finished_trials(service, study_id)
        deadlock.arm()
        stuck = deadlock.victim()

        assert_killed(stuck)

        told = self.assert_told_and_complete(service, study_id, before)
        assert [trial["state"] for trial in told][:2] == ["interrupted", "running"]

    @staticmethod
    def assert_told_and_complete(
        service: LiveService, study_id: str, before: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """What was said of the trial, one event after the other."""
        study = service.complete(study_id)
        assert_nothing_was_lost(service, study, finished_before=before)
        assert study["progress"]["trials_failed"] == 0
        words = f"its worker made no progress for {PATIENCE_SECONDS} s and was killed"
        trials = [each["trial"] for each in events(service, study_id, "trial")]
        told = [trial for trial in trials if trial["reason"] == words]
        assert told[0]["state"] == "interrupted"
        (number,) = {trial["number"] for trial in told}
        log = service.request("GET", f"/studies/{study_id}/logs?run=search").text
        assert f"trial {number}: {words}" in log
        return told


class TestPrivateRun:
    @pytest.mark.parametrize("rank", [0, 1])
    def test_a_stopped_rank_ends_its_attempt_and_never_goes_on(
        self, service: LiveService, rank: int
    ) -> None:
        study_id = service.submit(training(f"stop-rank-{rank}"))
        service.wait(study_id, has_run(1, 100))
        ranks = sorted(
            service.processes("ray::", "TrainWorker"), key=lambda each: leads(service, each)
        )
        stopped = ranks[1 - rank]
        assert leads(service, stopped) == (rank == 0)
        stopped.send_signal(signal.SIGSTOP)
        service.wait(study_id, lambda study: study["run"]["attempt"] == 2, seconds=KILLED_SECONDS)
        if stopped.is_running():
            stopped.send_signal(signal.SIGCONT)  # it wakes up after its attempt is over

        assert_killed(stopped)

        self.assert_told_and_complete(service, study_id)

    def test_a_rank_in_a_deadlock_ends_its_attempt_too(
        self, service: LiveService, deadlock: Deadlock
    ) -> None:
        study = training("deadlocked-rank")
        study["model"] = {"name": "python:stuck_model:make"}
        study_id = service.submit(study)
        service.wait(study_id, has_run(1, 100))
        deadlock.arm()

        assert_killed(deadlock.victim())

        self.assert_told_and_complete(service, study_id)

    @staticmethod
    def assert_told_and_complete(service: LiveService, study_id: str) -> None:
        words = f"no rank made progress for {PATIENCE_SECONDS} s"
        study = service.wait(study_id, lambda study: study["run"]["attempt"] == 2)
        assert study["state"] == "training"
        assert words in study["reason"]

        study = service.complete(study_id)

        assert_nothing_was_lost(service, study, finished_before=[])
        assert study["run"]["attempt"] == 2
        # As after a crash: what is not in the model was begun after the last checkpoint that had arrived.
        cut_off = study["privacy"]["charged_steps"] - study["run"]["step"]
        assert 0 <= cut_off <= AT_WORST
        assert study["run"]["step"] == min(STEPS, STEPS + SLACK - cut_off)
        attempts = service.get(f"/studies/{study_id}/attempts")["items"]
        (hung,) = [each for each in attempts if words in (each["reason"] or "")]
        assert (hung["attempt"], hung["state"]) == (1, "failed")
        told = [each for each in events(service, study_id, "attempt") if words in str(each)]
        assert told
        assert service.get("/datasets/digits/ledger/verify")["is_valid"]


def leads(service: LiveService, rank: psutil.Process) -> bool:
    """Whether it is rank 0, which talks to the control plane."""
    port = int(service.url.rpartition(":")[2])
    return any(each.raddr and each.raddr.port == port for each in rank.net_connections("tcp"))
