"""The image that a request is about."""

from __future__ import annotations

from dataclasses import dataclass

from app.admission.images import ImageRef
from app.intake.cost import ORDINARY, Cost


@dataclass(frozen=True, slots=True)
class Picture:
    """An image with a readable header. `width` and `height` are those of the upright image, in pixels."""

    data: bytes | ImageRef
    width: int
    height: int
    id: str | None = None
    """Where it was uploaded before."""
    cost: Cost = ORDINARY
    """What decoding it will take of a worker."""

    @property
    def size(self) -> int:
        """Of the original bytes."""
        return self.data.size if isinstance(self.data, ImageRef) else len(self.data)
