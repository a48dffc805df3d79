"""Moondream 2 and 3: x, y and, to detect, a size for every object, then the end; all of them typed values.

x and y are those of the centre, a bin is 1/1024 of the side; the bins of width and height are spaced evenly
in the logarithm, from 2**-10 to 1.
Source: the published description of the region head.
"""

from __future__ import annotations

from collections.abc import Sequence

from grammars.symbols import BINS, COORDINATE, END, SIZE
from grammars.types import Box, Item, Point, Task


class MoondreamDialect:
    """The score of an object is the probability that there is one, against the end of the list."""

    name = "moondream"

    def expression(self, task: Task) -> str:
        size = SIZE if task == "detect" else ""
        return f"({COORDINATE}{{2}}{size})*{END}"

    def arity(self, task: Task) -> int:
        return 4 if task == "detect" else 2

    def lower_slot(self, task: Task, slot: int) -> int | None:
        return None

    def prompt(self, task: Task, phrase: str) -> str:
        return f" {phrase}"

    def label(self, phrase: str) -> str | None:
        return None

    def parse(self, task: Task, bins: Sequence[int], probabilities: Sequence[float]) -> Item:
        score = min(1.0, max(0.0, probabilities[1]))
        x, y = bins[0] / BINS, bins[1] / BINS
        if task == "point":
            return Point(x, y, score)
        half_width, half_height = (_side(b) / 2 for b in bins[2:])
        return Box(
            max(0.0, x - half_width),
            max(0.0, y - half_height),
            min(1.0, x + half_width),
            min(1.0, y + half_height),
            score,
        )


def _side(size_bin: int) -> float:
    """Width or height of a bin."""
    side: float = 2.0 ** (size_bin / (BINS - 1) * 10 - 10)
    return side
