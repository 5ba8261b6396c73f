"""The logs of real drivers, trial workers and ranks: records in the service's own format."""

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from tan_core.wire import PrivateAssignment, SearchAssignment

if TYPE_CHECKING:
    from conftest import Books, ControlPlaneServer, RayHead, Start

pytestmark = [pytest.mark.ray, pytest.mark.timeout(280)]

NewBooks = Callable[..., "Books"]
JSON = {"TAN_LOG_FORMAT": "json"}


def records(lines: Iterable[str], run_id: str) -> list[dict[str, Any]]:
    """The records of a run; Ray writes lines of its own between them."""
    found = [json.loads(line) for line in lines if line.startswith('{"time"')]
    ours = [each for each in found if each.get("run_id") == run_id]
    for each in ours:
        assert datetime.fromisoformat(each["time"]).tzinfo
        assert each["level"] in {"info", "warning", "error"}
        assert each["logger"]
        assert each["attempt"] == 1
    return ours


def test_a_driver_and_its_trial_workers_name_run_attempt_and_trial(
    plane: "ControlPlaneServer",
    start: "Start",
    ray_head: "RayHead",
    search_of: Callable[..., SearchAssignment],
    new_books: NewBooks,
) -> None:
    run_id = "logged-search"
    plane.books = books = new_books(search_of(run_id=run_id))
    out, _ = start("worker.simulate", **JSON).communicate(timeout=200)
    assert [finish.outcome for finish in books.finishes] == ["succeeded"], out

    of_driver = records(out.splitlines(), run_id)
    messages = [each["message"] for each in of_driver if each["logger"] == "worker.driver"]
    assert messages == ["a search run of study s1 begins", "succeeded"]
    of_trials = records(ray_head.worker_lines(), run_id)
    begun = [each for each in of_trials if each["message"].startswith("begins with seed 0")]
    assert {each["trial"] for each in begun} == set(range(6))


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


def test_a_driver_and_its_ranks_name_run_attempt_and_rank(
    plane: "ControlPlaneServer",
    start: "Start",
    ray_head: "RayHead",
    private_of: Callable[..., PrivateAssignment],
    new_books: NewBooks,
) -> None:
    run_id = "logged-private"
    plane.books = books = new_books(private_of(steps=20, run_id=run_id))
    out, _ = start("worker.train", **JSON).communicate(timeout=200)
    assert [finish.outcome for finish in books.finishes] == ["succeeded"], out

    assert records(out.splitlines(), run_id)[-1]["message"] == "succeeded"
    of_ranks = records(ray_head.worker_lines(), run_id)
    begun = [each for each in of_ranks if "begins on cpu" in each["message"]]
    assert {each["rank"] for each in begun} == {0, 1}
