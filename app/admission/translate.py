"""What the engine says about one request, as messages."""

from __future__ import annotations

import time

from app.admission.messages import Completed, Failure, Metrics, ObjectEvent, PhraseEvent
from app.admission.worker_queue import Delivery
from engine.errors import EngineError
from engine.events import EngineMetrics, Found, PhraseEnded
from grammars.types import Box, Item

_PROBLEMS = {
    "invalid-request": "invalid-request",
    "invalid-phrase": "invalid-phrase",
    "too-large": "image-too-large",
    "unsupported-task": "unsupported-task",
    "unknown-model": "unknown-model",
    "deadline-exceeded": "deadline-exceeded",
    "cancelled": "cancelled",
    "out-of-memory": "unavailable",
}


class Transcript:
    """Collects the events of one delivery into its answer."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._began = time.monotonic()
        self._objects: list[list[ObjectEvent]] = [[] for _ in range(delivery.rows)]
        self._reasons = ["stop"] * delivery.rows

    def found(self, event: Found) -> ObjectEvent:
        """Books one object."""
        message = ObjectEvent(event.phrase_index, _corners(event.item), float(event.item.score))
        self._objects[event.phrase_index].append(message)
        return message

    def phrase_ended(self, event: PhraseEnded) -> PhraseEvent:
        """Books why a phrase has no further object."""
        self._reasons[event.phrase_index] = event.finish_reason
        return PhraseEvent(event.phrase_index, event.finish_reason)

    def completed(
        self, model: str, width: int, height: int, notes: list[str], intake_ms: float, engine: EngineMetrics
    ) -> Completed:
        """The whole answer. `total_ms` and `ttft_ms` count from admission."""
        queue_ms = self._delivery.queue_ms
        metrics = Metrics(
            queue_ms=queue_ms,
            intake_ms=intake_ms,
            prefill_ms=engine.prefill_ms,
            decode_ms=engine.decode_ms,
            ttft_ms=queue_ms + intake_ms + engine.ttft_ms,
            total_ms=queue_ms + intake_ms + (time.monotonic() - self._began) * 1000,
            input_tokens=engine.input_tokens,
            output_tokens=engine.output_tokens,
            cached_tokens=engine.cached_tokens,
        )
        return Completed(
            model=model,
            width=width,
            height=height,
            objects=[item for phrase in self._objects for item in phrase],
            finish_reasons=self._reasons,
            metrics=metrics,
            notes=notes,
        )


def _corners(item: Item) -> tuple[float, ...]:
    if isinstance(item, Box):
        return float(item.x_min), float(item.y_min), float(item.x_max), float(item.y_max)
    return float(item.x), float(item.y)


def failure(error: EngineError) -> Failure:
    """An engine's error as the problem its caller is told."""
    return Failure(problem=_PROBLEMS.get(error.kind, "internal"), detail=str(error), field=error.field)
