"""Trials that go on from what earlier ones have paid for: from whose weights, and at what part of the learning rate.

In a search that is charged the noisy sums of every trial are paid for, so what they make of the weights may be used again:
by the private run, and by the trials that follow. The first ones begin anew and look at the whole space. Each later one takes the
best so far, its weights and all of its parameters, and tries another part of the learning rate: what is
left of the search trains, one trial after another, as population based training does with a population of one.

References:
    Jaderberg et al. (2017), `Population based training of neural networks <https://arxiv.org/abs/1711.09846>`_.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, variance
from typing import Final, Self

from tan_core.wire import TrialRecord, TrialStart, TrialState

ANEW_SHARE: Final = 3 / 8
"""Of all trials, those that begin anew (docs/decisions/0029-trials-that-go-on.md)."""

GAINED, GAINED_STD = 0.12, 0.1
"""Of the errors of a trial that began anew, what one that goes on from its weights makes good, and how uncertain that is: at half of the
rate .17 to .31 on MNIST, .06 on CIFAR-10 (JPEG), nothing to .15 on digits (docs/decisions/0026-a-search-that-is-paid-for.md)."""

TIRES: Final = 0.5
"""How much less that becomes with each trial of a line: after n of them both are 1 / (1 + n / 2) of what they were. From the fifth
of a line to the run it was .03 and 0 on CIFAR-10 (JPEG) (docs/decisions/0029-trials-that-go-on.md)."""

REACH: Final = 2.5
"""How many times the learning rate of the best trial that began anew, or what part of it, a line may begin at instead
(docs/decisions/0029-trials-that-go-on.md)."""

RIVALS: Final = 4.0
"""Deviations of the noise of a score within which another one may be as good."""

LEAST_KEPT: Final = 0.1
"""Of what is between noisy scores: where noise may be all of it, the best one is still the best guess."""


@dataclass(frozen=True, slots=True)
class Worth:
    """What a trial's accuracy is without the noise of its score, as far as that is known."""

    accuracy: float
    variance: float


def trials_anew(trials: int) -> int:
    """How many of so many trials begin anew.

    Example:
        >>> [trials_anew(trials) for trials in (1, 2, 3, 4, 8, 16)]
        [1, 1, 2, 2, 3, 6]
    """
    return math.ceil(ANEW_SHARE * trials)


def start_of(
    number: int, trials: Sequence[TrialRecord], *, anew: int, score_std: float
) -> tuple[TrialRecord, TrialStart] | None:
    """The trial that this one goes on from, and how; None: it begins anew.

    A trial is left out that another one failed to go on from: its weights may be gone.

    Args:
        number: of the trial that is to begin; those before it have ended.
        trials: of the search, in any order.
        anew: trials that begin anew.
        score_std: of the noise on a score, as a part of the validation split.

    Example:
        >>> best = TrialRecord(
        ...     number=1,
        ...     state="completed",
        ...     params={"learning_rate": 2.0},
        ...     value=0.9,
        ...     weights_sha256=64 * "5",
        ... )
        >>> parent, start = start_of(3, [best], anew=3, score_std=0.004)
        >>> parent.number, start.learning_rate_factor
        (1, 0.5)
    """
    if number < anew:
        return None
    failed = {
        trial.began_from.trial
        for trial in trials
        if trial.began_from and trial.state is TrialState.FAILED
    }
    kept = [
        trial
        for trial in trials
        if trial.state is TrialState.COMPLETED
        and trial.weights_sha256
        and trial.value is not None
        and trial.number not in failed
    ]
    if not kept:
        return None
    worth = worth_of(kept, score_std)
    parent = max(kept, key=lambda trial: (worth[trial.number].accuracy, trial.number))
    start = TrialStart(
        trial=parent.number,
        weights_sha256=parent.weights_sha256 or "",
        learning_rate_factor=_step(number - anew) * _taken(parent, trials),
    )
    return parent, start


