"""How the queue and the workers stand, for operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.admission.messages import WorkerInfo


@dataclass(frozen=True, slots=True)
class Lane:
    """The requests of one model and priority, of all tenants."""

    model: str
    priority: str
    waiting: int
    taken: int
    """In the hands of a worker."""
    oldest_s: float
    """How long the first of those that wait has waited; 0 when none does."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Counts since Redis started, and the present moment."""

    counts: dict[str, int]
    """`admitted:PRIORITY`; the problems of those refused; how the others ended: completed, failed, ..."""
    lanes: list[Lane]
    workers: list[WorkerInfo]


def read_figures(answer: list[Any], workers: list[WorkerInfo]) -> Figures:
    """What the script `figures` returned."""
    pairs = zip(answer[0][::2], answer[0][1::2], strict=True)
    return Figures(
        {name.decode(errors="replace"): int(number) for name, number in pairs if number.isdigit()},
        [
            Lane(model.decode(errors="replace"), priority.decode(), waiting, taken, oldest_ms / 1000)
            for model, priority, waiting, taken, oldest_ms in answer[1:]
        ],
        workers,
    )
