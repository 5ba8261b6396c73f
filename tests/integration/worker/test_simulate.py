"""A search from its assignment to its final report, on a real Ray."""

import os
import signal
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tan_core.wire import RungScore, SearchAssignment, TrialRecord, TrialState, weights_path
from tests.support.driver_logs import JSON, records

if TYPE_CHECKING:
    from conftest import Books, ControlPlaneServer, RayHead, Start

pytestmark = [pytest.mark.ray, pytest.mark.timeout(280)]

SearchOf = Callable[..., SearchAssignment]
NewBooks = Callable[..., "Books"]


def test_a_search_of_six_trials_completes_and_its_log_names_run_attempt_and_trial(
    plane: "ControlPlaneServer",
    start: "Start",
    ray_head: "RayHead",
    search_of: SearchOf,
    new_books: NewBooks,
    tmp_path: Path,
) -> None:
    run_id = "logged-search"
    plane.books = books = new_books(
        search_of(run_id=run_id, max_concurrent=None, weights_storage_path=str(tmp_path))
    )
    driver = start("worker.simulate", **JSON)
    out, _ = driver.communicate(timeout=200)
    assert driver.returncode == 0, out
    assert sorted(books.trials) == list(range(6))
    assert all(trial.state.is_finished for trial in books.trials.values())
    completed = [t for t in books.trials.values() if t.state is TrialState.COMPLETED]
    assert completed
    assert all(len(trial.scores) == 2 for trial in completed)
    assert max(trial.value or 0 for trial in completed) > 0.5
    assert_finals(books)
    assert [finish.outcome for finish in books.finishes] == ["succeeded"]
    kept = {trial.number: trial.weights_sha256 for trial in completed}
    paths = {weights_path(str(tmp_path), trial=n, sha256=kept[n] or "") for n in kept}
    assert {str(file) for file in tmp_path.glob("trial-*")} == paths

    of_driver = records(out.splitlines(), run_id)
    messages = [each["message"] for each in of_driver if each["logger"] == "worker.driver"]
    assert messages == ["a search run of study s1 begins", "succeeded"]
    assert "trials have 1 CPU each" in [each["message"] for each in of_driver]
    of_trials = records(ray_head.worker_lines(), run_id)
    begun = [each for each in of_trials if each["message"].startswith("begins with seed 0")]
    assert {each["trial"] for each in begun} == set(range(6))


def assert_finals(books: "Books") -> None:
    """The best trial was repeated with fresh seeds, all its rungs of each; the reports only grew."""
    repeated = [trial for trial in books.trials.values() if trial.repeats]
    assert repeated
    for trial in repeated:
        seeds = {score.seed for score in trial.repeats}
        assert min(seeds) == 1
        assert [(s.seed, s.rung) for s in trial.repeats] == [(s, r) for s in seeds for r in (0, 1)]
        kept = [report.repeats for report in books.reports if report.number == trial.number]
        assert all(later[: len(first)] == first for first, later in pairwise(kept))


def test_finalists_are_simulated_one_rung_above_the_ladder(
    plane: "ControlPlaneServer", start: "Start", search_of: SearchOf, new_books: NewBooks
) -> None:
    plane.books = books = new_books(search_of(confirmation=256, max_examples=0))
    driver = start("worker.simulate")
    out, _ = driver.communicate(timeout=200)
    assert driver.returncode == 0, out
    (finalist,) = [trial for trial in books.trials.values() if trial.repeats]
    (score,) = finalist.repeats
    assert (score.seed, score.rung) == (1, 2)
    assert score.expected_batch_size == pytest.approx(256)
    assert score.noise_multiplier == pytest.approx(4 * finalist.scores[1].noise_multiplier)
    assert score.accuracy is not None
    assert score.accuracy > 0.5
    assert score.clipped_fraction is not None
    assert 0 < score.clipped_fraction <= 1


def test_after_a_heat_the_best_go_on_and_the_others_keep_its_score(
    plane: "ControlPlaneServer", start: "Start", search_of: SearchOf, new_books: NewBooks
) -> None:
    heated = search_of(heat=True, rungs=[64], confirmation=256, max_examples=0)
    plane.books = books = new_books(heated)
    driver = start("worker.simulate")
    out, _ = driver.communicate(timeout=200)
    assert driver.returncode == 0, out
    assert sorted(books.trials) == list(range(6))
    ended = {trial.state: trial for trial in books.trials.values()}
    assert set(ended) == {TrialState.COMPLETED, TrialState.PRUNED}
    (cut,) = ended[TrialState.PRUNED].scores
    assert (cut.heat, cut.steps, len(cut.curve)) == (True, 10, 1)
    (whole,) = ended[TrialState.COMPLETED].scores
    assert (whole.heat, whole.steps, len(whole.curve)) == (False, 40, 4)
    (finalist,) = [trial for trial in books.trials.values() if trial.repeats]
    assert [(score.rung, score.heat, score.steps) for score in finalist.repeats] == [(1, False, 40)]


def test_a_search_that_was_cut_off_in_the_finals_goes_on_with_them(
    plane: "ControlPlaneServer", start: "Start", search_of: SearchOf, new_books: NewBooks
) -> None:
    def score(rung: int, accuracy: float, *, seed: int = 0) -> RungScore:
        return RungScore(
            rung=rung,
            seed=seed,
            expected_batch_size=(16, 64)[rung],
            noise_multiplier=0.1,
            steps=40,
            accuracy=accuracy,
            seconds=1.0,
        )

    best = TrialRecord(
        number=0,
        state=TrialState.COMPLETED,
        params={"learning_rate": 2.0},
        scores=[score(0, 0.9), score(1, 0.95)],
        repeats=[score(0, 0.123, seed=1)],
        value=0.95,
    )
    rest = [
        TrialRecord(number=n, state=TrialState.PRUNED, params={"learning_rate": 0.5})
        for n in range(1, 6)
    ]
    plane.books = books = new_books(search_of(trials=[best, *rest], max_examples=0))
    driver = start("worker.simulate")
    out, _ = driver.communicate(timeout=200)
    assert driver.returncode == 0, out
    assert sorted(books.trials) == [0]
    finished = books.trials[0]
    assert [(each.seed, each.rung) for each in finished.repeats] == [(1, 0), (1, 1)]
    assert finished.repeats[0].accuracy == 0.123
    assert finished.scores == best.scores


