"""When a run is beyond repair."""

import math

from torch import Tensor


def is_diverged(parameters: Tensor, loss: float | None = None) -> bool:
    """Whether any parameter, or the loss where one is known, is not a finite number."""
    if loss is not None and not math.isfinite(loss):
        return True
    return not bool(parameters.isfinite().all())
