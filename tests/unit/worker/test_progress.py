"""Tune's callbacks as trial records; the stand-in has what the callbacks read of a Tune trial."""

import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from tan_core.wire import TrialRecord, TrialState
from worker.progress import CancelledError, SearchProgress


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


def tune_trial(number: int = 0, **fields: Any) -> Any:
    return TuneTrial(config={"number": number, "params": {"learning_rate": 2.0}}, **fields)


def progress_of(reports: Reports, *, is_last: bool, known: tuple[TrialRecord, ...] = ()) -> Any:
    return SearchProgress(known, reports, threading.Event(), is_last=is_last)  # type: ignore[arg-type]


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
    progress = progress_of(Reports(), is_last=True)
    progress.on_step_begin(0, [])
    progress._cancelled.set()

    with pytest.raises(CancelledError):
        progress.on_step_begin(1, [])
