"""Checkpoints that are written while a private run goes on: their order, and what stops one. Without Ray."""

import errno
import hashlib
import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from pydantic import SecretStr
from sklearn.datasets import load_digits
from torch import nn

from tan_core.data import Split
from tan_core.engine import Trainer, checkpoint
from tan_core.wire import PrivateAssignment
from tests.support.disks import fill, small_disk
from tests.support.teams import OneRank
from worker.leader import Leader
from worker.reasons import UncoveredError
from worker.report import FencedError
from worker.resume import resume
from worker.settings import WorkerSettings
from worker.train import is_final
from worker.train_loop import build_trainer, go_on, run_segments

if TYPE_CHECKING:
    from conftest import Books, ControlPlaneServer

TOKEN = "token-of-one-attempt"
SEGMENT = 10
PATIENCE = 20.0
WRITE_SECONDS = 0.05

pytestmark = pytest.mark.timeout(120)


class Run:
    """One attempt on one rank, driven by the test's own thread."""

    def __init__(self, plane: "ControlPlaneServer") -> None:
        self._plane = plane
        assignment = plane.books.assignment
        assert isinstance(assignment, PrivateAssignment)
        self._assignment = assignment
        images, labels = load_digits(return_X_y=True)
        train = Split(
            inputs=(images[: assignment.num_examples] / 8 - 1).astype(np.float32),
            labels=labels[: assignment.num_examples].astype(np.int64),
        )
        self._team = OneRank()
        self.trainer: Trainer = build_trainer(assignment, None, train, self._team)
        go_on(self.trainer, assignment, self._team, None)

    def to_its_end(self) -> bool:
        """Whether it was stopped on the way; every checkpoint has arrived."""
        settings = WorkerSettings(
            api_url=self._plane.url,
            run_id=self._assignment.run_id,
            fence=self._assignment.fence,
            run_token=SecretStr(TOKEN),
        )
        with ExitStack() as stack:
            self.leader = Leader(self._assignment, settings, stack)
            asked = self.trainer, self._assignment, self._team, self.leader
            is_stopped = go_on(*asked) or run_segments(*asked)
            self.leader.settle()
        return is_stopped


