from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from service.orchestrator.decide import (
    ENDING_EARLY,
    PAUSE_GRACE,
    START_GRACE,
    STOP_GRACE,
    UNREACHED,
    WAIT,
    Action,
    AttemptView,
    Decision,
    Heard,
    decide,
)
from service.orchestrator.launcher import JobInfo, JobStatus

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=1)
TIMEOUT = timedelta(seconds=30)


def attempt(**changes: object) -> AttemptView:
    values: dict[str, object] = {
        "number": 1,
        "state": "live",
        "created_at": NOW - timedelta(seconds=10),
        "submitted_at": NOW - timedelta(seconds=9),
        "heartbeat_at": NOW - timedelta(seconds=1),
        "stop_requested_at": None,
        **changes,
    }
    return AttemptView(**values)  # type: ignore[arg-type]


def job(status: JobStatus, exit_code: int | None = None) -> JobInfo:
    return JobInfo(status=status, exit_code=exit_code, message=None)


def decided(
    last: AttemptView | None,
    info: JobInfo | None = None,
    *,
    cancel: bool = False,
    pause: bool = False,
    finish: bool = False,
    max_attempts: int = 3,
    tries: int = 0,
    in_vain: int = 0,
    looking_since: datetime = LONG_AGO,
    listening_since: datetime = LONG_AGO,
    is_unreached: bool = False,
) -> Decision:
    return decide(
        last=last,
        job=info,
        is_to_end=cancel,
        is_paused=pause,
        is_enough=finish,
        max_attempts=max_attempts,
        tries=tries,
        in_vain=in_vain,
        now=NOW,
        heard=Heard(
            looking_since=looking_since,
            listening_since=listening_since,
            is_unreached=is_unreached,
        ),
        heartbeat_timeout=TIMEOUT,
    )


def action(*args: Any, **wanted: Any) -> Action:
    return decided(*args, **wanted).action


class TestBeforeAndAfterAttempts:
    def test_a_run_without_an_attempt_gets_one(self) -> None:
        assert action(None) is Action.START_ATTEMPT

    def test_a_cancelled_run_without_an_attempt_never_starts(self) -> None:
        assert action(None, cancel=True) is Action.CANCEL

    def test_a_reported_success_counts_even_when_a_cancel_came_too_late(self) -> None:
        assert action(attempt(state="succeeded"), cancel=True) is Action.SUCCEED

    @pytest.mark.parametrize("state", ["lost", "failed"])
    def test_an_attempt_that_ended_early_is_followed_by_another(self, state: str) -> None:
        assert action(attempt(state=state, number=2), in_vain=2) is Action.START_ATTEMPT

    @pytest.mark.parametrize("state", ["lost", "failed"])
    def test_attempts_are_limited(self, state: str) -> None:
        assert action(attempt(state=state, number=3), in_vain=3) is Action.FAIL

    def test_only_attempts_in_vain_count(self) -> None:
        assert action(attempt(state="lost", number=7), in_vain=2) is Action.START_ATTEMPT
        assert action(attempt(state="lost", number=7), in_vain=3) is Action.FAIL

    def test_a_single_attempt_is_told_as_one(self) -> None:
        lost = decided(attempt(state="lost"), max_attempts=1, in_vain=1)
        assert lost.reason == "gave up after 1 attempt in vain"

    def test_an_attempt_that_stopped_by_itself_ends_no_study(self) -> None:
        assert action(attempt(state="cancelled")) is Action.START_ATTEMPT
        assert action(attempt(state="cancelled"), cancel=True) is Action.CANCEL

    def test_a_failure_that_would_repeat_itself_is_final(self) -> None:
        assert action(attempt(state="failed", retryable=False)) is Action.FAIL


