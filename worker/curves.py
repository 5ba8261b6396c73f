"""Ending a rung early: a run that is behind most earlier runs at the same part of the way.

ASHA compares trials at the ends of rungs; this compares them on the way, so that what will be cut at the
end need not be paid for. Both keep only the best part of the trials.

At the first rung curves are all that is known, and they are compared as they are. Above it a trial that
starts slowly is known to: it is expected to gain from here what it gained from here at the rung below, and
what it would reach is compared with what others reached. Survivors are compared there, and the best of them
at high noise are slow: by their curves alone they were the first to go.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

from ray.tune import Stopper

from tan_core.wire import CURVE_POINTS, RungScore, TrialRecord
from worker.rung import QUICK_VALIDATION
from worker.schedule import RESOURCE, resource

FEWEST_RUNS = 5
"""Earlier runs at a point before any run is ended there."""

SHARES: Final = (0.1, 0.25, 0.4)
"""Of like runs that may be ended, by part of the way: an early point says little, so it ends hardly anything."""


class CurveStopper(Stopper):
    """Ends exploring trials that are hopeless; finalists always finish.

    Curves are compared by part of the way, not by step: candidates may differ in their number of steps,
    and each spends its whole budget on its own. At a rung that begins with a heat none is ended: who goes on after it
    is among the best, and nothing below says how it starts.

    Args:
        cuts: as ``SearchAssignment.cuts``.
        known: trials of earlier attempts.
        has_heat: whether the first cut ends a heat.
        num_quick: records that an accuracy would need to be drawn as loudly as a point of a curve is.
    """

    def __init__(
        self,
        cuts: Sequence[float],
        known: Iterable[TrialRecord],
        *,
        has_heat: bool = False,
        num_quick: float = QUICK_VALIDATION,
    ) -> None:
        self._cuts, self._has_heat, self._num_quick = cuts, has_heat, num_quick
        self._points: dict[tuple[int, int], list[float]] = defaultdict(list)
        self._reached: dict[int, list[float]] = defaultdict(list)
        """By rung; of those that were ended what they would have."""
        self._scored: dict[tuple[int, int], RungScore] = {}
        """By trial and rung."""
        for trial in known:
            for score in trial.scores:
                # A short rung has its score alone, which is no point on the way.
                if score.accuracy is None or len(score.curve) == CURVE_POINTS:
                    for point, at in enumerate(score.curve):
                        self._points[score.rung, point].append(at.accuracy)
                self._remember(trial.number, score)
                was_ended = score.accuracy is None and score.curve and trial.state.is_finished
                if was_ended and (expected := self._expected(trial.number, score)) is not None:
                    self._reached[score.rung].append(expected)

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Whether the trial ends here; the reason goes into the result."""
        if result["seed"] > 0 or result["rung_score"] is None:
            return False
        score = RungScore.model_validate_json(result["rung_score"])
        self._remember(result["number"], score)
        point = len(score.curve) - 1
        if result["done"] or score.accuracy is not None or not 0 <= point < CURVE_POINTS - 1:
            return False
        if self._has_heat and score.rung == 0:
            return False
        expected = self._expected(result["number"], score)
        if expected is None:
            earlier, shown = self._points[score.rung, point], score.curve[point].accuracy
        else:
            earlier, shown = self._reached[score.rung], expected
        cut = _lowest_usual(earlier, SHARES[point], self._num_quick)
        self._points[score.rung, point].append(score.curve[point].accuracy)
        if cut is None or shown >= cut:
            return False
        if expected is not None:
            self._reached[score.rung].append(expected)
        # ASHA counts the trial among those that reached the end of the rung, low as it is.
        result[RESOURCE] = resource(score.rung + self._has_heat, self._cuts)
        result["reason"] = (
            f"{100 * score.curve[point].accuracy:.1f} % at step {score.curve[point].step} of batch "
            f"{score.expected_batch_size:.0f}"
            + ("" if expected is None else f" with {100 * expected:.1f} % expected at its end")
            + f", where {100 - 100 * SHARES[point]:.0f} % of earlier trials had {100 * cut:.1f} % or more"
        )
        return True

    def stop_all(self) -> bool:
        """Never: only single trials are ended."""
        return False

    def _remember(self, number: int, score: RungScore) -> None:
        # An attempt that goes on is told of its scores again.
        is_new = (number, score.rung) not in self._scored
        if score.accuracy is not None and is_new and not score.heat:
            self._scored[number, score.rung] = score
            self._reached[score.rung].append(score.accuracy)

    def _expected(self, number: int, score: RungScore) -> float | None:
        """What the trial would reach at this rung by what it gained from here at the one below."""
        below = self._scored.get((number, score.rung - 1))
        if below is None or below.accuracy is None or len(below.curve) != CURVE_POINTS:
            return None
        point = len(score.curve) - 1
        # The same quick part of the validation split is in both points, and so cancels out.
        expected = below.accuracy + score.curve[point].accuracy - below.curve[point].accuracy
        return min(max(expected, 0.0), 1.0)


def _lowest_usual(earlier: Sequence[float], share: float, num_quick: float) -> float | None:
    """What is below it is ended: at most ``share`` of like runs, and none by the luck of the quick validation.

    Of n runs and one more like them, the last is below the k-th smallest with probability k / (n + 1).
    """
    rank = math.floor(share * (len(earlier) + 1))
    if len(earlier) < FEWEST_RUNS or rank < 1:
        return None
    cut = sorted(earlier)[rank - 1]
    return cut - math.sqrt(cut * (1 - cut) / num_quick)
