r"""From simulated batch sizes to the private one: accuracy falls on a line over log2(B).

At constant TAN the accuracy of simulations falls by a nearly constant amount per doubling of the batch
(Sander et al. 2023, Figures 1 and 4): the sampling noise of small batches helps, and the private run
has less of it. So accuracy = a - b log2(B) is fitted on the rungs, and what it says at the private
batch is a prediction of one private run, with an interval that holds five things:

* **the line's own uncertainty**, which grows with the distance from the middle of the rungs;
* **the scatter of rungs** about the line, of those fitted and of the one to come;
* **the seed of the private run**, one draw. Seeds may be paired: then a seed used on several rungs has one
  effect on all of them, which moves the line up or down and leaves its slope alone. How much of it they share is
  found with the rest; the service's own rungs draw anew at each batch size and share next to nothing;
* **few points**. Three rungs leave one degree of freedom, whose residual may be zero by luck or give an
  endless Student t. The total variance therefore has a prior (scaled inverse chi-square) worth three
  earlier runs of standard deviation 0.5 points: nine in ten deviations lie between 0.3 and 1.5. The eight published curves scatter about their lines by
  0.29 points, each point a mean of about three seeds; seeds by 0.2 to 0.3 there and on MNIST, and by 0.8
  to 0.9 on CIFAR-10 over 500 of them (Bao and Bindschaedler 2024). Those are accuracies of 30 to 60 %: near 0 and 1 there is
  less room, and the prior is that of a frequency, in proportion to the root of a (1 - a) at the largest rung;
* **a bend**. Published curves are straight where they were fitted and not beyond: from 128..2048 they
  miss by 0.5 points at one doubling and by 0.8 at three, more than the line's uncertainty. The slope
  beyond the rungs is therefore taken to differ from the one within by a standard deviation of
  :data:`BEND` = 0.2 points per doubling, less near 0 and 1 as above. It is calibrated on the curves that the tests predict.

Where accuracy *rises* with the batch, as it does over short runs of small batches that see a few thousand examples
in all, it does not go on rising: what is lost to the draw of the batch dies away. At constant TAN the noise that is
added stays as it is, and the variance of the drawn gradients goes with 1 / B; so, to first order, does what it costs.
A run cannot lose more than all that it knows beyond guessing, so what is lost, over what is left, goes with 1 / B:

.. math:: \frac{a - A(B)}{A(B) - A_0} = \frac{c}{B}

with :math:`A_0` the accuracy of guessing. Where little is lost this is :math:`a - c' / B`. That was checked on MNIST and
CIFAR-10 (JPEG) (tanh-cnn and scatter-linear, 200 steps, six tasks, the 8 best candidates of each at rungs of 32 and
128): between 0.2 points below and 0.2 above the validation accuracy at 2048 on average over a task, and 0.0 over all;
the best power of a task lies between 0.85 and 1.33. Where rungs are ten points apart it was 2.4 points too low
(tanh-cnn on CIFAR-10 (JPEG)), and this curve is 0.1. The rise that is left beyond the largest rung is taken to be
uncertain by a half of itself.

Formal guarantees: none. On simulated ladders of three rungs and two seeds, predicted two doublings
ahead, a 90 % interval covers 90 % of the runs where spreads are drawn from the prior, 93 % where rungs,
seeds and the rest each spread by 0.3 points, 85 % where seeds spread by 0.9, and 77 % where rungs do (86 %
with six of them).

NOTE: observations of a candidate that was chosen by those very accuracies are too high, and so is the
prediction: by about 2 points for the best of 24 at a seed deviation of 0.9. Observe the chosen candidate
again, with fresh seeds.

Accuracies and prediction are of one evaluation set: what another one differs by comes on top, and may be
given. Nothing here is private.

References:
    Sander, Stock and Sablayrolles (2023), "TAN Without a Burn", section 4.4, Figures 1 and 4.
    Sander, Sylvestre and Durmus (2024), "Implicit Bias in Noisy-SGD": why small batches do better.
    Bao and Bindschaedler (2024), "R+R: Towards Reliable and Generalizable DPML": seeds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self

import numpy as np

from tan_core import _validate
from tan_core.errors import ParameterError
from tan_core.tan._regression import Array, Regression, VariancePrior

PRIOR = VariancePrior(std=0.005, weight=3.0)
BEND = 0.002  # std of the change of slope beyond the rungs, per doubling
PUBLISHED_SLOPE, PUBLISHED_SLOPE_STD = -0.011, 0.011  # of the eight curves, per doubling
LONGEST_CHECKED = 5.0  # doublings from the last rung to the farthest published point
SATURATION_STD = 0.5  # of the rise that is left
LEAST_LEFT = 0.7
"""Of what the largest rung knows. Of three rungs and more that rise, one that knows less is left out while two
remain: where most is lost the curve is no longer one. Of two rungs it counts as one that does; checked down to 0.6."""


class LawMethod(StrEnum):
    """How a prediction was made."""

    LINE = "line"
    """The fitted line."""
    SATURATION = "saturation"
    """Accuracy rises: the curve on which the rise dies away."""
    LARGEST_RUNG = "largest_rung"
    """The accuracy of the largest rung, moved by the slopes of published curves."""


_NOTHING = 1e-12
"""Of an accuracy: less than one record of any split, and what divided by it may overflow."""
_LEAST_ROOM = 0.005
"""Nearer to 0 and 1 spreads become no smaller."""

# A fit is poor when rungs scatter by 3 times what is usual, and by a share of all they differ by: of a
# line a tenth, which spares steep curves that bend a little.
_POOR_RATIO = 3.0
_POOR_SHARE = {LawMethod.LINE: 0.1, LawMethod.SATURATION: 0.01}


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One finished simulation.

    Args:
        expected_batch_size: B > 0, examples, at the noise multiplier that constant TAN gives it.
        accuracy: a fraction in [0, 1], not points.
        seed: simulations of equal seed, whatever their batch size, are paired.

    Raises:
        ParameterError: an argument is outside the domain above.
    """

    expected_batch_size: float
    accuracy: float
    seed: int

    def __post_init__(self) -> None:
        _validate.make_plain(self, "expected_batch_size", "accuracy", "seed")
        _validate.positive(expected_batch_size=self.expected_batch_size)
        _validate.probability(accuracy=self.accuracy)
        _validate.integer(seed=self.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What one private run will reach.

    Args:
        accuracy: as likely to be passed as missed, in [0, 1].
        low: lower end of the interval, in [0, 1].
        high: upper end, in [0, 1].
        level: probability that the run lands inside.
        slope: accuracy per doubling of the batch, falls are negative; of a saturation from the largest rung on.
        residual_std: spread of rungs about the line or curve.
        seed_std: spread of equal runs with unlike seeds.
        num_batch_sizes: that the law was fitted on.
        method: the line, the curve, or the named fallback.
        caution: a sentence on why to trust it less, or None.
    """

    accuracy: float
    low: float
    high: float
    level: float
    slope: float
    residual_std: float
    seed_std: float
    num_batch_sizes: int
    method: LawMethod
    caution: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """What the rungs say about every batch size; made by :func:`fit_law`.

    Args:
        method: the line, the curve, or the named fallback.
        num_batch_sizes: that were counted, fitted or not.
        smallest: log2 of the smallest batch fitted.
        largest: log2 of the largest.
        origin: log2 of the batch from which a line counts its doublings.
        guessing: the accuracy of it.
        top: the mean accuracy of the largest rung, above guessing; it is what a rise is measured in.
        regression: of accuracy on 1 and, where there is a second coefficient, on doublings or on
            :func:`_loss_per_rise`.
        assumed_slope: what is added to the fitted slope, per doubling.
        slope_std: how uncertain the slope is outside the rungs, beyond what the regression knows.
        cautions: clauses.
    """

    method: LawMethod
    num_batch_sizes: int
    smallest: float
    largest: float
    origin: float
    guessing: float
    top: float
    regression: Regression
    assumed_slope: float
    slope_std: float
    cautions: tuple[str, ...]

    @_validate.plainly
    def predict(
        self,
        expected_batch_size: float,
        *,
        level: float = 0.9,
        evaluation_shift: float = 0.0,
        evaluation_std: float = 0.0,
    ) -> Prediction:
        """The accuracy of one run of a new seed at this batch size, with its interval.

        Args:
            expected_batch_size: B > 0, examples. Between rungs it is an interpolation; even where it
                equals a rung, the run to come scatters like a new one.
            level: probability in (0, 1) that the interval holds the run.
            evaluation_shift: accuracy on the set that the run will be measured on, less that on the set that was
                observed; 0 where they are one set.
            evaluation_std: how uncertain that difference is.

        Raises:
            ParameterError: an argument is outside its domain.
        """
        _validate.positive(expected_batch_size=expected_batch_size)
        _validate.probability(open_ends=True, level=level)
        _validate.in_range(-1.0, 1.0, evaluation_shift=evaluation_shift)
        _validate.in_range(0.0, 1.0, evaluation_std=evaluation_std)
        at = math.log2(expected_batch_size)
        outside = max(at - self.largest, self.smallest - at, 0.0)
        run = self.regression.new_observation(
            self._row(at),
            drift=self.assumed_slope * (at - self.origin) + evaluation_shift,
            drift_std=math.hypot(self.slope_std * outside, self._rise_std(at), evaluation_std),
        )
        slope = self._slope(at)
        residual_std, seed_std = self.regression.stds()
        return Prediction(
            accuracy=_clip(run.quantile(0.5)),
            low=_clip(run.quantile((1 - level) / 2)),
            high=_clip(run.quantile((1 + level) / 2)),
            level=level,
            slope=slope,
            residual_std=residual_std,
            seed_std=seed_std,
            num_batch_sizes=self.num_batch_sizes,
            method=self.method,
            caution=_sentence([*self.cautions, *_distance_cautions(at - self.largest)]),
        )

    @_validate.plainly
    def accuracy(self, expected_batch_size: float) -> float:
        """The line or curve itself at a batch size, in [0, 1].

        Raises:
            ParameterError: the batch size is not above 0.
        """
        _validate.positive(expected_batch_size=expected_batch_size)
        return _clip(self._mean(math.log2(expected_batch_size)))

    @_validate.plainly
    def with_slope_of(self, other: "Law", *, expected_batch_size: float) -> "Law":
        """This law, of one batch size, with the slope that another one has from there to a larger batch.

        A law of two batch sizes or more, or another one that has none, stays as it is.

        Args:
            other: of a run like this one.
            expected_batch_size: B > 0, examples: of the run that will be predicted.

        Raises:
            ParameterError: an argument is outside its domain.
        """
        _validate.instance(Law, other=other)
        _validate.positive(expected_batch_size=expected_batch_size)
        doublings = math.log2(expected_batch_size) - self.largest
        if self.num_batch_sizes > 1 or other.num_batch_sizes < 2 or doublings <= 0:
            return self
        rise = other.accuracy(expected_batch_size) - other.accuracy(2**self.largest)
        return replace(
            self,
            assumed_slope=rise / doublings,
            slope_std=max(PUBLISHED_SLOPE_STD, other.slope_std),
            cautions=("only one batch size was scored: the slope is that of a repeated trial",),
        )

    def _row(self, at: float) -> Array:
        return np.array([1.0, self._regressor(at)])[: len(self.regression.mean_coefficients())]

    def _regressor(self, at: float) -> float:
        if self.method is not LawMethod.SATURATION:
            return at - self.origin
        # The curve itself, which a = A + c / B (A - guessing) / top solves.
        limit, rise = self.regression.mean_coefficients()
        share = max(rise, 0.0) * 2.0 ** (self.largest - at) / self.top
        accuracy = (limit + share * self.guessing) / (1 + share)
        return float(_loss_per_rise(self.largest - at, (accuracy - self.guessing) / self.top))

    def _mean(self, at: float) -> float:
        fitted = float(self.regression.mean_coefficients() @ self._row(at))
        return fitted + self.assumed_slope * (at - self.origin)

    def _rise_std(self, at: float) -> float:
        """Of what a saturation has left to rise between the largest rung and there."""
        if self.method is not LawMethod.SATURATION or at <= self.largest:
            return 0.0
        return SATURATION_STD * (self._mean(at) - self._mean(self.largest))

    def _slope(self, at: float) -> float:
        if self.method is not LawMethod.SATURATION:
            return self.assumed_slope + float(self.regression.mean_coefficients()[1:].sum())
        ahead = at if at > self.largest else self.largest + 1
        return (self._mean(ahead) - self._mean(self.largest)) / (ahead - self.largest)


@_validate.plainly
def fit_law(observations: Sequence[Observation], *, guessing: float = 0.0) -> Law:
    """The extrapolation law of one candidate, fitted on its simulations.

    A line through all rungs, or where it rises the curve on which the rise dies away, by generalised least
    squares: with equal seeds on every rung, ordinary least squares on the rungs' means. Where neither is
    usable, the largest rung moved by a slope that is as uncertain as that of the published curves.

    ======================================  ====================================================
    Edge case                               Result
    ======================================  ====================================================
    one batch size                          the largest rung, with a caution
    two batch sizes                         line or curve, with a caution: nothing tells of a bend
    three or more rise, and the smallest    it is left out, with a caution; so is the next, while
    knows less than 0.7 of the largest      two remain
    rungs far off line and curve, as with   the largest rung, with a caution; the two largest
    a collapsed one among them              rungs' own slope widens the interval
    ======================================  ====================================================

    Args:
        observations: at least one, in any order; seeds may be missing on some rungs.
        guessing: accuracy of a model that has learnt nothing, in [0, 1): one over the number of classes.

    Raises:
        ParameterError: no observation, or ``guessing`` is outside its domain.

    Example:
        >>> rungs = [
        ...     Observation(expected_batch_size=batch, accuracy=accuracy, seed=seed)
        ...     for batch, accuracy, seed in [
        ...         (128, 0.4331, 0),
        ...         (256, 0.4170, 0),
        ...         (512, 0.3946, 0),
        ...         (1024, 0.3715, 0),
        ...         (2048, 0.3511, 0),
        ...     ]
        ... ]
        >>> ahead = fit_law(rungs).predict(16384)
        >>> f"{ahead.accuracy:.3f} in [{ahead.low:.3f}, {ahead.high:.3f}]; the paper reached 0.298"
        '0.289 in [0.271, 0.306]; the paper reached 0.298'
    """
    observations = _validate.sequence(Observation, observations=observations)
    if not observations:
        raise ParameterError("observations must hold at least one, got none", field="observations")
    kept = counted(observations, guessing=guessing)
    law = _law_of(kept, _Rungs.of(kept, guessing))
    left_out = {one.expected_batch_size for one in observations}
    left_out -= {one.expected_batch_size for one in kept}
    if not left_out:
        return law
    batches = " and ".join(f"{batch:g}" for batch in sorted(left_out))
    why = f"what was simulated at batch {batches} knows too little to be counted"
    return replace(law, cautions=(why, *law.cautions))


def _law_of(observations: Sequence[Observation], rungs: "_Rungs") -> Law:
    if len(rungs.means) == 1:
        return _from_largest_rung(observations, rungs, "only one batch size was scored")
    method = LawMethod.SATURATION if rungs.rise() else LawMethod.LINE
    if rungs.are_off(method):
        return _from_largest_rung(observations, rungs, f"the rungs are too far from any {method}")
    return _fitted(method, observations, rungs)


@_validate.plainly
def counted(observations: Sequence[Observation], *, guessing: float = 0.0) -> list[Observation]:
    """Those that :func:`fit_law` looks at: without small batches that know too little of what the largest does.

    Example:
        >>> rungs = [
        ...     Observation(expected_batch_size=batch, accuracy=accuracy, seed=0)
        ...     for batch, accuracy in [(32, 0.25), (128, 0.44), (512, 0.50)]
        ... ]
        >>> [one.expected_batch_size for one in counted(rungs, guessing=0.1)]
        [128, 512]
    """
    kept = list(_validate.sequence(Observation, observations=observations))
    if not kept:
        return kept
    _validate.fraction(guessing=guessing)
    while True:
        rungs = _Rungs.of(kept, guessing)
        if len(rungs.means) <= 2 or not rungs.rise() or rungs.left[0] >= LEAST_LEFT:
            return kept
        smallest = min(one.expected_batch_size for one in kept)
        kept = [one for one in kept if one.expected_batch_size > smallest]


@dataclass(frozen=True, slots=True)
class _Rungs:
    """The distinct batch sizes in rising order, as log2, with the mean and the spread of each."""

    doublings: Array
    means: Array
    seed_std: float  # pooled within rungs; 0 without repetitions
    guessing: float

    @classmethod
    def of(cls, observations: Sequence[Observation], guessing: float) -> Self:
        accuracies: dict[float, list[float]] = {}
        for one in sorted(observations, key=lambda one: one.expected_batch_size):
            accuracies.setdefault(math.log2(one.expected_batch_size), []).append(one.accuracy)
        squares = sum(len(group) * float(np.var(group)) for group in accuracies.values())
        repetitions = len(observations) - len(accuracies)
        return cls(
            doublings=np.array(list(accuracies)),
            means=np.array([sum(group) / len(group) for group in accuracies.values()]),
            seed_std=math.sqrt(squares / repetitions) if repetitions else 0.0,
            guessing=guessing,
        )

    @property
    def top(self) -> float:
        """What the largest rung knows beyond guessing; 1, as any unit would do, where that is nothing."""
        known = float(self.means[-1]) - self.guessing
        return known if known > _NOTHING else 1.0

    @property
    def left(self) -> Array:
        """What each rung knows, of what the largest does."""
        return (self.means - self.guessing) / self.top

    @property
    def room(self) -> float:
        """What spreads are here of those at an accuracy of one half."""
        top = min(max(float(self.means[-1]), _LEAST_ROOM), 1 - _LEAST_ROOM)
        return 2 * math.sqrt(top * (1 - top))

    def regressors(self, method: LawMethod) -> Array:
        """What the second coefficient is multiplied by, for each rung."""
        if method is LawMethod.LINE:
            return self.doublings
        return _loss_per_rise(self.doublings[-1] - self.doublings, self.left)

    def rise(self) -> bool:
        """Whether the line through them does. A level one and a curve that does not rise say the same."""
        return float(np.polyfit(self.doublings, self.means, 1)[0]) > 0

    def are_off(self, method: LawMethod) -> bool:
        """Whether their scatter is far above the usual, and no small part of all they differ by."""
        spare = len(self.means) - 2
        if spare < 1:
            return False
        at = self.regressors(method)
        residual = self.means - np.polyval(np.polyfit(at, self.means, 1), at)
        unexplained = float(residual @ residual)
        usual = max(PRIOR.std, self.seed_std)
        is_far = math.sqrt(unexplained / spare) > _POOR_RATIO * usual
        return is_far and unexplained > _POOR_SHARE[method] * float(np.var(self.means)) * len(
            self.means
        )

    def last_slope(self) -> float | None:
        """The slope between the two largest, if there are two."""
        slopes = self._slopes()
        return float(slopes[-1]) if len(slopes) else None

    def median_slope(self) -> float:
        """Of those between neighbours, which one collapsed rung does not turn; 0 of a single rung."""
        slopes = self._slopes()
        return float(np.median(slopes)) if len(slopes) else 0.0

    def _slopes(self) -> Array:
        return np.diff(self.means) / np.diff(self.doublings)


def _loss_per_rise(below: Any, left: Any) -> Any:
    """What a saturation's second coefficient is multiplied by.

    Args:
        below: doublings from a batch to the largest rung's.
        left: what is known there, of what is known at the largest rung.
    """
    # Rungs close together and far apart in accuracy are no curve: at least the loss must fall as the root of 1 / B.
    least = np.maximum(LEAST_LEFT, 2.0 ** -(np.maximum(below, 0) / 2) * (np.asarray(below) > 0))
    return -(2.0**below) * np.clip(left, least, 1 / LEAST_LEFT)


def _fitted(method: LawMethod, observations: Sequence[Observation], rungs: _Rungs) -> Law:
    at = np.log2([one.expected_batch_size for one in observations])
    origin, largest = float(at.mean()), float(rungs.doublings[-1])
    few = ("two batch sizes cannot tell a bend from a line",) if len(rungs.means) == 2 else ()
    of_rung = np.searchsorted(rungs.doublings, at)
    regressor = rungs.regressors(method)[of_rung]
    if method is LawMethod.LINE:
        regressor = regressor - origin
    return Law(
        method=method,
        num_batch_sizes=len(rungs.means),
        smallest=float(rungs.doublings[0]),
        largest=largest,
        origin=origin,
        guessing=rungs.guessing,
        top=rungs.top,
        regression=_regress(observations, np.stack([np.ones_like(at), regressor], axis=1), rungs),
        assumed_slope=0.0,
        slope_std=BEND * rungs.room,
        cautions=few,
    )


def _from_largest_rung(observations: Sequence[Observation], rungs: _Rungs, why: str) -> Law:
    largest = float(rungs.doublings[-1])
    kept = [one for one in observations if math.log2(one.expected_batch_size) == largest]
    last = rungs.last_slope()
    # What mostly rises over the rungs is not told to fall: a slightly better fit to the curve would have it rise.
    slope, whose = PUBLISHED_SLOPE, "that of published curves"
    if rungs.median_slope() > 0:
        slope, whose = 0.0, "none"
    surprise = 0.0 if last is None else abs(last - slope)
    return Law(
        method=LawMethod.LARGEST_RUNG,
        num_batch_sizes=len(rungs.means),
        smallest=largest,
        largest=largest,
        origin=largest,
        guessing=rungs.guessing,
        top=rungs.top,
        regression=_regress(kept, np.ones((len(kept), 1)), rungs),
        assumed_slope=slope,
        slope_std=max(PUBLISHED_SLOPE_STD, surprise),
        cautions=(f"{why}: the slope is {whose}",),
    )


def _regress(observations: Sequence[Observation], design: Array, rungs: _Rungs) -> Regression:
    return Regression.fit(
        design,
        np.array([one.accuracy for one in observations]),
        rungs=[one.expected_batch_size for one in observations],
        seeds=[one.seed for one in observations],
        prior=replace(PRIOR, std=PRIOR.std * rungs.room),
    )


def _distance_cautions(beyond: float) -> list[str]:
    """What only the distance makes doubtful."""
    if beyond <= LONGEST_CHECKED:
        return []
    return [
        f"{beyond:.1f} doublings beyond the largest rung, where published curves were followed "
        f"for {LONGEST_CHECKED:g}"
    ]


def _sentence(clauses: Sequence[str]) -> str | None:
    """One sentence of all clauses, or nothing."""
    text = "; ".join(clauses)
    return f"{text[0].upper()}{text[1:]}." if text else None


def _clip(accuracy: float) -> float:
    return min(max(accuracy, 0.0), 1.0)
