"""What Tune sees, as trial records on their way to the control plane."""

import threading
from collections.abc import Iterable
from typing import Any

from ray.tune import Callback
from ray.tune.experiment import Trial

from tan_core.wire import RungScore, TrialRecord, TrialState
from worker.driver import last_line
from worker.report import TrialReporter


class CancelledError(Exception):
    """The search was asked to stop."""


class SearchProgress(Callback):
    """Keeps the record of every trial and queues it when it changes.

    Tune calls its callbacks between two steps of its own loop, so nothing here waits. It also pickles
    them into its own snapshots, which nobody reads: a copy carries nothing.
    """

    def __init__(
        self,
        known: Iterable[TrialRecord],
        reporter: TrialReporter,
        cancelled: threading.Event,
        *,
        is_last: bool = True,
    ) -> None:
        self.records = {trial.number: trial for trial in known}
        self._begun: set[int] = set()
        self._is_last = is_last
        self._reporter = reporter
        self._cancelled = cancelled

    def __reduce__(self) -> tuple[type[Callback], tuple[()]]:
        return Callback, ()

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Break out of Tune's loop once the search is to stop."""
        if self._cancelled.is_set():
            raise CancelledError

    def on_trial_start(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Also after a worker was lost: the trial begins again at its first rung."""
        self._begun.add(trial.config["number"])
        self._keep(
            TrialRecord(
                number=trial.config["number"],
                state=TrialState.RUNNING,
                params=trial.config["params"],
            )
        )

    def on_trial_result(
        self,
        iteration: int,
        trials: list[Trial],
        trial: Trial,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        """A rung is scored and another one may follow."""
        if result["outcome"] == TrialState.RUNNING:
            self._keep(self._scored(trial, result))

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """The trial ended by itself, or the scheduler cut it."""
        result = trial.last_result
        outcome = TrialState(result["outcome"])
        reason = result.get("reason")
        if outcome is TrialState.RUNNING:
            outcome = TrialState.PRUNED
            reason = f"below the cut at rung {result['rung']}"
        record = self._scored(trial, result)
        self._keep(record.model_copy(update={"state": outcome, "reason": reason}))

    def on_trial_error(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """A worker was lost more often than it is replaced, or before its trial had begun."""
        number = trial.config["number"]
        if number not in self._begun and not self._is_last:
            state, reason = TrialState.INTERRUPTED, "its worker was lost before it began"
        else:
            error = trial.get_error()
            state = TrialState.FAILED
            reason = last_line(str(error)) if error else "its worker was lost"
        record = self.records.get(number) or TrialRecord(
            number=number, state=state, params=trial.config["params"]
        )
        self._keep(record.model_copy(update={"state": state, "reason": reason}))

    def _scored(self, trial: Trial, result: dict[str, Any]) -> TrialRecord:
        """The record of a trial with the newest rung on top; a rung that ran again counts once."""
        record = self.records[trial.config["number"]]
        if result.get("rung_score") is None:
            return record
        score = RungScore.model_validate(result["rung_score"])
        scores = [*(each for each in record.scores if each.rung < score.rung), score]
        reached = [each.accuracy for each in scores if each.accuracy is not None]
        return record.model_copy(
            update={"scores": scores, "value": reached[-1] if reached else None}
        )

    def _keep(self, record: TrialRecord) -> None:
        self.records[record.number] = record
        self._reporter.put(record)
