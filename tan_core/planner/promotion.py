"""Which trial becomes the private run, and why in words."""

from collections.abc import Sequence
from dataclasses import dataclass

from tan_core.planner.prediction import Evaluation, Standing, standings
from tan_core.wire import TrialRecord

TIE = 0.001
"""Predictions that differ by no more, a tenth of a point, are told apart by their lower bounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """The choice.

    Args:
        winner: what is promoted.
        standings: every trial that could have been, the best prediction first.
        reason: a sentence.
    """

    winner: Standing
    standings: Sequence[Standing]
    reason: str


def choose_winner(
    trials: Sequence[TrialRecord], *, expected_batch_size: float, evaluation: Evaluation
) -> Promotion | None:
    """The completed trial with the highest predicted accuracy at B; None without any.

    Among predictions within :data:`TIE` of the best the highest lower bound wins: of equal promises the
    surer one. Trials repeated with fresh seeds come before those that were not, unless their whole interval
    lies below one of those: a trial that collapses under another seed was luck. What earlier studies taught about
    the evaluation sets is shown and chooses nothing.

    Args:
        trials: of one search, in any order.
        expected_batch_size: B of the private run.
        evaluation: the sets behind the accuracies.
    """
    ranked = standings(trials, expected_batch_size=expected_batch_size, evaluation=evaluation)
    if not ranked:
        return None
    best = _best(ranked)
    tied = [
        one
        for one in ranked
        if one.is_fresh == best.is_fresh and best.compared.accuracy - one.compared.accuracy <= TIE
    ]
    winner = max(tied, key=lambda one: (one.compared.low, -one.trial))
    return Promotion(
        winner=winner,
        standings=ranked,
        reason=_reason(winner, ranked, tied, expected_batch_size),
    )


def _best(ranked: Sequence[Standing]) -> Standing:
    """The first, unless it collapsed under fresh seeds and one that was not repeated is surely better."""
    first = ranked[0]
    rivals = [one for one in ranked if one.is_fresh != first.is_fresh]
    if rivals and rivals[0].compared.low > first.compared.high:
        return rivals[0]
    return first


def _reason(
    winner: Standing, ranked: Sequence[Standing], tied: Sequence[Standing], batch: float
) -> str:
    """What set the winner apart."""
    shown = winner.prediction
    told = (
        f"trial {winner.trial}: predicted {100 * shown.accuracy:.1f} % "
        f"[{100 * shown.low:.1f}, {100 * shown.high:.1f}] at batch {batch:g}"
    )
    others = [one for one in ranked if one is not winner]
    if not others:
        return f"{told}; no other trial is left"
    if len(tied) > 1:
        return f"{told}; level with {_named(tied, winner)}, and with the highest lower bound"
    second = others[0]
    if second.is_fresh and not winner.is_fresh:
        return f"{told}; trial {second.trial} fell surely below it under fresh seeds"
    if second.is_fresh != winner.is_fresh:
        return f"{told}; no other trial was repeated with fresh seeds"
    ahead = 100 * (winner.compared.accuracy - second.compared.accuracy)
    return f"{told}; {ahead:.2f} points above trial {second.trial}"


def _named(tied: Sequence[Standing], winner: Standing) -> str:
    return ", ".join(f"trial {one.trial}" for one in tied if one is not winner)
