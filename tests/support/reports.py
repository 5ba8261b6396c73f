"""Trials as a driver reports them."""

from typing import Any


def make_score(rung: int, accuracy: float | None, *, seed: int = 0, **changes: Any) -> dict:
    """One simulation of a ladder at B = 16, 64, 256."""
    return {
        "rung": rung,
        "seed": seed,
        "expected_batch_size": 16.0 * 4**rung,
        "noise_multiplier": 0.2 * 4**rung,
        "steps": 100,
        "accuracy": accuracy,
        "seconds": 2.0,
        **changes,
    }


def make_trial(number: int = 0, state: str = "running", **changes: Any) -> dict[str, Any]:
    """A trial without any score."""
    return {"number": number, "state": state, "params": {"learning_rate": 1.0}, **changes}


def completed_trial(number: int, *accuracies: float, **changes: Any) -> dict[str, Any]:
    """A trial that was scored at every rung: an accuracy for each."""
    scores = [make_score(rung, accuracy) for rung, accuracy in enumerate(accuracies)]
    return make_trial(number, "completed", scores=scores, value=accuracies[-1], **changes)
