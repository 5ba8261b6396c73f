"""The batch sizes that a search simulates: one rung, or a ladder of them."""

import math

from tan_core import _validate

AUTO_SCALE_FACTOR = 16
"""``search.rungs: auto``: one rung, at so small a part of the private batch."""

MIN_RUNG = 8
"""Below it a batch is mostly noise of its own draw, and the simulations stop saving anything."""

LADDER_RATIO = 4
_LADDER_FACTORS = (64, 16, 4)


def auto_rung(expected_batch_size: float, *, search_num_examples: int) -> int:
    """The one rung of ``search.rungs: auto``: B/16, at least 8, at most B or the search's data."""
    rung = max(int(expected_batch_size // AUTO_SCALE_FACTOR), MIN_RUNG)
    return max(1, min(rung, int(expected_batch_size), search_num_examples))


def batch_ladder(
    expected_batch_size: float, *, search_num_examples: int | None = None
) -> list[int]:
    """Simulated batch sizes for successive halving, smallest first: B/64, B/16 and B/4.

    Every rung costs about the same in all, since a rung four times as large is reached by a quarter of
    the candidates.

    Formal guarantees:

    * Never empty, strictly rising, and no rung above the batch or above the search's data.
    * No rung below ``MIN_RUNG`` unless the batch or the data is itself smaller.

    =========================================  ===========================================
    Edge case                                  Result
    =========================================  ===========================================
    a small batch                              fewer rungs
    none of the three is ``MIN_RUNG`` or more  the one rung of ``search.rungs: auto``
    =========================================  ===========================================

    Args:
        expected_batch_size: B of the private run, >= 1.
        search_num_examples: examples that the simulations read; None: as many as needed.

    Example:
        >>> batch_ladder(4096), batch_ladder(256), batch_ladder(20)
        ([64, 256, 1024], [16, 64], [8])
    """
    _validate.positive(expected_batch_size=expected_batch_size)
    most = int(expected_batch_size) if search_num_examples is None else search_num_examples
    rungs = [int(expected_batch_size // factor) for factor in _LADDER_FACTORS]
    kept = [rung for rung in rungs if MIN_RUNG <= rung <= most]
    return kept or [auto_rung(expected_batch_size, search_num_examples=max(1, most))]


def halving_trials(trials: int, num_rungs: int) -> list[int]:
    """Candidates expected at each rung when a quarter of each rung, rounded up, goes on.

    Example:
        >>> halving_trials(24, 3)
        [24, 6, 2]
    """
    _validate.positive_integer(trials=trials, num_rungs=num_rungs)
    return [math.ceil(trials / LADDER_RATIO**rung) for rung in range(num_rungs)]
