import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.cli.settings import DEFAULT_URL, ClientSettings

NO_PROCESS = 2**22 + 1


@pytest.fixture
def service() -> Iterator[int]:
    """A process that is called as the service is."""
    waits = "import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", waits, "service.local"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # for a moment a process that begins is called nothing
        yield process.pid
        process.kill()


def write_server(home: Path, pid: int) -> None:
    (home / "server.json").write_text(json.dumps({"url": "http://127.0.0.1:9", "pid": pid}))


def test_the_stated_address_wins(tmp_path: Path, service: int) -> None:
    write_server(tmp_path, service)
    environ = {
        "TAN_HOME": str(tmp_path),
        "TAN_API_URL": "https://tan.example/",
        "TAN_API_TOKEN": "t",
    }
    settings = ClientSettings.from_environment(environ)
    assert (settings.api_url, settings.token) == ("https://tan.example", "t")


def test_a_running_local_server_is_found_through_its_home(tmp_path: Path, service: int) -> None:
    write_server(tmp_path, service)
    found = ClientSettings.from_environment({"TAN_HOME": str(tmp_path)})
    assert found.api_url == "http://127.0.0.1:9"


def test_a_dead_local_server_is_not_believed(tmp_path: Path) -> None:
    write_server(tmp_path, NO_PROCESS)
    assert ClientSettings.from_environment({"TAN_HOME": str(tmp_path)}).api_url == DEFAULT_URL


@pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere a process is known by its number alone"
)
def test_another_process_that_has_its_number_since_is_not_believed(tmp_path: Path) -> None:
    write_server(tmp_path, os.getpid())
    assert ClientSettings.from_environment({"TAN_HOME": str(tmp_path)}).api_url == DEFAULT_URL


def test_a_broken_or_missing_server_file_means_the_default(tmp_path: Path) -> None:
    assert ClientSettings.from_environment({"TAN_HOME": str(tmp_path)}).api_url == DEFAULT_URL
    (tmp_path / "server.json").write_text("{")
    assert ClientSettings.from_environment({"TAN_HOME": str(tmp_path)}).api_url == DEFAULT_URL
