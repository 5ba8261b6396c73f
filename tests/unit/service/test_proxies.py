"""What runs on this machine is asked past the proxies of the environment: they know no such server, and would have its token."""

import asyncio
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from service.cli import complete
from service.cli.doctor import services
from service.db.tables import WebhookDelivery
from service.local.ray_head import RayHead
from service.local.supervisor import Supervisor
from service.orchestrator.ray_jobs import RayJobs
from service.webhooks.sender import WebhookSender

ANSWERS: dict[str, Any] = {
    "/readyz": {"status": "ok", "restored_backup": False, "detail": None},
    "/api/jobs/a": {"status": "RUNNING"},
    "/api/version": {"ray_version": "2"},
}


class Handler(BaseHTTPRequestHandler):
    """Answers everything."""

    def do_GET(self) -> None:
        body = json.dumps(ANSWERS.get(self.path, {"items": [{"id": "here"}]})).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Of a server on this machine, whose environment names a proxy that is not there."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def test_serve_sees_its_api_and_its_ray(port: int, tmp_path: Path) -> None:
    head = RayHead(tmp_path)
    head.environment()
    head.dashboard_port = port
    supervisor = Supervisor.__new__(Supervisor)
    supervisor.url = f"http://127.0.0.1:{port}"

    assert head.is_ready()
    assert supervisor._api_is_ready()  # pyright: ignore[reportPrivateUsage]


def test_the_orchestrator_reaches_ray_and_a_receiver_of_webhooks(port: int) -> None:
    delivery = WebhookDelivery(id="d-1", event="completed", body="{}")

    async def ask() -> tuple[Any, Any]:
        jobs = RayJobs(f"http://127.0.0.1:{port}")
        database: Any = None
        sender = WebhookSender(database, (), b"k")
        job = await jobs.status("a")
        answer = await sender._post(  # pyright: ignore[reportPrivateUsage]
            f"http://localhost:{port}/hook", delivery, datetime.now(UTC)
        )
        await jobs.close()
        return job, answer

    job, answer = asyncio.run(ask())
    assert job is not None
    assert answer == ("HTTP 200", True)


def test_the_command_line_does_too(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAN_API_URL", f"http://127.0.0.1:{port}")
    found = services._cluster(  # pyright: ignore[reportPrivateUsage]
        f"http://127.0.0.1:{port}", None, None
    )

    assert "has Ray 2" in str(found)
    assert [each["id"] for each in complete._items("/studies", {})] == ["here"]  # pyright: ignore[reportPrivateUsage]
