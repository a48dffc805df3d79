"""A request inside a worker as a part of its caller's trace."""

from __future__ import annotations

from contextlib import AbstractContextManager

from opentelemetry.trace import Span, SpanKind
from opentelemetry.trace.status import StatusCode

from app.admission.messages import Completed, Terminal
from app.admission.worker_queue import Delivery
from app.tracing import TRACER, continued


def answering(delivery: Delivery) -> AbstractContextManager[Span]:
    """The work on one delivery; a second delivery is a second span of the same trace."""
    return TRACER.start_as_current_span(
        "answer",
        continued({"traceparent": delivery.traceparent}),
        SpanKind.CONSUMER,
        {
            "pointbox.ticket": delivery.id,
            "pointbox.attempt": delivery.attempt,
            "pointbox.task": delivery.task,
            "pointbox.phrases": delivery.rows,
            "pointbox.queue_ms": delivery.queue_ms,
        },
        record_exception=False,  # the text of an error may repeat what a caller sent
    )


def part(name: str) -> AbstractContextManager[Span]:
    """A stretch of that work."""
    return TRACER.start_as_current_span(name, record_exception=False, set_status_on_exception=False)


def concluded(span: Span, answer: Terminal) -> None:
    """Tells the span how the request ended."""
    if isinstance(answer, Completed):
        metrics = answer.metrics
        for name in ("prefill_ms", "decode_ms", "ttft_ms", "input_tokens", "output_tokens", "cached_tokens"):
            span.set_attribute(f"pointbox.{name}", getattr(metrics, name))
    else:
        span.set_attribute("pointbox.problem", answer.problem)
        span.set_status(StatusCode.ERROR)
