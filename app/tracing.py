"""OpenTelemetry: one trace for a request, from HTTP through the queue to its last token.

Spans name routes, ids, counts and times; never phrases, images or keys. Without a collector they cost next to
nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from app.settings import SettingsError

_TRACER = trace.get_tracer("pointbox")
_PROPAGATOR = TraceContextTextMapPropagator()
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def configure(process: str) -> None:
    """Send spans by OTLP over HTTP to where OpenTelemetry's own variables say; nowhere when none is set.

    Args:
        process: api or worker; the service is `pointbox-PROCESS` unless OTEL_SERVICE_NAME says otherwise.

    Raises:
        SettingsError: the packages that send them are not installed.
    """
    if not any(os.environ.get(name) for name in _ENDPOINTS):
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise SettingsError(
            "traces need more packages: pip install '.[otel]' in Pointbox's repository"
        ) from None
    name = os.environ.get("OTEL_SERVICE_NAME") or f"pointbox-{process}"
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


def span(
    name: str, context: Context | None = None, kind: trace.SpanKind = trace.SpanKind.INTERNAL, **options: Any
) -> AbstractContextManager[trace.Span]:
    """As a tracer's start_as_current_span; one that never begins where it would go nowhere."""
    if context is None and isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return nullcontext(trace.INVALID_SPAN)
    return _TRACER.start_as_current_span(name, context, kind, **options)


def traceparent() -> str:
    """The present span for others to continue; empty when there is none."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    return carrier.get("traceparent", "")


def continued(headers: Mapping[str, str]) -> Context | None:
    """The context that `traceparent` and `tracestate` name; None when they name none."""
    return _PROPAGATOR.extract(headers) if headers.get("traceparent") else None
