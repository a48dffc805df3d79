"""The default model's dialect: `<obj>` and location tokens for every object, then the end.

detect: y_min x_min y_max x_max; point: y x; a bin is 1/1024 of the side.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from grammars.symbols import BINS, COORDINATE, END, START
from grammars.types import Box, Item, Point, Task

COORDINATES_WEIGHT = 1 / 8


class PointboxDialect:
    """The score of an object is the probability of its `<obj>` against the end of the list, times the eighth
    root of the geometric mean of its coordinates' probabilities: see docs/scores.md.
    """

    name = "pointbox"

    def expression(self, task: Task) -> str:
        return f"({START}{COORDINATE}{{{self.arity(task)}}})*{END}"

    def arity(self, task: Task) -> int:
        return 4 if task == "detect" else 2

    def lower_slot(self, task: Task, slot: int) -> int | None:
        return slot - 2 if slot >= 2 else None

    def prompt(self, task: Task, phrase: str) -> str:
        return f"{task} {' '.join(phrase.split())}\n"

    def label(self, phrase: str) -> str | None:
        return None

    def parse(self, task: Task, bins: Sequence[int], probabilities: Sequence[float]) -> Item:
        mean = abs(prod(probabilities[1:])) ** (1 / len(bins))
        score = min(1.0, max(0.0, probabilities[0] * mean**COORDINATES_WEIGHT))
        if task == "detect":
            y_min, x_min, y_max, x_max = [b / BINS for b in bins]
            return Box(x_min, y_min, x_max, y_max, score)
        y, x = (b / BINS for b in bins)
        return Point(x, y, score)