def _taken(parent: TrialRecord, trials: Sequence[TrialRecord]) -> float:
    """The part of the learning rate of its parameters that a trial took; of one that began anew, what it should have taken."""
    if parent.began_from:
        return factor_of(parent)
    name, found = _rates([trial for trial in trials if trial.began_from is None])
    peak = peak_of(found)
    if peak is None:
        return 1.0
    return min(max(peak / float(parent.params[name]), 1 / REACH), REACH)


def _rates(trials: Sequence[TrialRecord]) -> tuple[str, dict[float, float]]:
    """The name of the learning rate, and the best score at each; none where trials differ in more than that."""
    scored = [trial for trial in trials if trial.value is not None]
    names = {
        key
        for trial in scored
        for key in trial.params
        if key.removeprefix("train.") == "learning_rate"
    }
    others = {
        tuple(sorted((key, value) for key, value in trial.params.items() if key not in names))
        for trial in scored
    }
    if len(names) != 1 or len(others) != 1:
        return "", {}
    (name,) = names
    found: dict[float, float] = {}
    for trial in scored:
        rate, score = float(trial.params[name]), trial.value or 0.0
        found[rate] = max(score, found.get(rate, score))
    return name, found


def peak_of(scores: Mapping[float, float]) -> float | None:
    """The learning rate at the top of a parabola, over its logarithm, through the best score and its two neighbours; at most
    :data:`REACH` times beyond these.

    Few trials look at a wide range, so that the best of them is rarely near the best rate. None where the three do not bend down, or
    where there are fewer.

    Args:
        scores: by learning rate, > 0.

    Example:
        >>> peak_of({0.5: 0.2, 2.0: 0.4, 8.0: 0.4})
        4.0
    """
    rates = sorted(scores)
    if len(rates) < 3:
        return None
    best = max(range(len(rates)), key=lambda place: scores[rates[place]])
    first = min(max(best - 1, 0), len(rates) - 3)
    three = rates[first : first + 3]
    x, y = [math.log(rate) for rate in three], [scores[rate] for rate in three]
    left, right = (y[1] - y[0]) / (x[1] - x[0]), (y[2] - y[1]) / (x[2] - x[1])
    bend = (right - left) / (x[2] - x[0])
    if bend >= 0:
        return None
    top, reach = (x[0] + x[1]) / 2 - left / (2 * bend), math.log(REACH)
    # Three scores that are nearly on a line have their top far outside.
    return math.exp(min(max(top, x[0] - reach), x[2] + reach))


def _step(turn: int) -> float:
    """The part of its parent's learning rate that the trial tries which is so many after the first to go on.

    Half of it, as much, half of it, twice as much: what a smaller rate averages is there at once, and what it costs later a larger one wins back.
    After n rounds of four a line has come to 1 / (n + 1) of its first rate: what is left to learn from noise falls as slowly.
    """
    rounds, place = divmod(turn, 4)
    return (0.5, 1.0, (rounds + 1) / (rounds + 2), 2.0)[place]


def factor_of(trial: TrialRecord) -> float:
    """What part of the learning rate of its parameters a trial took.

    Example:
        >>> factor_of(TrialRecord(number=0, state="completed", params={}))
        1.0
    """
    return trial.began_from.learning_rate_factor if trial.began_from else 1.0


def worth_of(trials: Sequence[TrialRecord], score_std: float) -> Mapping[int, Worth]:
    """By number, what noisy scores are expected to be without their noise.

    The best of several noisy scores is above what it is worth. Scores of trials that began anew, as far as noise alone can tell
    them from the best one (within :data:`RIVALS` deviations), are drawn to their mean by the part of their spread that is
    noise, as James and Stein estimate means. One that no other comes near stays as it is.

    Of trials that went on more is known than their scores: each should be what its parent was worth, and a part of its errors better.
    So scores tell of all trials of their line, before and after them, as in Kalman's filter and its smoother.

    Args:
        trials: completed and scored, of one batch size.
        score_std: of the noise, as a part of the validation split.

    References:
        James and Stein (1961), "Estimation with quadratic loss"; Rauch, Tung and Striebel (1965), "Maximum likelihood estimates
        of linear dynamic systems".
    """
    noise = score_std**2
    scores = {trial.number: trial.value or 0.0 for trial in trials}
    if not noise:
        return {number: Worth(score, 0.0) for number, score in scores.items()}
    parents = _parents(trials)
    alone = _of_those_anew({n: s for n, s in scores.items() if n not in parents}, score_std)
    known = {n: _Told.of(alone.get(n) or Worth(score, noise)) for n, score in scores.items()}
    depth = depths(trials)
    gains = {n: gain_from(scores[parent], depth=depth[parent]) for n, parent in parents.items()}
    # From the last to the first, what each tells its parent; then back, what its parent tells it beside that.
    told: dict[int, _Told] = {}
    for number in sorted(parents, reverse=True):
        told[number] = known[number].before(gains[number])
        known[parents[number]] += told[number]
    for number in sorted(parents):
        known[number] += (known[parents[number]] - told[number]).after(gains[number])
    return {number: each.worth for number, each in known.items()}


