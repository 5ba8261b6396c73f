"""What the log of a search says of a trial that fails."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tan_core.wire import SearchAssignment
from tests.support.driver_logs import JSON, records

if TYPE_CHECKING:
    from conftest import Books, ControlPlaneServer, RayHead, Start

pytestmark = [pytest.mark.ray, pytest.mark.timeout(280)]

NewBooks = Callable[..., "Books"]


def test_a_trial_that_fails_says_why_with_its_number(
    plane: "ControlPlaneServer",
    start: "Start",
    ray_head: "RayHead",
    search_of: Callable[..., SearchAssignment],
    new_books: NewBooks,
) -> None:
    run_id = "logged-failures"
    assignment = search_of(run_id=run_id)
    # A rung above the data: every trial finds out for itself.
    broken = assignment.model_copy(update={"rungs": [10**6, 2 * 10**6]})
    plane.books = books = new_books(broken)
    out, _ = start("worker.simulate", **JSON).communicate(timeout=200)
    assert [finish.outcome for finish in books.finishes] == ["failed"], out

    failed = [each for each in records(ray_head.worker_lines(), run_id) if each["level"] == "error"]
    assert {each["trial"] for each in failed} == set(range(6))
    assert all("1e+06" in each["exception"] for each in failed)
