"""The engine's own answer as the message that a worker would send, so that all doors word answers alike."""

from __future__ import annotations

from app.admission.messages import Completed, Metrics, ObjectEvent
from engine.answer import Answer


def completed(answer: Answer, notes: list[str], intake_ms: float) -> Completed:
    """`notes`: those of the decoder; `intake_ms`: what fetching and decoding took."""
    objects = [
        ObjectEvent(box.phrase_index, (box.x_min, box.y_min, box.x_max, box.y_max), box.score)
        for box in answer.objects
    ]
    objects += [ObjectEvent(point.phrase_index, (point.x, point.y), point.score) for point in answer.points]
    engine = answer.metrics
    return Completed(
        model=answer.model,
        width=answer.width,
        height=answer.height,
        objects=objects,
        finish_reasons=[phrase.finish_reason for phrase in answer.phrases],
        metrics=Metrics(
            queue_ms=engine.wait_ms,
            intake_ms=intake_ms + engine.prepare_ms,
            prefill_ms=engine.prefill_ms,
            decode_ms=engine.decode_ms,
            ttft_ms=intake_ms + engine.ttft_ms,
            total_ms=intake_ms + engine.total_ms,
            input_tokens=engine.input_tokens,
            output_tokens=engine.output_tokens,
            cached_tokens=engine.cached_tokens,
        ),
        notes=[*notes, *answer.notes],
    )
