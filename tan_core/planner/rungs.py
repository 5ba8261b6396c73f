"""The batch sizes that a search simulates, and how many trials climb from one to the next."""

import math
from collections.abc import Sequence

from tan_core import _validate
from tan_core.errors import ParameterError

ONE_SCALE_FACTOR = 16
"""Where one simulated batch has to stand for a plan: at so small a part of the private batch."""

MIN_RUNG = 32
"""Below it a batch is mostly noise of its own draw: what is fast at B diverges there, and is lost. On MNIST
(tanh-cnn, B = 2048, 200 steps, 24 candidates) accuracies at 16, 32, 64 and 128 rank like those at B with a
Spearman correlation of -0.2, 0.3, 0.6 and 0.7."""

_LADDERS = ((64, 16, 4), (128, 32, 8), (64, 16), (128, 32, 16), (128, 32), (256, 64, 16), (256, 64))
"""B over each rung, in order of preference. A large last rung predicts best, and a large first one
loses no candidate that learns fast at B and diverges in small batches."""

_CHEAPEST_FACTOR, _CHEAPEST_RATIO = 32, 4

CONFIRMATION_FACTOR = 4
"""B over the batch at which finalists are simulated once more, where that is above the ladder."""

_LEAST_SHARE = 0.5
"""Of the trials that would climb, what has to be left for a confirmation to be worth its place."""


