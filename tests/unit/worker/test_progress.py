"""Tune's callbacks as trial records; the stand-in has what the callbacks read of a Tune trial."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from tan_core.wire import RungScore, TrialRecord, TrialState
from worker.progress import CancelledError, SearchProgress
from worker.report import Heartbeats


@dataclass
class TuneTrial:
    config: dict[str, Any]
    last_result: dict[str, Any] = field(default_factory=dict)
    error: Exception | None = None
    temporary_state: SimpleNamespace = field(
        default_factory=lambda: SimpleNamespace(ray_actor=None)
    )
    is_over: bool = False

    def is_finished(self) -> bool:
        return self.is_over

    def get_error(self) -> Exception | None:
        return self.error


class Reports:
    def __init__(self) -> None:
        self.sent: list[TrialRecord] = []

    def put(self, trial: TrialRecord) -> None:
        self.sent.append(trial)


def tune_trial(number: int = 0, *, seed: int = 0, **fields: Any) -> Any:
    return TuneTrial(
        config={"number": number, "params": {"learning_rate": 2.0}, "seed": seed}, **fields
    )


def progress_of(
    reports: Reports, *, is_last: bool, known: tuple[TrialRecord, ...] = (), **options: Any
) -> Any:
    records = {trial.number: trial for trial in known}
    options.setdefault("heartbeats", unheard())
    return SearchProgress(records, reports, is_last=is_last, **options)  # type: ignore[arg-type]


def unheard() -> Heartbeats:
    """Heartbeats that are never sent: the test says what they would have been answered."""
    return Heartbeats(control=None)  # type: ignore[arg-type]


class TestLostWorkers:
    def test_a_trial_that_never_began_is_left_for_another_round(self) -> None:
        reports = Reports()
        progress = progress_of(reports, is_last=False)

        progress.on_trial_error(0, [], tune_trial(3))

        (record,) = reports.sent
        assert (record.number, record.state) == (3, TrialState.INTERRUPTED)
        assert record.params == {"learning_rate": 2.0}
        assert record.reason == "its worker was lost before it began"

    def test_in_the_last_round_it_has_failed(self) -> None:
        reports = Reports()

        progress_of(reports, is_last=True).on_trial_error(
            0, [], tune_trial(error=RuntimeError("worker died"))
        )

        assert reports.sent[-1].state is TrialState.FAILED
        assert "worker died" in (reports.sent[-1].reason or "")

    def test_one_that_began_was_replaced_often_enough_and_has_failed(self) -> None:
        reports = Reports()
        progress = progress_of(reports, is_last=False)
        progress.on_trial_start(0, [], tune_trial())

        progress.on_trial_error(0, [], tune_trial())

        assert [record.state for record in reports.sent] == [
            TrialState.RUNNING,
            TrialState.FAILED,
        ]

    def test_one_that_was_interrupted_before_is_not_taken_for_begun(self) -> None:
        reports = Reports()
        before = TrialRecord(number=0, state=TrialState.INTERRUPTED, params={})
        progress = progress_of(reports, is_last=False, known=(before,))

        progress.on_trial_error(0, [], tune_trial())

        assert reports.sent[-1].state is TrialState.INTERRUPTED


class Looks:
    """What the workers have done, a look every ten seconds."""

    def __init__(self) -> None:
        self.beaten: set[str] = set()

    def look(self) -> tuple[float, set[str]]:
        return 10.0, self.beaten


class TestHungWorkers:
    WORDS = "its worker made no progress for 60 s and was killed"

    @pytest.fixture
    def killed(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        actors: list[str] = []
        monkeypatch.setattr("worker.progress.ray.kill", actors.append)
        return actors

    @pytest.fixture
    def looks(self) -> Looks:
        return Looks()

    @pytest.fixture
    def reports(self) -> Reports:
        return Reports()

    @pytest.fixture
    def progress(self, reports: Reports, looks: Looks) -> Any:
        return progress_of(reports, is_last=False, pulses=looks, progress_timeout_seconds=60.0)

    @staticmethod
    def working(number: int, **more: Any) -> Any:
        """A trial whose worker has it."""
        trial = tune_trial(number, **more)
        trial.temporary_state.ray_actor = f"worker of {number}"
        return trial

    def test_one_that_does_nothing_is_killed_and_one_that_does_something_is_not(
        self, progress: Any, reports: Reports, looks: Looks, killed: list[str]
    ) -> None:
        trials = [self.working(0), self.working(1)]
        for trial in trials:
            progress.on_trial_start(0, trials, trial)
        looks.beaten = {"trial 1"}
        for _ in range(5):
            progress.on_step_begin(0, trials)
        assert killed == []
        progress.on_step_begin(0, trials)

        assert killed == ["worker of 0"]
        last = reports.sent[-1]
        assert (last.number, last.state, last.reason) == (0, TrialState.INTERRUPTED, self.WORDS)
        progress.on_trial_start(0, trials, trials[0])
        assert (reports.sent[-1].state, reports.sent[-1].reason) == (
            TrialState.RUNNING,
            self.WORDS,
        )

    def test_a_result_and_a_beginning_are_progress(self, progress: Any, killed: list[str]) -> None:
        trial = self.working(0)
        for happens in (
            lambda: progress.on_trial_start(0, [trial], trial),
            lambda: progress.on_trial_result(
                0, [trial], trial, result(score(0, 0.5), TrialState.RUNNING)
            ),
        ):
            for _ in range(5):
                progress.on_step_begin(0, [trial])
            happens()
        for _ in range(5):
            progress.on_step_begin(0, [trial])
        assert killed == []

    def test_one_that_waits_for_a_worker_or_has_ended_has_none_to_kill(
        self, progress: Any, killed: list[str]
    ) -> None:
        waiting, ended = tune_trial(0), self.working(1, is_over=True)
        for _ in range(100):
            progress.on_step_begin(0, [waiting, ended])
        assert killed == []

    def test_a_finalist_stays_what_it_is_and_the_log_tells(
        self, progress: Any, reports: Reports, killed: list[str], caplog: pytest.LogCaptureFixture
    ) -> None:
        finalist = self.working(0, seed=2)
        for _ in range(6):
            progress.on_step_begin(0, [finalist])
        assert killed == ["worker of 0"]
        assert reports.sent == []
        assert f"trial 0 with seed 2: {self.WORDS}" in caplog.text

    def test_one_that_hung_too_often_failed_for_that_and_one_that_died_later_did_not(
        self, progress: Any, reports: Reports, killed: list[str]
    ) -> None:
        hung, dies = self.working(0), self.working(1, error=RuntimeError("worker died"))
        for trial in (hung, dies):
            progress.on_trial_start(0, [hung, dies], trial)
        for _ in range(6):
            progress.on_step_begin(0, [hung, dies])
        assert len(killed) == 2
        progress.on_trial_start(0, [hung, dies], dies)
        for trial in (hung, dies):
            progress.on_trial_error(0, [hung, dies], trial)
        failed = {each.number: each.reason for each in reports.sent[-2:]}
        assert failed[0] == self.WORDS
        assert "worker died" in str(failed[1])


def test_a_wish_to_stop_breaks_out_of_tunes_loop() -> None:
    heartbeats = unheard()
    progress = progress_of(Reports(), is_last=True, heartbeats=heartbeats)
    progress.on_step_begin(0, [])
    heartbeats.cancel()

    with pytest.raises(CancelledError):
        progress.on_step_begin(1, [])


def test_a_pause_lets_what_runs_go_on_and_begins_nothing_more() -> None:
    heartbeats, closed = unheard(), list[bool]()
    progress = progress_of(
        Reports(), is_last=True, heartbeats=heartbeats, on_pause=lambda: closed.append(True)
    )
    progress.on_step_begin(0, [])
    assert closed == []
    heartbeats.paused.set()

    progress.on_step_begin(1, [])

    assert closed == [True]


def score(rung: int, accuracy: float | None, *, seed: int = 0) -> RungScore:
    return RungScore(
        rung=rung,
        seed=seed,
        expected_batch_size=16 * 4**rung,
        noise_multiplier=0.1,
        steps=40,
        accuracy=accuracy,
        seconds=1.0,
    )


def result(of: RungScore | None, outcome: TrialState, **more: Any) -> dict[str, Any]:
    return {
        "rung": of.rung if of else 0,
        "rung_score": of.model_dump_json() if of else None,
        "is_scored": of is not None and of.accuracy is not None and not of.heat,
        "is_heat": of is not None and of.heat,
        "outcome": outcome.value,
        **more,
    }


class TestRungs:
    def test_a_point_of_a_curve_is_no_report(self) -> None:
        reports = Reports()
        progress = progress_of(reports, is_last=True)
        progress.on_trial_start(0, [], tune_trial())
        progress.on_trial_result(0, [], tune_trial(), result(score(0, None), TrialState.RUNNING))
        assert [record.state for record in reports.sent] == [TrialState.RUNNING]

    def test_a_trial_that_its_curve_ended_says_why_and_keeps_what_it_did(self) -> None:
        reports = Reports()
        progress = progress_of(reports, is_last=True)
        progress.on_trial_start(0, [], tune_trial())
        last = result(score(0, None), TrialState.RUNNING, reason="hopeless")
        progress.on_trial_complete(0, [], tune_trial(last_result=last))
        record = reports.sent[-1]
        assert (record.state, record.reason) == (TrialState.PRUNED, "hopeless")
        assert record.examples == 16 * 40
        assert record.value is None

    def test_a_heat_is_kept_and_replaced_by_the_whole_rung(self) -> None:
        reports = Reports()
        progress = progress_of(reports, is_last=True)
        progress.on_trial_start(0, [], tune_trial())
        heat = score(0, 0.3).model_copy(update={"heat": True, "steps": 10})
        progress.on_trial_result(0, [], tune_trial(), result(heat, TrialState.RUNNING))
        assert (reports.sent[-1].scores, reports.sent[-1].value) == ([heat], 0.3)
        progress.on_trial_result(0, [], tune_trial(), result(score(0, 0.6), TrialState.RUNNING))
        assert (reports.sent[-1].scores, reports.sent[-1].value) == ([score(0, 0.6)], 0.6)

    def test_one_that_ends_after_its_heat_keeps_its_score_and_says_where(self) -> None:
        reports = Reports()
        progress = progress_of(reports, is_last=True)
        progress.on_trial_start(0, [], tune_trial())
        heat = score(0, 0.3).model_copy(update={"heat": True, "steps": 10})
        last = result(heat, TrialState.RUNNING)
        progress.on_trial_complete(0, [], tune_trial(last_result=last))
        record = reports.sent[-1]
        assert (record.state, record.value) == (TrialState.PRUNED, 0.3)
        assert record.reason == "below the cut after the first 10 steps at rung 0"

    def test_a_trial_that_begins_again_keeps_its_scores(self) -> None:
        reports = Reports()
        known = TrialRecord(
            number=0, state=TrialState.INTERRUPTED, params={}, scores=[score(0, 0.5)], value=0.5
        )
        progress = progress_of(reports, is_last=True, known=(known,))
        progress.on_trial_start(0, [], tune_trial())
        assert reports.sent[-1].scores == known.scores

    def test_what_a_trial_went_on_from_stays_with_it_whatever_becomes_of_it(self) -> None:
        start = {"trial": 1, "weights_sha256": "5b" * 32, "learning_rate_factor": 0.5}
        reports = Reports()
        progress = progress_of(reports, is_last=True)
        ended, lost = tune_trial(3), tune_trial(4, error=RuntimeError("gone"))
        for trial in (ended, lost):
            trial.config["began_from"] = start
        progress.on_trial_start(0, [], ended)
        ended.last_result = result(score(0, 0.5), TrialState.COMPLETED)
        progress.on_trial_complete(0, [], ended)
        progress.on_trial_error(0, [], lost)

        states = [(sent.number, sent.state) for sent in reports.sent]
        assert states == [(3, "running"), (3, "completed"), (4, "failed")]
        assert [sent.began_from and sent.began_from.trial for sent in reports.sent] == [1, 1, 1]


class TestFinals:
    KNOWN = TrialRecord(
        number=0,
        state=TrialState.COMPLETED,
        params={},
        scores=[score(0, 0.5), score(1, 0.6)],
        value=0.6,
    )

    def test_repeats_are_kept_by_seed_and_rung_and_change_nothing_else(self) -> None:
        reports = Reports()
        progress = progress_of(reports, is_last=True, known=(self.KNOWN,))
        for seed in (2, 1, 1):
            finalist = tune_trial(seed=seed)
            progress.on_trial_start(0, [], finalist)
            first = result(score(0, 0.4, seed=seed), TrialState.RUNNING)
            progress.on_trial_result(0, [], finalist, first)
            finalist.last_result = result(score(1, 0.55, seed=seed), TrialState.COMPLETED)
            progress.on_trial_complete(0, [], finalist)
        record = reports.sent[-1]
        assert [(each.seed, each.rung) for each in record.repeats] == [
            (1, 0),
            (1, 1),
            (2, 0),
            (2, 1),
        ]
        assert record.model_copy(update={"repeats": []}) == self.KNOWN

    def test_one_that_fails_leaves_no_trace_but_its_words(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        reports = Reports()
        progress = progress_of(reports, is_last=True, known=(self.KNOWN,))
        last = result(None, TrialState.FAILED, reason="boom")
        progress.on_trial_complete(0, [], tune_trial(seed=1, last_result=last))
        assert not reports.sent
        assert progress.records[0] == self.KNOWN
        assert "trial 0 with seed 1 failed: boom" in caplog.text

    def test_one_that_diverges_stands_without_a_score(self) -> None:
        reports = Reports()
        progress = progress_of(reports, is_last=True, known=(self.KNOWN,))
        last = result(score(0, None, seed=1), TrialState.DIVERGED, reason="nan")
        progress.on_trial_complete(0, [], tune_trial(seed=1, last_result=last))
        (repeat,) = reports.sent[-1].repeats
        assert (repeat.seed, repeat.rung, repeat.accuracy) == (1, 0, None)

    def test_one_that_lost_its_worker_leaves_no_trace(self) -> None:
        reports = Reports()
        progress = progress_of(reports, is_last=True, known=(self.KNOWN,))
        progress.on_trial_error(0, [], tune_trial(seed=1))
        assert not reports.sent
        assert progress.records[0] == self.KNOWN
