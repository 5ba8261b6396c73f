"""The search: an assignment becomes trials in Tune, and their scores reports."""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import optuna
import ray
from ray import tune
from ray.tune.stopper import CombinedStopper

from tan_core.data import verify
from tan_core.planner import Counted
from tan_core.wire import SearchAssignment, TrialRecord, TrialState
from worker.alive import Pulses
from worker.begin import checkpoint_of, extractors_for
from worker.budget import BudgetStopper
from worker.curves import CurveStopper
from worker.driver import Driver, Outcome, connect
from worker.features import UnwantedError, put_splits
from worker.places import Places, nodes_now
from worker.progress import SearchProgress
from worker.report import TrialReporter
from worker.resources import of_trial, told
from worker.rung import QUICK_VALIDATION
from worker.schedule import build_scheduler
from worker.searcher import ConstantTanSearch, wanted_repeat
from worker.trial import SimulatedTrial, TrialData

log = logging.getLogger(__name__)

LOST_WORKERS_PER_TRIAL = 3


def search(assignment: SearchAssignment, driver: Driver) -> Outcome:
    """Run every trial that no earlier attempt has finished."""
    records = assignment.trials
    if _is_unfinished(assignment, records):
        connect(assignment.run_id)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        data = _load(assignment, driver)
        if data is None:
            return Outcome(outcome="cancelled")
        # Tune replaces the worker of a running trial, but gives up one that was lost just before its
        # trial began: such a trial runs again in a round of its own.
        for lives in range(LOST_WORKERS_PER_TRIAL, -1, -1):
            records = _run_trials(assignment, driver, data, known=records, is_last=lives == 0)
            if driver.heartbeats.cancelled.is_set():
                return Outcome(outcome="cancelled")
            if not _is_unfinished(assignment, records):
                break
            if driver.heartbeats.paused.is_set():
                return Outcome(outcome="cancelled")
    return verdict(records)


def _session_folder() -> Path:
    """Of this start of Ray, on this node: what a driver that is killed leaves there goes with Ray's own files."""
    return Path(ray.get_runtime_context().get_temp_dir(), "session_latest").resolve()


def _is_unfinished(assignment: SearchAssignment, records: Sequence[TrialRecord]) -> bool:
    """Whether trials are left, or repetitions of finalists."""
    if sum(trial.state.is_finished for trial in records) < assignment.search.trials:
        return True
    return wanted_repeat(assignment, records) is not None


def _run_trials(
    assignment: SearchAssignment,
    driver: Driver,
    data: TrialData,
    *,
    known: list[TrialRecord],
    is_last: bool,
) -> list[TrialRecord]:
    """One round of Tune over the trials that are left; every record as it is afterwards."""
    attempt = f"{assignment.run_id}-a{assignment.attempt}"
    with (
        closing(Pulses(attempt, driver.settings)) as pulses,
        TrialReporter(driver.control) as reporter,
        TemporaryDirectory(dir=_session_folder()) as scratch,
    ):
        records = {trial.number: trial for trial in known}
        searcher = ConstantTanSearch(assignment, records)
        progress = SearchProgress(
            records,
            reporter,
            driver.heartbeats,
            on_pause=searcher.close,
            sources=[point.source for point in assignment.points],
            is_last=is_last,
            pulses=pulses,
            progress_timeout_seconds=driver.settings.progress_timeout_seconds,
        )
        each = of_trial(nodes_now(), driver.settings)
        log.info("trials have %s each", told(each))
        tuner = tune.Tuner(
            tune.with_resources(
                tune.with_parameters(
                    SimulatedTrial,
                    assignment=assignment,
                    data=data,
                    settings=driver.settings,
                ),
                each,
            ),
            tune_config=tune.TuneConfig(
                search_alg=searcher,
                scheduler=build_scheduler(assignment.cuts, known, has_heat=assignment.heat),
                num_samples=-1,  # the searcher says when there is nothing more
                max_concurrent_trials=assignment.max_concurrent,
                # A process per trial would cost more than most simulations.
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(
                name=attempt,
                storage_path=scratch,
                verbose=0,
                stop=CombinedStopper(
                    CurveStopper(
                        assignment.cuts,
                        known,
                        has_heat=assignment.heat,
                        num_quick=Counted.by(
                            QUICK_VALIDATION,
                            assignment.search.metric,
                            assignment.trainer.class_shares,
                        ).effective,
                    ),
                    BudgetStopper(assignment, records),
                ),
                # A trial reports its own errors; what Tune sees fail is a lost worker.
                failure_config=tune.FailureConfig(max_failures=LOST_WORKERS_PER_TRIAL),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                callbacks=[progress],
            ),
        )
        try:
            with Places(
                1, each, driver.settings, driver.heartbeats, leave=driver.heartbeats.cancel
            ):
                tuner.fit()
        except Exception:
            # Tune wraps what a callback raises, a wish to cancel too.
            if not driver.heartbeats.cancelled.is_set():
                raise
    return sorted(records.values(), key=lambda trial: trial.number)


def _load(assignment: SearchAssignment, driver: Driver) -> TrialData | None:
    """The train and validation splits, None if nobody waits for them; never the test split."""
    settings, is_unwanted = driver.settings, driver.heartbeats.is_to_stop
    verify(assignment.dataset, storage=settings.storage)
    checkpoint = checkpoint_of(assignment, settings)
    each = of_trial(nodes_now(), settings)
    splits: dict[tuple[bool, ...], ray.ObjectRef] = {}

    extractors = extractors_for(assignment, checkpoint)
    for features, extractor in extractors.items():
        if is_unwanted():
            return None
        try:
            # One kind at a time: each goes whole through the memory of a process.
            splits[features] = put_splits(
                assignment,
                extractor,
                settings,
                each,
                is_unwanted=is_unwanted,
                note=driver.heartbeats.note_features,
                waiting=driver.heartbeats.note_waiting,
            )
        except UnwantedError:
            return None
        if extractor is not None:
            kinds = f", kind {len(splits)} of {len(extractors)}" if len(extractors) > 1 else ""
            log.info("features of %s are there%s", assignment.model.name, kinds)
    return TrialData(splits=splits, checkpoint=checkpoint)


def verdict(records: Iterable[TrialRecord]) -> Outcome:
    """A search has succeeded when at least one trial reached the last rung."""
    trials = list(records)
    count = Counter(trial.state for trial in trials)
    if count[TrialState.COMPLETED]:
        return Outcome(outcome="succeeded")
    told = ", ".join(
        f"{count[state]} {state}"
        for state in (TrialState.DIVERGED, TrialState.FAILED, TrialState.PRUNED)
        if count[state]
    )
    reasons = [trial.reason for trial in trials if trial.reason]
    last = f"; the last reason: {reasons[-1]}" if reasons else ""
    return Outcome(
        outcome="failed",
        reason=f"no trial of {len(trials)} completed: {told}{last}",
        retryable=False,
    )
