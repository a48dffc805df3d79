"""Where the answers of all rows of a batch stand, as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from grammars.automaton import NO_STATE
from grammars.symbols import BINS
from grammars.types import TASKS, Item, Task

if TYPE_CHECKING:
    from grammars.grammar import Grammar

NO_LOWER = -1
"""Column of the lower bound of a coordinate that has none."""
Rows = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Cursors:
    """State, open object and coordinate bounds of R rows.

    A lower coordinate stops one bin short of the end and an upper one starts one past its lower, so every
    state allows at least one token and no box is empty or inverted.

    state [R]: row of `Grammar.masks`.  low, high [R]: bins that the next coordinate may take.
    """

    def __init__(self, grammar: Grammar, rows: int) -> None:
        self._grammar = grammar
        self.state = np.zeros(rows, np.int32)
        self.low = np.zeros(rows, np.int32)
        self.high = np.full(rows, BINS - 1, np.int32)
        self._values = np.full((rows, self.width(grammar)), -1, np.int32)
        """Bins of the open object at 1 + slot; the last column stays -1, one below every bin."""
        self._probabilities = np.ones((rows, 1 + int(grammar.place.max())))
        """Of the token before the open object's coordinates, then of these."""
        self._last = np.zeros(rows, np.int64)

    @staticmethod
    def width(grammar: Grammar) -> int:
        """Columns of the values of an open object."""
        return 2 + int(grammar.place.max())

    def start(self, row: int, task: Task) -> None:
        """A new answer begins in a row."""
        self._values[row] = -1
        self._enter(np.array([row]), np.array([self._grammar.initial(task)]))
        self._probabilities[row, 0] = 1.0

    def ended(self, rows: Rows) -> Flags:
        return self._grammar.final[self.state[rows]]

    def label_due(self, rows: Rows) -> Flags:
        """Whether the next tokens of a row are those of its label, which are not sampled."""
        due: Flags = self._grammar.after_label[self.state[rows]] != NO_STATE
        return due

    def before_label(self, rows: Rows) -> Flags:
        """Whether the next token of a row, whatever it is, is followed by a label."""
        return self._grammar.before_label[self.state[rows]]

    def last_token(self, row: int) -> int:
        """The id of the last token that a row took."""
        return int(self._grammar.alphabet[self._last[row]])

    def advance(self, rows: Rows, positions: Rows, probabilities: npt.NDArray[np.floating]) -> Flags:
        """Take one token per row, at alphabet positions [n]; which rows completed an object.

        Raises ValueError, and changes nothing, if a state or bounds do not allow a token.
        """
        grammar, state = self._grammar, self.state[rows]
        kind = grammar.class_of[positions]
        following = grammar.next_state[state, kind]
        place = grammar.place[state, kind]
        values = positions - grammar.first_coordinate
        wrong = (place > 0) & ((values < self.low[rows]) | (values > self.high[rows]))
        wrong |= following == NO_STATE
        if wrong.any():
            raise ValueError(f"token {int(grammar.alphabet[positions[wrong][0]])} is not allowed here")
        self._last[rows] = positions
        self._values[rows, place] = values
        self._probabilities[rows, place] = probabilities
        self._enter(rows, following)
        return grammar.complete[state, kind]

    def item(self, row: int) -> Item:
        """The object that the last token of a row completed."""
        grammar = self._grammar
        task = TASKS[grammar.task[self.state[row]]]
        end = 1 + grammar.dialect.arity(task)
        probabilities = self._probabilities[row, :end].tolist()
        self._probabilities[row, 0] = 1.0
        return grammar.dialect.parse(task, self._values[row, 1:end].tolist(), probabilities)

    def pass_label(self, row: int) -> None:
        """Step over the label placeholder after its tokens were written."""
        self._enter(np.array([row]), self._grammar.after_label[self.state[[row]]])

    def _enter(self, rows: Rows, state: npt.NDArray[np.int32]) -> None:
        self.state[rows] = state
        self.low[rows] = self._values[rows, self._grammar.lower[state]] + 1
        self.high[rows] = self._grammar.top[state]
