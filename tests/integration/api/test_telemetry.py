"""Traces reach a collector, and only where one was named."""

import builtins
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from fastapi import FastAPI
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from service import telemetry
from tests.fixtures.api import make_settings
from tests.integration.api.test_process import environment, wait_until_ready
from tests.support.ports import free_port


@pytest.fixture
def collector():
    """A collector's address, and the spans that it was sent."""
    spans = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    spans.extend(scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", spans
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.slow
def test_a_request_and_its_queries_are_one_trace(collector, tmp_path, database_urls):
    address, spans = collector
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "service.app"],
        env=environment(
            tmp_path, TAN_DATABASE_URL=database_urls.app, TAN_PORT=str(port),
            OTEL_EXPORTER_OTLP_ENDPOINT=address, OTEL_EXPORTER_OTLP_COMPRESSION="none",
        ),
    )  # fmt: skip
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until_ready(process, url)
        assert httpx.get(f"{url}/studies/s-secret").status_code == 404
        process.terminate()
        assert process.wait(timeout=30) == 0  # the last spans are sent before the end
    finally:
        process.kill()
        process.wait()
    (request,) = [span for span in spans if span.name == "GET /studies/{study_id}"]
    queries = [span for span in spans if span.trace_id == request.trace_id and span != request]
    assert any(span.name == "SELECT" for span in queries)
    statements = [
        each.value.string_value
        for span in queries
        for each in span.attributes
        if each.key in ("db.statement", "db.query.text")
    ]
    assert statements
    assert not any("s-secret" in statement for statement in statements)


def test_without_an_endpoint_nothing_is_imported(tmp_path, monkeypatch):
    plain = builtins.__import__

    def refuse(name: str, *rest, **options):
        if name.startswith("opentelemetry"):
            raise ModuleNotFoundError(name, name=name)
        return plain(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    telemetry.install(FastAPI(), make_settings(tmp_path))()

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    with pytest.raises(telemetry.TelemetryError, match=r"install tan-search\[otel\]"):
        telemetry.install(FastAPI(), make_settings(tmp_path))
