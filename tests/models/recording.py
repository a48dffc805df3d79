"""A dialect that tells what it was given."""

from __future__ import annotations

from collections.abc import Sequence

from grammars.dialects.moondream import MoondreamDialect
from grammars.types import Item, Task


class Recording(MoondreamDialect):
    """bins: of every object so far, one after the other; clamped boxes do not show all of them."""

    def __init__(self) -> None:
        self.bins: list[int] = []

    def parse(self, task: Task, bins: Sequence[int], probabilities: Sequence[float]) -> Item:
        self.bins += bins
        return super().parse(task, bins, probabilities)