class TestWaitingForAPlace:
    WAITS = "waiting for a place with 1 CPU: the Ray cluster has 2, and others use them"

    def test_what_a_driver_waits_for_is_the_reason(self) -> None:
        waits = decided(attempt(waits_for=self.WAITS), job(JobStatus.RUNNING))
        assert waits == Decision(action=Action.WAIT, reason=self.WAITS)

    def test_whoever_is_to_end_or_to_rest_is_told_so(self) -> None:
        waiting, running = attempt(waits_for=self.WAITS), job(JobStatus.RUNNING)

        assert action(waiting, running, cancel=True) is Action.STOP
        assert action(waiting, running, pause=True) is Action.PAUSE
        told = attempt(waits_for=self.WAITS, pause_requested_at=NOW)
        assert decided(told, running, pause=True).reason != self.WAITS


class TestRestBetweenAttempts:
    @pytest.mark.parametrize(("tries", "seconds"), [(1, 5), (2, 20), (3, 80), (4, 300), (99, 300)])
    def test_it_grows_with_attempts_without_progress(self, tries: int, seconds: int) -> None:
        young = attempt(state="lost", finished_at=NOW - timedelta(seconds=seconds - 1))
        old = attempt(state="lost", finished_at=NOW - timedelta(seconds=seconds))

        assert action(young, tries=tries) is (Action.REST if seconds >= 80 else Action.WAIT)
        assert action(old, tries=tries) is Action.START_ATTEMPT

    def test_it_says_how_long_and_why(self) -> None:
        failed = attempt(state="failed", number=2, finished_at=NOW, reason="OSError: stale handle")

        assert decided(failed, tries=2).reason == (
            "attempt 3 begins 20 s after the last one: OSError: stale handle"
        )

    def test_after_progress_or_a_pause_there_is_none(self) -> None:
        lost = attempt(state="lost", finished_at=NOW)
        paused = attempt(state="cancelled", finished_at=NOW, pause_requested_at=NOW)

        assert action(lost, tries=0) is Action.START_ATTEMPT
        assert action(paused, tries=3) is Action.START_ATTEMPT

    def test_a_clock_that_was_put_back_prolongs_it_by_nothing(self) -> None:
        ahead = attempt(state="lost", finished_at=NOW + timedelta(hours=3))

        assert action(ahead, tries=4) is Action.START_ATTEMPT

    def test_nobody_waits_for_it_to_cancel_to_pause_or_to_give_up(self) -> None:
        lost = attempt(state="lost", finished_at=NOW)

        assert action(lost, tries=1, cancel=True) is Action.CANCEL
        assert action(lost, tries=1, pause=True) is Action.SUSPEND
        assert action(lost, tries=3, in_vain=3) is Action.FAIL


