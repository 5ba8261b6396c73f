"""Where the finalists of a search stand: what each would reach as the private run."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from tan_core import _validate
from tan_core.planner.lineage import depths, gain_from, worth_of
from tan_core.tan import Law, Observation, Prediction, fit_law
from tan_core.wire import RungScore, TrialRecord, TrialState

LEVEL = 0.9
"""Of the intervals that a study shows."""

MAX_UNREPEATED = 100
"""Trials without fresh seeds that are predicted, the best of them: a law takes milliseconds."""

LUCK = 0.01
"""What the search's own seed may be above the mean of the fresh ones; unlike seeds of a network differ by less mostly."""

SHIFT_STD = 0.005
"""A test set was often drawn otherwise than the training data that the validation split is cut from: the
test set of MNIST is easier by 0.7 points for models at 97 %."""

AHEAD_STD = 0.5
"""Of what released weights are ahead of the mean, as a part of it."""

ERROR_STD = 0.005
"""What one private run tells of that difference is off by, for all other reasons."""

MEDIAN_EFFICIENCY = 2 / math.pi
"""Of normal errors: a median of so many is as good as a mean of this part of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What accuracies are taken on.

    What the two sets differ by is learnt from private runs that were predicted and measured on them before: the
    median of their errors and of 0, so that few of them say little and one that went wrong spoils nothing. Over
    65 stored studies (``docs/results.md``), each predicted from those before it, the error's root mean square is
    0.19 points on MNIST and 0.45 on CIFAR-10 (JPEG), 0.45 and 0.65 without.

    Args:
        num_validation: examples that simulations are scored on.
        num_test: examples that the private run will be scored on.
        num_classes: that labels have; 0: unknown.
        errors: of earlier predictions between these very sets, reached less predicted, each as it would have been
            without what it had learnt itself.
        score_std: of the noise that was added to each score, as a part of the validation split: 0 where none was.
        goes_on: whether the private run begins with the weights that were scored, where its trial has kept them.
    """

    num_validation: int
    num_test: int
    num_classes: int = 0
    errors: Sequence[float] = ()
    score_std: float = 0.0
    goes_on: bool = False

    @property
    def guessing(self) -> float:
        """The accuracy of it; 0 where the number of classes is unknown."""
        return 1 / self.num_classes if self.num_classes else 0.0

    @property
    def shift(self) -> float:
        """What the private run's accuracy should be above a simulation's for the set alone."""
        return median([0.0, *self.errors])

    def std(self, accuracy: float) -> float:
        """Of the difference between both sets' accuracies: of how they were drawn, as far as it was not learnt."""
        # One right and one wrong more on each side: an accuracy of 1 is no certainty.
        sampling = sum(
            smoothed * (1 - smoothed) / (size + 2)
            for size in (self.num_validation, self.num_test)
            for smoothed in [(accuracy * size + 1) / (size + 2)]
        )
        learnt = MEDIAN_EFFICIENCY * len(self.errors) / ERROR_STD**2
        drawn = 1 / math.sqrt(1 / (SHIFT_STD**2 + sampling) + learnt)
        return math.hypot(drawn, self.score_std)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A completed trial and what it would reach.

    Args:
        trial: its number.
        prediction: of its private run's test accuracy.
        seeds: that the prediction rests on.
        is_fresh: whether one of them at least had no part in choosing the trial.
        ahead: part of the prediction: what the weights that are released are ahead of the mean that is scored; also where
            the run goes on from that mean.
        compared: the prediction without what earlier studies taught, by which trials are compared: that moves all of
            them alike, but neither past 0 and 1 nor the trials' own uncertainty. Where the run goes on, all of them gain what the deepest
            of a line does: a trial that others went on from is not promised again what these have shown.
    """

    trial: int
    prediction: Prediction
    compared: Prediction
    seeds: int
    is_fresh: bool
    ahead: float


def standings(
    trials: Sequence[TrialRecord], *, expected_batch_size: float, evaluation: Evaluation
) -> list[Standing]:
    """The trials that may be promoted with their predictions, the best first.

    Only a completed trial was scored at every rung, and one that diverged under a fresh seed is not among
    them. A fresh seed counts once it was scored at every rung, and a trial that has one stands before all
    that have none: for those only what chose them speaks.

    The search's own seed counts beside the fresh ones, as at most :data:`LUCK` above them. What chose its trial
    makes it too high, but all candidates share it: over 24 studies of ``benchmarks/search.py`` its predictions
    had a bias of -0.2 points and a root mean square error of 0.4 on the validation split, those of the fresh
    seeds, one nearly always, -0.2 and 0.6, and those of both -0.2 and 0.45.

    Args:
        trials: of one search.
        expected_batch_size: B of the private run.
        evaluation: the sets behind the accuracies.
    """
    trials = _validate.sequence(TrialRecord, trials=trials)
    _validate.positive(expected_batch_size=expected_batch_size)
    _validate.instance(Evaluation, evaluation=evaluation)
    completed = [trial for trial in trials if trial.state is TrialState.COMPLETED]
    if evaluation.goes_on:
        # One that went on and has kept nothing would begin anew, where its line is lost.
        completed = [trial for trial in completed if not trial.began_from or trial.weights_sha256]
    if evaluation.score_std:
        completed = without_noise(completed, evaluation.score_std)
    repeated = [trial for trial in completed if trial.repeats]
    others = sorted(
        (trial for trial in completed if not trial.repeats),
        key=lambda trial: (-(trial.value or 0.0), trial.number),
    )
    laws = [
        (trial, law)
        for trial in (*repeated, *others[:MAX_UNREPEATED])
        if (law := _law(trial, evaluation)) is not None
    ]
    like = max(
        (law for trial, law in laws if trial.repeats),
        key=lambda law: law.num_batch_sizes,
        default=None,
    )
    depth = depths(completed)
    deepest = max(depth.values(), default=0)
    found = [
        _standing(
            trial,
            law.with_slope_of(like, expected_batch_size=expected_batch_size) if like else law,
            expected_batch_size,
            evaluation,
            depth=depth[trial.number],
            deepest=deepest,
        )
        for trial, law in laws
    ]
    return sorted(found, key=lambda one: (not one.is_fresh, -one.compared.accuracy, one.trial))


def _law(trial: TrialRecord, evaluation: Evaluation) -> Law | None:
    """Of a trial that may be promoted; else None."""
    if any(score.accuracy is None for score in trial.repeats):
        return None
    observations = rests_on(trial)
    return fit_law(observations, guessing=evaluation.guessing) if observations else None


def _standing(
    trial: TrialRecord,
    law: Law,
    expected_batch_size: float,
    evaluation: Evaluation,
    *,
    depth: int,
    deepest: int,
) -> Standing:
    """Where a trial stands by its law; ``depth`` is how many came before it in its line, ``deepest`` the most of any."""
    observations = rests_on(trial)
    rough = law.predict(expected_batch_size, level=LEVEL)
    if evaluation.goes_on and trial.weights_sha256 is not None:
        own, alike = (_going_on(rough.accuracy, depth=each) for each in (depth, deepest))
    else:
        scores = [*trial.scores, *_of_whole_ladders(trial)]
        own = alike = _ahead(scores, expected_batch_size)

    def told(known: Evaluation, ahead: float, ahead_std: float) -> Prediction:
        return law.predict(
            expected_batch_size,
            level=LEVEL,
            evaluation_shift=min(max(known.shift + ahead, -1.0), 1.0),
            evaluation_std=min(math.hypot(known.std(rough.accuracy), ahead_std), 1.0),
        )

    return Standing(
        trial=trial.number,
        prediction=told(evaluation, *own),
        compared=told(replace(evaluation, errors=()), *alike),
        seeds=len({one.seed for one in observations}),
        is_fresh=any(one.seed for one in observations),
        ahead=own[0],
    )


def _going_on(accuracy: float, *, depth: int) -> tuple[float, float]:
    """As :func:`_ahead`, of a run that goes on from a trial of this accuracy and depth."""
    gain = gain_from(accuracy, depth=depth)
    return gain.share * (1 - accuracy), gain.std


def without_noise(trials: Sequence[TrialRecord], score_std: float) -> list[TrialRecord]:
    """The trials with scores as they are expected to be without the noise that was added to each.

    Args:
        trials: completed, of one batch size.
        score_std: of the noise, as a part of the validation split.
    """
    scored = [trial for trial in trials if trial.value is not None]
    worth = worth_of(scored, score_std)

    def drawn(trial: TrialRecord) -> TrialRecord:
        accuracy = min(max(worth[trial.number].accuracy, 0.0), 1.0)
        scores = [
            score.model_copy(update={"accuracy": accuracy})
            for score in trial.scores
            if score.accuracy is not None
        ]
        return trial.model_copy(update={"value": accuracy, "scores": scores})

    return [drawn(trial) if trial.number in worth else trial for trial in trials]


def _ahead(scores: Sequence[RungScore], expected_batch_size: float) -> tuple[float, float]:
    """What released weights are ahead of the mean of the last ones in the private run, and how uncertain that is.

    The mean lies behind where the model still learns, and before where noise shakes the last weights. What the
    draw of a small batch shakes dies away with 1 / B, as in the law; what private noise does stays. Nothing is
    said of a ladder whose largest rung was not measured: at small batches the draw is nearly all.

    The noise that lowers a score by chance raises the difference, so that of one simulation is too large where that scored low
    and too small where it scored high. Of n of them n / (n + 1) counts, as if one held as much noise as there is to
    know: over 102 ladders of B/16 and B/4 (tanh-cnn, candidates of ``benchmarks/search.py``) predictions are then off by
    0.65 points, by 0.89 where all of it counts and by 0.69 where none does (docs/decisions/0024-predict-what-is-released.md).
    """
    largest = 0.0
    gaps: dict[float, list[float]] = defaultdict(list)
    for score in scores:
        if score.accuracy is not None:
            largest = max(largest, score.expected_batch_size)
            if score.released is not None:
                gaps[score.expected_batch_size].append(score.released - score.accuracy)
    if largest not in gaps:
        return 0.0, 0.0
    *lower, top = sorted(gaps)
    found = fmean(gaps[top])
    left = 0.0
    if lower:
        rise = max(found - fmean(gaps[lower[-1]]), 0.0)
        # Of rungs side by side no more than what is between them is left.
        share = min(1 / (top / lower[-1] - 1), 1.0)
        left = rise * share * max(1 - top / expected_batch_size, 0.0)
    kept = len(gaps[top]) / (len(gaps[top]) + 1)
    return kept * (found + left), AHEAD_STD * math.hypot(found, left)


def foreseen(
    scores: Sequence[RungScore], *, expected_batch_size: float, guessing: float
) -> float | None:
    """What one ladder alone says of the private run; None without a score.

    Of one batch size nothing tells what its draw shakes from what noise does, and in a small batch the draw is nearly all: what
    released weights are ahead of the mean counts as the part of it that the batch is of the private one. In eight searches
    that began with a heat this chooses finalists .2 points below the best of the candidates on average, and .5 where all of it
    counts (docs/decisions/0027-a-heat-before-the-first-rung.md).

    Args:
        scores: of one trial with one seed.
        expected_batch_size: B of the private run.
        guessing: the accuracy of it.
    """
    observations = observed(scores)
    if not observations:
        return None
    law = fit_law(observations, guessing=guessing)
    ahead, _ = _ahead(scores, expected_batch_size)
    batches = {one.expected_batch_size for one in observations}
    if len(batches) == 1:
        ahead *= min(max(batches) / expected_batch_size, 1.0)
    return law.accuracy(expected_batch_size) + ahead


def rests_on(trial: TrialRecord) -> list[Observation]:
    """What the prediction of a trial is fitted on: its simulations, those of the search's own seed, 0, without luck."""
    explored, fresh = observed(trial.scores), observed(_of_whole_ladders(trial))
    return [*_without_luck(explored, fresh), *fresh]


