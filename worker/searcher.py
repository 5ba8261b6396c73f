"""What Tune runs next: trials that Optuna proposes, then repetitions of the best with fresh seeds.

Optuna is filled from the control plane's trials: nothing it holds has to survive. Trial numbers are
Optuna's and the control plane's at once. A finished trial takes its number with its score, so it is
learnt from and never run again; a trial that a dead driver left behind, or one whose first report was
lost, waits under its own number, is asked for first, and keeps the rungs that were scored.
"""

import json
import warnings
import zlib
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import optuna
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, create_trial
from optuna.trial import Trial as OptunaTrial
from optuna.trial import TrialState as OptunaState
from ray.tune.search import Searcher
from ray.tune.search.optuna import OptunaSearch

from tan_core.mechanism import Mechanism
from tan_core.planner import Goal, Repeat, next_repeat, start_of
from tan_core.spec.study import Sampler
from tan_core.wire import (
    CURVE_POINTS,
    KnownPoint,
    RungScore,
    SearchAssignment,
    TrialRecord,
    TrialStart,
    TrialState,
)
from worker.space import Space

METRIC = "score"
STUDY = "study"
UNLEARNT = 10
"""Trials before Optuna's TPE and GP samplers have learnt anything: their default."""


def space_of(assignment: SearchAssignment) -> Space:
    """The search space of an assignment."""
    return Space(assignment.search, assignment.trainer, assignment.model)


def hydrated_storage(
    assignment: SearchAssignment, known: Sequence[TrialRecord]
) -> optuna.storages.InMemoryStorage:
    """Optuna's storage as if it had seen every known trial itself, and known points waiting."""
    storage = optuna.storages.InMemoryStorage()
    study = optuna.create_study(storage=storage, study_name=STUDY, direction="maximize")
    space = space_of(assignment)
    by_number = {trial.number: trial for trial in known}
    begun = max(by_number, default=-1) + 1
    points = _points(assignment, space)
    for number in range(max(begun, len(points))):
        point = points[number] if number < len(points) else None
        study.add_trial(_frozen(by_number.get(number), point, space))
    return storage


def _points(assignment: SearchAssignment, space: Space) -> Sequence[Mapping[str, Any]]:
    """The parameters of the first trials: those known to be worth trying, and beside them such as are spread over the space.

    The trials that a sampler draws before it has learnt anything are spread, and so is what known points leave out; where each
    later one goes on from an earlier one it never learns. Who asked for random draws has them; CMA-ES begins in the middle by
    itself. What a known point leaves out is then drawn as they draw. A grid goes on with all that is left of the space.
    """
    search, charged = assignment.search, assignment.charged
    tried: list[Mapping[str, Any]] = [point.params for point in assignment.points[: search.trials]]
    anew = charged.anew if charged is not None else None
    if anew is not None:
        is_spread, first = search.sampler is not Sampler.RANDOM, anew
    else:
        is_spread, first = search.sampler in (Sampler.TPE, Sampler.GP, Sampler.GRID), UNLEARNT
    if not is_spread:
        return tried
    unknown: list[Mapping[str, Any]] = [{}] * (min(first, search.trials) - len(tried))
    seed = _sampler_seed(search.seed, (), assignment.points)
    points = space.spread([*tried, *unknown], seed=seed)
    if search.sampler is Sampler.GRID and anew is None:
        points += islice(space.others(points, seed=seed), search.trials - len(points))
    return points


def _frozen(
    trial: TrialRecord | None, point: Mapping[str, Any] | None, space: Space
) -> FrozenTrial:
    if trial is None or not trial.state.is_finished:
        fixed = trial.params if trial is not None else point
        attrs = {"fixed_params": fixed} if fixed is not None else {}
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
        distributions=space.of(trial.params),
        intermediate_values=_intermediate_values(trial.scores),
    )


def _intermediate_values(scores: Sequence[RungScore]) -> dict[int, float]:
    """Each point of a curve and each score is an intermediate value: a trial's curves and scores, by Optuna's step; 0 where a rung ended before its first point."""
    values: dict[int, float] = {}
    for score in scores:
        first = score.rung * CURVE_POINTS + 1
        # A short rung has its score alone.
        accuracy = None if score.heat else score.accuracy
        is_short = accuracy is not None and len(score.curve) < CURVE_POINTS
        kept = [] if is_short else score.curve[: CURVE_POINTS - 1]
        points = [point.accuracy for point in kept]
        values |= dict(enumerate(points, start=first))
        if accuracy is not None:
            values[first + CURVE_POINTS - 1] = accuracy
        elif not points:
            values[first] = 0.0
    return values


