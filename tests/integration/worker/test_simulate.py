"""A search from its assignment to its final report, on a real Ray."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tan_core.wire import SearchAssignment, TrialState

if TYPE_CHECKING:
    from conftest import ControlPlaneServer, Start

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]

SearchOf = Callable[..., SearchAssignment]


def test_a_search_of_six_trials_completes(
    plane: "ControlPlaneServer", start: "Start", search_of: SearchOf, new_books: Any
) -> None:
    plane.books = new_books(search_of())
    began = time.monotonic()
    driver = start("worker.simulate")
    out, _ = driver.communicate(timeout=200)
    assert driver.returncode == 0, out
    trials = plane.books.trials
    assert sorted(trials) == list(range(6))
    assert all(trial.state.is_finished for trial in trials.values())
    finished = [t for t in trials.values() if t.state is TrialState.COMPLETED]
    assert finished
    assert all(len(t.scores) == 2 for t in finished)
    assert max(t.value or 0 for t in finished) > 0.5
    print("first trial", (plane.books.first_trial_at or 0) - began, "all", time.monotonic() - began)
    print({n: (t.state.value, t.value, [s.seconds for s in t.scores]) for n, t in trials.items()})
    print(out)
    assert [f.outcome for f in plane.books.finishes] == ["succeeded"]
