"""The public PaliGemma checkpoints: `<locY0><locX0><locY1><locX1> label`, objects separated by ` ; `.

Only `detect` was trained; `point` answers with the centres of the boxes.
Source: the big_vision description of PaliGemma's detection suffixes.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from grammars.symbols import BINS, COORDINATE, END, LABEL
from grammars.types import Box, Item, Point, Task


class PaliGemmaDialect:
    """The score of an object is the mean probability of its coordinates."""

    name = "paligemma"

    def expression(self, task: Task) -> str:
        box = f"{COORDINATE}{{4}}{LABEL}"
        return f"({box}( ; ?{box})*)?{END}"

    def arity(self, task: Task) -> int:
        return 4

    def lower_slot(self, task: Task, slot: int) -> int | None:
        return slot - 2 if slot >= 2 else None

    def prompt(self, task: Task, phrase: str) -> str:
        return f"detect {self._clean(phrase)}\n"

    def label(self, phrase: str) -> str | None:
        return f" {self._clean(phrase)}"

    def parse(self, task: Task, bins: Sequence[int], probabilities: Sequence[float]) -> Item:
        score = min(1.0, max(0.0, fmean(probabilities[1:])))
        y_min, x_min, y_max, x_max = (b / BINS for b in bins)
        if task == "detect":
            return Box(x_min, y_min, x_max, y_max, score)
        return Point((x_min + x_max) / 2, (y_min + y_max) / 2, score)

    @staticmethod
    def _clean(phrase: str) -> str:
        return " ".join(phrase.replace(";", ",").split())
