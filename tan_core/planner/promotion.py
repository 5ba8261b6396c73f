"""Which trial becomes the private run."""

from collections.abc import Sequence

from tan_core.wire import TrialRecord, TrialState


def choose_winner(trials: Sequence[TrialRecord]) -> TrialRecord | None:
    """The completed trial of the highest value, the earlier one of two equals; None without any.

    Only a completed trial was scored at the highest rung: scores of other rungs do not compare.
    """
    scored = [
        (trial.value, -trial.number, trial)
        for trial in trials
        if trial.state is TrialState.COMPLETED and trial.value is not None
    ]
    return max(scored, key=lambda entry: entry[:2])[2] if scored else None
