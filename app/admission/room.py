"""How many further phrases a worker may take."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from app.admission.messages import SpatialParams
from app.admission.worker_queue import Delivery


class Room:
    """Counts what is in flight against the rows and pages of the engine.

    Args:
        max_batch: rows.
        batch_share: part of the rows that batch phrases get while there are interactive ones.
        flood_share: part of the rows that a tenant gets which floods, while others have requests.
        pages_for: pages that a phrase takes at most, by its `max_objects`.
    """

    def __init__(
        self, max_batch: int, batch_share: float, flood_share: float, pages_for: Callable[[int], int]
    ) -> None:
        self.capacity = max_batch + max(2, max_batch // 4)
        """Phrases: those in the batch and a few that are being decoded for it."""
        self.flood_rows = max(1, int(flood_share * max_batch))
        self.costly = max(2, self.capacity // 4)
        """Requests at a time whose pictures are costly and not prepared yet."""
        self._batch_rows = max(1, int(batch_share * max_batch))
        self._pages_for = pages_for
        self._usual_pages = pages_for(SpatialParams(phrases=[]).max_objects)

    def left(self, deliveries: Iterable[Delivery], pages: int, lately: bool = False) -> tuple[int, int]:
        """Phrases of interactive and of batch requests that may be taken now.

        Interactive ones may come although batch ones hold all rows: the engine gives them the next that
        gets free, and meanwhile their images are decoded.

        Args:
            deliveries: in flight.
            pages: of the engine, all together.
            lately: whether there were interactive ones a moment ago; the next is likely on its way.
        """
        load = {"interactive": 0, "batch": 0}
        for delivery in deliveries:
            load[delivery.priority] += delivery.rows
            pages -= delivery.rows * self._pages_for(delivery.params.max_objects)
        interactive, batch = load["interactive"], load["batch"]
        most = pages // self._usual_pages if interactive or batch else self.capacity
        rows = self.capacity - interactive - min(batch, self._batch_rows)
        batch_rows = self.capacity - batch
        if interactive or lately:
            batch_rows = min(batch_rows - interactive, self._batch_rows - batch)
        return max(0, min(rows, most)), max(0, min(batch_rows, most))
