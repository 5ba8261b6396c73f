"""kill -9 at random moments: in every round of a worker of the search, a worker of the run and two servers.

``TAN_FAULT_ROUNDS`` studies, one after the other, with each kind in turn: two rounds meet all of them.
``TAN_FAULT_SEED`` repeats the lots of the first.
"""

import os
import random
import secrets
import time
from contextlib import suppress
from typing import Any

import psutil
import pytest

from tests.support.live import LiveService
from tests.support.studies import assert_nothing_was_lost, finished_trials, training

pytestmark = [
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.ray,
    pytest.mark.timeout(3600),
]

ROUNDS = int(os.environ.get("TAN_FAULT_ROUNDS") or 2)
WORDS = {
    "search driver": ("worker.simulate",),
    "trial worker": ("ray::", "rial"),
    "orchestrator": ("service.orchestrator",),
    "API": ("service.app",),
    "PostgreSQL": ("postgres", "-D"),
    "driver of the private run": ("worker.train",),
    "rank": ("ray::", "TrainWorker"),
}
OF_THE_SEARCH = ("search driver", "trial worker")
SERVERS = ("orchestrator", "API", "PostgreSQL")
OF_THE_RUN = ("driver of the private run", "rank")
LONGEST_PAUSE_SECONDS = 5.0
"""Before a kill, once one of its kind is there."""
PATIENCE_SECONDS = 1200.0
"""On a machine that has other work too."""


@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_study_outlives_whatever_is_killed_in_it(service: LiveService, number: int) -> None:
    seed = int(os.environ.get("TAN_FAULT_SEED") or secrets.randbits(32)) + number
    print(f"TAN_FAULT_SEED={seed}")
    lot = random.Random(seed)
    spec = training(f"random-{seed}")
    spec["search"] |= {"trials": 4, "budget": 1.0}
    study_id = service.submit(spec)

    before: list[dict[str, Any]] = []
    for kind in (
        OF_THE_SEARCH[number % len(OF_THE_SEARCH)],
        SERVERS[number % len(SERVERS)],
        OF_THE_RUN[number % len(OF_THE_RUN)],
        SERVERS[(number + 1) % len(SERVERS)],
    ):
        before = kill(service, study_id, kind, lot)

    study = service.complete(study_id, seconds=PATIENCE_SECONDS)
    assert_nothing_was_lost(service, study, finished_before=before)
    assert service.get("/datasets/digits/ledger/verify")["is_valid"]
    assert service.get(f"/studies/{study_id}/statement")["study"]["id"] == study_id


def kill(
    service: LiveService, study_id: str, kind: str, lot: random.Random
) -> list[dict[str, Any]]:
    """End one of the kind, some time after it was first met; the trials that had finished before."""
    service.wait(
        study_id, lambda _: bool(service.processes(*WORDS[kind])), seconds=PATIENCE_SECONDS
    )
    time.sleep(lot.uniform(0, LONGEST_PAUSE_SECONDS))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        before = finished_trials(service, study_id)
        for victim in service.processes(*WORDS[kind]):
            with suppress(psutil.NoSuchProcess):
                victim.kill()
                print("killed", kind)
                return before
        time.sleep(0.1)
    raise AssertionError(f"no {kind} was met again: the study went on without one")
