"""A whole answer, put together from events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.events import TRUNCATED, WORST_FIRST, EngineMetrics, Event, Failed, Finished, FinishReason, Found
from engine.request import Request
from grammars.types import Box

if TYPE_CHECKING:  # the command line reads answers without torch
    from engine.models.base import ModelInfo


@dataclass(frozen=True, slots=True)
class Detection:
    """A box in fractions of the upright image."""

    x_min: float
    y_min: float
    x_max: float
    y_max: float
    label: str
    phrase_index: int
    score: float


@dataclass(frozen=True, slots=True)
class PointHit:
    """A point in fractions of the upright image."""

    x: float
    y: float
    label: str
    phrase_index: int
    score: float


@dataclass(frozen=True, slots=True)
class PhraseResult:
    object: str
    finish_reason: FinishReason
    truncated: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """Ordered by phrase, then as the model wrote; width and height in pixels of the upright image.

    notes: what to know of how its model answers.
    """

    model: str
    width: int
    height: int
    objects: tuple[Detection, ...]
    points: tuple[PointHit, ...]
    phrases: tuple[PhraseResult, ...]
    finish_reason: FinishReason
    truncated: bool
    metrics: EngineMetrics
    notes: tuple[str, ...] = ()


def collect(model: ModelInfo, request: Request, events: Iterable[Event]) -> Answer:
    """Build the answer of a finished request.  Raises its EngineError if it failed."""
    found: list[list[Found]] = [[] for _ in request.phrases]
    reasons: list[FinishReason] = ["stop"] * len(request.phrases)
    metrics: EngineMetrics | None = None
    for event in events:
        match event:
            case Found(phrase_index=index):
                found[index].append(event)
            case Finished():
                metrics = event.metrics
            case Failed():
                raise event.error
            case _:
                reasons[event.phrase_index] = event.finish_reason
    if metrics is None:
        raise ValueError("the events of this request do not end with Finished")
    objects: list[Detection] = []
    points: list[PointHit] = []
    for event in (e for phrase in found for e in phrase):
        label, index, item = request.phrases[event.phrase_index], event.phrase_index, event.item
        if isinstance(item, Box):
            objects.append(
                Detection(item.x_min, item.y_min, item.x_max, item.y_max, label, index, item.score)
            )
        else:
            points.append(PointHit(item.x, item.y, label, index, item.score))
    worst = min(reasons, key=WORST_FIRST.index)
    return Answer(
        model=model.name,
        width=request.image.shape[1],
        height=request.image.shape[0],
        objects=tuple(objects),
        points=tuple(points),
        phrases=tuple(
            PhraseResult(p, r, r in TRUNCATED) for p, r in zip(request.phrases, reasons, strict=True)
        ),
        finish_reason=worst,
        truncated=worst in TRUNCATED,
        metrics=metrics,
        notes=model.notes_on(request.task),
    )
