"""Two API processes behind one port: each can answer for both, and one that is killed is missed by nobody."""

import time
from collections.abc import Iterator

import psutil
import pytest

from tests.support.live import LiveService

pytestmark = [
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.timeout(420),
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    no_study_is_run = "http://127.0.0.1:9"
    live = LiveService(
        tmp_path_factory.mktemp("home"), TAN_API_WORKERS="2", TAN_RAY_ADDRESS=no_study_is_run
    ).start()
    yield live
    live.stop()


def two(service: LiveService) -> list[psutil.Process]:
    """Both, once both are there."""
    deadline = time.monotonic() + 120
    while len(found := service.processes("service.app")) != 2:
        assert time.monotonic() < deadline, f"{len(found)} run"
        time.sleep(0.2)
    return found


def test_requests_are_answered_whichever_is_killed(service: LiveService) -> None:
    one, other = two(service)

    one.kill()
    for _ in range(50):
        assert service.request_once("GET", "/studies").status_code == 200
    assert other.is_running()

    successor = next(process for process in two(service) if process != other)
    other.kill()
    for _ in range(50):
        assert service.request_once("GET", "/studies").status_code == 200
    assert successor.is_running()
