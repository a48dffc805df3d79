"""From what the engine found to the answer that a caller reads. HTTP and the command line share this."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import msgspec
from msgspec import UNSET

from app.admission.messages import Completed, ObjectEvent
from app.spatial.schemas import (
    Box,
    DetectAnswer,
    FinishReason,
    ImageInfo,
    Metrics,
    PhraseInfo,
    Point,
    PointAnswer,
    Task,
    Units,
)

FROM_BEST_TO_WORST: tuple[str, ...] = get_args(FinishReason)
TRUNCATED = frozenset({"max_objects", "length", "deadline"})


def build_answer(
    task: Task,
    completed: Completed,
    *,
    request_id: str,
    phrases: Sequence[str],
    units: Units,
    image_id: str | None = None,
    own_id: str | None = None,
    intake_ms: float = 0.0,
) -> DetectAnswer | PointAnswer:
    """The whole answer, its coordinates clamped to the image and never inverted.

    Args:
        own_id: the caller's name for its request.
        intake_ms: what the image took before its request was queued.
    """
    size = (completed.width, completed.height)
    found = [build_object(task, event, phrases, units, size) for event in completed.objects]
    infos = [
        PhraseInfo(object=phrase, finish_reason=reason, truncated=reason in TRUNCATED)
        for phrase, reason in zip(phrases, completed.finish_reasons, strict=True)
    ]
    worst = max((info.finish_reason for info in infos), key=FROM_BEST_TO_WORST.index)
    common = {
        "request_id": request_id,
        "id": UNSET if own_id is None else own_id,
        "notes": completed.notes or UNSET,
        "model": completed.model,
        "image": ImageInfo(width=completed.width, height=completed.height, id=image_id),
        "phrases": infos,
        "finish_reason": worst,
        "truncated": any(info.truncated for info in infos),
        "metrics": _metrics(completed, intake_ms),
    }
    if task == "detect":
        return DetectAnswer(objects=found, **common)  # type: ignore[arg-type]
    return PointAnswer(points=found, **common)  # type: ignore[arg-type]


def build_object(
    task: Task, event: ObjectEvent, phrases: Sequence[str], units: Units, size: tuple[int, int]
) -> Box | Point:
    """One object with its label. `size` is (width, height) of the upright image, for pixel units."""
    scale, digits = (size, 3) if units == "pixels" else ((1, 1), 6)
    values = [
        round(min(max(value, 0.0), 1.0) * scale[axis % 2], digits) for axis, value in enumerate(event.box)
    ]
    about = {
        "label": phrases[event.phrase_index],
        "phrase_index": event.phrase_index,
        "score": round(min(max(event.score, 0.0), 1.0), 6),
    }
    if task == "point":
        x, y = values
        return Point(x=x, y=y, **about)  # type: ignore[arg-type]
    (x_min, x_max), (y_min, y_max) = sorted(values[0::2]), sorted(values[1::2])
    return Box(x_min=x_min, y_min=y_min, x_max=x_max, y_max=y_max, **about)  # type: ignore[arg-type]


def _metrics(completed: Completed, intake_ms: float) -> Metrics:
    values = msgspec.structs.asdict(completed.metrics)
    for name in ("intake_ms", "ttft_ms", "total_ms"):
        values[name] += intake_ms
    return Metrics(**{name: round(value, 3) for name, value in values.items()})
