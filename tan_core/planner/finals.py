r"""The finals: the best trials once more with fresh seeds, until one is ahead or the budget is spent.

The score that made a trial the best of many is too high: fresh seeds say what it is worth. All
finalists share each seed, so their differences are paired. Pure decisions: the driver asks after every
result, and asks again after a crash.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import fmean

import scipy

from tan_core.planner.prediction import foreseen
from tan_core.wire import RungScore, TrialRecord, TrialState

MAX_FINALISTS = 4
MAX_SEEDS = 5
MAX_REPEATS = MAX_FINALISTS * MAX_SEEDS
"""Ladders that the finals may climb at most."""

ENOUGH_SEEDS = 2
"""Of a single finalist: three with the search's own, that a prediction may tell seeds from rungs."""

_PRIOR_STD, _PRIOR_DEGREES = 0.005, 2
"""What is known of differences between paired runs before any was seen, as worth so many."""

_CONFIDENCE = 0.95

_MOST_FORESEEN = 16
"""Trials that may become finalists, the best at the largest rung: a law takes milliseconds."""


def most_simulations(trials: int, rungs: Sequence[int], confirmation: int | None) -> dict[int, int]:
    """How often a search with finals simulates each batch size at most; nothing without a rung.

    Example:
        >>> most_simulations(24, [32, 128], None), most_simulations(24, [32, 128], 512)
        ({32: 44, 128: 44}, {32: 24, 128: 24, 512: 20})
    """
    if confirmation is None:
        return dict.fromkeys(rungs, trials + MAX_REPEATS)
    return {**dict.fromkeys(rungs, trials), confirmation: MAX_REPEATS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What trials are compared for.

    Args:
        expected_batch_size: B of the private run.
        guessing: the accuracy of it, 0 where that is not known.
    """

    expected_batch_size: float
    guessing: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """One ladder of one finalist, to be climbed with a fresh seed >= 1."""

    trial: int
    seed: int


def next_repeat(
    trials: Sequence[TrialRecord],
    *,
    num_rungs: int,
    running: Collection[Repeat],
    costs: Mapping[int, int],
    max_examples: int,
    goal: Goal | None = None,
    is_confirmed: bool = False,
) -> Repeat | None:
    """What to simulate next once every trial has finished; None: nothing, or nothing more.

    Trials are compared by what each of their ladders alone foresees of the private run: at the largest rung those
    that are slow, or far behind in small batches, are not the best yet. The finalists are the best completed
    trials of unlike parameters, at most :data:`MAX_FINALISTS`, that are not yet clearly below the best one. Each
    round gives every contender one seed more; a contender that is significantly below the best (paired, one-sided
    t test at 95 %, on top of a prior deviation of 0.5 points) drops out. One that diverges was no finalist: the
    next best takes its place. A single contender goes on to :data:`ENOUGH_SEEDS`.

    Formal guarantees:

    * The first repetition of all is given whatever it costs, others only within ``max_examples``. So the
      search processes at most one ladder more than that, or than its trials did.
    * At most :data:`MAX_REPEATS` ladders are begun, and one that was begun is finished, while its trial is
      a contender.
    * The same records give the same answer; a repetition that is complete or running is never given.

    Args:
        trials: every trial of the search, finished.
        num_rungs: of a complete ladder.
        running: repetitions under way.
        costs: examples of one repetition, by trial.
        max_examples: of the whole search, exploration included.
        goal: of the search; None: the score at the largest rung counts.
        is_confirmed: whether a repetition is one rung above the ladder, and not the ladder again.

    Example:
        >>> def score(accuracy):
        ...     return RungScore(
        ...         rung=0,
        ...         expected_batch_size=32,
        ...         noise_multiplier=0.2,
        ...         steps=100,
        ...         accuracy=accuracy,
        ...         seconds=1.0,
        ...     )
        >>> trials = [
        ...     TrialRecord(number=n, state="completed", params={"rate": n}, scores=[score(accuracy)])
        ...     for n, accuracy in enumerate([0.90, 0.94, 0.935])
        ... ]
        >>> ask = {"num_rungs": 1, "costs": {0: 3200, 1: 3200, 2: 3200}, "max_examples": 20_000}
        >>> first = next_repeat(trials, running=[], **ask)
        >>> first, next_repeat(trials, running=[first], **ask)
        (Repeat(trial=1, seed=1), Repeat(trial=2, seed=1))
    """
    last = num_rungs if is_confirmed else num_rungs - 1
    contenders = _contenders(trials, num_rungs, last, goal)
    seeds = MAX_SEEDS if len(contenders) > 1 else ENOUGH_SEEDS
    wanted = [
        repeat
        for seed in range(1, seeds + 1)
        for trial in contenders
        if (repeat := Repeat(trial=trial.number, seed=seed)) not in running
        and not _is_complete(trial, seed, last)
    ]
    begun = _begun(trials, last) | dict.fromkeys(running, False)
    for repeat in wanted:
        if repeat in begun:
            return repeat
    if not wanted or len(begun) == MAX_REPEATS:
        return None
    done = _examples(trials)
    left = max_examples - sum(trial.examples for trial in trials)
    left -= sum(
        costs[repeat.trial] - done[repeat]
        for repeat, is_complete in begun.items()
        if not is_complete
    )
    return wanted[0] if not begun or costs[wanted[0].trial] <= left else None


def _begun(trials: Sequence[TrialRecord], last: int) -> dict[Repeat, bool]:
    """Every ladder with a score of its own, and whether it is complete."""
    return {
        Repeat(trial=trial.number, seed=score.seed): _is_complete(trial, score.seed, last)
        for trial in trials
        for score in trial.repeats
    }


def _examples(trials: Sequence[TrialRecord]) -> Counter[Repeat]:
    """What the rungs of each ladder that have a score processed; 0 for one without."""
    found: Counter[Repeat] = Counter()
    for trial in trials:
        for score in trial.repeats:
            found[Repeat(trial=trial.number, seed=score.seed)] += score.examples
    return found


def _contenders(
    trials: Sequence[TrialRecord], num_rungs: int, last: int, goal: Goal | None
) -> list[TrialRecord]:
    """Who may still win, the best of the search first."""
    explored = {trial.number: _at(num_rungs - 1, trial.scores) for trial in trials}
    completed = [
        trial for trial in _without_twins(trials) if explored[trial.number] and not _gave_up(trial)
    ]
    best_first = lambda one: (-explored[one.number][0], one.number)  # noqa: E731
    ranked = sorted(completed, key=best_first)
    if goal is not None:
        ranked = ranked[:_MOST_FORESEEN]
        explored = {each.number: _foreseen(each.scores, num_rungs - 1, goal) for each in ranked}
        ranked = sorted(ranked, key=best_first)
    finalists = _not_below_best(ranked[:MAX_FINALISTS], explored)
    fresh: dict[int, dict[int, float]] = {}
    for trial in finalists:
        # One rung above the ladder says little without the ladder.
        below = trial.scores if last >= num_rungs else ()
        fresh[trial.number] = (
            _at(last, trial.repeats)
            if goal is None
            else _foreseen(trial.repeats, last, goal, below=below)
        )
    return _not_below_best(finalists, fresh)


def _without_twins(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The first completed trial of each choice of parameters: what another one says is the same."""
    first: dict[frozenset[tuple[str, object]], TrialRecord] = {}
    for trial in sorted(trials, key=lambda trial: trial.number):
        if trial.state is TrialState.COMPLETED:
            first.setdefault(frozenset(trial.params.items()), trial)
    return list(first.values())


def _not_below_best(
    trials: list[TrialRecord], scores: Mapping[int, Mapping[int, float]]
) -> list[TrialRecord]:
    """Those that the best one is not ahead of by more than chance."""
    scored = [trial for trial in trials if scores[trial.number]]
    if not scored:
        return trials
    best = scores[max(scored, key=lambda trial: fmean(scores[trial.number].values())).number]
    return [trial for trial in trials if not _is_ahead(best, scores[trial.number])]


def _is_ahead(best: Mapping[int, float], other: Mapping[int, float]) -> bool:
    """Whether the best is significantly above the other, at the seeds that both have."""
    ahead = [best[seed] - other[seed] for seed in best.keys() & other.keys()]
    if not ahead:
        return False
    mean = fmean(ahead)
    degrees = _PRIOR_DEGREES + len(ahead) - 1
    squares = _PRIOR_DEGREES * _PRIOR_STD**2 + sum((each - mean) ** 2 for each in ahead)
    error = math.sqrt(squares / degrees / len(ahead))
    return mean > float(scipy.special.stdtrit(degrees, _CONFIDENCE)) * error


def _gave_up(trial: TrialRecord) -> bool:
    """Whether a repetition diverged: such a trial is no winner."""
    return any(score.accuracy is None for score in trial.repeats)


def _at(rung: int, scores: Sequence[RungScore]) -> dict[int, float]:
    """Accuracies at a rung, by seed."""
    return {
        score.seed: score.accuracy
        for score in scores
        if score.rung == rung and score.accuracy is not None
    }


def _foreseen(
    scores: Sequence[RungScore], last: int, goal: Goal, *, below: Sequence[RungScore] = ()
) -> dict[int, float]:
    """What each seed that was scored at the last rung, with the scores below it, says of the private run."""
    found: dict[int, float] = {}
    for seed in _at(last, scores):
        own = [*below, *(score for score in scores if score.seed == seed)]
        key = tuple((one.expected_batch_size, one.accuracy, one.released) for one in own)
        said = _said(_Ladder(key, own), goal)
        if said is not None:
            found[seed] = said
    return found


@dataclass(frozen=True, slots=True)
class _Ladder:
    """Scores by what they say; the same ones are asked after every result."""

    key: tuple[tuple[float, float | None, float | None], ...]
    scores: Sequence[RungScore] = field(compare=False)


@lru_cache(maxsize=1024)
def _said(ladder: _Ladder, goal: Goal) -> float | None:
    return foreseen(
        ladder.scores, expected_batch_size=goal.expected_batch_size, guessing=goal.guessing
    )


def _is_complete(trial: TrialRecord, seed: int, last: int) -> bool:
    """Whether this seed needs no more: it was scored at the last rung, or given up on the way."""
    rungs = [score for score in trial.repeats if score.seed == seed]
    return any(score.rung == last or score.accuracy is None for score in rungs)
