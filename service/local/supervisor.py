"""Starts, watches and stops everything that one machine needs.

PostgreSQL, then Ray beside it, the API, the orchestrator. A child that dies is started again, and so is an API
that lives and answers nothing, a Ray head whose node is gone, and an orchestrator that lives and does nothing; what was running goes on from the database. When the supervisor itself is killed, its children end with it,
but for PostgreSQL, which is found again by the next start and stopped with that one.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from types import FrameType
from typing import IO

import httpx

from service.access.service import make_first
from service.datasets.overlap import digest_key
from service.datasets.service import ensure_digits
from service.db.embedded import EmbeddedPostgres, make_home, take_lock
from service.db.migrate import upgrade
from service.db.session import Database
from service.health.schemas import Readiness
from service.hosts import connectable, url_of
from service.local.ray_head import RayHead
from service.local.short_logs import keep_short
from service.local.watch import AnswerWatch, NodeWatch, PulseWatch, Watch
from service.settings import Settings, bare_environment, own_settings
from service.trouble import Trouble

log = logging.getLogger(__name__)

START_TIMEOUT_SECONDS = 180.0
RAY_TRIES = 3
STOP_TIMEOUT_SECONDS = 45.0
POLL_SECONDS = 0.3
HEALTH_SECONDS = 5.0
STEADY_SECONDS = 60.0
CONNECTIONS = 100
"""To PostgreSQL: one API process, the orchestrator, and people."""
CONNECTIONS_OF_AN_API = 20
"""Its pool, what it listens on, and some to spare."""
# Only the migration needs the owner of the tables; Ray is given nothing of ours at all.
_NOT_FOR_CHILDREN = frozenset({"TAN_DATABASE_OWNER_URL"})
MAX_BACKOFF_SECONDS = 30.0
LAST_LINES = 15
"""Of a log, for whoever is told that what writes it did not start."""


class ServiceError(Exception):
    """The local service cannot start; the message says why and what to do."""


@dataclass(slots=True)
class Child:
    """A process that is kept running."""

    name: str
    command: Callable[[], list[str]]
    environment: Mapping[str, str]
    log_path: Path
    pass_fds: tuple[int, ...] = ()
    watch: Watch | None = None
    """None: that it lives is enough."""
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    failures: int = 0
    not_before: float = 0.0
    _log: IO[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        """Start it in a process group of its own, tethered to this process."""
        self.log_path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._log = self.log_path.open("ab")
        tether = [sys.executable, "-m", "service.local.tether", str(os.getpid())]
        self.process = subprocess.Popen(
            [*tether, *self.command()],
            env=bare_environment(**self.environment),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=self.pass_fds,
        )
        self.started_at = time.monotonic()
        if self.watch is not None:
            self.watch.begin()

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self.process is not None and self.process.poll() is None

    def end_if_hung(self) -> None:
        """Kill it where it lives and gives no sign of it: what hangs would not hear SIGTERM either."""
        if self.watch is None or not self.watch.is_hung or not self.is_running:
            return
        watch = self.watch
        told = "%s lives, and has %s for %g s; killing it"
        log.warning(told, self.name, watch.missing, watch.silence_seconds)
        self._end_group(signal.SIGKILL)
        self.watch.begin()

    def restart_if_dead(self) -> None:
        """Start it again after a pause that grows with each quick death."""
        now = time.monotonic()
        if self.is_running:
            if self.failures and now - self.started_at > STEADY_SECONDS:
                self.failures = 0
            return
        if self.not_before == 0.0:
            code = self.process.returncode if self.process else None
            pause = min(0.5 * 2**self.failures, MAX_BACKOFF_SECONDS)
            self.failures += 1
            self.not_before = now + pause
            log.warning(
                "%s ended (exit code %s); starting it again in %.1f s", self.name, code, pause
            )
        elif now >= self.not_before:
            self._end_group(signal.SIGKILL)
            self.not_before = 0.0
            self.start()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL to the whole group if that is not heard."""
        if self.process is None:
            return
        if self.is_running:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_TIMEOUT_SECONDS)
        self._end_group(signal.SIGKILL)
        self.process.wait()
        if self.watch is not None:
            self.watch.close()
        if self._log is not None:
            self._log.close()

    def tail(self) -> str:
        """The end of its log."""
        with contextlib.suppress(OSError):
            return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-LAST_LINES:])
        return ""

    def _end_group(self, number: signal.Signals) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)


