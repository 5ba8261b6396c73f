"""kill -9 of each process while a study runs: it goes on and completes, and nothing is counted twice."""

from collections.abc import Callable
from typing import Any

import psutil
import pytest

from tan_core.planner.segments import segment_rule
from tests.support.live import LiveService, digits_study

pytestmark = [
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.ray,
    pytest.mark.timeout(420),
]

STEPS = 1500
SEGMENT = segment_rule(STEPS).segment_steps


def some_trials_done(study: dict[str, Any]) -> bool:
    return study["progress"]["trials_finished"] >= 2


def has_run(attempt: int, step: int) -> Callable[[dict[str, Any]], bool]:
    """Whether the private run is that far, in this attempt or a later one."""

    def is_there(study: dict[str, Any]) -> bool:
        run = study["run"]
        return bool(run) and (run["attempt"] or 0) >= attempt and run["step"] >= step

    return is_there


def searching(name: str) -> dict[str, Any]:
    """Enough trials that a kill lands in the middle of them."""
    return digits_study(name, search={"trials": 10}, train={"steps": 400})


def training(name: str) -> dict[str, Any]:
    """A private run of enough steps that a kill lands in the middle of it, after a search of seconds."""
    only = {
        "trials": 1,
        "rungs": [8],
        "budget": 0.01,
        "space": {"learning_rate": {"low": 0.25, "high": 0.5, "log": True}},
    }
    study = digits_study(name, search=only, train={"steps": STEPS})
    study["model"] = {"name": "tanh-cnn"}
    return study


def assert_nothing_was_lost(
    service: LiveService, study: dict[str, Any], *, finished_before: list[dict[str, Any]]
) -> None:
    """Finished trials stand as they were; the ledger charged every step and stayed inside."""
    trials = {
        trial["number"]: trial
        for trial in service.get(f"/studies/{study['id']}/trials?limit=200")["items"]
    }
    for trial in finished_before:
        assert scored(trials[trial["number"]]) == scored(trial)
    finished = [t for t in trials.values() if t["state"] not in ("running", "interrupted")]
    assert len(finished) == study["spec"]["search"]["trials"]
    assert study["privacy"]["charged_steps"] >= study["run"]["step"]
    assert study["privacy"]["charged_steps"] <= study["privacy"]["reserved_steps"]
    assert study["privacy"]["epsilon"] <= 3.0


def scored(trial: dict[str, Any]) -> dict[str, Any]:
    """A trial without what the finals add to it once it has finished."""
    return {
        key: value
        for key, value in trial.items()
        if key not in ("repeats", "attempt", "updated_at")
    }


def finished_trials(service: LiveService, study_id: str) -> list[dict[str, Any]]:
    items = service.get(f"/studies/{study_id}/trials?limit=200")["items"]
    return [trial for trial in items if trial["state"] not in ("running", "interrupted")]


class TestSearch:
    @pytest.mark.parametrize(
        "words",
        [
            pytest.param(("service.orchestrator",), id="orchestrator"),
            pytest.param(("service.app",), id="api"),
            pytest.param(("worker.simulate",), id="search-driver"),
        ],
    )
    def test_a_killed_process_costs_no_finished_trial(
        self, service: LiveService, words: tuple[str, ...]
    ) -> None:
        study_id = service.submit(searching(f"kill-{words[0]}"))
        service.wait(study_id, some_trials_done)
        before = finished_trials(service, study_id)

        service.kill(*words)

        study = service.complete(study_id)
        assert_nothing_was_lost(service, study, finished_before=before)

    def test_a_killed_trial_worker_is_replaced(self, service: LiveService) -> None:
        study_id = service.submit(searching("kill-trial-worker"))
        service.wait(study_id, some_trials_done)
        before = finished_trials(service, study_id)

        service.kill("ray::", "rial")

        study = service.complete(study_id)
        assert_nothing_was_lost(service, study, finished_before=before)
        assert study["progress"]["trials_failed"] == 0


class TestServers:
    @pytest.mark.parametrize(
        "words",
        [
            pytest.param(("postgres", "-D"), id="postgresql"),
            pytest.param(("ray", "start", "--head"), id="ray-head"),
        ],
    )
    def test_a_killed_server_is_started_again_and_the_study_goes_on(
        self, service: LiveService, words: tuple[str, ...]
    ) -> None:
        study_id = service.submit(searching(f"kill-{words[0]}"))
        service.wait(study_id, some_trials_done)
        before = finished_trials(service, study_id)

        service.kill(*words)

        study = service.complete(study_id)
        assert_nothing_was_lost(service, study, finished_before=before)


class TestPrivateRun:
    def test_a_killed_control_plane_costs_no_attempt(self, service: LiveService) -> None:
        study_id = service.submit(training("kill-private-control-plane"))
        service.wait(study_id, has_run(1, 20))
        service.kill("service.orchestrator")
        service.wait(study_id, has_run(1, 500))
        service.kill("service.app")

        study = service.complete(study_id)
        assert_nothing_was_lost(service, study, finished_before=[])
        assert study["run"]["step"] == STEPS
        assert study["run"]["attempt"] == 1
        assert study["privacy"]["charged_steps"] == STEPS

    def test_a_killed_driver_or_rank_costs_at_most_the_segment_it_had_begun(
        self, service: LiveService
    ) -> None:
        study_id = service.submit(training("kill-private-processes"))
        service.wait(study_id, has_run(1, 20))
        service.kill("worker.train")
        service.wait(study_id, has_run(2, 500))
        service.kill("ray::", "TrainWorker")

        study = service.complete(study_id)
        assert_nothing_was_lost(service, study, finished_before=[])
        assert study["run"]["step"] == STEPS
        assert study["run"]["attempt"] == 3
        # What ran twice is what was begun after a checkpoint: at most one segment per kill.
        re_executed = study["privacy"]["charged_steps"] - STEPS
        assert 0 <= re_executed <= 2 * SEGMENT


class TestEverything:
    def test_a_killed_supervisor_leaves_a_study_that_completes_after_a_restart(
        self, service: LiveService
    ) -> None:
        study_id = service.submit(training("kill-everything"))
        service.wait(study_id, has_run(1, 20))
        postgres = service.processes("postgres")
        others = [child for child in service.processes() if child not in postgres]

        psutil.Process(service.pid).kill()
        _, alive = psutil.wait_procs(others, timeout=60)
        assert not alive, "only PostgreSQL outlives its owner"
        service.start()

        study = service.complete(study_id)
        assert_nothing_was_lost(service, study, finished_before=[])
        assert study["run"]["attempt"] == 2
