"""Where the finalists of a search stand: what each would reach as the private run."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tan_core.tan import Observation, Prediction, fit_law
from tan_core.wire import RungScore, TrialRecord, TrialState

LEVEL = 0.9
"""Of the intervals that a study shows."""

MAX_UNREPEATED = 100
"""Trials without fresh seeds that are predicted, the best of them: a law takes milliseconds."""

SHIFT_STD = 0.005
"""A test set was often drawn otherwise than the training data that the validation split is cut from: the
test set of MNIST is easier by 0.7 points for models at 97 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What accuracies are taken on.

    Args:
        num_validation: examples that simulations are scored on.
        num_test: examples that the private run will be scored on.
    """

    num_validation: int
    num_test: int

    def std(self, accuracy: float) -> float:
        """Of the difference between both sets' accuracies: sampling, and sets that are not quite alike."""
        # One right and one wrong more on each side: an accuracy of 1 is no certainty.
        sampling = sum(
            smoothed * (1 - smoothed) / (size + 2)
            for size in (self.num_validation, self.num_test)
            for smoothed in [(accuracy * size + 1) / (size + 2)]
        )
        return math.hypot(math.sqrt(sampling), SHIFT_STD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A completed trial and what it would reach.

    Args:
        trial: its number.
        prediction: of its private run's test accuracy.
        seeds: that the prediction rests on.
        is_fresh: whether those seeds had no part in choosing the trial.
    """

    trial: int
    prediction: Prediction
    seeds: int
    is_fresh: bool


def standings(
    trials: Sequence[TrialRecord], *, expected_batch_size: float, evaluation: Evaluation
) -> list[Standing]:
    """The trials that may be promoted with their predictions, the best first.

    Only a completed trial was scored at every rung, and one that diverged under a fresh seed is not among
    them. A trial that was repeated is predicted from its fresh seeds alone, and stands before all that were
    not: their scores chose them, and so are too high. A seed counts once it was scored at every rung.

    Args:
        trials: of one search.
        expected_batch_size: B of the private run.
        evaluation: the sets behind the accuracies.
    """
    completed = [trial for trial in trials if trial.state is TrialState.COMPLETED]
    repeated = [trial for trial in completed if trial.repeats]
    others = sorted(
        (trial for trial in completed if not trial.repeats),
        key=lambda trial: (-(trial.value or 0.0), trial.number),
    )
    found = [
        standing
        for trial in (*repeated, *others[:MAX_UNREPEATED])
        if (standing := _standing(trial, expected_batch_size, evaluation)) is not None
    ]
    return sorted(found, key=lambda one: (not one.is_fresh, -one.prediction.accuracy, one.trial))


def _standing(
    trial: TrialRecord, expected_batch_size: float, evaluation: Evaluation
) -> Standing | None:
    if any(score.accuracy is None for score in trial.repeats):
        return None
    explored = _scored(trial.scores)
    fresh = _of_whole_ladders(_scored(trial.repeats), num_rungs=len(explored))
    scores = fresh or explored
    if not scores:
        return None
    law = fit_law(
        [
            Observation(
                expected_batch_size=score.expected_batch_size, accuracy=accuracy, seed=score.seed
            )
            for score, accuracy in scores
        ]
    )
    rough = law.predict(expected_batch_size, level=LEVEL)
    return Standing(
        trial=trial.number,
        prediction=law.predict(
            expected_batch_size, level=LEVEL, evaluation_std=evaluation.std(rough.accuracy)
        ),
        seeds=len({score.seed for score, _ in scores}),
        is_fresh=bool(fresh),
    )


def _scored(scores: Sequence[RungScore]) -> list[tuple[RungScore, float]]:
    return [(score, score.accuracy) for score in scores if score.accuracy is not None]


def _of_whole_ladders(
    scores: Sequence[tuple[RungScore, float]], *, num_rungs: int
) -> list[tuple[RungScore, float]]:
    """Without the seeds whose ladder was left on the way: low rungs alone promise too much."""
    climbed = Counter(score.seed for score, _ in scores)
    return [(score, accuracy) for score, accuracy in scores if climbed[score.seed] == num_rungs]
