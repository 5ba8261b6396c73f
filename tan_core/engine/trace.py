"""What the noisy gradients of a private run looked like, noted on the way: no look at the data.

A noisy sum is what the mechanism releases at each step; its norm, and how far the weights that it moved
are from their average, are functions of such sums alone, and cost nothing beside them.
"""

import math
from collections.abc import Sequence
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from tan_core.errors import ParameterError
from tan_core.wire import UpdatePoint

MAX_POINTS: Final = 200
_POINTS = TypeAdapter(list[UpdatePoint])


class Trace:
    """Every so many steps of a run, a point.

    Formal guarantees:

    * Which steps are noted depends on the number of steps alone.
    * A point is a function of noisy sums and public settings (post-processing): whoever may see every
      noisy sum learns nothing from it.
    * It must not be shown before the run is over: who stops a run for what it shows has chosen the
      number of steps by the data, and is owed the price of all that were planned.

    Args:
        steps: S of the run.
    """

    def __init__(self, steps: int) -> None:
        self._stride = -(-steps // MAX_POINTS)
        self._points: list[UpdatePoint] = []

    @property
    def points(self) -> list[UpdatePoint]:
        """Those so far, rising in their step."""
        return list(self._points)

    def note(self, step: int, gradient: Tensor, parameters: Tensor, average: Tensor | None) -> None:
        """Note a step, if it is one of those that are noted.

        Args:
            step: steps taken before it.
            gradient: noisy sum over clip norm times expected batch size, [P].
            parameters: current ones, before the step, [P].
            average: of the parameters, where one is kept, [P].
        """
        if step % self._stride == 0:
            distance = None if average is None else _norm(parameters - average)
            point = UpdatePoint(step=step, gradient_norm=_norm(gradient), ema_distance=distance)
            self._points.append(point)

    def state(self) -> list[dict[str, Any]]:
        """JSON, for a checkpoint."""
        return [point.model_dump(mode="json") for point in self._points]

    def load_state(self, points: Sequence[dict[str, Any]]) -> None:
        """Go on after these.

        Raises:
            ParameterError: they are none.
        """
        try:
            self._points = _POINTS.validate_python(points)
        except ValidationError as error:
            what = error.errors()[0]
            raise ParameterError(
                f"the checkpoint's updates are none: {what['loc']}: {what['msg']}", field="updates"
            ) from error


def _norm(vector: Tensor) -> float | None:
    """None where it is not finite: JSON has no other word for it."""
    norm = float(vector.norm())
    return norm if math.isfinite(norm) else None
