"""Ending a rung early: a run whose curve lies below most earlier runs' at the same part of the way.

ASHA compares trials at the ends of rungs; this compares them on the way, so that what will be cut at the
end need not be paid for. Both keep only the best part of the trials.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from ray.tune import Stopper

from tan_core.wire import RungScore, TrialRecord
from worker.rung import CURVE_POINTS
from worker.schedule import RESOURCE, resource

FEWEST_RUNS = 5
"""Earlier runs at a point before any run is ended there."""

QUANTILES: Final = (0.1, 0.25, 0.4)
"""Of the earlier runs, by part of the way: an early point says little, so it ends hardly anything."""


class CurveStopper(Stopper):
    """Ends exploring trials whose curve is hopeless; finalists always finish.

    Curves are compared by part of the way, not by step: candidates may differ in their number of steps,
    and each spends its whole budget on its own.

    Args:
        rungs: simulated batch sizes, smallest first.
        known: trials of earlier attempts.
    """

    def __init__(self, rungs: Sequence[int], known: Iterable[TrialRecord]) -> None:
        self._rungs = rungs
        self._seen: dict[tuple[int, int], list[float]] = defaultdict(list)
        for trial in known:
            for score in trial.scores:
                # A short rung has its score alone, which is no point on the way.
                if score.accuracy is None or len(score.curve) == CURVE_POINTS:
                    for point in range(len(score.curve)):
                        self._remember(score, point)

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Whether the trial ends here; the reason goes into the result."""
        if result["seed"] > 0 or result["rung_score"] is None or result["done"]:
            return False
        score = RungScore.model_validate_json(result["rung_score"])
        point = len(score.curve) - 1
        if score.accuracy is not None or not 0 <= point < CURVE_POINTS - 1:
            return False
        earlier = self._seen[score.rung, point]
        accuracy = score.curve[point].accuracy
        cut = None
        if len(earlier) >= FEWEST_RUNS:
            cut = float(np.quantile(earlier, QUANTILES[point]))
        self._remember(score, point)
        if cut is None or accuracy >= cut:
            return False
        # ASHA counts the trial among those that reached the end of the rung, low as it is.
        result[RESOURCE] = resource(score.rung, self._rungs)
        result["reason"] = (
            f"{100 * accuracy:.1f} % at step {score.curve[point].step} of batch "
            f"{score.expected_batch_size:.0f}, where {100 - 100 * QUANTILES[point]:.0f} % of earlier trials "
            f"had {100 * cut:.1f} % or more"
        )
        return True

    def stop_all(self) -> bool:
        """Never: only single trials are ended."""
        return False

    def _remember(self, score: RungScore, point: int) -> None:
        self._seen[score.rung, point].append(score.curve[point].accuracy)
