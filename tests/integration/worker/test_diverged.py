"""A private run that ends by its own outputs: what it is charged for. Without Ray."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tan_core.accounting import price
from tan_core.mechanism import Mechanism
from tan_core.wire import PrivateAssignment
from tests.integration.worker.test_checkpoints import SEGMENT, Run

if TYPE_CHECKING:
    from conftest import Books, ControlPlaneServer

STEPS = 50
DELTA = 0.01
SIGMA = 10.0

pytestmark = pytest.mark.timeout(120)


def charged_for(
    plane: "ControlPlaneServer",
    private_of: Callable[..., PrivateAssignment],
    new_books: Callable[..., "Books"],
    *,
    ending_at: int,
    wish: str = "run",
) -> tuple[bool, "Books"]:
    """Whether it was stopped, and the books, of a run whose weights are lost with a step."""
    plane.books = books = new_books(
        private_of(steps=STEPS, segment_steps=SEGMENT, workers=1, run_id=f"run-{ending_at}")
    )
    run = Run(plane)
    step = run.trainer.step

    def losing_step():
        stats = step()
        if run.trainer.steps_done == ending_at:
            run.trainer._flat.vector[0] = math.nan
            books.desired = wish
            while wish != "run" and not run.leader.is_to_stop:
                pass
        return stats

    run.trainer.step = losing_step  # type: ignore[method-assign]
    return run.to_its_end(), books


def true_delta(stated: Sequence[float]) -> float:
    """Of all that a stop by its own outputs may tell, where epsilon is ``stated[t]`` after segment t + 1.

    Of the full batch with noise SIGMA, for the worst rule: it stops at the first segment whose privacy loss is above what
    is stated there. By a walk on a grid; no accountant is asked.
    """
    mean, deviation = SEGMENT / (2 * SIGMA**2), math.sqrt(SEGMENT) / SIGMA
    loss = np.arange(-4.0, 4.0, 0.002)
    apart = loss[:, None] - loss[None, :] - mean
    moves = np.exp(-((apart / deviation) ** 2) / 2) * (0.002 / deviation / math.sqrt(2 * math.pi))
    alive, found = moves[:, np.argmin(np.abs(loss))], 0.0
    for epsilon in stated:
        above = loss > epsilon
        found += float(alive[above] @ -np.expm1(epsilon - loss[above]))
        alive = moves @ np.where(above, 0.0, alive)
    return found


@pytest.mark.slow
def test_a_run_that_ends_by_its_own_outputs_is_charged_for_all_of_its_plan(
    plane: "ControlPlaneServer",
    private_of: Callable[..., PrivateAssignment],
    new_books: Callable[..., "Books"],
) -> None:
    step = Mechanism(sampling_rate=1.0, noise_multiplier=SIGMA, clip_norm=1.0, steps=1)
    charged = []
    for ending_at in range(SEGMENT, STEPS + 1, SEGMENT):
        is_stopped, books = charged_for(plane, private_of, new_books, ending_at=ending_at)
        assert not is_stopped
        assert [end.checkpoint.step for end in books.ended][-1] == ending_at
        assert books.faults == []
        charged.append(books.charged)

    def stated(steps: Sequence[int]) -> list[float]:
        return [price([step.with_steps(each)], delta=DELTA).epsilon for each in steps]

    assert charged == [STEPS] * 5
    assert true_delta(stated(charged)) < 1.01 * DELTA
    # What is promised of such a stop by the steps that ran is not so.
    assert true_delta(stated([10, 20, 30, 40, 50])) > 1.7 * DELTA


@pytest.mark.slow
@pytest.mark.parametrize("wish", ["cancel", "pause"])
def test_where_it_is_to_stop_anyway_nobody_is_told_and_nothing_more_is_charged(
    plane: "ControlPlaneServer",
    private_of: Callable[..., PrivateAssignment],
    new_books: Callable[..., "Books"],
    wish: str,
) -> None:
    is_stopped, books = charged_for(plane, private_of, new_books, ending_at=SEGMENT, wish=wish)

    assert is_stopped
    assert books.charged == SEGMENT
