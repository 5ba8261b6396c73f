"""``tan-cli serve`` and ``make demo`` as a user starts and stops them."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import psutil
import pytest

from tests.support import temporary

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(600)]

SERVE = [sys.executable, "-m", "service.cli.main", "serve", "--port", "0"]
CLI = [sys.executable, "-m", "service.cli.main"]
DEMO = [sys.executable, "-m", "service.cli.demo"]
IN_THE_BACKGROUND = ["sh", "-c", 'trap "" INT && exec "$@"', "sh"]
"""As a script starts a command that ends with ``&``: SIGINT is ignored to begin with."""


def environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TAN_")}
    return {**kept, **temporary.ENVIRONMENT, "TAN_HOME": str(home), "PYTHONUNBUFFERED": "1"}


@contextmanager
def started(command: list[str], home: Path) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        command,
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(120)
        assert process.stdout is not None
        process.stdout.close()


def read_until(process: "subprocess.Popen[str]", pattern: str) -> str:
    """Everything up to the first line that matches."""
    assert process.stdout is not None
    read = ""
    for line in process.stdout:
        read += line
        if re.search(pattern, line):
            return read
    raise AssertionError(f"{pattern!r} never came:\n{read}")


def is_quiet(home: Path, url: str) -> bool:
    """Whether nothing of a stopped service is left: no answer, no process that knows its home."""
    try:
        httpx.get(f"{url}/healthz", timeout=2)
    except httpx.TransportError:
        return not left(home)
    return False


def left(home: Path) -> list[str]:
    """Running commands that know this home: by what they were told, or by their environment."""
    found: list[str] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            command = process.cmdline()
            if any(str(home) in word for word in (*command, *process.environ().values())):
                found.append(" ".join(command))
    return found


def eventually_quiet(home: Path, url: str) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if is_quiet(home, url):
            return True
        time.sleep(0.5)
    return False


def url_in(output: str) -> str:
    found = re.search(r"http://127\.0\.0\.1:\d+", output)
    assert found
    return found[0]


def test_serve_is_found_through_its_home_and_ctrl_c_stops_everything(tmp_path: Path) -> None:
    with started(SERVE, tmp_path) as process:
        url = url_in(read_until(process, "is ready"))
        listed = subprocess.run(
            [*CLI, "dataset", "list"], env=environment(tmp_path), capture_output=True, text=True
        )
        assert listed.returncode == 0, listed.stderr
        assert "digits" in listed.stdout

        process.send_signal(signal.SIGINT)

        assert process.wait(120) == 0
    assert eventually_quiet(tmp_path, url)
    assert not (tmp_path / "server.json").exists()


def test_the_demo_ends_with_the_whole_report_and_leaves_nothing_running(tmp_path: Path) -> None:
    done = subprocess.run(
        [*DEMO, "examples/digits.yaml"],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for words in (
        "12 of 12 trials",
        "digits-eps3: completed",
        "B = 256",
        "(PLD)",
        "(RDP)",
        "test accuracy",
        "neighbours add_or_remove_one; search on private data NOT accounted",
        "of dataset:digits, hash ",
        "stopped now",
    ):
        assert words in " ".join(done.stdout.split())
    accuracy = re.search(r"test accuracy\s+([0-9.]+) %", done.stdout)
    assert accuracy
    assert float(accuracy[1]) > 85
    assert eventually_quiet(tmp_path, url_in(done.stdout))


def test_sigint_in_the_middle_of_a_demo_in_the_background_leaves_nothing_running(
    tmp_path: Path,
) -> None:
    with started([*IN_THE_BACKGROUND, *DEMO, "examples/digits.yaml"], tmp_path) as process:
        url = url_in(read_until(process, "simulating"))

        process.send_signal(signal.SIGINT)

        assert process.stdout is not None
        said = process.stdout.read()
        assert process.wait(120) == 130
    assert said.endswith("interrupted; everything is stopped\n")
    assert "the study goes on" not in said
    assert eventually_quiet(tmp_path, url)


def test_ctrl_c_while_the_demo_starts_leaves_nothing_running(tmp_path: Path) -> None:
    with started([*DEMO, "examples/digits.yaml"], tmp_path) as process:
        while not (tmp_path / "logs").exists():
            assert process.poll() is None
            time.sleep(0.05)

        process.send_signal(signal.SIGINT)

        assert process.wait(120) == 130
        assert left(tmp_path) == []


def test_a_demo_that_is_refused_exits_2_and_leaves_nothing_running(tmp_path: Path) -> None:
    study = tmp_path / "bad.yaml"
    study.write_text(Path("examples/digits.yaml").read_text().replace("steps: 300", "steps: -1"))
    home = tmp_path / "home"
    done = subprocess.run(
        [*DEMO, str(study)],
        env=environment(home) | {"TAN_RAY_ADDRESS": "http://127.0.0.1:9"},  # no study is run
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "train.steps" in done.stderr
    assert eventually_quiet(home, url_in(done.stdout))