class Supervisor:
    """The whole product on one machine, for as long as :meth:`run` runs."""

    def __init__(self, settings: Settings, *, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._say = say
        self._home = settings.home_path
        self._postgres: EmbeddedPostgres | None = None
        self._of_postgres = Trouble(log)
        self._children: list[Child] = []
        self._stopping = False
        self._lock: int | None = None
        self._socket: socket.socket | None = None
        self._first_token: str | None = None
        self.url = ""

    def run(self, *, ready: Callable[[str, str | None], None]) -> None:
        """Start everything, say that it is ready, watch over it until SIGINT or SIGTERM.

        ``ready`` gets the address, and the first admin token where one was just made.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)
        try:
            if self._start():
                ready(self.url, self._first_token)
                self._watch()
        finally:
            self._stop()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True

    def _start(self) -> bool:
        """Start one after the other; False: it was told to stop on the way, and begins nothing further."""
        settings = self._settings
        try:
            make_home(self._home)
            # Before anything else is touched: whoever serves this home already needs its address and Ray's files.
            self._lock = take_lock(self._home / "serve.lock")
        except OSError as error:
            raise ServiceError(
                f"cannot keep anything in {self._home}: {error.strerror}. Free some space there, "
                "or choose with --home a folder that this user can write."
            ) from error
        listener = self._listen()
        environment = {
            **own_settings(without=_NOT_FOR_CHILDREN),
            "TAN_HOME": str(self._home),
            "TAN_HOST": settings.host,
            "TAN_PORT": str(listener.getsockname()[1]),
            "TAN_STORAGE": str(settings.storage_path),
            "PYTHONUNBUFFERED": "1",
        }
        if settings.storage is None:
            settings.storage_path.mkdir(exist_ok=True, mode=0o700)
        ray = self._start_ray()
        environment["TAN_DATABASE_URL"] = self._start_database()
        if self._stopping:
            return False
        apis = [
            self._add_api("api" if number == 1 else f"api-{number}", environment, listener)
            for number in range(1, settings.api_workers + 1)
        ]
        self._await("the API", self._api_is_ready, apis[0])
        environment |= self._ray_environment(ray)
        if self._stopping:
            return False
        self._add_orchestrator(environment)
        path = self._home / "server.json"
        path.write_text(json.dumps({"url": self.url, "pid": os.getpid()}))
        return True

    def _listen(self) -> socket.socket:
        """The API's socket, held here: it outlives the API, so requests wait while that restarts."""
        host, port = self._settings.host, self._settings.port
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family, backlog=1024)
        except OSError as error:
            raise ServiceError(
                f"cannot listen on {host}:{port}: {error.strerror}. Is another tan-cli serve "
                "running? Choose another port with --port."
            ) from error
        self.url = url_of(connectable(host), self._socket.getsockname()[1])
        return self._socket

    def _start_database(self) -> str:
        settings = self._settings
        if settings.database_url is not None:
            app = settings.database_url.get_secret_value()
            owner = settings.database_owner_url
            owner_url = owner.get_secret_value() if owner else app
            if owner_url == app:
                self._say(
                    "warning: the service owns its tables, so only triggers and the hash chain "
                    "protect the ledger; set TAN_DATABASE_OWNER_URL to a role of its own"
                )
        else:
            self._say("starting PostgreSQL")
            connections = str(CONNECTIONS + CONNECTIONS_OF_AN_API * (settings.api_workers - 1))
            self._postgres = EmbeddedPostgres(self._home, settings={"max_connections": connections})
            self._postgres.start()
            app, owner_url = self._postgres.url_app, self._postgres.url_owner
        self._say("migrating the database")
        upgrade(owner_url, app_role=_user_of(app))
        self._first_token = asyncio.run(_fill(app, settings))
        return app

    def _start_ray(self) -> tuple[RayHead, Child] | None:
        if self._settings.ray_address is not None:
            return None
        self._say("starting Ray")
        head = RayHead(self._home, cpus=self._settings.cpus)
        watch = NodeWatch(head.has_node)
        return head, self._add("ray", head.command, head.environment(), watch=watch)

    def _ray_environment(self, ray: tuple[RayHead, Child] | None) -> dict[str, str]:
        """Where the orchestrator finds Ray, once it answers."""
        settings = self._settings
        if ray is None:
            token = settings.ray_token_path
            return {
                "TAN_RAY_ADDRESS": settings.ray_address or "",
                **({"TAN_RAY_TOKEN_PATH": str(token)} if token else {}),
            }
        head, child = ray
        for _ in range(RAY_TRIES - 1):
            if self._comes_up(head.is_ready, child) or self._stopping:
                break
            # Somebody took a port between its choice and its use.
            child.stop()
            head.choose_ports()
            child.start()
        self._await("Ray", head.is_ready, child)
        return {"TAN_RAY_ADDRESS": head.address, "TAN_RAY_TOKEN_PATH": str(head.token_path)}

    def _add_api(self, name: str, environment: Mapping[str, str], listener: socket.socket) -> Child:
        silence = self._settings.api_silence_seconds
        watch = AnswerWatch(silence) if silence else None
        sockets = (listener.fileno(), *([watch.fd] if watch else []))
        listens = {"TAN_LISTEN_FD": ",".join(map(str, sockets))}
        return self._add(
            name,
            lambda: _module("service.app"),
            {**environment, **listens},
            pass_fds=sockets,
            watch=watch,
        )

    def _add_orchestrator(self, environment: Mapping[str, str]) -> None:
        silence = self._settings.orchestrator_silence_seconds
        pulse = (self._settings.pulse_file or self._home / "orchestrator.pulse").absolute()
        self._add(
            "orchestrator",
            lambda: _module("service.orchestrator"),
            {**environment, "TAN_PULSE_FILE": str(pulse)},
            watch=PulseWatch(pulse, silence) if silence else None,
        )

    def _add(
        self,
        name: str,
        command: Callable[[], list[str]],
        environment: Mapping[str, str],
        *,
        pass_fds: tuple[int, ...] = (),
        watch: Watch | None = None,
    ) -> Child:
        child = Child(
            name=name,
            command=command,
            environment=dict(environment),
            log_path=self._home / "logs" / f"{name}.log",
            pass_fds=pass_fds,
            watch=watch,
        )
        self._children.append(child)
        child.start()
        return child

    def _api_is_ready(self) -> bool:
        try:
            answer = httpx.get(f"{self.url}/readyz", timeout=5, trust_env=False)
            if answer.status_code != HTTPStatus.OK:
                return False
            ready = Readiness.model_validate_json(answer.content)
        except (httpx.HTTPError, ValueError):
            return False
        if ready.detail is not None:
            # It is up, and refuses all but a look at the ledger: the operator decides.
            self._say(ready.detail)
        return True

    def _await(self, what: str, is_ready: Callable[[], bool], child: Child) -> None:
        if not self._comes_up(is_ready, child) and not self._stopping:
            raise ServiceError(
                f"{what} did not start; the end of {child.log_path}:\n{child.tail()}"
            )

    def _comes_up(self, is_ready: Callable[[], bool], child: Child) -> bool:
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while not self._stopping and child.is_running and time.monotonic() < deadline:
            if is_ready():
                return True
            time.sleep(POLL_SECONDS)
        return False

    def _watch(self) -> None:
        next_health = time.monotonic() + HEALTH_SECONDS
        while not self._stopping:
            for child in self._children:
                child.end_if_hung()
                child.restart_if_dead()
            if time.monotonic() >= next_health:
                if self._postgres is not None:
                    self._keep_postgres_up(self._postgres)
                keep_short(self._home / "logs")
                next_health = time.monotonic() + HEALTH_SECONDS
            time.sleep(POLL_SECONDS)

    def _keep_postgres_up(self, postgres: EmbeddedPostgres) -> None:
        if postgres.is_healthy():
            self._of_postgres.is_over()
            return
        self._of_postgres.met("PostgreSQL does not answer; starting it again")
        try:
            postgres.start()
        except Exception as error:  # noqa: BLE001 - whatever it was, the next look tries again
            self._of_postgres.met("PostgreSQL did not start; trying again", error)

    def _stop(self) -> None:
        self._say("stopping")
        if self._lock is not None:
            (self._home / "server.json").unlink(missing_ok=True)
        for child in reversed(self._children):
            child.stop()
        if self._postgres is not None:
            self._postgres.stop()
        if self._socket is not None:
            self._socket.close()
        if self._lock is not None:
            os.close(self._lock)


async def _fill(url: str, settings: Settings) -> str | None:
    """Register the bundled data; the token of an admin, where everybody is asked and nobody has one."""
    database = Database(url)
    try:
        await ensure_digits(database, key=digest_key(settings.home_path))
        if not settings.serves_others:
            return None
        stated = settings.api_token.get_secret_value() if settings.api_token else None
        return await make_first(database, stated=stated)
    finally:
        await database.close()


def _module(name: str) -> list[str]:
    return [sys.executable, "-m", name]


def _user_of(url: str) -> str | None:
    return httpx.URL(url.replace("+psycopg", "")).username or None
