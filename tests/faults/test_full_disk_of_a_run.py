"""The disk that checkpoints lie on fills up under a private run: it says so, loses nothing, and goes on."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.disks import fill, small_disk
from tests.support.live import LiveService
from tests.support.studies import SEGMENT, STEPS, assert_nothing_was_lost, has_run, training

pytestmark = [
    pytest.mark.faults,
    pytest.mark.crash,
    pytest.mark.slow,
    pytest.mark.ray,
    pytest.mark.timeout(900),
]

MEGABYTES = 32


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", megabytes=MEGABYTES) as path:
        yield path


@pytest.fixture
def storing(tmp_path: Path, disk: Path) -> Iterator[LiveService]:
    live = LiveService(tmp_path / "home", TAN_STORAGE=str(disk)).start()
    yield live
    live.stop()


def test_a_run_without_space_says_so_and_resumes_from_its_last_checkpoint(
    storing: LiveService, disk: Path
) -> None:
    study_id = storing.submit(training("full-disk"))
    storing.wait(study_id, has_run(1, 4 * SEGMENT))

    ballast = fill(disk)
    storing.wait(study_id, lambda _: bool(ended_without_space(storing, study_id)))

    held = reservation(storing, study_id)
    assert held["checkpoint_step"] >= 2 * SEGMENT
    assert held["checkpoint_sha256"] in {
        hashlib.sha256(file.read_bytes()).hexdigest() for file in disk.rglob("step-*")
    }
    assert held["charged_steps"] > held["checkpoint_step"]

    ballast.unlink()
    study = storing.complete(study_id)

    assert_nothing_was_lost(storing, study, finished_before=[])
    assert study["run"]["step"] == STEPS
    attempts = study["run"]["attempt"]
    assert attempts > 1
    again = study["privacy"]["charged_steps"] - STEPS
    assert SEGMENT <= again <= (attempts - 1) * SEGMENT
    assert storing.get("/datasets/digits/ledger/verify")["is_valid"]


def ended_without_space(service: LiveService, study_id: str) -> list[dict[str, Any]]:
    """Attempts that ended for want of space, and said so."""
    attempts = service.get(f"/studies/{study_id}/attempts")["items"]
    return [each for each in attempts if "No space left" in (each["reason"] or "")]


def reservation(service: LiveService, study_id: str) -> dict[str, Any]:
    held = service.get("/datasets/digits/ledger")["reservations"]
    return next(each for each in held if each["study_id"] == study_id)
