"""What a dialect is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from grammars.types import Item, Task


class Dialect(Protocol):
    """The written form of a model family's answers."""

    @property
    def name(self) -> str: ...

    def expression(self, task: Task) -> str:
        """The regular expression of an answer, over the characters of `grammars.symbols`."""
        ...

    def arity(self, task: Task) -> int:
        """How many coordinates an object has."""
        ...

    def lower_slot(self, task: Task, slot: int) -> int | None:
        """For an upper coordinate, the slot of the lower one that it must exceed."""
        ...

    def prompt(self, task: Task, phrase: str) -> str:
        """The text that asks for a phrase, separators inside the phrase replaced."""
        ...

    def label(self, phrase: str) -> str | None:
        """The text of a label placeholder, for dialects whose answers repeat the phrase."""
        ...

    def parse(self, task: Task, bins: Sequence[int], probabilities: Sequence[float]) -> Item:
        """One object from its coordinates: bins, or fractions of the frame where numbers are spelled out.

        probabilities: of the token before them (1 where there was none), then of each coordinate.
        """
        ...