class TestLiveAttempts:
    def test_one_that_the_cluster_never_saw_is_submitted(self) -> None:
        assert action(attempt(submitted_at=None, heartbeat_at=None)) is Action.SUBMIT

    def test_one_that_the_cluster_has_forgotten_is_lost(self) -> None:
        assert action(attempt()) is Action.LOSE

    def test_one_with_a_heartbeat_is_left_alone(self) -> None:
        assert action(attempt(), job(JobStatus.RUNNING)) is Action.WAIT

    def test_a_silent_one_is_stopped_although_the_cluster_calls_it_running(self) -> None:
        silent = attempt(heartbeat_at=NOW - TIMEOUT - timedelta(seconds=1))

        assert action(silent, job(JobStatus.RUNNING)) is Action.STOP

    def test_one_that_is_still_importing_has_time(self) -> None:
        young = attempt(heartbeat_at=None, submitted_at=NOW - START_GRACE + timedelta(seconds=1))
        old = attempt(heartbeat_at=None, submitted_at=NOW - START_GRACE - timedelta(seconds=1))

        assert action(young, job(JobStatus.RUNNING)) is Action.WAIT
        assert action(old, job(JobStatus.RUNNING)) is Action.STOP

    def test_one_that_waits_in_the_clusters_queue_is_not_silent(self) -> None:
        waiting = attempt(heartbeat_at=None, submitted_at=NOW - 10 * START_GRACE)

        assert action(waiting, job(JobStatus.PENDING)) is Action.WAIT

    def test_one_that_was_not_heard_is_told_of_an_api_that_nobody_reaches(self) -> None:
        young = attempt(heartbeat_at=None)
        running = job(JobStatus.RUNNING)

        decision = decided(young, running, is_unreached=True)
        assert (decision.action, decision.reason) == (Action.WAIT, UNREACHED)
        assert "TAN_WORKER_URL" in UNREACHED
        assert decided(young, running) == WAIT
        assert decided(attempt(), running, is_unreached=True) == WAIT

    @pytest.mark.parametrize("status", [JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.STOPPED])
    def test_a_driver_that_ended_without_a_report_is_lost(self, status: JobStatus) -> None:
        decision = decided(attempt(), job(status, exit_code=137))

        assert decision.action is Action.LOSE
        assert decision.reason is not None
        assert "137" in decision.reason

    def test_a_stop_is_said_until_the_job_has_ended(self) -> None:
        asked = attempt(stop_requested_at=NOW - timedelta(seconds=5))

        assert action(attempt(), job(JobStatus.RUNNING), cancel=True) is Action.STOP
        assert action(asked, job(JobStatus.RUNNING)) is Action.STOP
        assert action(asked, job(JobStatus.STOPPED)) is Action.LOSE

    def test_silence_counts_only_while_somebody_listened(self) -> None:
        silent = attempt(heartbeat_at=NOW - timedelta(hours=1))

        running = job(JobStatus.RUNNING)
        assert action(silent, running, listening_since=NOW - TIMEOUT) is Action.WAIT
        assert action(silent, running, listening_since=NOW - 2 * TIMEOUT) is Action.STOP

    def test_a_heartbeat_proves_that_it_was_submitted(self) -> None:
        assert action(attempt(submitted_at=None)) is Action.LOSE

    @pytest.mark.parametrize("status", [JobStatus.RUNNING, JobStatus.UNKNOWN])
    def test_a_job_that_will_not_end_is_given_up_though_no_api_answers(
        self, status: JobStatus
    ) -> None:
        asked = attempt(stop_requested_at=NOW - STOP_GRACE - timedelta(seconds=1))

        assert action(asked, job(status), cancel=True) is Action.LOSE
        assert action(asked, job(status), cancel=True, listening_since=NOW) is Action.LOSE


class TestFinish:
    def test_its_driver_is_told_as_one_that_pauses_and_says_why(self) -> None:
        decision = decided(attempt(), job(JobStatus.RUNNING), finish=True)
        assert (decision.action, decision.reason) == (Action.PAUSE, ENDING_EARLY)
        told = attempt(pause_requested_at=NOW)
        assert decided(told, job(JobStatus.RUNNING), finish=True).reason == ENDING_EARLY

    def test_its_trials_have_all_the_time_that_they_need(self) -> None:
        told = attempt(pause_requested_at=NOW - timedelta(days=1), created_at=LONG_AGO)
        assert action(told, job(JobStatus.RUNNING), finish=True) is Action.WAIT
        assert action(told, job(JobStatus.RUNNING), pause=True) is Action.STOP

    def test_what_it_has_found_counts_however_its_driver_ended(self) -> None:
        for ended in ({"state": "lost"}, {"state": "failed", "retryable": False}):
            assert action(attempt(**ended), finish=True) is Action.SUCCEED
            assert action(attempt(**ended), finish=True, pause=True) is Action.SUCCEED
            assert action(attempt(**ended), finish=True, cancel=True) is Action.CANCEL
        assert action(attempt(state="failed"), finish=True, in_vain=3) is Action.SUCCEED


