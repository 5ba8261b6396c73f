"""Traces of requests and database calls, for an operator who has a collector (extra ``otel``).

On where ``OTEL_EXPORTER_OTLP_ENDPOINT`` is set, and off otherwise: nothing is imported then. The other
``OTEL_*`` variables mean what OpenTelemetry says. Spans hold route templates and SQL with placeholders;
no argument of a statement, no header and no body.
"""

from collections.abc import Callable

from fastapi import FastAPI

from service.settings import Settings
from tan_core.errors import TanError


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
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise TelemetryError(
            f"OTEL_EXPORTER_OTLP_ENDPOINT asks for traces, and {error.name} is not installed: "
            "install tan-search[otel], or unset the variable"
        ) from error
    named = Resource({SERVICE_NAME: "tan-search"}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=named)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    FastAPIInstrumentor.instrument_app(
        app, tracer_provider=provider, excluded_urls="healthz,readyz"
    )
    database = PsycopgInstrumentor()
    database.instrument(tracer_provider=provider, skip_dep_check=True)

    def end() -> None:
        database.uninstrument()
        FastAPIInstrumentor.uninstrument_app(app)
        provider.shutdown()

    return end
