"""A local Ray, and a control plane that keeps its books in memory and checks them."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from tan_core.data import inspect
from tan_core.mechanism import Mechanism
from tan_core.spec import SearchSpec, TrainerConfig
from tan_core.wire import (
    DatasetRef,
    Finish,
    Heartbeat,
    HeartbeatReply,
    MechanismMessage,
    PrivateAssignment,
    SearchAssignment,
    SegmentEnd,
    SegmentGrant,
    SegmentRequest,
    TrialRecord,
    TrialReport,
)
from tests.support.datasets import dataset_ref
from tests.support.ports import free_port

TOKEN = "token-of-one-attempt"


@dataclass
class Books:
    """What a control plane would have in its database."""

    assignment: SearchAssignment | PrivateAssignment
    fence: int = 1
    desired: str = "run"
    reservation: int = 10**9
    trials: dict[int, TrialRecord] = field(default_factory=dict)
    reports: list[TrialRecord] = field(default_factory=list)
    segments: dict[str, tuple[SegmentRequest, SegmentGrant]] = field(default_factory=dict)
    ended: list[SegmentEnd] = field(default_factory=list)
    heartbeats: list[tuple[float, Heartbeat]] = field(default_factory=list)
    finishes: list[Finish] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    charged_until: int = 0
    refuse_ends_with: int | None = None
    """The status that the end of a segment is answered with, where it is not taken down."""

    @property
    def charged(self) -> int:
        return sum(grant.num_steps for _, grant in self.segments.values())

    @property
    def step(self) -> int:
        return max((beat.step or 0 for _, beat in self.heartbeats), default=0)

    def grant(self, request: SegmentRequest) -> SegmentGrant:
        if request.request_id not in self.segments:
            granted = min(request.num_steps, self.reservation - self.charged)
            self.segments[request.request_id] = (
                request,
                SegmentGrant(segment=len(self.segments) + 1, num_steps=granted),
            )
            self.charged_until = request.start_step + granted
        return self.segments[request.request_id][1]

    def next_attempt(self) -> None:
        """A new fence and the last checkpoint, as after an expired lease."""
        assert isinstance(self.assignment, PrivateAssignment)
        self.fence += 1
        self.charged_until = 0
        self.heartbeats.clear()
        self.assignment = self.assignment.model_copy(
            update={
                "fence": self.fence,
                "attempt": self.fence,
                "checkpoint": self.ended[-1].checkpoint if self.ended else None,
            }
        )


class ControlPlaneServer(ThreadingHTTPServer):
    daemon_threads = True
    books: Books
    lock = threading.Lock()

    def handle_error(self, request: object, client_address: object) -> None:
        """A killed client breaks its connection: that is what the tests do."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ControlPlaneServer

    def answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        with self.server.lock:
            status, reply = self._route(body)
        content = reply.encode()
        self.send_response(status)
        kind = "application/problem+json" if status >= 400 else "application/json"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = answer  # noqa: N815 - names of http.server

    def _route(self, body: bytes) -> tuple[int, str]:
        books = self.server.books
        path, _, query = self.path.removeprefix("/worker/runs/").partition("?")
        run_id, *parts = path.split("/")
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return 401, '{"detail": "unknown token"}'
        if run_id != books.assignment.run_id:
            return 404, '{"detail": "no such run"}'
        if parts == ["segments"] and books.desired == "cancel":
            return 409, '{"detail": "the study is being cancelled"}'
        fence = json.loads(body)["fence"] if body else int(query.removeprefix("fence="))
        if fence != books.fence or books.finishes:
            return 409, json.dumps({"detail": f"attempt {fence} is over"})
        match parts:
            case [] | [""]:
                return 200, books.assignment.model_dump_json()
            case ["heartbeat"]:
                self._heartbeat(books, Heartbeat.model_validate_json(body))
                return 200, HeartbeatReply.model_validate(
                    {"desired": books.desired}
                ).model_dump_json()
            case ["trials", _]:
                trial = TrialReport.model_validate_json(body).trial
                books.trials[trial.number] = trial
                books.reports.append(trial)
                return 204, ""
            case ["segments"]:
                grant = books.grant(SegmentRequest.model_validate_json(body))
                return 200, grant.model_dump_json()
            case ["segments", _, "end"] if books.refuse_ends_with is not None:
                return books.refuse_ends_with, '{"detail": "not now"}'
            case ["segments", _, "end"]:
                books.ended.append(SegmentEnd.model_validate_json(body))
                return 204, ""
            case ["finish"]:
                books.finishes.append(Finish.model_validate_json(body))
                return 204, ""
            case _:
                return 404, '{"detail": "no such path"}'

    def _heartbeat(self, books: Books, beat: Heartbeat) -> None:
        books.heartbeats.append((time.monotonic(), beat))
        if beat.step is None:
            return
        if beat.step > books.charged_until:
            books.faults.append(f"step {beat.step} ran, charged up to {books.charged_until}")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def new_books() -> type[Books]:
    return Books


@contextlib.contextmanager
def serving() -> Iterator[ControlPlaneServer]:
    server = ControlPlaneServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def plane() -> Iterator[ControlPlaneServer]:
    with serving() as server:
        yield server


@dataclass(frozen=True)
class RayHead:
    address: str
    process: subprocess.Popen[bytes]
    home: Path

    def worker_lines(self) -> list[str]:
        """What its workers have written to standard error, a line each."""
        files = (self.home / "session_latest" / "logs").glob("worker-*.err")
        return [line for file in files for line in file.read_text(errors="replace").splitlines()]

    def workers(self, *titles: str) -> list[psutil.Process]:
        """Processes of this head, and of no other Ray on the machine, by their title."""
        beginnings = tuple(f"ray::{title}" for title in titles)
        return [each for each in self.children() if title_of(each).startswith(beginnings)]

    def trials(self) -> list[psutil.Process]:
        """Processes of trials: under the name of the class that Tune wraps them in while they do something."""
        return self.workers("ResourceTrainable", "SimulatedTrial")

    def children(self) -> list[psutil.Process]:
        """All processes that it has started."""
        return psutil.Process(self.process.pid).children(recursive=True)