class Disk:
    """What happens where a checkpoint is made durable: it takes as long as the test says, or fails."""

    def __init__(self) -> None:
        self.before: Callable[[int], None] = lambda _: None
        """Called with the number of the checkpoint, in the thread that waits for it to be durable."""
        self.number = 0
        self.at_once = 0
        self._in_flight = 0
        self._sync = os.fsync

    def sync(self, descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            return self._sync(descriptor)
        self.number += 1
        self._in_flight += 1
        self.at_once = max(self.at_once, self._in_flight)
        try:
            self.before(self.number)
            return self._sync(descriptor)
        finally:
            self._in_flight -= 1


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr("tan_core.engine.checkpoint.os.fsync", disk.sync)
    return disk


@pytest.fixture
def books(
    plane: "ControlPlaneServer",
    private_of: Callable[..., PrivateAssignment],
    new_books: Callable[..., "Books"],
) -> "Books":
    plane.books = new_books(private_of(steps=50, segment_steps=SEGMENT, workers=1))
    return plane.books


def ended(books: "Books") -> list[int]:
    return [end.checkpoint.step for end in books.ended]


def kept(books: "Books") -> list[str]:
    """Files of checkpoints, whole or not, that are on storage."""
    folder = Path(books.assignment.storage_path)  # type: ignore[union-attr]
    return sorted(file.name for file in folder.rglob("*") if file.is_file())


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def assert_resumable(books: "Books", plane: "ControlPlaneServer") -> None:
    """The checkpoint that was reported last is there, and the next attempt goes on from it to the end."""
    last = books.ended[-1].checkpoint
    assert hashlib.sha256(Path(last.path).read_bytes()).hexdigest() == last.sha256
    books.next_attempt()
    run = Run(plane)
    assert run.trainer.steps_done == last.step
    assert run.to_its_end() is False
    assert ended(books)[-1] == run.trainer.steps_done == 50
    assert books.faults == []
    assert Path(last.path).exists() == (last.step == 50)  # as soon as there is a newer one


def test_an_attempt_that_resumes_has_the_frozen_draws_of_the_first(
    plane: "ControlPlaneServer", books: "Books", monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint holds what is trained; what code has drawn and frozen is drawn again, and must be the same."""

    def drawn(*_: object, generator: torch.Generator, **__: object) -> nn.Module:
        frozen, head = nn.Linear(64, 8), nn.Linear(8, 10)
        for parameter in (*frozen.parameters(), *head.parameters()):
            nn.init.normal_(parameter, generator=generator)
        return nn.Sequential(frozen.requires_grad_(False), head)

    monkeypatch.setattr("worker.train_loop.model_for", drawn)
    first = Run(plane)
    frozen = first.trainer.released_weights()["0.weight"]
    first.to_its_end()
    books.next_attempt()
    again = Run(plane)

    assert again.trainer.steps_done == 50
    weights = [run.trainer.released_weights() for run in (first, again)]
    assert torch.equal(weights[1]["0.weight"], frozen)
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())


def test_the_next_steps_run_while_a_checkpoint_is_written_and_no_second_one_begins(
    plane: "ControlPlaneServer", books: "Books", disk: Disk
) -> None:
    run = Run(plane)
    seen: list[tuple[int, int, int]] = []

    def slow(number: int) -> None:
        if number < 5:  # the last one has no steps after it
            wait_until(lambda: run.trainer.steps_done == (number + 1) * SEGMENT)
        time.sleep(WRITE_SECONDS)
        seen.append((number, run.trainer.steps_done, len(books.ended)))

    disk.before = slow
    assert run.to_its_end() is False

    # The steps after it were taken, and no more; nothing was reported that was not durable yet.
    assert seen == [(1, 20, 0), (2, 30, 1), (3, 40, 2), (4, 50, 3), (5, 50, 4)]
    assert disk.at_once == 1
    assert ended(books) == [10, 20, 30, 40, 50]
    assert books.charged == 50
    assert kept(books) == ["step-50"]


def test_what_is_written_is_the_state_at_the_end_of_its_segment_whatever_ran_since(
    plane: "ControlPlaneServer", books: "Books", disk: Disk
) -> None:
    run = Run(plane)
    step, ends = run.trainer.step, []

    def noted_step():
        stats = step()
        if run.trainer.steps_done == SEGMENT:
            ends.append(run.trainer.state())
        return stats

    def fail_after_the_next_steps(number: int) -> None:
        wait_until(lambda: run.trainer.steps_done == (number + 1) * SEGMENT)
        if number == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    run.trainer.step = noted_step  # type: ignore[method-assign]
    disk.before = fail_after_the_next_steps
    with pytest.raises(OSError, match="Input/output error"):
        run.to_its_end()

    disk.before = lambda _: None
    assert run.trainer.steps_done == books.charged == 30
    assert ended(books) == [10]
    assert kept(books) == ["step-10"]
    known = books.ended[0].checkpoint
    found = checkpoint.load(Path(known.path), known.sha256).state
    assert found.tensors.keys() == ends[0].tensors.keys()
    for name, tensor in ends[0].tensors.items():
        assert torch.equal(tensor, found.tensors[name])
    assert_resumable(books, plane)


def test_storage_that_is_lost_ends_the_run_within_a_step_and_nothing_later_is_reported(
    plane: "ControlPlaneServer", books: "Books", disk: Disk
) -> None:
    run = Run(plane)

    def fail(number: int) -> None:
        if number == 2:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    disk.before = fail
    with pytest.raises(OSError, match="Stale file handle"):
        run.to_its_end()

    disk.before = lambda _: None
    assert 20 <= run.trainer.steps_done <= 30
    assert ended(books) == [10]
    # The steps that may have begun meanwhile are charged; no others are.
    assert books.charged in (20, 30)
    assert run.trainer.steps_done <= books.charged
    assert_resumable(books, plane)


def test_a_full_disk_is_found_before_the_next_steps_are_charged(
    plane: "ControlPlaneServer",
    private_of: Callable[..., PrivateAssignment],
    new_books: Callable[..., "Books"],
    disk: Disk,
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "small", megabytes=1) as small:
        plane.books = books = new_books(
            private_of(steps=50, segment_steps=SEGMENT, workers=1, storage_path=str(small / "run"))
        )
        ballast: list[Path] = []
        disk.before = lambda number: ballast.append(fill(small)) if number == 1 else None
        with pytest.raises(OSError, match="No space left on device"):
            Run(plane).to_its_end()

        assert (books.charged, ended(books), kept(books)) == (20, [10], ["step-10"])
        ballast[0].unlink()
        assert_resumable(books, plane)


@pytest.mark.slow
@pytest.mark.parametrize("wish", ["cancel", "pause"])
def test_a_run_that_is_stopped_waits_for_the_checkpoint_that_is_on_its_way(
    plane: "ControlPlaneServer", books: "Books", disk: Disk, wish: str
) -> None:
    run = Run(plane)
    told = threading.Event()

    def slow(number: int) -> None:
        if number == 1:
            wait_until(lambda: run.trainer.steps_done == SEGMENT + 5)
            books.desired = wish
            wait_until(lambda: run.leader.is_to_stop)
            told.set()
            time.sleep(WRITE_SECONDS)

    disk.before = slow
    step = run.trainer.step

    def slow_step():  # so that the wish comes in the middle of a segment
        if run.trainer.steps_done == SEGMENT + 5:
            assert told.wait(PATIENCE)
        return step()

    run.trainer.step = slow_step  # type: ignore[method-assign]
    assert run.to_its_end() is True

    books.desired = "run"
    last = {"cancel": [10], "pause": [10, 20]}[wish]
    assert ended(books) == last
    assert books.charged == 20
    assert_resumable(books, plane)


def test_an_attempt_that_is_over_by_the_time_its_checkpoint_is_durable_takes_no_further_step(
    plane: "ControlPlaneServer", books: "Books", disk: Disk
) -> None:
    run = Run(plane)

    def fenced(number: int) -> None:
        if number == 2:
            books.refuse_ends_with = 409

    disk.before = fenced
    with pytest.raises(FencedError):
        run.to_its_end()

    assert ended(books) == [10]
    assert run.trainer.steps_done <= books.charged <= 30
    # What was reported is still there: a checkpoint is dropped when the next one has arrived.
    assert "step-10" in kept(books)
    books.refuse_ends_with = None
    disk.before = lambda _: None
    assert_resumable(books, plane)


def test_a_step_that_fails_while_a_checkpoint_is_on_its_way_does_not_lose_it(
    plane: "ControlPlaneServer", books: "Books", disk: Disk
) -> None:
    run = Run(plane)
    failed = threading.Event()
    step = run.trainer.step

    def failing_step():
        if run.trainer.steps_done == SEGMENT + 3:
            failed.set()
            raise RuntimeError("connection closed by peer")
        return step()

    run.trainer.step = failing_step  # type: ignore[method-assign]

    def slow(_: int) -> None:
        assert failed.wait(PATIENCE)
        time.sleep(WRITE_SECONDS)

    disk.before = slow
    with pytest.raises(RuntimeError, match="closed by peer"):
        run.to_its_end()

    assert (ended(books), books.charged) == ([10], 20)
    disk.before = lambda _: None
    assert_resumable(books, plane)


def test_a_checkpoint_of_another_step_than_was_reported_is_not_gone_on_from(
    plane: "ControlPlaneServer", books: "Books"
) -> None:
    """The steps between the two would run under no charge, or be charged and never run."""
    run = Run(plane)
    run.to_its_end()
    last = books.ended[-1].checkpoint

    with pytest.raises(ValueError, match="holds step 50, reported was 40"):
        resume(run.trainer, last.model_copy(update={"step": 40}))


def test_an_old_checkpoint_that_cannot_be_deleted_costs_no_step(
    plane: "ControlPlaneServer", books: "Books", monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on storage that an earlier attempt wrote to as another user."""
    unlink = Path.unlink

    def refuses(path: Path, missing_ok: bool = False) -> None:
        if path.name == f"step-{SEGMENT}":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refuses)

    assert Run(plane).to_its_end() is False

    assert ended(books) == [10, 20, 30, 40, 50]
    assert books.charged == 50
    assert kept(books) == ["step-10", "step-50"]


def restore(books: "Books") -> None:
    """Leave what a backup knew that was made after the first segment, and begin the next attempt."""
    del books.ended[1:]
    for request_id in list(books.segments)[1:]:
        del books.segments[request_id]
    books.next_attempt()


class TestRestored:
    """Steps that a database restored from a backup knows nothing of, and whose first checkpoint is dropped since."""

    @pytest.fixture
    def restored(self, plane: "ControlPlaneServer", books: "Books", disk: Disk) -> "Books":
        """As it was after the first of the three segments that have been taken."""
        run = Run(plane)

        def leave(number: int) -> None:
            if number == 4:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

        disk.before = leave
        with pytest.raises(OSError, match="Input/output"):
            run.to_its_end()
        disk.before = lambda _: None
        assert (ended(books), kept(books)) == ([10, 20, 30], ["step-30"])
        restore(books)
        return books

    def test_are_charged_and_the_run_goes_on_after_them(
        self, plane: "ControlPlaneServer", restored: "Books"
    ) -> None:
        taken = restored.assignment.storage_path + "/attempt-1/step-30"  # type: ignore[union-attr]
        weights = checkpoint.load(taken, hashlib.sha256(Path(taken).read_bytes()).hexdigest()).state
        run = Run(plane)

        assert run.trainer.steps_done == 30
        for name, tensor in run.trainer.state().tensors.items():
            assert torch.equal(tensor, weights.tensors[name])
        assert run.to_its_end() is False
        asked = [(each.start_step, each.num_steps) for each, _ in restored.segments.values()]
        assert asked == [(0, 10), (10, 20), (30, 10), (40, 10)]
        assert ended(restored) == [10, 30, 40, 50]
        assert restored.faults == []
        assert kept(restored) == ["step-50"]

    def test_are_refused_where_they_cannot_be_charged(
        self, plane: "ControlPlaneServer", restored: "Books"
    ) -> None:
        restored.reservation = 25

        with pytest.raises(UncoveredError, match=r"of the 20 steps .* only 15 are left") as error:
            Run(plane).to_its_end()

        assert is_final(error.value)
        assert ended(restored) == [10]

    @pytest.mark.parametrize("taken", [30, 50], ids=["some", "all"])
    def test_are_not_charged_for_a_run_that_is_cancelled_and_it_releases_nothing(
        self, plane: "ControlPlaneServer", restored: "Books", taken: int
    ) -> None:
        run = Run(plane)
        if taken == 50:  # what would come next is the model
            run.to_its_end()
            restore(restored)
            run = Run(plane)
        assert run.trainer.steps_done == taken
        restored.desired = "cancel"

        assert run.to_its_end() is True

        assert (restored.charged, ended(restored)) == (10, [10])

    def test_are_found_whichever_attempt_took_them(
        self, plane: "ControlPlaneServer", restored: "Books"
    ) -> None:
        storage = Path(restored.assignment.storage_path)  # type: ignore[union-attr]
        for name in ("attempt-9/step-20", "attempt-9/.step-40.7.tmp", "attempt-x/step-50"):
            (storage / name).parent.mkdir(exist_ok=True)
            (storage / name).write_bytes(b"of no use")

        assert Run(plane).trainer.steps_done == 30

    def test_are_left_alone_where_the_checkpoint_that_was_reported_is_there(
        self, plane: "ControlPlaneServer", books: "Books"
    ) -> None:
        """An attempt may have been fenced off after it had written one."""
        Run(plane).to_its_end()
        reported = books.ended[-1].checkpoint
        Path(reported.path).with_name("step-60").write_bytes(b"of no use")
        books.next_attempt()

        assert Run(plane).trainer.steps_done == reported.step
