"""The network between drivers and API is cut, or loses answers: nothing is charged or stored twice."""

import os
import random
import secrets
import time
from collections.abc import Iterator

import pytest

from tests.support.live import LiveService
from tests.support.proxy import Fate, Proxy
from tests.support.studies import (
    AT_WORST,
    STEPS,
    assert_nothing_was_lost,
    finished_trials,
    has_run,
    searching,
    some_trials_done,
    training,
)

pytestmark = [
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.ray,
    pytest.mark.timeout(900),
]

LEASE_SECONDS = 10


@pytest.fixture(scope="module")
def wire() -> Iterator[Proxy]:
    """Between the drivers and the API; users go straight to the API."""
    with Proxy() as proxy:
        yield proxy


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, wire: Proxy) -> Iterator[LiveService]:
    live = LiveService(
        tmp_path_factory.mktemp("home"),
        TAN_HEARTBEAT_TIMEOUT_SECONDS=str(LEASE_SECONDS),
        TAN_WORKER_URL=f"http://127.0.0.1:{wire.port}",
    ).start()
    wire.target = ("127.0.0.1", int(live.url.rpartition(":")[2]))
    yield live
    live.stop()


def is_of_a_driver(message: bytes) -> bool:
    """And not the orchestrator's own look whether the API can be reached."""
    return b" /worker/runs/" in message.partition(b"\r\n")[0]


def cut(message: bytes) -> Fate:
    return Fate.IS_LOST if is_of_a_driver(message) else Fate.ARRIVES


def test_a_cut_longer_than_the_lease_costs_at_most_the_segments_that_were_begun(
    service: LiveService, wire: Proxy
) -> None:
    study_id = service.submit(training("cut-long"))
    service.wait(study_id, has_run(1, 20))

    wire.rule = cut
    time.sleep(LEASE_SECONDS + 3)
    wire.heal()

    study = service.complete(study_id)
    assert_nothing_was_lost(service, study, finished_before=[])
    assert (study["run"]["attempt"], study["run"]["step"]) == (2, STEPS)
    assert study["privacy"]["charged_steps"] <= STEPS + AT_WORST


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("phase", ["search", "private run"])
def test_a_cut_of_a_minute_loses_nothing(service: LiveService, wire: Proxy, phase: str) -> None:
    """Six leases long: successors are started in vain meanwhile, and the last one goes on."""
    in_search = phase == "search"
    study_id = service.submit((searching if in_search else training)(f"cut-minute-{in_search}"))
    service.wait(study_id, some_trials_done if in_search else has_run(1, 20))
    before = finished_trials(service, study_id)

    wire.rule = cut
    time.sleep(60)
    wire.heal()

    study = service.complete(study_id)
    assert_nothing_was_lost(service, study, finished_before=before)
    steps = study["spec"]["train"]["steps"]
    assert study["run"]["step"] == steps
    assert study["privacy"]["charged_steps"] <= steps + AT_WORST


@pytest.mark.crash
def test_lost_answers_and_a_cut_shorter_than_the_lease_cost_nothing(
    service: LiveService, wire: Proxy
) -> None:
    """A third of what a driver is told never reaches it, what it says does but for three seconds."""
    seed = int(os.environ.get("TAN_FAULT_SEED") or secrets.randbits(32))
    print(f"TAN_FAULT_SEED={seed}")
    lot = random.Random(seed)

    def loses(message: bytes) -> Fate:
        is_lost = is_of_a_driver(message) and lot.random() < 1 / 3
        return Fate.ANSWER_IS_LOST if is_lost else Fate.ARRIVES

    wire.rule = loses
    study_id = service.submit(training("lost-answers"))
    service.wait(study_id, has_run(1, 20))
    wire.rule = cut
    time.sleep(LEASE_SECONDS / 3)
    wire.heal()
    wire.rule = loses
    study = service.complete(study_id)
    wire.heal()

    assert_nothing_was_lost(service, study, finished_before=[])
    assert (study["run"]["attempt"], study["privacy"]["charged_steps"]) == (1, STEPS)
