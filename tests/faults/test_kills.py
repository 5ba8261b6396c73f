"""kill -9 of each process while a study runs: it goes on and completes, and nothing is counted twice."""

from typing import Any

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
    pytest.mark.timeout(900),
]


class TestSearch:
    def test_a_killed_control_plane_or_database_costs_no_finished_trial(
        self, service: LiveService
    ) -> None:
        study_id = service.submit(searching("kill-control-plane", trials=30))
        before = kill_in_turn(
            service, study_id, ("service.orchestrator",), ("service.app",), ("postgres", "-D")
        )

        study = service.complete(study_id)
        assert_nothing_was_lost(service, study, finished_before=before)

    def test_a_killed_driver_trial_worker_or_ray_head_costs_no_finished_trial(
        self, service: LiveService
    ) -> None:
        study_id = service.submit(searching("kill-ray", trials=30))
        before = kill_in_turn(
            service, study_id, ("worker.simulate",), ("ray::", "rial"), ("ray", "start", "--head")
        )

        study = service.complete(study_id)
        assert_nothing_was_lost(service, study, finished_before=before)
        assert study["progress"]["trials_failed"] == 0


def kill_in_turn(
    service: LiveService, study_id: str, *victims: tuple[str, ...]
) -> list[dict[str, Any]]:
    """One after the other, each once the search has gone on; the trials that had finished before each."""
    before: list[dict[str, Any]] = []
    for words in victims:
        known = {trial["number"] for trial in before}
        service.wait(study_id, has_searched(len(known) + 2))
        before += finished_trials(service, study_id)
        service.kill(*words)
    return before


@pytest.mark.crash
class TestPrivateRun:
    def test_a_killed_control_plane_or_database_costs_no_attempt(
        self, service: LiveService
    ) -> None:
        study_id = service.submit(training("kill-private-control-plane"))
        service.wait(study_id, has_run(1, 20))
        service.kill("service.orchestrator")
        service.wait(study_id, has_run(1, 300))
        service.kill("postgres", "-D")
        service.wait(study_id, has_run(1, 600))
        service.kill("service.app")

        study = service.complete(study_id)
        assert_nothing_was_lost(service, study, finished_before=[])
        assert study["run"]["step"] == STEPS
        assert study["run"]["attempt"] == 1
        assert study["privacy"]["charged_steps"] == STEPS

    def test_a_killed_driver_or_rank_costs_at_most_the_segments_it_had_begun(
        self, service: LiveService
    ) -> None:
        study_id = service.submit(training("kill-private-processes"))
        service.wait(study_id, has_run(1, 20))
        service.kill("worker.train")
        service.wait(study_id, has_run(2, 500))
        service.kill("ray::", "TrainWorker")

        study = service.complete(study_id)
        assert_nothing_was_lost(service, study, finished_before=[])
        assert study["run"]["attempt"] == 3
        # What is not in the model was begun after the last checkpoint that had arrived.
        cut_off = study["privacy"]["charged_steps"] - study["run"]["step"]
        assert 0 <= cut_off <= 2 * AT_WORST
        assert study["run"]["step"] == min(STEPS, STEPS + SLACK - cut_off)


class TestNode:
    def test_a_node_that_ends_with_its_agent_is_started_again(self, service: LiveService) -> None:
        """``ray start --block`` lives on, without a node to run anything on."""
        study_id = service.submit(training("kill-agent"))
        service.wait(study_id, has_run(1, 20))
        head = service.processes("ray", "start", "--head")
        service.kill("ray::", "RuntimeEnvAgent")
        assert not psutil.wait_procs(head, timeout=120)[1], "nobody replaces a head without a node"

        study = service.complete(study_id)
        assert_nothing_was_lost(service, study, finished_before=[])
        assert study["run"]["attempt"] == 2


@pytest.mark.crash
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
