"""An API process that lives and answers nothing is killed, and started again as after a crash."""

import signal
import time
from collections.abc import Iterator

import psutil
import pytest

from tests.support.live import LiveService

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(420)]

SILENCE_SECONDS = 6.0


@pytest.fixture(scope="module", params=["1", "2"])
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveService]:
    no_study_is_run = "http://127.0.0.1:9"
    live = LiveService(
        tmp_path_factory.mktemp("home"),
        TAN_API_WORKERS=request.param,
        TAN_API_SILENCE_SECONDS=f"{SILENCE_SECONDS:g}",
        TAN_RAY_ADDRESS=no_study_is_run,
    ).start()
    yield live
    live.stop()


def test_one_that_hangs_is_killed_and_started_again(service: LiveService) -> None:
    before = service.processes("service.app")
    stopped, others = before[0], before[1:]
    time.sleep(2 * SILENCE_SECONDS)
    assert service.processes("service.app") == before  # who answers is left alone
    start = time.monotonic()

    stopped.send_signal(signal.SIGSTOP)
    assert psutil.wait_procs([stopped], timeout=60)[0], "it hangs for ever"

    assert time.monotonic() - start > SILENCE_SECONDS / 2
    deadline = time.monotonic() + 60
    while len(found := service.processes("service.app")) < len(before):
        assert time.monotonic() < deadline, f"{len(found)} run"
        time.sleep(0.2)
    assert set(others) <= set(found)
    assert service.request("GET", "/studies").status_code == 200
    (told,) = [line for line in service.lines if "has answered nothing for 6 s" in line]
    assert "killing it" in told
    assert any("(exit code -9); starting it again in" in line for line in service.lines)
