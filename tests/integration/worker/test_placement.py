"""Trials and ranks are placed on the GPUs that a real Ray says it has; nothing is computed on them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.worker.conftest import ray_environment

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[3]
Told = dict[str, Any]
STATED = {"unstated": 1, "quarters": 4}
"""``gpus_per_trial``, and how many trials then share a GPU."""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder = tmp_path_factory.mktemp("placement")
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.placement", str(folder)],
        env=ray_environment(),
        cwd=ROOT,
        timeout=500,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return json.loads((folder / "told.json").read_text())


@pytest.mark.parametrize("stated", STATED)
def test_so_many_trials_share_a_gpu_as_were_stated(told: Told, stated: str) -> None:
    trials = told[stated]

    assert len(trials) == 8
    assert {each["gpu"] for each in trials} == {"0", "1"}
    assert max(each["sharing"] for each in trials) == STATED[stated]
    assert {each["devices"] for each in trials} == {1 / STATED[stated]}


def test_ranks_take_whole_gpus_and_never_more_than_there_are(told: Told) -> None:
    assert told["ranks"] == [2, {"CPU": 1, "GPU": 1}]


def test_who_waits_for_a_node_that_never_comes_holds_up_nobody_else(told: Told) -> None:
    assert told["is_still_waiting"]
    assert all(len(told[stated]) == 8 for stated in STATED)


def test_what_trials_read_is_put_once_on_a_node(told: Told) -> None:
    """Mapped out of the object store, and not copied into each trial."""
    trials = [each for stated in STATED for each in told[stated]]

    assert {each["is_writable"] for each in trials} == {False}
    assert all("plasma" in each["file"] for each in trials)


def test_features_are_computed_where_a_trial_would_run(told: Told) -> None:
    found = told["features"]

    assert found["gpus"] == ["gpu-0", "gpu-1"]
    assert found["lengths"][0] > found["lengths"][1] > 0
    assert found["shapes"] == [[3], [3]]


def test_features_are_shared_out_where_one_process_would_take_long(told: Told) -> None:
    """In the order of the records, and a worker that is lost only does its part again."""
    found = told["features"]

    assert found["processes"] > 2
    assert found["on"] == ["gpu-none"]
    assert found["is_lost"]
    assert found["is_in_order"]


def test_what_is_wrong_with_the_data_is_told_as_it_is(told: Told) -> None:
    assert "registered were 7" in told["features"]["refused"]


def test_features_that_nobody_waits_for_are_given_up_and_their_gpu_with_them(told: Told) -> None:
    assert told["features"]["is_unwanted"]
    assert told["features"]["free"] == 2
