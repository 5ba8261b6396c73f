"""What ``tan-cli`` reads from the environment: where the server is, and who is asking.

Plain standard library, so that ``tan-cli --help`` does not wait for a settings framework. The
variables mean what they mean in ``service/settings.py``.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DEFAULT_URL = "http://127.0.0.1:8321"
DEFAULT_HOME = "~/.tan"


@dataclass(frozen=True, kw_only=True)
class ClientSettings:
    """Where requests go."""

    api_url: str = DEFAULT_URL
    token: str | None = None
    is_stated: bool = False
    """Whether TAN_API_URL names the server."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> "ClientSettings":
        """``TAN_API_URL``, else the running local server of ``TAN_HOME``, else the default port."""
        values = os.environ if environ is None else environ
        home = Path(values.get("TAN_HOME") or DEFAULT_HOME).expanduser()
        url = values.get("TAN_API_URL") or running_server(home) or DEFAULT_URL
        return cls(
            api_url=url.rstrip("/"),
            token=values.get("TAN_API_TOKEN") or None,
            is_stated=bool(values.get("TAN_API_URL")),
        )


def running_server(home: Path) -> str | None:
    """Address of the service that lives in ``home``, if its process does."""
    try:
        server = json.loads((home / "server.json").read_text())
        url, pid = str(server["url"]), int(server["pid"])
        os.kill(pid, 0)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return url if _is_ours(pid) else None


def _is_ours(pid: int) -> bool:
    """Whether a process is a service: after a loss of power somebody else may have its number."""
    try:
        return b"service.local" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return not Path("/proc/self/cmdline").exists()  # a system that does not say