def one_rung(expected_batch_size: float, *, search_num_examples: int) -> int:
    """B/16, at least ``MIN_RUNG``, at most B or the search's data."""
    rung = max(int(expected_batch_size // ONE_SCALE_FACTOR), MIN_RUNG)
    return max(1, min(rung, int(expected_batch_size), search_num_examples))


@_validate.plainly
def batch_ladder(
    expected_batch_size: float, *, trials: int, search_num_examples: int | None = None
) -> list[int]:
    """``search.rungs: auto``: simulated batch sizes, smallest first.

    The best ladder, from B/64, B/16 and B/4 down, over which all trials and one repetition of the winner
    are expected to process no more examples than one private run.

    Formal guarantees:

    * Never empty, strictly rising, and no rung above the batch or above the search's data.
    * No rung below ``MIN_RUNG`` unless the batch or the data is itself smaller.
    * Two rungs or more, for a prediction, wherever batch and data hold four times ``MIN_RUNG``.

    ==============================  =============================================================
    Edge case                       Result
    ==============================  =============================================================
    no ladder is so cheap           the cheapest
    the batch or the data is small  two rungs: B/32, or a quarter of the data, and four times that
    it holds no two                 one rung: B/16, at least ``MIN_RUNG``, at most B or the data
    ==============================  =============================================================

    Args:
        expected_batch_size: B of the private run, >= 1.
        trials: of the search.
        search_num_examples: examples that the simulations read; None: as many as needed.

    Example:
        >>> batch_ladder(4096, trials=4), batch_ladder(4096, trials=24)
        ([64, 256, 1024], [64, 256])
        >>> batch_ladder(256, trials=24), batch_ladder(20, trials=24)
        ([32, 128], [20])
    """
    _validate.positive(expected_batch_size=expected_batch_size)
    _validate.positive_integer(trials=trials)
    most = int(expected_batch_size)
    if search_num_examples is not None:
        _validate.positive_integer(search_num_examples=search_num_examples)
        most = min(most, search_num_examples)
    ladders = [[int(expected_batch_size // factor) for factor in ladder] for ladder in _LADDERS]
    ladders = [rungs for rungs in ladders if MIN_RUNG <= rungs[0] < rungs[-1] <= most]
    for rungs in ladders:
        if ladder_cost(trials, rungs) + sum(rungs) <= expected_batch_size:
            return rungs
    if ladders:
        return min(ladders, key=lambda rungs: ladder_cost(trials, rungs))
    if most < _CHEAPEST_RATIO * MIN_RUNG:
        return [one_rung(expected_batch_size, search_num_examples=max(1, most))]
    first = int(min(expected_batch_size // _CHEAPEST_FACTOR, most // _CHEAPEST_RATIO))
    first = max(first, MIN_RUNG)
    return [first, _CHEAPEST_RATIO * first]


def confirmation_batch(
    expected_batch_size: float,
    rungs: Sequence[int],
    *,
    trials: int,
    budget: float,
    search_num_examples: int | None = None,
) -> int | None:
    """The batch at which finalists are simulated once more: B/4, where that is worth it; else None.

    A prediction from B/4 is off by a third of what one from B/16 is (decision 25). It is worth it where it is at
    least twice the largest rung, and the budget holds it beside all first rungs and half of the trials that
    would climb.

    Args:
        expected_batch_size: B of the private run, >= 1.
        rungs: simulated batch sizes, smallest first.
        trials: of the search.
        budget: of the search, in private runs.
        search_num_examples: examples that the simulations read; None: as many as needed.

    Example:
        >>> confirmation_batch(2048, [32, 128], trials=24, budget=1.0)
        512
        >>> confirmation_batch(2048, [32, 128, 512], trials=4, budget=1.0)
        >>> confirmation_batch(2048, [32, 128], trials=24, budget=0.7)
    """
    batch = int(expected_batch_size // CONFIRMATION_FACTOR)
    if batch < 2 * rungs[-1] or (search_num_examples is not None and batch > search_num_examples):
        return None
    free = budget * expected_batch_size - batch
    return batch if _share_climbing(trials, rungs, free) >= _LEAST_SHARE else None


def reduction_factor(rungs: Sequence[float]) -> float:
    """How many trials enter a rung for each one that leaves it.

    The ratio of two neighbouring batch sizes, so that every rung costs about the same in all; within
    [2, 4], so that neither hardly anything nor nearly everything is cut.

    Example:
        >>> reduction_factor([64, 256, 1024])
        4.0
    """
    _check_rungs(rungs)
    if len(rungs) < 2:
        return 2.0
    ratio = (rungs[-1] / rungs[0]) ** (1 / (len(rungs) - 1))
    return min(4.0, max(2.0, ratio))


def expected_trials(trials: int, rungs: Sequence[float]) -> list[float]:
    """Trials that reach each rung under asynchronous successive halving, for scores in random order.

    A trial goes on when it is not below the quantile 1 - 1/r of those that were scored before it, as
    ASHA interpolates it: the n-th does with probability :math:`1/r + (1 - 2/r)/n` (n >= 2). That is
    more than one of r, and the more so the fewer they are.

    Example:
        >>> [round(reached, 1) for reached in expected_trials(24, [64, 256, 1024])]
        [24, 8.1, 3.7]
    """
    _validate.positive_integer(trials=trials)
    kept = 1 / reduction_factor(rungs)
    reached: list[float] = [trials]
    while len(reached) < len(rungs):
        entered = reached[-1]
        rest = max(entered - 1, 0.0)
        harmonic = _harmonic(entered) - 1
        reached.append(min(entered, 1.0) + rest * kept + max(harmonic, 0.0) * (1 - 2 * kept))
    return reached


def held_trials(
    trials: int,
    rungs: Sequence[float],
    examples_per_step: float,
    *,
    costs: Sequence[float] | None = None,
) -> list[float]:
    """:func:`expected_trials`, with no more of them above the first rung than the examples are enough for.

    Example:
        >>> [round(reached, 1) for reached in held_trials(24, [32, 128], 2048 - 512)]
        [24, 6.0]
    """
    first, *above = expected_trials(trials, rungs)
    share = _share_climbing(trials, rungs, examples_per_step, costs)
    return [first, *(share * reached for reached in above)]


def _share_climbing(
    trials: int,
    rungs: Sequence[float],
    examples_per_step: float,
    costs: Sequence[float] | None = None,
) -> float:
    """Of what is expected above the first rung, the part that is held beside all first rungs."""
    first = trials * rungs[0]
    climbing = ladder_cost(trials, rungs, costs=costs) - first
    return min(max((examples_per_step - first) / climbing, 0.0), 1.0) if climbing > 0 else 1.0


def ladder_cost(
    trials: int, rungs: Sequence[float], *, costs: Sequence[float] | None = None
) -> float:
    """Examples per step that the trials of a search are expected to process, over all rungs.

    Args:
        trials: of the search.
        rungs: batch sizes, by which trials are cut.
        costs: examples per step of each; None: those of its batch.
    """
    reached = expected_trials(trials, rungs)
    return sum(cost * num for cost, num in zip(costs or rungs, reached, strict=True))


def _check_rungs(rungs: Sequence[float]) -> None:
    """Refuse anything but positive numbers that rise."""
    held = _validate.items(float, rungs=rungs)
    _validate.positive(**{f"rungs[{at}]": _validate.plain(rung) for at, rung in enumerate(held)})
    if sorted(set(held)) != list(held):
        raise ParameterError(f"rungs must rise, got {rungs!r}", field="rungs")


def _harmonic(n: float) -> float:
    """1 + 1/2 + ... + 1/n, and what lies between for an expected number of trials."""
    whole = math.floor(n)
    if whole > 100:
        return math.log(n) + 0.5772156649 + 1 / (2 * n)
    return sum(1 / each for each in range(1, whole + 1)) + (n - whole) / (whole + 1)
