"""A request inside a worker as a part of its caller's trace."""

from __future__ import annotations

from contextlib import AbstractContextManager

from opentelemetry.trace import Span, SpanKind
from opentelemetry.trace.status import StatusCode

from app.admission.messages import Completed, Terminal
from app.admission.worker_queue import Delivery
from app.tracing import continued, span


def answering(delivery: Delivery) -> AbstractContextManager[Span]:
    """The work on one delivery; a second delivery is a second span of the same trace."""
    return span(
        "answer",
        continued({"traceparent": delivery.traceparent}),
        SpanKind.CONSUMER,
        attributes={
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
    return span(name, record_exception=False, set_status_on_exception=False)


def concluded(around: Span, answer: Terminal) -> None:
    """Tells the span how the request ended."""
    if not around.is_recording():
        return
    if isinstance(answer, Completed):
        metrics = answer.metrics
        for name in ("prefill_ms", "decode_ms", "ttft_ms", "input_tokens", "output_tokens", "cached_tokens"):
            around.set_attribute(f"pointbox.{name}", getattr(metrics, name))
    else:
        around.set_attribute("pointbox.problem", answer.problem)
        around.set_status(StatusCode.ERROR)