def test_a_resumed_search_runs_only_what_is_left(
    plane: "ControlPlaneServer", start: "Start", search_of: SearchOf, new_books: NewBooks
) -> None:
    known = [
        TrialRecord(
            number=0, state=TrialState.COMPLETED, params={"learning_rate": 2.0}, value=0.99
        ),
        TrialRecord(number=1, state=TrialState.INTERRUPTED, params={"learning_rate": 3.25}),
        TrialRecord(number=2, state=TrialState.DIVERGED, params={"learning_rate": 8.0}),
    ]
    plane.books = books = new_books(search_of(trials=known))
    driver = start("worker.simulate")
    out, _ = driver.communicate(timeout=200)
    assert driver.returncode == 0, out
    assert sorted(books.trials) == [1, 3, 4, 5]
    assert books.trials[1].params == {"learning_rate": 3.25}
    assert [finish.outcome for finish in books.finishes] == ["succeeded"]


@pytest.mark.faults
@pytest.mark.slow
def test_a_trial_whose_worker_was_killed_runs_again(
    plane: "ControlPlaneServer",
    start: "Start",
    ray_head: "RayHead",
    search_of: SearchOf,
    new_books: NewBooks,
) -> None:
    plane.books = books = new_books(search_of())
    driver = start("worker.simulate")
    deadline = time.monotonic() + 100
    victims = []
    while not (books.trials and victims):
        assert driver.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
        victims = ray_head.trials()
    os.kill(victims[0].pid, signal.SIGKILL)
    out, _ = driver.communicate(timeout=200)
    assert driver.returncode == 0, out
    assert sorted(books.trials) == list(range(6))
    assert {t.state for t in books.trials.values()} <= {TrialState.COMPLETED, TrialState.PRUNED}


def test_what_a_killed_driver_leaves_lies_with_rays_own_files(
    plane: "ControlPlaneServer",
    start: "Start",
    ray_head: "RayHead",
    search_of: SearchOf,
    new_books: NewBooks,
    tmp_path: Path,
) -> None:
    plane.books = books = new_books(search_of())
    driver = start("worker.simulate", TMPDIR=str(tmp_path))
    deadline = time.monotonic() + 100
    while not books.trials:
        assert driver.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    driver.kill()
    driver.wait()
    name = f"{books.assignment.run_id}-a{books.assignment.attempt}"
    assert not list(tmp_path.rglob(name))
    assert list(ray_head.home.glob(f"session_2*/tmp*/{name}"))


@pytest.mark.parametrize("how", ["by the control plane", "by SIGINT"])
def test_a_cancelled_search_ends_cleanly(
    plane: "ControlPlaneServer", start: "Start", search_of: SearchOf, new_books: NewBooks, how: str
) -> None:
    search = search_of().search.model_copy(update={"trials": 10_000})
    plane.books = books = new_books(search_of(search=search, max_concurrent=None))
    driver = start("worker.simulate")
    deadline = time.monotonic() + 100
    while len(books.trials) < 3:
        assert driver.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    if how == "by SIGINT":
        driver.send_signal(signal.SIGINT)
    else:
        books.desired = "cancel"
    out, _ = driver.communicate(timeout=60)
    assert driver.returncode == 0, out
    assert [finish.outcome for finish in books.finishes] == ["cancelled"]


def test_a_paused_search_leaves_no_trial_half_done(
    plane: "ControlPlaneServer", start: "Start", search_of: SearchOf, new_books: NewBooks
) -> None:
    search = search_of().search.model_copy(update={"trials": 10_000})
    plane.books = books = new_books(search_of(search=search, max_concurrent=None))
    driver = start("worker.simulate")
    deadline = time.monotonic() + 100
    while len(books.trials) < 3:
        assert driver.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    books.desired = "pause"
    out, _ = driver.communicate(timeout=100)
    assert driver.returncode == 0, out
    assert [finish.outcome for finish in books.finishes] == ["cancelled"]
    assert all(trial.state.is_finished for trial in books.trials.values())
    assert len(books.trials) < 10_000


def test_a_search_without_a_completed_trial_fails_for_good_and_each_trial_says_why_in_the_log(
    plane: "ControlPlaneServer",
    start: "Start",
    ray_head: "RayHead",
    search_of: SearchOf,
    new_books: NewBooks,
) -> None:
    run_id = "logged-failures"
    faulty = search_of().search.model_copy(update={"trials": 2, "space": {"nonsense": 1.0}})
    plane.books = books = new_books(search_of(search=faulty, run_id=run_id))
    driver = start("worker.simulate", **JSON)
    out, _ = driver.communicate(timeout=200)
    assert driver.returncode == 1, out
    (finish,) = books.finishes
    assert (finish.outcome, finish.retryable) == ("failed", False)
    assert finish.reason is not None
    assert finish.reason.startswith("no trial of 2 completed: 2 failed; the last reason: ")
    assert "'nonsense' is not a trainer field" in finish.reason

    failed = [each for each in records(ray_head.worker_lines(), run_id) if each["level"] == "error"]
    assert {each["trial"] for each in failed} == {0, 1}
    assert all("'nonsense' is not a trainer field" in each["exception"] for each in failed)
