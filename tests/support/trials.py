"""Trials of a search as the control plane keeps them, from their accuracies alone."""

from collections.abc import Mapping, Sequence

from tan_core.wire import RungScore, TrialRecord, TrialState

RUNGS = (32, 128, 512)
STEPS = 100
LADDER = sum(RUNGS) * STEPS
"""Examples of one ladder."""


def ladder(accuracies: Sequence[float | None], *, seed: int = 0) -> list[RungScore]:
    """One score a rung, the smallest batch first, at one noise per example."""
    return [
        RungScore(
            rung=rung,
            seed=seed,
            expected_batch_size=RUNGS[rung],
            noise_multiplier=RUNGS[rung] / 1024,
            steps=STEPS,
            accuracy=accuracy,
            seconds=1.0,
        )
        for rung, accuracy in enumerate(accuracies)
    ]


def make_trial(
    number: int,
    explored: Sequence[float | None],
    fresh: Mapping[int, Sequence[float | None]] | None = None,
    *,
    state: TrialState = TrialState.COMPLETED,
) -> TrialRecord:
    """A trial with its accuracies at the rungs, in the search and by fresh seed."""
    return TrialRecord(
        number=number,
        state=state,
        params={"learning_rate": 1.0 + number},
        scores=ladder(explored),
        repeats=[
            score for seed, found in (fresh or {}).items() for score in ladder(found, seed=seed)
        ],
        value=explored[-1] if explored else None,
    )
