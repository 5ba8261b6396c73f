"""kill -9 at random moments of whoever is there.

``TAN_FAULT_ROUNDS`` studies, one after the other; ``TAN_FAULT_SEED`` repeats the lots of the first.
"""

import os
import random
import secrets
import time
from typing import Any

import psutil
import pytest

from tests.support.live import TERMINAL, LiveService
from tests.support.studies import assert_nothing_was_lost, finished_trials, training

pytestmark = [
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.ray,
    pytest.mark.timeout(600),
]

ROUNDS = int(os.environ.get("TAN_FAULT_ROUNDS") or 2)
VICTIMS = {
    "orchestrator": ("service.orchestrator",),
    "API": ("service.app",),
    "search driver": ("worker.simulate",),
    "driver of the private run": ("worker.train",),
    "trial worker": ("ray::", "rial"),
    "rank": ("ray::", "TrainWorker"),
    "PostgreSQL": ("postgres", "-D"),
}
KILLS = 3
LONGEST_PAUSE_SECONDS = 15.0


@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_study_outlives_whatever_is_killed_in_it(service: LiveService, number: int) -> None:
    seed = int(os.environ.get("TAN_FAULT_SEED") or secrets.randbits(32)) + number
    print(f"TAN_FAULT_SEED={seed}")
    lot = random.Random(seed)
    spec = training(f"random-{seed}")
    spec["search"] |= {"trials": 4, "budget": 1.0}
    study_id = service.submit(spec)

    before: list[dict[str, Any]] = []
    for _ in range(KILLS):
        time.sleep(lot.uniform(0, LONGEST_PAUSE_SECONDS))
        if service.get(f"/studies/{study_id}")["state"] in TERMINAL:
            break
        before = finished_trials(service, study_id)
        kill_somebody(service, lot)

    study = service.wait(study_id, seconds=400)
    assert service.get("/datasets/digits/ledger/verify")["is_valid"]
    if study["state"] == "completed":
        assert_nothing_was_lost(service, study, finished_before=before)
        assert service.get(f"/studies/{study_id}/statement")["study"]["id"] == study_id
    else:
        print(study["state"], study["reason"])
        assert study["reason"]
        assert study["privacy"]["charged_steps"] >= (study["run"] or {"step": 0})["step"]


def kill_somebody(service: LiveService, lot: random.Random) -> None:
    """One process of a kind that is there; one that is gone in the meantime needs no killing."""
    present = {
        name: found for name, words in VICTIMS.items() if (found := service.processes(*words))
    }
    name = lot.choice(sorted(present))
    victim = lot.choice(present[name])
    print("kills", name)
    try:
        victim.kill()
    except psutil.NoSuchProcess:
        print("which is gone")
