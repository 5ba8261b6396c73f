"""``kill -9`` of a rank every half minute, for ten minutes of a private run of two ranks.

``TAN_RANK_KILL_MINUTES`` makes it shorter or longer. What was measured is printed (``-s``).
"""

import math
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psutil
import pytest

from tan_core.planner.segments import SLACK_SEGMENTS, segment_rule
from tests.support.live import TERMINAL, LiveService
from tests.support.studies import assert_nothing_was_lost, has_run, segments, training

MINUTES = float(os.environ.get("TAN_RANK_KILL_MINUTES") or 10)
PAUSE_SECONDS = 30.0
STEPS = math.ceil(300 * MINUTES)
"""More than a run that is disturbed so often takes in the time."""
SEGMENT = segment_rule(STEPS).segment_steps
TEST_IMAGES = 359

pytestmark = [
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.ray,
    pytest.mark.timeout(MINUTES * 60 + 3600),
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    # An attempt that is killed before its first checkpoint was in vain.
    live = LiveService(tmp_path_factory.mktemp("home"), TAN_MAX_ATTEMPTS="100").start()
    yield live
    live.stop()


def spec(name: str) -> dict[str, Any]:
    study = training(name)
    study["train"] |= {"steps": STEPS, "batch_size": 256}
    return study


def test_a_run_whose_ranks_are_killed_completes_as_one_that_is_left_alone(
    service: LiveService,
) -> None:
    undisturbed = service.complete(service.submit(spec("undisturbed")), seconds=2400)

    study_id = service.submit(spec("killed"))
    service.wait(study_id, has_run(1, 1), seconds=600)
    kills = kill_ranks(service, study_id)
    study = service.complete(study_id, seconds=2400)

    begun, ended = segments(service, study_id)
    run, privacy = study["run"], study["privacy"]
    accuracies = [each["run"]["test_accuracy"] for each in (undisturbed, study)]
    print(
        f"{kills} kills, {run['attempt']} attempts; {run['step']:,} of {STEPS:,} steps, "
        f"{privacy['charged_steps']:,} charged in {len(begun)} segments, {len(begun) - len(ended)} "
        f"of them cut off; epsilon {privacy['epsilon']:.3f} of 3; accuracy {accuracies[1]:.3f}, "
        f"undisturbed {accuracies[0]:.3f}"
    )

    assert_nothing_was_lost(service, study, finished_before=[])
    assert (
        len(begun) - len(ended) <= 2 * kills
    )  # the one before, where its checkpoint was on its way
    # What the slack does not cover is missing at the end, and nothing else.
    cut_off = privacy["charged_steps"] - run["step"]
    assert run["step"] == min(STEPS, STEPS + SLACK_SEGMENTS * SEGMENT - cut_off)
    assert service.get("/datasets/digits/ledger/verify")["is_valid"]
    # Four standard deviations of the difference of two runs' accuracies.
    p = sum(accuracies) / 2
    assert abs(accuracies[0] - accuracies[1]) <= 4 * math.sqrt(2 * p * (1 - p) / TEST_IMAGES)


def kill_ranks(service: LiveService, study_id: str) -> int:
    """Kill one of the ranks, and the other one next, every half minute; how many were killed."""
    until, kills = time.monotonic() + MINUTES * 60, 0
    while time.monotonic() < until:
        if service.get(f"/studies/{study_id}")["state"] in TERMINAL:
            break
        ranks = service.processes("ray::", "TrainWorker")
        if not ranks:
            time.sleep(0.5)
            continue
        with suppress(psutil.NoSuchProcess):
            ranks[kills % len(ranks)].kill()
            kills += 1
            time.sleep(PAUSE_SECONDS)
    return kills