def title_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@contextlib.contextmanager
def running_head(port: int, *options: str, **environment: str) -> Iterator[RayHead]:
    """A Ray head as a child of the tests."""
    home = Path(tempfile.mkdtemp(prefix="tr", dir="/tmp"))
    command = [
        str(Path(sys.executable).with_name("ray")), "start", "--head", "--block",
        "--disable-usage-stats", "--node-ip-address=127.0.0.1", f"--port={port}",
        "--include-dashboard=false", f"--dashboard-port={free_port()}",
        f"--dashboard-agent-listen-port={free_port()}",
        f"--dashboard-agent-grpc-port={free_port()}",
        f"--ray-client-server-port={free_port()}",
        "--num-gpus=0", "--object-store-memory=100000000", f"--temp-dir={home}", *options,
    ]  # fmt: skip
    with (home / "head.log").open("wb") as log:
        head = subprocess.Popen(
            command, env=ray_environment() | environment, stdout=log, stderr=log
        )
    try:
        wait_for(lambda: accepts(port), seconds=60)
        yield RayHead(f"127.0.0.1:{port}", head, home)
    finally:
        below = psutil.Process(head.pid).children(recursive=True)
        head.terminate()
        head.wait(timeout=60)
        for process in psutil.wait_procs(below, timeout=10)[1]:  # nodes that its autoscaler started
            process.kill()
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def ray_head() -> Iterator[RayHead]:
    """Of two cores."""
    with running_head(free_port(), "--num-cpus=2") as head:
        yield head


def ray_environment() -> dict[str, str]:
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith(("RAY_", "TAN_"))},
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        # Ray Train leaves an actor behind that SIGTERM would wait 30 s for.
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
        "OMP_NUM_THREADS": "1",
    }


def accepts(port: int) -> bool:
    with socket.socket() as sock:
        sock.settimeout(0.5)
        return sock.connect_ex(("127.0.0.1", port)) == 0


def wait_for(condition: Callable[[], object], *, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:g} s")
        time.sleep(0.05)


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(ray_head: RayHead, plane: ControlPlaneServer) -> Iterator[Start]:
    """Starts a driver as the Jobs API would: a process with five environment variables."""
    drivers: list[subprocess.Popen[str]] = []

    def start(module: str, **changes: str) -> "subprocess.Popen[str]":
        environment = {
            **ray_environment(),
            "RAY_ADDRESS": ray_head.address,
            "TAN_API_URL": plane.url,
            "TAN_RUN_ID": plane.books.assignment.run_id,
            "TAN_FENCE": str(plane.books.fence),
            "TAN_RUN_TOKEN": TOKEN,
            **changes,
        }
        driver = subprocess.Popen(
            [sys.executable, "-m", module],
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        drivers.append(driver)
        return driver

    yield start
    for driver in drivers:
        if driver.poll() is None:
            driver.kill()
        driver.communicate()


@pytest.fixture(scope="session")
def digits() -> DatasetRef:
    return dataset_ref(inspect(None, source="digits"))


@pytest.fixture
def search_of(digits: DatasetRef) -> Callable[..., SearchAssignment]:
    def make(**changes: Any) -> SearchAssignment:
        return SearchAssignment.model_validate(
            {
                "run_id": "s1-search",
                "study_id": "s1",
                "study_name": "digits",
                "attempt": 1,
                "fence": 1,
                "search": SearchSpec.model_validate(
                    {
                        "accounting": "declared_unaccounted",
                        "trials": 6,
                        "space": {"learning_rate": {"low": 0.5, "high": 8.0, "log": True}},
                    }
                ),
                "model": {"name": "linear"},
                "trainer": TrainerConfig(),
                "reference": MechanismMessage(event=mechanism(digits, steps=40).to_json()),
                "target": None,
                "num_examples": digits.num_train,
                "rungs": [16, 64],
                "max_examples": 256 * 40,
                # Each process of a trial takes seconds to start: a second one is for who needs trials side by side.
                "max_concurrent": 1,
                "dataset": digits,
                "trials": [],
                **changes,
            }
        )

    return make


@pytest.fixture
def private_of(digits: DatasetRef, tmp_path: Path) -> Callable[..., PrivateAssignment]:
    def make(*, steps: int = 40, **changes: Any) -> PrivateAssignment:
        return PrivateAssignment.model_validate(
            {
                "run_id": "s1-private",
                "study_id": "s1",
                "study_name": "digits",
                "attempt": 1,
                "fence": 1,
                "mechanism": MechanismMessage(event=mechanism(digits, steps=steps).to_json()),
                "num_examples": digits.num_train,
                "model": {"name": "linear"},
                "trainer": TrainerConfig(learning_rate=4.0, ema_decay=0.9),
                "workers": 2,
                "microbatch_size": 256,
                "segment_steps": 10,
                "dataset": digits,
                "checkpoint": None,
                "storage_path": str(tmp_path / "runs" / "s1-private"),
                **changes,
            }
        )

    return make


def mechanism(digits: DatasetRef, *, steps: int) -> Mechanism:
    return Mechanism(
        sampling_rate=256 / digits.num_train, noise_multiplier=2.0, clip_norm=1.0, steps=steps
    )


__all__ = ["Books", "ControlPlaneServer", "RayHead", "Start"]