class ConstantTanSearch(OptunaSearch):
    """OptunaSearch that numbers its trials, tells pruned from completed, and repeats the finalists.

    A suggestion is ``{"number": n, "params": {...}, "seed": s, "scores": [...], "began_from": start}``. Ray's own searcher
    tells Optuna COMPLETE for a trial that was stopped early, with the value it had by then, and TPE
    would take a low rung's score for a final one.

    Args:
        assignment: of the search.
        records: every trial by number, kept up to date by whoever sees results; read here.
    """

    def __init__(self, assignment: SearchAssignment, records: dict[int, TrialRecord]) -> None:
        search, known = assignment.search, list(records.values())
        self._space_of_trials = space_of(assignment)
        super().__init__(
            space=self._ask,
            metric=METRIC,
            mode="max",
            sampler=sampler(
                search.sampler,
                seed=_sampler_seed(search.seed, known, assignment.points),
                is_conditional=self._space_of_trials.is_conditional,
            ),
            study_name=STUDY,
            storage=hydrated_storage(assignment, known),
        )
        self._assignment = assignment
        self._records = records
        self._unasked = search.trials - sum(trial.state.is_finished for trial in known)
        self._exploring: set[str] = set()
        self._repeats: dict[str, Repeat] = {}
        self._given_up: set[Repeat] = set()
        self._told: set[tuple[str, int]] = set()
        self._is_closed = False

    def close(self) -> None:
        """Propose nothing more in this round: what runs goes on to its end."""
        self._is_closed = True

    def suggest(self, trial_id: str) -> Any:
        """What to run next; None: nothing yet; ``Searcher.FINISHED``: nothing more in this round."""
        if self._is_closed:
            return Searcher.FINISHED
        if self._unasked > 0:
            if self._exploring and self._may_go_on():
                return None  # on whatever those that run leave
            self._unasked -= 1
            return self._explore(trial_id)
        if self._exploring:
            return None
        if not all(trial.state.is_finished for trial in self._records.values()):
            # A trial lost its worker before it began: it runs in a round of its own.
            return Searcher.FINISHED
        repeat = wanted_repeat(
            self._assignment,
            list(self._records.values()),
            running={*self._repeats.values(), *self._given_up},
        )
        if repeat is None:
            return None if self._repeats else Searcher.FINISHED
        self._repeats[trial_id] = repeat
        trial = self._records[repeat.trial]
        known = [score for score in trial.repeats if score.seed == repeat.seed]
        return _config(repeat.trial, trial.params, repeat.seed, known)

    def _explore(self, trial_id: str) -> dict[str, Any]:
        start = self._start()
        with warnings.catch_warnings():
            # A sampler that is asked for the first time imports its library, and a busy machine takes seconds for it.
            warnings.filterwarnings("ignore", message="Define-by-run function")
            params = super().suggest(trial_id)
        number: int = self._ot_trials[trial_id].number
        self._exploring.add(trial_id)
        return _config(number, params or {}, 0, self._known_scores(number, params or {}), start)

    def _next(self) -> tuple[int, bool]:
        """The number of the trial that Optuna gives next, and whether it has waited there: those do first, in order."""
        assert self._ot_study is not None  # noqa: S101 - made with the storage
        trials = self._ot_study.get_trials(deepcopy=False)
        waiting = [trial.number for trial in trials if trial.state is OptunaState.WAITING]
        return (min(waiting), True) if waiting else (len(trials), False)

    def _may_go_on(self) -> bool:
        """Whether the next trial goes on from an earlier one, where there is one."""
        charged = self._assignment.charged
        return charged is not None and charged.anew is not None and self._next()[0] >= charged.anew

    def _start(self) -> TrialStart | None:
        """What the next trial goes on from: its parameters wait in Optuna then. One that waited already begins as it did before."""
        charged, study = self._assignment.charged, self._ot_study
        if charged is None or charged.anew is None or study is None:
            return None
        number, has_waited = self._next()
        if has_waited:
            known = self._records.get(number)
            return known.began_from if known else None
        found = start_of(
            number,
            list(self._records.values()),
            anew=charged.anew,
            score_std=charged.score_std,
        )
        if found is None:
            return None
        parent, start = found
        study.enqueue_trial(parent.params)
        return start

    def _known_scores(self, number: int, params: Mapping[str, Any]) -> Sequence[RungScore]:
        """Of this trial; else of another with its parameters, which the same seed would give once more, and which take no time again.

        Not so where trials are charged: each has noise of its own, and how many there are is not for scores to decide.
        """
        own = self._records.get(number)
        if own is not None and own.scores:
            return own.scores
        if self._assignment.charged is not None:
            return ()
        twins = (trial.scores for trial in self._records.values() if trial.params == params)
        found = max(twins, key=len, default=())
        return [score.model_copy(update={"seconds": 0.0}) for score in found]

    def _ask(self, trial: OptunaTrial) -> None:
        """The parameters of a new trial; those that it would not read are left out."""
        chosen: dict[str, Any] = {}
        for key, dimension in self._space_of_trials.distributions.items():
            if self._space_of_trials.is_read(key, chosen):
                chosen[key] = _suggest(trial, key, dimension)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """A point of a curve or a score, as an intermediate value."""
        if trial_id in self._exploring:
            self._tell_value(trial_id, result)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """COMPLETE at the last rung only; FAIL without a score; PRUNED otherwise."""
        repeat = self._repeats.pop(trial_id, None)
        failed = error or (result is not None and result.get("outcome") == TrialState.FAILED)
        if repeat is not None and failed:
            # It lost its worker once too often, or failed by itself: not again in this round.
            self._given_up.add(repeat)
        if trial_id not in self._exploring:
            return
        self._exploring.discard(trial_id)
        trial, study = self._ot_trials[trial_id], self._ot_study
        assert study is not None  # noqa: S101 - a trial completes in the study that suggested it
        outcome = result.get("outcome") if result else None
        if error or result is None or outcome == TrialState.FAILED:
            study.tell(trial, state=OptunaState.FAIL)
            return
        self._tell_value(trial_id, result)
        if outcome == TrialState.COMPLETED:
            study.tell(trial, result[METRIC], state=OptunaState.COMPLETE)
        else:
            study.tell(trial, state=OptunaState.PRUNED)

    def _tell_value(self, trial_id: str, result: dict[str, Any]) -> None:
        """An intermediate value, once per point: a trial that was run again repeats its rungs."""
        point = CURVE_POINTS if result["is_scored"] else min(result["point"], CURVE_POINTS - 1)
        step = result["rung"] * CURVE_POINTS + max(point, 1)
        if (trial_id, step) not in self._told:
            self._told.add((trial_id, step))
            self._ot_trials[trial_id].report(result[METRIC], step)


