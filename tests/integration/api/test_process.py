"""``python -m service.app`` as a process of its own."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from service.datasets.service import ensure_digits
from tests.fixtures.api import make_spec
from tests.support.ports import free_port


def environment(home, **settings) -> dict[str, str]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("TAN_")}
    return {**inherited, "TAN_HOME": str(home), **settings}


@pytest.fixture
async def digits(database) -> None:
    await ensure_digits(database)


@pytest.fixture
def process(tmp_path, digits, database_urls) -> Iterator[tuple[subprocess.Popen, str]]:
    port = free_port()
    process = subprocess.Popen(
        ["sh", "-c", 'ulimit -S -n 200 && exec "$0" -m service.app', sys.executable],
        env=environment(tmp_path, TAN_DATABASE_URL=database_urls.app, TAN_PORT=str(port)),
    )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_ready(process, url)
        yield process, url
    finally:
        process.kill()
        process.wait()


def wait_until_ready(process: subprocess.Popen, url: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, "the API ended"
        try:
            if httpx.get(f"{url}/readyz").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    pytest.fail("the API is not ready after a minute")


@pytest.mark.slow
def test_it_ends_in_time_although_someone_follows_a_study(process):
    api, url = process
    study = httpx.post(f"{url}/studies", json=make_spec(), timeout=60).json()
    with httpx.stream("GET", f"{url}/studies/{study['id']}/events", timeout=30) as response:
        chunks = response.iter_text()
        assert "queued" in next(chunks)

        api.send_signal(signal.SIGTERM)
        "".join(chunks)  # ends cleanly: no error is raised

    assert api.wait(timeout=15) == 0


@pytest.mark.slow
def test_more_pages_may_watch_than_a_shell_lends_files(process):
    """Macs lend 256, Linux 1,024; each page that is open holds one."""
    _api, url = process
    lent, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(lent, 1024), most))  # of the reader itself
    study = httpx.post(f"{url}/studies", json=make_spec(), timeout=60).json()
    limits = httpx.Limits(max_connections=None)
    with httpx.Client(limits=limits, timeout=30) as client, ExitStack() as pages:
        for _ in range(300):
            page = pages.enter_context(client.stream("GET", f"{url}/studies/{study['id']}/events"))
            assert page.status_code == 200

        assert client.get(f"{url}/studies/{study['id']}").json()["state"] == "queued"