class TestPause:
    def test_without_a_driver_the_slot_is_given_back(self) -> None:
        assert action(None, pause=True) is Action.SUSPEND
        assert action(attempt(state="cancelled"), pause=True) is Action.SUSPEND
        assert action(attempt(state="lost"), pause=True) is Action.SUSPEND

    def test_a_driver_is_told_once_and_then_waited_for(self) -> None:
        told = attempt(pause_requested_at=NOW - timedelta(seconds=5))

        assert action(attempt(), job(JobStatus.RUNNING), pause=True) is Action.PAUSE
        assert action(told, job(JobStatus.RUNNING), pause=True) is Action.WAIT

    def test_a_resume_waits_for_the_driver_that_was_told(self) -> None:
        told = attempt(pause_requested_at=NOW - timedelta(seconds=5))

        assert action(told, job(JobStatus.RUNNING)) is Action.WAIT
        assert action(attempt(state="cancelled")) is Action.START_ATTEMPT

    def test_a_driver_that_comes_to_no_checkpoint_is_stopped(self) -> None:
        slow = attempt(pause_requested_at=NOW - PAUSE_GRACE - timedelta(seconds=1))

        assert action(slow, job(JobStatus.RUNNING), pause=True) is Action.STOP

    def test_one_that_was_not_submitted_never_is(self) -> None:
        young = attempt(submitted_at=None, heartbeat_at=None)
        told = attempt(submitted_at=None, heartbeat_at=None, pause_requested_at=NOW)

        assert action(young, pause=True) is Action.PAUSE
        assert action(told, pause=True) is Action.LOSE

    def test_silence_a_cancel_and_the_end_come_before_it(self) -> None:
        silent = attempt(heartbeat_at=NOW - TIMEOUT - timedelta(seconds=1))

        assert action(silent, job(JobStatus.RUNNING), pause=True) is Action.STOP
        assert action(attempt(), job(JobStatus.RUNNING), pause=True, cancel=True) is Action.STOP
        assert action(None, pause=True, cancel=True) is Action.CANCEL
        assert action(attempt(state="succeeded"), pause=True) is Action.SUCCEED
        assert action(attempt(state="failed", retryable=False), pause=True) is Action.FAIL


class TestClockThatJumped:
    """Time in which a driver could be heard begins anew where the database's clock jumped."""

    leapt = NOW - timedelta(seconds=1)
    heard_since = NOW - PAUSE_GRACE - timedelta(seconds=1)

    @pytest.mark.parametrize("by", [timedelta(hours=3), -timedelta(hours=3)])
    def test_a_pause_has_its_time_and_no_more(self, by: timedelta) -> None:
        told = attempt(pause_requested_at=NOW - by)

        running = job(JobStatus.RUNNING)
        assert action(told, running, pause=True, listening_since=self.leapt) is Action.WAIT
        assert action(told, running, pause=True, listening_since=self.heard_since) is Action.STOP

    @pytest.mark.parametrize("by", [timedelta(hours=3), -timedelta(hours=3)])
    def test_a_stop_has_its_time_and_no_more(self, by: timedelta) -> None:
        asked = attempt(stop_requested_at=NOW - by)

        running = job(JobStatus.RUNNING)
        assert action(asked, running, looking_since=self.leapt) is Action.STOP
        assert action(asked, running, looking_since=self.heard_since) is Action.LOSE


def test_no_combination_starts_a_second_attempt_beside_a_live_one() -> None:
    infos = [None, *(job(status) for status in JobStatus)]
    for info, cancel, pause, submitted, heartbeat, stopped, told in product(
        infos, *[[False, True]] * 2, *[[None, NOW]] * 4
    ):
        live = attempt(
            submitted_at=submitted,
            heartbeat_at=heartbeat,
            stop_requested_at=stopped,
            pause_requested_at=told,
        )

        assert action(live, info, cancel=cancel, pause=pause) not in (
            Action.START_ATTEMPT,
            Action.SUSPEND,
            Action.SUCCEED,
            Action.FAIL,
            Action.CANCEL,
        )