def wanted_repeat(
    assignment: SearchAssignment, trials: Sequence[TrialRecord], *, running: Collection[Repeat] = ()
) -> Repeat | None:
    """What the finals of a search whose trials have all finished want next; None: nothing more.

    A search that is charged has none: each repetition would be one more trial to pay for.
    """
    if assignment.charged is not None:
        return None
    return next_repeat(
        trials,
        num_rungs=len(assignment.rungs),
        running=running,
        is_confirmed=assignment.confirmation is not None,
        # A completed trial climbed one whole ladder: what it costs for each of its batches is known.
        costs={
            trial.number: sum(score.examples for score in trial.scores)
            * sum(assignment.repetition)
            // sum(assignment.rungs)
            for trial in trials
            if trial.state is TrialState.COMPLETED
        },
        max_examples=assignment.max_examples,
        goal=Goal(
            expected_batch_size=assignment.num_examples
            * Mechanism.from_json(assignment.reference.event).sampling_rate,
            guessing=1 / assignment.dataset.num_classes,
        ),
    )


def sampler(kind: Sampler, *, seed: int, is_conditional: bool) -> BaseSampler:
    """Optuna's sampler of that name."""
    match kind:
        # A grid is made beforehand: it draws only where trials that were to go on from others found no weights.
        case Sampler.RANDOM | Sampler.GRID:
            return RandomSampler(seed=seed)
        case Sampler.GP:
            return GPSampler(seed=seed)
        case Sampler.CMAES:
            return CmaEsSampler(seed=seed, warn_independent_sampling=False)
        case Sampler.TPE:
            with warnings.catch_warnings():
                # `group` has been experimental since Optuna 2.8.
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                return TPESampler(seed=seed, multivariate=True, group=is_conditional)


def _suggest(trial: OptunaTrial, key: str, dimension: Any) -> Any:
    if isinstance(dimension, optuna.distributions.CategoricalDistribution):
        return trial.suggest_categorical(key, dimension.choices)
    if isinstance(dimension, optuna.distributions.IntDistribution):
        return trial.suggest_int(key, dimension.low, dimension.high, log=dimension.log)
    return trial.suggest_float(key, dimension.low, dimension.high, log=dimension.log)


def start_in(config: Mapping[str, Any]) -> TrialStart | None:
    """What the trial of a suggestion goes on from."""
    start = config.get("began_from")
    return TrialStart.model_validate(start) if start else None


def _config(
    number: int,
    params: Mapping[str, Any],
    seed: int,
    known: Sequence[RungScore],
    start: TrialStart | None = None,
) -> dict[str, Any]:
    """What ``worker.trial`` reads; of the known scores those that are final and follow on each other."""
    kept: list[dict[str, Any]] = []
    for score in sorted(known, key=lambda score: score.rung):
        if score.accuracy is None or score.heat or score.rung != len(kept):
            break
        kept.append(score.model_dump(mode="json"))
    return {
        "number": number,
        "params": dict(params),
        "seed": seed,
        "scores": kept,
        "began_from": start.model_dump(mode="json") if start else None,
    }


def _sampler_seed(seed: int, known: Sequence[TrialRecord], points: Sequence[KnownPoint]) -> int:
    """Reproducible, but another one after each restart: else TPE would draw its first points twice.

    And another one than that of the study whose points are tried first: they are what its seed drew.
    """
    tried = json.dumps([point.params for point in points], sort_keys=True).encode()
    learnt = [zlib.crc32(tried)] if points else []
    return int(np.random.SeedSequence([seed, len(known), *learnt]).generate_state(1)[0])
