"""Two API processes behind one port: both answer, and one that is killed is missed by nobody."""

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.live import LiveService

pytestmark = [
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.ray,
    pytest.mark.timeout(420),
]

API = ("service.app",)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    live = LiveService(tmp_path_factory.mktemp("home"), TAN_API_WORKERS="2").start()
    yield live
    live.stop()


def wait_for_two(service: LiveService) -> set[str]:
    """When each of the two that answer began, by what it tells of itself."""
    deadline = time.monotonic() + 120
    seen: set[str] = set()
    with ThreadPoolExecutor(8) as clients:
        while len(seen) < 2:
            assert time.monotonic() < deadline, f"only those that began at {seen} answer"
            for answer in clients.map(lambda _: service.request_once("GET", "/metrics"), range(16)):
                found = re.search(r"^process_start_time_seconds (\S+)", answer.text, re.MULTILINE)
                assert found
                seen.add(found[1])
    return seen


def test_requests_are_answered_while_one_is_killed_and_comes_back(service: LiveService) -> None:
    before = wait_for_two(service)
    victim, other = service.processes(*API)

    victim.kill()
    for _ in range(100):
        assert service.request_once("GET", "/studies").status_code == 200

    after = wait_for_two(service)
    assert len(before & after) == 1
    assert other.is_running()
