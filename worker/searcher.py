"""Optuna inside Tune, filled from the control plane's trials: nothing it holds has to survive.

Trial numbers are Optuna's and the control plane's at once. A finished trial takes its number with
its score, so it is learnt from and never run again; a trial that a dead driver left behind, or one
whose first report was lost, waits under its own number and is asked for first.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, create_trial
from optuna.trial import TrialState as OptunaState
from ray.tune.search.optuna import OptunaSearch

from tan_core.spec import Choices, Range, SearchSpec
from tan_core.spec.space import Dimension
from tan_core.wire import TrialRecord, TrialState

METRIC = "score"
STUDY = "study"


def distribution(dimension: Dimension) -> BaseDistribution:
    """A dimension of the search space as Optuna sees it; a fixed value is one choice."""
    if isinstance(dimension, Choices):
        return CategoricalDistribution(tuple(dimension.choices))
    if not isinstance(dimension, Range):
        return CategoricalDistribution((dimension,))
    if dimension.is_integer:
        return IntDistribution(int(dimension.low), int(dimension.high), log=dimension.log)
    return FloatDistribution(dimension.low, dimension.high, log=dimension.log)


def distributions(search: SearchSpec) -> dict[str, BaseDistribution]:
    """The whole search space, key by key as in the YAML."""
    return {key: distribution(dimension) for key, dimension in search.space.items()}


def hydrated_storage(
    search: SearchSpec, known: Sequence[TrialRecord]
) -> optuna.storages.InMemoryStorage:
    """Optuna's storage as if it had seen every known trial itself."""
    storage = optuna.storages.InMemoryStorage()
    study = optuna.create_study(storage=storage, study_name=STUDY, direction="maximize")
    space = distributions(search)
    by_number = {trial.number: trial for trial in known}
    for number in range(max(by_number, default=-1) + 1):
        study.add_trial(_frozen(by_number.get(number), space))
    return storage


def _frozen(trial: TrialRecord | None, space: dict[str, BaseDistribution]) -> FrozenTrial:
    if trial is None or not trial.state.is_finished:
        attrs = {"fixed_params": trial.params} if trial is not None else {}
        return create_trial(state=OptunaState.WAITING, system_attrs=attrs)
    state = {
        TrialState.COMPLETED: OptunaState.COMPLETE,
        TrialState.FAILED: OptunaState.FAIL,
    }.get(trial.state, OptunaState.PRUNED)
    if state is OptunaState.COMPLETE and trial.value is None:
        state = OptunaState.FAIL
    return create_trial(
        state=state,
        value=trial.value if state is OptunaState.COMPLETE else None,
        params=trial.params,
        distributions=space,
        intermediate_values={score.rung + 1: score.accuracy or 0.0 for score in trial.scores},
    )


class ConstantTanSearch(OptunaSearch):
    """OptunaSearch that numbers its trials and tells pruned from completed.

    A suggestion is ``{"number": n, "params": {...}}``. Ray's own searcher tells Optuna COMPLETE for a
    trial that was stopped early, with the value it had by then, and TPE would take a low rung's score
    for a final one.
    """

    def __init__(self, search: SearchSpec, known: Sequence[TrialRecord]) -> None:
        super().__init__(
            space=distributions(search),
            metric=METRIC,
            mode="max",
            sampler=optuna.samplers.TPESampler(seed=_sampler_seed(search.seed, known)),
            study_name=STUDY,
            storage=hydrated_storage(search, known),
        )
        self._told: set[tuple[str, int]] = set()

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        """The next trial's number and parameters."""
        params = super().suggest(trial_id)
        if params is None:
            return None
        return {"number": self._ot_trials[trial_id].number, "params": params}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """A rung's score, as an intermediate value."""
        if trial_id not in self._completed_trials:
            self._tell_rung(trial_id, result)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """COMPLETE at the last rung only; FAIL without a score; PRUNED otherwise."""
        if trial_id in self._completed_trials:
            return
        self._completed_trials.add(trial_id)
        trial, study = self._ot_trials[trial_id], self._ot_study
        assert study is not None  # noqa: S101 - a trial completes in the study that suggested it
        outcome = result.get("outcome") if result else None
        if error or result is None or outcome == TrialState.FAILED:
            study.tell(trial, state=OptunaState.FAIL)
            return
        self._tell_rung(trial_id, result)
        if outcome == TrialState.COMPLETED:
            study.tell(trial, result[METRIC], state=OptunaState.COMPLETE)
        else:
            study.tell(trial, state=OptunaState.PRUNED)

    def _tell_rung(self, trial_id: str, result: dict[str, Any]) -> None:
        """An intermediate value, once per rung: a trial that was run again repeats its rungs."""
        step = result["rung"] + 1
        if (trial_id, step) not in self._told:
            self._told.add((trial_id, step))
            self._ot_trials[trial_id].report(result[METRIC], step)


def _sampler_seed(seed: int, known: Sequence[TrialRecord]) -> int:
    """Reproducible, but another one after each restart: else TPE would draw its first points twice."""
    return int(np.random.SeedSequence([seed, len(known)]).generate_state(1)[0])
