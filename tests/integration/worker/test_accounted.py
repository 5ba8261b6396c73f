"""A search that is charged, on a real Ray: no trial runs that was not charged, and each is charged as often as it runs."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from tan_core.accounting import SearchAccounting
from tan_core.mechanism import Mechanism
from tan_core.wire import DatasetRef, PrivateAssignment, SearchAssignment, TrialState, weights_path
from worker.charged import USED_UP

if TYPE_CHECKING:
    from conftest import Books, ControlPlaneServer, RayHead, Start

pytestmark = [pytest.mark.ray, pytest.mark.timeout(280)]

SearchOf = Callable[..., SearchAssignment]
NewBooks = Callable[..., "Books"]


@pytest.fixture
def charged_of(search_of: SearchOf, digits: DatasetRef) -> SearchOf:
    def make(*, steps: int = 40, trials: int = 4, **changes: Any) -> SearchAssignment:
        trial = Mechanism(
            sampling_rate=64 / digits.num_train, noise_multiplier=2.0, clip_norm=1.0, steps=steps
        )
        run = Mechanism(
            sampling_rate=256 / digits.num_train, noise_multiplier=8.0, clip_norm=1.0, steps=steps
        )
        search = search_of().search.model_copy(
            update={"accounting": SearchAccounting.ACCOUNTED, "trials": trials}
        )
        return search_of(
            **{
                "search": search,
                "reference": {"event": run.to_json()},
                "rungs": [64],
                "charged": {"mechanism": {"event": trial.to_json()}, "score_noise_multiplier": 3.0},
                **changes,
            }
        )

    return make


def test_every_trial_is_charged_once_and_told_by_its_score(
    plane: "ControlPlaneServer",
    start: "Start",
    charged_of: SearchOf,
    new_books: NewBooks,
    private_of: Callable[..., PrivateAssignment],
    tmp_path: Path,
) -> None:
    folder = tmp_path / "search"
    plane.books = books = new_books(
        charged_of(max_concurrent=None, weights_storage_path=str(folder))
    )
    driver = start("worker.simulate")
    out, _ = driver.communicate(timeout=200)
    assert driver.returncode == 0, out
    assert sorted(books.trials) == list(range(4))
    assert {trial.state for trial in books.trials.values()} == {TrialState.COMPLETED}
    assert [(ask.start_step, ask.num_steps) for ask, _ in books.segments.values()] == [(0, 40)] * 4
    for trial in books.trials.values():
        (score,) = trial.scores
        assert (trial.repeats, score.train_loss, score.released) == ([], None, None)
        assert score.clipped_fraction is None
        assert [point.accuracy for point in score.curve] == [score.accuracy]
        assert (score.steps, score.noise_multiplier) == (40, 2.0)
    assert max(trial.value or 0 for trial in books.trials.values()) > 0.5
    assert [finish.outcome for finish in books.finishes] == ["succeeded"]

    # One step so small that it moves nothing: what is released is what the trial left.
    best = max(books.trials.values(), key=lambda trial: trial.value or 0)
    assert best.weights_sha256 is not None
    path = weights_path(str(folder), trial=best.number, sha256=best.weights_sha256)
    left = load_file(path)
    plane.books = books = new_books(
        private_of(
            steps=1,
            model=charged_of().model,
            trainer={"learning_rate": 1e-9},
            begin_from={"trial": best.number, "path": path, "sha256": best.weights_sha256},
        )
    )
    out, _ = start("worker.train").communicate(timeout=200)
    (finish,) = books.finishes
    assert finish.result is not None, out
    released = load_file(finish.result.model_path)
    assert released.keys() == left.keys()
    assert all(np.allclose(released[name], left[name], atol=1e-6) for name in left)
    assert list(folder.iterdir()) == []


def test_later_trials_go_on_one_after_another_from_the_best_before_them(
    plane: "ControlPlaneServer",
    start: "Start",
    charged_of: SearchOf,
    new_books: NewBooks,
    tmp_path: Path,
) -> None:
    assignment = charged_of(trials=5, max_concurrent=None, weights_storage_path=str(tmp_path))
    assert assignment.charged is not None
    charged = assignment.charged.model_copy(update={"anew": 2, "score_std": 3 / 400})
    plane.books = books = new_books(assignment.model_copy(update={"charged": charged}))
    out, _ = start("worker.simulate").communicate(timeout=200)

    assert [finish.outcome for finish in books.finishes] == ["succeeded"], out
    assert {trial.state for trial in books.trials.values()} == {TrialState.COMPLETED}
    assert books.charged == 5 * 40
    starts = [books.trials[number].began_from for number in range(5)]
    assert starts[:2] == [None, None]
    for number, begun in enumerate(starts[2:], start=2):
        assert begun is not None
        parent = books.trials[begun.trial]
        assert parent.number < number
        assert begun.weights_sha256 == parent.weights_sha256
        assert books.trials[number].params == parent.params
    # None began before the one before it had ended.
    ended = [(r.number, r.state) for r in books.reports if r.number >= 2]
    states = [TrialState.RUNNING, TrialState.COMPLETED]
    assert list(dict.fromkeys(ended)) == [(number, s) for number in (2, 3, 4) for s in states]


def test_what_is_not_granted_does_not_run_and_says_why(
    plane: "ControlPlaneServer", start: "Start", charged_of: SearchOf, new_books: NewBooks
) -> None:
    plane.books = books = new_books(charged_of(), reservation=3 * 40)
    driver = start("worker.simulate")
    out, _ = driver.communicate(timeout=200)
    assert driver.returncode == 0, out
    states = sorted(trial.state for trial in books.trials.values())
    assert states == ["completed", "completed", "completed", "failed"]
    (failed,) = [trial for trial in books.trials.values() if trial.state is TrialState.FAILED]
    assert failed.scores == []
    assert USED_UP in (failed.reason or "")


@pytest.mark.faults
@pytest.mark.crash
@pytest.mark.timeout(600)
def test_a_trial_whose_worker_was_killed_is_charged_once_more(
    plane: "ControlPlaneServer",
    start: "Start",
    ray_head: "RayHead",
    charged_of: SearchOf,
    new_books: NewBooks,
) -> None:
    plane.books = books = new_books(charged_of(steps=6000, trials=2, max_concurrent=1))
    # A worker of the test before may not have died yet, and to look for one takes a busy machine seconds: it is found
    # before its trial is charged, and killed at once afterwards.
    others = {worker.pid for worker in ray_head.trials()}
    driver = start("worker.simulate")
    deadline = time.monotonic() + 250
    victims: list[int] = []
    while not (victims and books.segments):
        assert driver.poll() is None, driver.communicate()[0]
        if time.monotonic() > deadline:
            driver.kill()
            pytest.fail(f"{victims=}, {len(books.segments)} segments: {driver.communicate()[0]}")
        time.sleep(0.01)
        if not victims:
            found = ray_head.trials()
            victims = [worker.pid for worker in found if worker.pid not in others]
    os.kill(victims[0], signal.SIGKILL)
    out, _ = driver.communicate(timeout=200)
    assert driver.returncode == 0, out
    assert {trial.state for trial in books.trials.values()} == {TrialState.COMPLETED}
    assert len(books.trials) == 2
    assert books.charged == 3 * 6000
