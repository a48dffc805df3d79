"""Qwen2.5-VL and Qwen3-VL: a JSON list, `[{"bbox_2d":[x1,y1,x2,y2],"label":"cat"},...]` or `[]`.

Points are `{"point_2d":[x,y],"label":"cat"}`.  Numbers are spelled digit by digit; which of the rest is
sampled follows from how a tokenizer writes the text: the first token where two ways to go on differ.
Source: the grounding examples that were published with the models.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from grammars.spelled import DIGITS, Marks
from grammars.types import Box, Item, Point, Task

KEYS: dict[Task, str] = {"detect": "bbox_2d", "point": "point_2d"}
NOTHING, LAST, SEPARATOR, CLOSE = "[]", '"}]', ",", '],"label":"'
Encode = Callable[[str], list[int]]
"""Text -> ids of a tokenizer, no special ones."""


class QwenDialect:
    """The score of an object is the probability of its beginning against the end of the list."""

    name = "qwen"

    def expression(self, task: Task) -> str:
        """Over the text of an answer; a grammar is not compiled from it."""
        number = f"(0|[1-9][0-9]{{0,{DIGITS - 1}}})"
        numbers = SEPARATOR.join([number] * self.arity(task))
        one = rf'\{{"{KEYS[task]}":\[{numbers}\],"label":"([^"\\]|\\.)*"\}}'
        return rf"\[\]|\[{one}(,{one})*\]"

    def arity(self, task: Task) -> int:
        return 4 if task == "detect" else 2

    def lower_slot(self, task: Task, slot: int) -> int | None:
        return slot - 2 if slot >= 2 else None

    def prompt(self, task: Task, phrase: str) -> str:
        wanted = '"' + " ".join(phrase.replace('"', "'").split()) + '"'
        if task == "detect":
            return f"Locate every instance of {wanted}, report bbox coordinates in JSON format."
        return f"Locate every instance of {wanted} with points, report point coordinates in JSON format."

    def label(self, phrase: str) -> str | None:
        return CLOSE + json.dumps(phrase, ensure_ascii=False)[1:-1]

    def parse(self, task: Task, bins: Sequence[float], probabilities: Sequence[float]) -> Item:
        """bins: fractions of the frame."""
        score = min(1.0, max(0.0, probabilities[0]))
        if task == "detect":
            x_min, y_min, x_max, y_max = bins
            return Box(x_min, y_min, x_max, y_max, score)
        x, y = bins
        return Point(x, y, score)


class Writing:
    """How a tokenizer writes the answers of one task.

    opening: tokens that every answer begins with.
    tail: tokens between a label and the decision whether another object follows.
    """

    def __init__(self, task: Task, encode: Encode) -> None:
        """Raises ValueError for a tokenizer that does not write one digit a token."""
        key = f'{{"{KEYS[task]}":['
        self.opening, first, nothing = _parted(encode(f"[{key}"), encode(NOTHING))
        self.tail, another, last = _parted(encode(f'"}},{key}'), encode(LAST))
        digits, separator = [encode(str(digit)) for digit in range(10)], encode(SEPARATOR)
        close = encode(CLOSE)
        numbers = [*digits[4], *digits[0], *separator, *digits[7]]
        if any(len(digit) != 1 for digit in digits) or len(separator) != 1 or numbers != encode("40,7"):
            raise ValueError("the tokenizer does not write numbers digit by digit")
        self.marks = Marks(
            digits=tuple(token for (token,) in digits),
            separator=separator[0],
            close=close[0],
            first=first[0],
            another=another[0],
            nothing=nothing[0],
            last=last[0],
            after_first=tuple(first[1:]),
            after_another=tuple(another[1:]),
        )

    def label(self, tokens: list[int]) -> list[int]:
        """The run after the mark that closes an object, from the tokens of `QwenDialect.label`."""
        return [*tokens[1:], *self.tail]


def _parted(one: list[int], other: list[int]) -> tuple[list[int], list[int], list[int]]:
    """What two lists have in common at their beginning, and what is left of each; something always is."""
    same = next(i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return one[:same], one[same:], other[same:]
