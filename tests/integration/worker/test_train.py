"""A private run on two ranks, from its assignment to its final report, on a real Ray."""

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from safetensors.numpy import load_file

from tan_core.wire import PrivateAssignment
from tests.integration.worker.conftest import ray_environment
from tests.support.driver_logs import JSON, records
from worker.report import EXIT_FENCED

if TYPE_CHECKING:
    from conftest import Books, ControlPlaneServer, RayHead, Start

pytestmark = [pytest.mark.ray, pytest.mark.timeout(280)]

PrivateOf = Callable[..., PrivateAssignment]
NewBooks = Callable[..., "Books"]


def check_books(books: "Books") -> None:
    """Charged >= executed, and the last reported checkpoint is on storage as reported, until a model is."""
    assert books.faults == []
    assert all(end.checkpoint.step <= books.charged for end in books.ended)
    last = books.ended[-1].checkpoint
    if any(finish.outcome == "succeeded" for finish in books.finishes):
        assert not Path(last.path).exists()
        return
    assert hashlib.sha256(Path(last.path).read_bytes()).hexdigest() == last.sha256


def test_a_private_run_on_two_ranks_completes_and_its_log_names_run_attempt_and_rank(
    plane: "ControlPlaneServer",
    start: "Start",
    ray_head: "RayHead",
    private_of: PrivateOf,
    new_books: NewBooks,
) -> None:
    run_id = "logged-private"
    plane.books = books = new_books(private_of(steps=45, run_id=run_id))
    driver = start("worker.train", **JSON)
    out, _ = driver.communicate(timeout=200)
    assert driver.returncode == 0, out
    check_books(books)
    asked = [(request.start_step, grant.num_steps) for request, grant in books.segments.values()]
    assert asked == [(0, 10), (10, 10), (20, 10), (30, 10), (40, 5)]
    (finish,) = books.finishes
    assert finish.outcome == "succeeded"
    result = finish.result
    assert result is not None
    assert result.steps == 45
    assert result.test_accuracy > 0.5
    assert result.num_test == books.assignment.dataset.num_test
    model = Path(result.model_path)
    assert hashlib.sha256(model.read_bytes()).hexdigest() == result.model_sha256
    assert all(value.dtype == "float32" for value in load_file(model).values())
    assert [file.name for file in model.parent.iterdir()] == [model.name]

    messages = [each["message"] for each in records(out.splitlines(), run_id)]
    assert "2 of 2 ranks, each with 1 CPU" in messages
    assert messages[-1] == "succeeded"
    of_ranks = records(ray_head.worker_lines(), run_id)
    begun = [each for each in of_ranks if "begins on cpu" in each["message"]]
    assert {each["rank"] for each in begun} == {0, 1}


@pytest.mark.slow
def test_a_run_that_has_no_place_says_so_can_be_paused_and_begins_when_it_has_one(
    plane: "ControlPlaneServer",
    start: "Start",
    ray_head: "RayHead",
    private_of: PrivateOf,
    new_books: NewBooks,
) -> None:
    plane.books = books = new_books(private_of(steps=20))
    with held(ray_head, cpus=1):
        driver = start("worker.train")
        wait_until(lambda: books.heartbeats and books.heartbeats[-1][1].waits_for, driver)
        books.desired = "pause"
        out, _ = driver.communicate(timeout=100)
        assert driver.returncode == 0, out
        assert [finish.outcome for finish in books.finishes] == ["cancelled"]
        books.desired = "run"
        begin_anew(books)

        driver = start("worker.train")
        waits = "waiting for 2 places with 1 CPU each: the Ray cluster has 2, and others use them"
        wait_until(lambda: waits in {beat.waits_for for _, beat in books.heartbeats}, driver)
        assert books.charged == 0
    out, _ = driver.communicate(timeout=200)
    assert driver.returncode == 0, out
    check_books(books)
    assert max(beat.waited_seconds for _, beat in books.heartbeats) > 0
    assert books.heartbeats[-1][1].waits_for is None


