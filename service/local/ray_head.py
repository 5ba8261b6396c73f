"""A local Ray head as our own child process: ``ray start --head --block``.

Never ``ray stop``: that would end every Ray on the machine. SIGTERM to the child cleans up its own.
"""

import contextlib
import hashlib
import os
import random
import secrets
import shutil
import socket
import stat
import sys
import tempfile
from http import HTTPStatus
from pathlib import Path

import httpx

KEPT_SESSIONS = 3
"""Ray's own logs of earlier starts that are kept."""

SHORT = Path("/tmp")  # noqa: S108 - what is made in it is private
LONGEST = 103 - len("/session_2026-12-01_02-38-53_430538_4194304/sockets/plasma_store")
"""Bytes of the path of the folder for Ray's sessions: those of its sockets may be 107 long, or 103 on a Mac."""


# Between Ray's worker ports and the system's ephemeral ones, where others choose at random.
_PORTS = range(20_000, 32_000)


def free_port() -> int:
    """A TCP port on the loopback that nobody uses just now, and that few others would take next."""
    for port in random.SystemRandom().sample(_PORTS, k=200):
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port
    raise OSError("no free TCP port between 20000 and 32000")


def _node_address() -> list[str]:
    """Keeps Ray on the loopback. It replaces 127.0.0.1 by the machine's own address, but no other."""
    return ["--node-ip-address=127.0.0.2"] if sys.platform == "linux" else []


class RayHead:
    """Command, environment and health of the head; the supervisor owns the process."""

    def __init__(self, home: Path, *, cpus: int | None = None) -> None:
        self.home = home
        self.cpus = cpus or os.cpu_count() or 1
        self.token_path = home / "ray.token"
        self.choose_ports()

    def choose_ports(self) -> None:
        """Choose where it listens; a restarted head keeps its address."""
        self.dashboard_port, self.gcs_port = free_port(), free_port()

    @property
    def address(self) -> str:
        """Address of the Jobs API."""
        return f"http://127.0.0.1:{self.dashboard_port}"

    def command(self) -> list[str]:
        """The command to run in the foreground."""
        return [
            str(Path(sys.executable).with_name("ray")),
            "start", "--head", "--block", "--disable-usage-stats",
            *_node_address(), f"--port={self.gcs_port}",
            "--include-dashboard=true", "--dashboard-host=127.0.0.1",
            f"--dashboard-port={self.dashboard_port}",
            f"--dashboard-agent-listen-port={free_port()}",
            f"--dashboard-agent-grpc-port={free_port()}",
            f"--ray-client-server-port={free_port()}",
            f"--num-cpus={self.cpus}",
            f"--temp-dir={self._make_private_directory()}",
        ]  # fmt: skip

    @property
    def _directory(self) -> Path:
        """A directory of our own for what is temporary."""
        digest = hashlib.sha256(str(self.home).encode()).hexdigest()[:8]
        return Path(tempfile.gettempdir()) / f"tan-ray-{os.getuid()}-{digest}"

    @property
    def _sessions(self) -> Path:
        """For Ray's sessions; below ``/tmp`` where the path would be too long for their sockets."""
        path = self._directory / "r"
        return path if len(os.fsencode(path)) <= LONGEST else SHORT / self._directory.name / "r"

    @property
    def _scratch(self) -> Path:
        """Temporary files of all that runs in Ray: who is killed leaves them, and the next start clears them."""
        return self._directory / "t"

    def _make_private_directory(self) -> Path:
        """For Ray's sessions, below one that stays ours: Ray opens the directory that it is given to everybody."""
        of_ray = self._sessions
        for path in {self._directory, of_ray.parent}:
            path.mkdir(mode=0o700, exist_ok=True)
            found = path.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                raise PermissionError(f"{path} belongs to somebody else: remove it, or set TMPDIR")
            path.chmod(0o700)
        shutil.rmtree(self._scratch, ignore_errors=True)
        for made in (of_ray, self._scratch):
            made.mkdir(exist_ok=True)
        sessions = sorted(of_ray.glob("session_2*"), key=lambda each: each.lstat().st_mtime)
        for old in sessions[:-KEPT_SESSIONS]:
            shutil.rmtree(old, ignore_errors=True)
        return of_ray

    def environment(self) -> dict[str, str]:
        """Token authentication on, no phoning home, no colour."""
        self._ensure_token()
        return {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token_path),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_DEDUP_LOGS": "1",
            # Nothing to hand over to on one machine: what was running goes on after the next start.
            "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
            "RAY_COLOR_PREFIX": "0",
            "RAY_enable_open_telemetry": "false",
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": str(self._scratch),
        }

    def is_ready(self) -> bool:
        """Whether the Jobs API answers with our token."""
        try:
            return self._ask("/api/jobs/").status_code == HTTPStatus.OK
        except (httpx.HTTPError, OSError):
            return False

    def has_node(self) -> bool | None:
        """Whether it counts a node that lives; None: it does not say."""
        try:
            said = self._ask("/api/v0/nodes").json()
            return any(node["state"] == "ALIVE" for node in said["data"]["result"]["result"])
        except (httpx.HTTPError, OSError, LookupError, TypeError, ValueError):
            return None

    def _ask(self, path: str) -> httpx.Response:
        return httpx.get(
            f"{self.address}{path}",
            headers={"Authorization": f"Bearer {self.token_path.read_text().strip()}"},
            timeout=5,
            trust_env=False,  # a proxy of the environment would have the token, and no Ray
        )

    def _ensure_token(self) -> None:
        if not self.token_path.exists():
            descriptor = os.open(self.token_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_hex(32))
