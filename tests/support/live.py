"""A whole running service for the tests that look at it from outside, and kill parts of it."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil

from service.local.handle import LocalService
from tests.support import temporary

TERMINAL = ("completed", "failed", "cancelled")


def digits_study(name: str, **changes: Any) -> dict[str, Any]:
    """A study of seconds on the bundled digits; ``changes`` replace whole sections' keys."""
    study: dict[str, Any] = {
        "name": name,
        "privacy": {"epsilon": 3.0, "delta": 1e-5},
        "dataset": "digits",
        "model": {"name": "linear"},
        "search": {
            "accounting": "declared_unaccounted",
            "trials": 4,
            "seed": 0,
            "space": {"learning_rate": {"low": 0.5, "high": 8.0, "log": True}},
        },
        "train": {"batch_size": 128, "steps": 100, "workers": 2},
    }
    for section, values in changes.items():
        study[section] = {**study[section], **values} if isinstance(values, dict) else values
    return study


class StudyApi:
    """Studies of a running service; who inherits says how a request reaches it."""

    def request(self, method: str, path: str, **kwargs: Any) -> httpx.Response:
        """One request."""
        raise NotImplementedError

    def get(self, path: str) -> Any:
        """The JSON of a GET that must succeed."""
        response = self.request("GET", path)
        assert response.status_code == 200, response.text
        return response.json()

    def submit(self, study: dict[str, Any]) -> str:
        """Submit a study and return its id."""
        response = self.request("POST", "/studies", json=study)
        assert response.status_code == 201, response.text
        return response.json()["id"]

    def wait(
        self,
        study_id: str,
        until: Callable[[dict[str, Any]], bool] = lambda study: study["state"] in TERMINAL,
        *,
        seconds: float = 400,
    ) -> dict[str, Any]:
        """The study once it is as wanted; a terminal state ends the wait in any case."""
        deadline = time.monotonic() + seconds
        while True:
            study = self.get(f"/studies/{study_id}")
            if until(study):
                return study
            assert study["state"] not in TERMINAL, f"ended as {study['state']}: {study}"
            assert time.monotonic() < deadline, f"not so after {seconds} s: {study}"
            time.sleep(0.2)

    def complete(self, study_id: str, *, seconds: float = 400) -> dict[str, Any]:
        """The study, completed."""
        study = self.wait(study_id, seconds=seconds)
        assert study["state"] == "completed", (study["reason"], study["error"])
        return study


class LiveService(StudyApi):
    """A running ``python -m service.local`` with a client and a way to find its processes."""

    def __init__(self, home: Path, **environment: str) -> None:
        self.home = home
        self._environment = environment
        self._handle: LocalService | None = None
        # A client of its own for each request would read all certificates each time, which costs ten times the
        # request; a connection that is kept may be to a process that is killed.
        self._client = httpx.Client(timeout=60, limits=httpx.Limits(max_keepalive_connections=0))
        self.url = ""
        self._headers: dict[str, str] = {}
        if token := environment.get("TAN_API_TOKEN"):
            self._headers["Authorization"] = f"Bearer {token}"

    def start(self) -> "LiveService":
        """Start it; a service that was killed is started again on what it left."""
        self.stop()
        self._handle = LocalService(
            self.home, environment=temporary.ENVIRONMENT | self._environment
        )
        self.url = self._handle.start()
        return self

    def stop(self) -> int:
        """Stop it with everything it started."""
        return self._handle.stop() if self._handle else 0

    @property
    def pid(self) -> int:
        """The supervisor's process id."""
        assert self._handle is not None
        assert self._handle.process is not None
        return self._handle.process.pid

    @property
    def lines(self) -> list[str]:
        """What it has said on standard error since its start."""
        assert self._handle is not None
        return self._handle.lines

    def request_once(self, method: str, path: str, **kwargs: Any) -> httpx.Response:
        """One request, whatever comes of it."""
        headers = {**self._headers, **kwargs.pop("headers", {})}
        return self._client.request(method, self.url + path, headers=headers, **kwargs)

    def request(self, method: str, path: str, **kwargs: Any) -> httpx.Response:
        """One request; a service that is just coming back is given time."""
        deadline = time.monotonic() + 60
        while True:
            try:
                response = self.request_once(method, path, **kwargs)
                if response.status_code != 503 or time.monotonic() > deadline:
                    return response
            except httpx.TransportError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.3)

    def processes(self, *words: str) -> list[psutil.Process]:
        """Processes below the supervisor, and jobs of its Ray, whose command line holds the words."""
        found = []
        for process in psutil.Process(self.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                line = " ".join(process.cmdline()) or process.name()
                if all(word in line for word in words):
                    found.append(process)
        return found

    def kill(self, *words: str) -> int:
        """``kill -9`` the one process (the first of several ranks) that the words name."""
        deadline = time.monotonic() + 60
        while not (found := self.processes(*words)):
            assert time.monotonic() < deadline, f"no process with {words}"
            time.sleep(0.05)
        found[-1].kill()
        return found[-1].pid
