"""Tune's callbacks as trial records; the stand-in has what the callbacks read of a Tune trial."""

from dataclasses import dataclass, field
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
        "is_scored": of is not None and of.accuracy is not None,
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

    def test_a_trial_that_begins_again_keeps_its_scores(self) -> None:
        reports = Reports()
        known = TrialRecord(
            number=0, state=TrialState.INTERRUPTED, params={}, scores=[score(0, 0.5)], value=0.5
        )
        progress = progress_of(reports, is_last=True, known=(known,))
        progress.on_trial_start(0, [], tune_trial())
        assert reports.sent[-1].scores == known.scores


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