@contextlib.contextmanager
def held(head: "RayHead", *, cpus: int) -> Iterator[None]:
    """So many cores of the cluster are another's."""
    code = f"""
import ray, sys
from ray.util import placement_group
ray.init(address="{head.address}", log_to_driver=False)
ray.get(placement_group([{{"CPU": {cpus}}}]).ready())
print("held", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env=ray_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        yield
        other.communicate(timeout=60)


def last_step(books: "Books") -> int:
    """Of the newest checkpoint that was reported."""
    return books.ended[-1].checkpoint.step if books.ended else 0


def begin_anew(books: "Books") -> int:
    """A further attempt is live; the step that it begins from."""
    books.finishes.clear()
    books.next_attempt()
    return last_step(books)


def starts(books: "Books") -> list[int]:
    """Where the segments of the attempt begin."""
    asked = [request for request, _ in books.segments.values()]
    return [request.start_step for request in asked if request.fence == books.fence]


def complete(start: "Start", books: "Books") -> None:
    """Run the attempt to its end, 50 steps more than are charged by now."""
    resumed_at = last_step(books)
    books.reservation = books.charged + 50
    driver = start("worker.train")
    out, _ = driver.communicate(timeout=200)
    assert driver.returncode == 0, out
    check_books(books)
    (finish,) = books.finishes
    assert finish.result is not None
    assert finish.result.steps == resumed_at + 50
    assert f"attempt-{books.fence}" in finish.result.model_path


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.timeout(420)
def test_killed_ranks_end_their_attempts_and_the_next_one_resumes(
    plane: "ControlPlaneServer",
    start: "Start",
    ray_head: "RayHead",
    private_of: PrivateOf,
    new_books: NewBooks,
) -> None:
    def run_until_killed(victim: str) -> None:
        known = len(books.ended)
        driver = start("worker.train")
        wait_until(lambda: len(books.ended) > known + 2, driver)
        kill_rank(ray_head, plane, victim)
        out, _ = driver.communicate(timeout=100)
        assert driver.returncode == 1, out
        (finish,) = books.finishes
        assert (finish.outcome, finish.retryable) == ("failed", True)
        assert finish.reason is not None
        assert "rank" in finish.reason
        check_books(books)

    plane.books = books = new_books(private_of(steps=100_000, segment_steps=20))
    begun_at = 0
    for victim in ("rank 0", "rank 1"):
        run_until_killed(victim)
        assert starts(books)[:2] == [begun_at, begun_at + 20]
        begun_at = begin_anew(books)

    complete(start, books)
    assert starts(books)[:2] == [begun_at, begun_at + 20]


@pytest.mark.faults
@pytest.mark.slow
def test_a_rank_that_is_stopped_where_nobody_watches_steps_is_noticed_by_ray_train(
    plane: "ControlPlaneServer",
    start: "Start",
    ray_head: "RayHead",
    private_of: PrivateOf,
    new_books: NewBooks,
) -> None:
    plane.books = books = new_books(private_of(steps=100_000, segment_steps=20))
    driver = start(
        "worker.train",
        TAN_PROGRESS_TIMEOUT_SECONDS="0",
        RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S="10",
    )
    wait_until(lambda: len(books.ended) > 2, driver)
    stopped = ray_head.workers("RayTrainWorker")[0]
    stopped.suspend()

    out, _ = driver.communicate(timeout=150)

    assert driver.returncode == 1, out
    (finish,) = books.finishes
    assert (finish.outcome, finish.retryable) == ("failed", True)
    assert "it lives, and has not answered Ray Train for long" in str(finish.reason)
    assert psutil.wait_procs([stopped], timeout=30)[0]
    check_books(books)


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.timeout(420)
def test_ranks_killed_while_a_checkpoint_is_on_its_way_cost_the_two_segments_that_were_begun(
    plane: "ControlPlaneServer",
    start: "Start",
    ray_head: "RayHead",
    private_of: PrivateOf,
    new_books: NewBooks,
) -> None:
    def run_until_killed(victim: str) -> int:
        """The step of the last checkpoint that arrived; two segments were begun after it."""
        known, charged, begun_at = len(books.ended), books.charged, last_step(books)
        driver = start("worker.train")
        wait_until(lambda: len(books.ended) > known + 1, driver)
        with (
            plane.lock
        ):  # the control plane stops taking checkpoints: the next one stays on its way
            books.refuse_ends_with = 503
            arrived = last_step(books)
        charged += arrived - begun_at + 40
        wait_until(lambda: books.charged == charged, driver)
        wait_until(lambda: books.step > arrived + 20, driver)
        kill_rank(ray_head, plane, victim)
        driver.communicate(timeout=100)
        assert driver.returncode == 1
        assert [finish.outcome for finish in books.finishes] == ["failed"]
        check_books(books)
        assert (last_step(books), books.charged) == (arrived, charged)
        books.refuse_ends_with = None
        return arrived

    plane.books = books = new_books(private_of(steps=100_000, segment_steps=20))
    begun_at = 0
    for victim in ("rank 0", "rank 1"):
        arrived = run_until_killed(victim)
        assert starts(books)[0] == begun_at
        begun_at = begin_anew(books)
        assert begun_at == arrived

    complete(start, books)
    assert starts(books)[0] == begun_at


@pytest.mark.parametrize("how", ["by the control plane", "by SIGINT"])
def test_a_cancelled_run_stops_between_two_steps_and_says_so(
    plane: "ControlPlaneServer",
    start: "Start",
    private_of: PrivateOf,
    new_books: NewBooks,
    how: str,
) -> None:
    plane.books = books = new_books(private_of(steps=100_000, segment_steps=20))
    driver = start("worker.train")
    wait_until(lambda: books.ended, driver)
    if how == "by SIGINT":
        driver.send_signal(signal.SIGINT)
    else:
        books.desired = "cancel"
    out, _ = driver.communicate(timeout=60)
    assert driver.returncode == 0, out
    assert [finish.outcome for finish in books.finishes] == ["cancelled"]
    check_books(books)


def test_a_paused_run_ends_with_every_charged_step_in_its_checkpoint(
    plane: "ControlPlaneServer", start: "Start", private_of: PrivateOf, new_books: NewBooks
) -> None:
    plane.books = books = new_books(private_of(steps=100_000, segment_steps=20))
    driver = start("worker.train")
    wait_until(lambda: books.ended, driver)
    books.desired = "pause"
    out, _ = driver.communicate(timeout=100)
    assert driver.returncode == 0, out
    assert [finish.outcome for finish in books.finishes] == ["cancelled"]
    check_books(books)
    assert books.ended[-1].checkpoint.step == books.charged < 100_000


def test_a_fenced_attempt_ends_without_another_word(
    plane: "ControlPlaneServer", start: "Start", private_of: PrivateOf, new_books: NewBooks
) -> None:
    plane.books = books = new_books(private_of(steps=100_000, segment_steps=20))
    driver = start("worker.train")
    wait_until(lambda: books.ended, driver)
    with plane.lock:
        books.next_attempt()
        charged, ended = books.charged, len(books.ended)
    driver.communicate(timeout=60)
    assert driver.returncode == EXIT_FENCED
    assert (books.charged, len(books.ended), books.finishes) == (charged, ended, [])


def wait_until(
    condition: Callable[[], object], driver: "subprocess.Popen[str]", seconds: float = 100.0
) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert driver.poll() is None, driver.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def kill_rank(ray_head: "RayHead", plane: "ControlPlaneServer", victim: str) -> None:
    """SIGKILL to one rank; rank 0 is the one that talks to the control plane."""
    port = plane.server_address[1]
    ranks = ray_head.workers("RayTrainWorker")
    assert len(ranks) == 2
    leads = [
        any(c.raddr and c.raddr.port == port for c in rank.net_connections("tcp")) for rank in ranks
    ]
    assert sorted(leads) == [False, True]
    os.kill(ranks[leads.index(victim == "rank 0")].pid, signal.SIGKILL)
