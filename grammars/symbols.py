"""The characters that stand for a model's special tokens in an expression.

An expression is matched on characters.  A location token gets one private character, so that the
spelled-out pieces of `<loc0001>` cannot slip in; the end of an answer gets one too, so that no accepting
state has exits (outlines_core drops some tokens there).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

BINS = 1024
END = "\ue400"
START = "\ue401"
LABEL = "\ue402"
SIZE = "\ue403"
COORDINATE = f"[{chr(0xE000)}-{chr(0xE000 + BINS - 1)}]"
_STANDS_IN = re.compile(f"[{chr(0xE000)}-{SIZE}]")


@dataclass(frozen=True, slots=True)
class Tokens:
    """The token ids that a dialect can use.

    coordinates: ids of bins 0..1023, ascending and contiguous.
    end: ids that end an answer.
    start: id of the start-of-object token, for dialects that have one.
    pieces: ordinary vocabulary, piece -> id, for dialects that spell something out.
    size: for models whose values are typed, the id of a width and height of bin 0.  The other sizes follow,
        width after width, as the sizes follow the coordinates; what ends an answer is one lower id.
    """

    coordinates: Sequence[int]
    end: Sequence[int]
    start: int | None = None
    pieces: Mapping[str, int] = field(default_factory=dict)
    size: int | None = None

    def __post_init__(self) -> None:
        first = self.coordinates[0]
        if list(self.coordinates) != list(range(first, first + BINS)):
            raise ValueError(f"a grammar needs {BINS} location tokens with consecutive ids")
        if self.size is not None and (
            self.size != first + BINS or len(self.end) != 1 or self.end[0] >= first or self.pieces
        ):
            raise ValueError("typed values are one end, then the coordinates, then the sizes, and no text")

    def spelled(self, label: int) -> dict[str, list[int]]:
        """Characters or pieces -> ids, as outlines_core's Vocabulary takes them.

        A piece with one of our own characters in it is left out: real vocabularies hold private characters.
        """
        pieces = ((piece, token) for piece, token in self.pieces.items() if not _STANDS_IN.search(piece))
        spelled = {piece: [token] for piece, token in pieces if piece}
        spelled |= {chr(0xE000 + i): [token] for i, token in enumerate(self.coordinates)}
        spelled[END] = list(self.end)
        spelled[LABEL] = [label]
        if self.start is not None:
            spelled[START] = [self.start]
        if self.size is not None:
            spelled[SIZE] = [self.size]
        return spelled