def observed(scores: Sequence[RungScore]) -> list[Observation]:
    """Scores as the law takes them, without those that were given up."""
    return [
        Observation(
            expected_batch_size=score.expected_batch_size, accuracy=score.accuracy, seed=score.seed
        )
        for score in scores
        if score.accuracy is not None
    ]


def _of_whole_ladders(trial: TrialRecord) -> list[RungScore]:
    """Repeats without the seeds that were left on the way: low rungs alone promise too much.

    A seed is whole where it has every rung of the trial, or one above them.
    """
    ladder = {score.rung for score in trial.scores if score.accuracy is not None}
    climbed: dict[int, set[int]] = defaultdict(set)
    for score in trial.repeats:
        if score.accuracy is not None:
            climbed[score.seed].add(score.rung)
    top = max(ladder, default=0)
    whole = {seed for seed, rungs in climbed.items() if rungs >= ladder or max(rungs) > top}
    return [score for score in trial.repeats if score.seed in whole and score.accuracy is not None]


def _without_luck(
    explored: Sequence[Observation], fresh: Sequence[Observation]
) -> Sequence[Observation]:
    """The search's own ladder, lowered as a whole by what its largest rung is too far above the fresh ones there."""
    top = max((one.expected_batch_size for one in explored), default=0.0)
    again = [one.accuracy for one in fresh if one.expected_batch_size == top]
    if not again:
        return explored
    own = fmean(one.accuracy for one in explored if one.expected_batch_size == top)
    luck = max(own - fmean(again) - LUCK, 0.0)
    return [replace(one, accuracy=max(one.accuracy - luck, 0.0)) for one in explored]
