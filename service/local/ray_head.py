"""A local Ray head as our own child process: ``ray start --head --block``.

Never ``ray stop``: that would end every Ray on the machine. SIGTERM to the child cleans up its own.
"""

import hashlib
import os
import secrets
import socket
import sys
import tempfile
from pathlib import Path

import httpx

OBJECT_STORE_BYTES = 300 * 1024 * 1024


def free_port() -> int:
    """A TCP port on the loopback that nobody listens on just now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class RayHead:
    """Command, environment and health of the head; the supervisor owns the process."""

    def __init__(self, home: Path, *, cpus: int | None = None) -> None:
        self.home = home
        self.cpus = cpus or os.cpu_count() or 1
        self.token_path = home / "ray.token"
        self.dashboard_port = free_port()
        self.gcs_port = free_port()

    @property
    def address(self) -> str:
        """Address of the Jobs API."""
        return f"http://127.0.0.1:{self.dashboard_port}"

    def command(self) -> list[str]:
        """The command to run in the foreground. A restarted head keeps its address."""
        # Ray's socket paths must stay below 107 characters, whatever the length of TAN_HOME.
        digest = hashlib.sha256(str(self.home).encode()).hexdigest()[:8]
        temp = Path(tempfile.gettempdir()) / f"tan-ray-{os.getuid()}-{digest}"
        temp.mkdir(mode=0o700, exist_ok=True)
        return [
            str(Path(sys.executable).with_name("ray")),
            "start", "--head", "--block", "--disable-usage-stats",
            "--node-ip-address=127.0.0.1", f"--port={self.gcs_port}",
            "--include-dashboard=true", "--dashboard-host=127.0.0.1",
            f"--dashboard-port={self.dashboard_port}",
            f"--dashboard-agent-listen-port={free_port()}",
            f"--dashboard-agent-grpc-port={free_port()}",
            f"--ray-client-server-port={free_port()}",
            f"--num-cpus={self.cpus}", f"--object-store-memory={OBJECT_STORE_BYTES}",
            f"--temp-dir={temp}",
        ]  # fmt: skip

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
        }

    def is_ready(self) -> bool:
        """Whether the Jobs API answers with our token."""
        try:
            response = httpx.get(
                f"{self.address}/api/jobs/",
                headers={"Authorization": f"Bearer {self.token_path.read_text().strip()}"},
                timeout=5,
            )
        except (httpx.HTTPError, OSError):
            return False
        return response.status_code == httpx.codes.OK

    def _ensure_token(self) -> None:
        if not self.token_path.exists():
            descriptor = os.open(self.token_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_hex(32))
