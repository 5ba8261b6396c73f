"""An orchestrator that lives and does nothing: it is replaced, or another one goes on with its studies."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest

from tests.support.live import LiveService, digits_study

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(420)]

SILENCE_SECONDS = 8.0
NO_STUDY_IS_RUN = "http://127.0.0.1:9"


@pytest.fixture
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveService]:
    live = LiveService(
        tmp_path_factory.mktemp("home"),
        TAN_ORCHESTRATOR_SILENCE_SECONDS=f"{request.param:g}",
        TAN_RAY_ADDRESS=NO_STUDY_IS_RUN,
    ).start()
    yield live
    live.stop()


def is_seen_to(service: LiveService, name: str, *, seconds: float) -> bool:
    """Whether somebody begins a study that is submitted now; without Ray, it says that this is away."""
    study_id = service.submit(digits_study(name))
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if service.get(f"/studies/{study_id}")["state"] != "queued":
            service.request("POST", f"/studies/{study_id}/cancel")
            return True
        time.sleep(0.3)
    return False


@pytest.mark.parametrize("service", [SILENCE_SECONDS], indirect=True)
def test_one_that_hangs_is_killed_and_started_again(service: LiveService) -> None:
    assert is_seen_to(service, "before", seconds=60)
    (stopped,) = service.processes("service.orchestrator")
    time.sleep(2 * SILENCE_SECONDS)
    assert service.processes("service.orchestrator") == [stopped]  # who goes round is left alone
    start = time.monotonic()

    stopped.send_signal(signal.SIGSTOP)
    assert psutil.wait_procs([stopped], timeout=60)[0], "it hangs for ever"

    assert time.monotonic() - start > SILENCE_SECONDS / 2
    assert is_seen_to(service, "after", seconds=60)
    assert len(service.processes("service.orchestrator")) == 1
    (told,) = [line for line in service.lines if "has finished no tick for 8 s" in line]
    assert "killing it" in told


@pytest.mark.parametrize("service", [0.0], indirect=True)
def test_another_one_takes_over_what_one_that_hangs_had_leased(service: LiveService) -> None:
    study_id = service.submit(digits_study("leased"))
    service.wait(study_id, lambda study: study["state"] == "simulating", seconds=60)
    (stopped,) = service.processes("service.orchestrator")
    environment = stopped.environ()

    stopped.send_signal(signal.SIGSTOP)
    # It hangs with the lease in its hand, and is asked for something: alone it would never do it.
    service.request("POST", f"/studies/{study_id}/cancel")
    time.sleep(3.0)
    assert service.get(f"/studies/{study_id}")["state"] == "simulating"
    with another(environment) as other:
        start = time.monotonic()
        service.wait(study_id, lambda study: study["state"] == "cancelled", seconds=90)
        assert time.monotonic() - start < 60
        stopped.send_signal(signal.SIGCONT)
        # Both go round now, and no study is begun by both.
        assert is_seen_to(service, "shared", seconds=60)
        assert stopped.is_running()
        assert other.poll() is None


class another:  # noqa: N801 - read as a word
    """A second orchestrator, as on another machine of a cluster."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment

    def __enter__(self) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "service.orchestrator"], env=self._environment
        )
        return self._process

    def __exit__(self, *exc: object) -> None:
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(30)
        self._process.kill()
        self._process.wait()
