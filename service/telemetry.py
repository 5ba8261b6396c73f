"""Traces of requests and database calls, for an operator who has a collector (extra ``otel``).

On where ``OTEL_EXPORTER_OTLP_ENDPOINT`` is set, and off otherwise: nothing is imported then. The other
``OTEL_*`` variables mean what OpenTelemetry says. Spans hold route templates and SQL with placeholders;
no argument of a statement, no path, no query, no body and no header but those of the caller's own trace. The instrumentations would tell of
all these, and PostgreSQL's errors of arguments, so what leaves is chosen here.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from fastapi import FastAPI

from service.settings import Settings
from tan_core.errors import TanError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.util.types import AttributeValue

TOLD = frozenset(
    {
        "asgi.event.type",
        "db.name",
        "db.namespace",
        "db.statement",
        "db.query.text",
        "db.system",
        "db.system.name",
        "error.type",
        "exception.type",
        "http.flavor",
        "http.method",
        "http.request.method",
        "http.response.status_code",
        "http.route",
        "http.scheme",
        "http.status_code",
        "network.protocol.version",
        "url.scheme",
    }
)
"""Attributes of spans and of their events that leave this process."""
END_SECONDS = 5.0
"""A collector that does not answer may hold up the end of the process for as long."""


class TelemetryError(TanError, RuntimeError):
    """Traces were asked for and cannot be sent; the message says what to install."""


def install(app: FastAPI, settings: Settings) -> Callable[[], None]:
    """Trace this application. What comes back sends the last spans and ends the tracing.

    Raises:
        TelemetryError: a package of the extra is not installed.
    """
    if settings.otlp_endpoint is None:
        return lambda: None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
        from opentelemetry.instrumentation.psycopg import PsycopgInstrumentor
        from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
    except ImportError as error:
        raise TelemetryError(
            f"OTEL_EXPORTER_OTLP_ENDPOINT asks for traces, and {error.name} is not installed: "
            "install tan-search[otel], or unset the variable"
        ) from error
    named = Resource({SERVICE_NAME: "tan-search"}).merge(OTELResourceDetector().detect())

    class Exporter(OTLPSpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            return super().export([plain(span) for span in spans])

    provider = TracerProvider(resource=named, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(Exporter()))
    FastAPIInstrumentor.instrument_app(
        app, tracer_provider=provider, excluded_urls="healthz,readyz"
    )
    database = PsycopgInstrumentor()
    database.instrument(tracer_provider=provider, skip_dep_check=True)

    def end() -> None:
        database.uninstrument()
        FastAPIInstrumentor.uninstrument_app(app)
        # It sends what is left, again and again where nobody takes it.
        last = threading.Thread(target=provider.shutdown, daemon=True)
        last.start()
        last.join(END_SECONDS)

    return end


def plain(span: "ReadableSpan") -> "ReadableSpan":
    """The span with what is in :data:`TOLD` alone: of an error its type, as its message may quote what was asked."""
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.trace import Status

    def told(attributes: "Mapping[str, AttributeValue] | None") -> "dict[str, AttributeValue]":
        return {key: value for key, value in (attributes or {}).items() if key in TOLD}

    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes=told(span.attributes),
        events=[Event(each.name, told(each.attributes), each.timestamp) for each in span.events],
        links=span.links,
        kind=span.kind,
        status=Status(span.status.status_code),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )
