"""Traces reach a collector, and only where one was named."""

import builtins
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from fastapi import FastAPI
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

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
        agent = {"User-Agent": "of-secret"}
        asked = httpx.get(f"{url}/studies/s-secret?of=a-secret", headers=agent)
        assert asked.status_code == 404
        assert httpx.get(f"{url}/a-secret/b?c=a-secret").status_code == 404
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
    told = {each.key: each.value for each in request.attributes}
    assert told["http.route"].string_value == "/studies/{study_id}"
    assert told["http.status_code"].int_value == 404
    assert "secret" not in str(spans)


def test_of_an_error_a_span_tells_the_type_alone():
    """PostgreSQL quotes what was asked: 'Key (name)=(of-patients) already exists.'"""
    finished = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(finished))
    with (
        pytest.raises(ValueError, match="of-patients"),
        provider.get_tracer("test").start_as_current_span("INSERT"),
    ):
        raise ValueError("Key (name)=(of-patients) already exists.")

    (span,) = finished.get_finished_spans()
    told = telemetry.plain(span)

    assert "of-patients" in span.to_json()
    assert "of-patients" not in told.to_json()
    assert told.status.status_code is StatusCode.ERROR
    assert [dict(each.attributes or {}) for each in told.events] == [
        {"exception.type": "ValueError"}
    ]


async def test_a_collector_that_does_not_answer_holds_up_no_end(tmp_path, monkeypatch):
    monkeypatch.setattr(telemetry, "END_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes connections and never answers
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        app = FastAPI()
        end = telemetry.install(app, make_settings(tmp_path))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            await client.get("/")

        begun = time.monotonic()
        end()

        assert time.monotonic() - begun < 5


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
