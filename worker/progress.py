"""What Tune sees, as trial records on their way to the control plane."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import ray
from ray.tune import Callback
from ray.tune.experiment import Trial

from tan_core.wire import RungScore, TrialRecord, TrialState
from worker.alive import Pulses
from worker.reasons import reason_of
from worker.report import Heartbeats, TrialReporter
from worker.schedule import name_of
from worker.searcher import start_in

log = logging.getLogger(__name__)


class CancelledError(Exception):
    """The search was asked to stop."""


class SearchProgress(Callback):
    """Keeps the record of every trial and queues it when it changes.

    Tune calls its callbacks between two steps of its own loop, so nothing here waits. It also pickles
    them into its own snapshots, which nobody reads: a copy carries nothing.

    A worker that makes no progress for ``progress_timeout_seconds`` is killed: Tune replaces it as any other
    that was lost. ``pulses`` says who makes some; None: nobody is watched.
    """

    def __init__(
        self,
        records: dict[int, TrialRecord],
        reporter: TrialReporter,
        heartbeats: Heartbeats,
        *,
        on_pause: Callable[[], None] = lambda: None,
        sources: Sequence[str] = (),
        is_last: bool = True,
        pulses: Pulses | None = None,
        progress_timeout_seconds: float = 0.0,
    ) -> None:
        self.records = records
        self._begun: set[int] = set()
        self._sources = sources
        self._is_last = is_last
        self._reporter = reporter
        self._heartbeats = heartbeats
        self._on_pause = on_pause
        self._pulses = pulses
        self._timeout = progress_timeout_seconds
        self._silent: dict[str, float] = {}
        self._hung: dict[int, str] = {}

    def __reduce__(self) -> tuple[type[Callback], tuple[()]]:
        return Callback, ()

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Break out of Tune's loop once the search is to stop; begin nothing more once it pauses."""
        if self._heartbeats.cancelled.is_set():
            raise CancelledError
        if self._heartbeats.paused.is_set():
            self._on_pause()
        self._kill_hung(trials)

    def _kill_hung(self, trials: list[Trial]) -> None:
        """Kill the workers that have a trial and do nothing for it. One that waits for a node has no worker yet."""
        passed, beaten = self._pulses.look() if self._pulses is not None else (0.0, set[str]())
        if not passed:
            return
        for trial in trials:
            name, worker = name_of(trial.config), trial.temporary_state.ray_actor
            silent = self._silent.pop(name, 0.0)
            if worker is None or trial.is_finished() or name in beaten:
                continue
            if silent + passed < self._timeout:
                self._silent[name] = silent + passed
                continue
            told = f"its worker made no progress for {self._timeout:g} s and was killed"
            log.warning("%s: %s", name, told)
            # To Tune it is dead at once; Ray kills the process, a stopped one too, in 5 s.
            ray.kill(worker)
            self._note_hung(trial, told)

    def _note_hung(self, trial: Trial, told: str) -> None:
        """Say so on the trial. One that is repeated has finished: the log tells of it."""
        if trial.config["seed"] > 0:
            return
        number: int = trial.config["number"]
        self._hung[number] = told
        if (record := self.records.get(number)) is not None:
            state = TrialState.INTERRUPTED
            self._keep(record.model_copy(update={"state": state, "reason": told}))

    def on_trial_start(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Also after a worker was lost: the trial begins again, with the rungs that it was given."""
        self._silent.pop(name_of(trial.config), None)
        if trial.config["seed"] > 0:
            return
        number: int = trial.config["number"]
        self._begun.add(number)
        known = self.records.get(number)
        self._keep(
            TrialRecord(
                number=number,
                state=TrialState.RUNNING,
                params=trial.config["params"],
                scores=known.scores if known else [],
                value=known.value if known else None,
                source=self._source(number),
                reason=self._hung.pop(number, None),
                began_from=start_in(trial.config),
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
        self._silent.pop(name_of(trial.config), None)
        is_cut = result["is_scored"] or result["is_heat"]
        if result["outcome"] == TrialState.RUNNING and is_cut:
            self._keep(self._scored(trial, result))

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """The trial ended by itself, or was cut at a rung or on its way."""
        result = trial.last_result
        if trial.config["seed"] > 0 and result["outcome"] == TrialState.FAILED:
            # As if its worker had been lost: it says nothing of the trial, and may go well next time.
            number, seed = trial.config["number"], trial.config["seed"]
            log.warning("trial %d with seed %d failed: %s", number, seed, result.get("reason"))
            return
        record = self._scored(trial, result)
        if trial.config["seed"] > 0:
            self._keep(record)
            return
        outcome, reason = TrialState(result["outcome"]), result.get("reason")
        if outcome is TrialState.RUNNING:
            outcome = TrialState.PRUNED
            reason = reason or _below_the_cut(result)
        self._keep(record.model_copy(update={"state": outcome, "reason": reason}))

    def on_trial_error(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """A worker was lost more often than it is replaced, or before its trial had begun."""
        if trial.config["seed"] > 0:
            return
        number = trial.config["number"]
        if number not in self._begun and not self._is_last:
            state = TrialState.INTERRUPTED
            reason = self._hung.pop(number, "its worker was lost before it began")
        else:
            error = trial.get_error()
            state = TrialState.FAILED
            lost = reason_of(str(error)) if error else "its worker was lost"
            reason = self._hung.pop(number, lost)
        record = self.records.get(number) or TrialRecord(
            number=number,
            state=state,
            params=trial.config["params"],
            source=self._source(number),
            began_from=start_in(trial.config),
        )
        self._keep(record.model_copy(update={"state": state, "reason": reason}))

    def _scored(self, trial: Trial, result: dict[str, Any]) -> TrialRecord:
        """The record of a trial with the newest rung in it; a rung that ran again counts once."""
        record, score = self.records[trial.config["number"]], _score(result)
        if score is None:
            return record
        if trial.config["seed"] > 0:
            others = [
                each
                for each in record.repeats
                if (each.seed, each.rung) != (score.seed, score.rung)
            ]
            repeats = sorted([*others, score], key=lambda each: (each.seed, each.rung))
            return record.model_copy(update={"repeats": repeats})
        scores = [*(each for each in record.scores if each.rung < score.rung), score]
        reached = [each.accuracy for each in scores if each.accuracy is not None]
        return record.model_copy(
            update={
                "scores": scores,
                "value": reached[-1] if reached else None,
                "weights_sha256": result.get("weights_sha256"),
            }
        )

    def _source(self, number: int) -> str | None:
        return self._sources[number] if number < len(self._sources) else None

    def _keep(self, record: TrialRecord) -> None:
        self.records[record.number] = record
        self._reporter.put(record)


def _below_the_cut(result: dict[str, Any]) -> str:
    """Where ASHA ended a trial."""
    score = _score(result)
    if score is not None and score.heat:
        return f"below the cut after the first {score.steps} steps at rung 0"
    return f"below the cut at rung {result['rung']}"


def _score(result: dict[str, Any]) -> RungScore | None:
    text = result.get("rung_score")
    return RungScore.model_validate_json(text) if text else None