def _parents(trials: Sequence[TrialRecord]) -> dict[int, int]:
    """By number, the trial that each went on from, where that is known."""
    numbers = {trial.number for trial in trials}
    return {
        trial.number: trial.began_from.trial
        for trial in trials
        if trial.began_from
        and trial.began_from.trial in numbers
        # A parent ended before its child began.
        and trial.began_from.trial < trial.number
    }


def depths(trials: Sequence[TrialRecord]) -> Mapping[int, int]:
    """By number, how many trials came before each in its line."""
    parents = _parents(trials)
    found: dict[int, int] = {}
    for number in sorted(trial.number for trial in trials):
        found[number] = found[parents[number]] + 1 if number in parents else 0
    return found


@dataclass(frozen=True, slots=True)
class Gain:
    """Of a trial's errors, the part that is made good by what goes on from it, and the standard deviation of what it gains."""

    share: float
    std: float


def gain_from(accuracy: float, *, depth: int) -> Gain:
    """What is to be expected of going on from a trial of this accuracy and depth."""
    left = 1 / (1 + TIRES * depth)
    return Gain(GAINED * left, GAINED_STD * left * max(1 - accuracy, 0.0))


@dataclass(frozen=True, slots=True)
class _Told:
    """What is known of an accuracy, so that it adds up: the inverse of its variance, and that times the accuracy."""

    precision: float
    weight: float

    @classmethod
    def of(cls, worth: Worth) -> Self:
        return cls(1 / worth.variance, worth.accuracy / worth.variance)

    @property
    def worth(self) -> Worth:
        return Worth(self.weight / self.precision, 1 / self.precision)

    def __add__(self, other: Self) -> Self:
        return replace(
            self, precision=self.precision + other.precision, weight=self.weight + other.weight
        )

    def __sub__(self, other: Self) -> Self:
        return replace(
            self, precision=self.precision - other.precision, weight=self.weight - other.weight
        )

    def after(self, gain: Gain) -> Self:
        """Of a trial that went on from one of which this is known."""
        parent, kept = self.worth, 1 - gain.share
        return self.of(
            Worth(gain.share + kept * parent.accuracy, kept**2 * parent.variance + gain.std**2)
        )

    def before(self, gain: Gain) -> Self:
        """Of the trial that one went on from of which this is known."""
        child, kept = self.worth, 1 - gain.share
        return self.of(
            Worth((child.accuracy - gain.share) / kept, (child.variance + gain.std**2) / kept**2)
        )


def _of_those_anew(scores: Mapping[int, float], score_std: float) -> dict[int, Worth]:
    noise, best = score_std**2, max(scores.values(), default=0.0)
    least = best - RIVALS * score_std
    rivals = [score for score in scores.values() if score >= least]
    if len(rivals) < 2:
        return {number: Worth(score, noise) for number, score in scores.items()}
    middle, spread = fmean(rivals), variance(rivals)
    kept = max(1 - noise / spread, LEAST_KEPT) if spread else LEAST_KEPT
    # Their mean is not known either.
    left = (kept + (1 - kept) / len(rivals)) * noise
    return {
        number: Worth(score, noise)
        if score < least
        else Worth(middle + kept * (score - middle), left)
        for number, score in scores.items()
    }
