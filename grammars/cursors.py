"""Where the answers of all rows of a batch stand, as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from grammars.automaton import NO_STATE
from grammars.symbols import BINS
from grammars.types import TASKS, Frame, Item, Task

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
        width = self.width(grammar)
        self.state = np.zeros(rows, np.int64)
        self.low = np.zeros(rows, np.int64)
        self.high = np.full(rows, BINS - 1, np.int64)
        self._last = np.zeros(rows, np.int64)
        self._base = np.arange(rows) * width
        """Where a row begins in the two arrays below, [R * width]."""
        self._values = np.full(rows * width, -1, np.int64)
        """Bins of the open object at 1 + slot; the last column stays -1, one below every bin."""
        self._probabilities = np.ones(rows * width)
        """Of the token before the open object's coordinates, then of these."""
        self._width = width
        # the grammar's tables, flat and as indices: numpy is quickest with these
        self._class_of = grammar.class_of.astype(np.int64)
        self._classes = grammar.next_state.shape[1]
        self._following = grammar.next_state.ravel().astype(np.int64)
        self._place = grammar.place.ravel().astype(np.int64)
        self._complete = grammar.complete.ravel()
        self._lower = np.where(grammar.lower == NO_LOWER, width - 1, grammar.lower).astype(np.int64)
        self._top = grammar.top.astype(np.int64)
        self._first, self._size = grammar.first_coordinate, grammar.size

    @staticmethod
    def width(grammar: Grammar) -> int:
        """Columns of the values of an open object."""
        return 2 + max(map(grammar.dialect.arity, TASKS))

    def start(self, row: int, task: Task, frame: Frame | None = None) -> None:
        """A new answer begins in a row; its numbers lie in a frame where they are spelled out."""
        begin, state = int(self._base[row]), self._grammar.initial(task)
        self._values[begin : begin + self._width] = -1
        self._probabilities[begin] = 1.0
        self.state[row], self.low[row], self.high[row] = state, 0, self._top[state]

    def ended(self, rows: Rows) -> Flags:
        return self._grammar.final[self.state[rows]]

    def bounds(self, rows: Rows) -> tuple[Rows, Rows]:
        """`low` and `high` of rows: what a sampler needs besides their states."""
        return self.low[rows], self.high[rows]

    def run_due(self, rows: Rows) -> Flags:
        """Whether the next tokens of a row are a run, which is not sampled."""
        due: Flags = self._grammar.after_run[self.state[rows]] != NO_STATE
        return due

    def run(self, row: int, label: list[int]) -> list[int]:
        """The tokens of the run that is due in a row; label: those of the row's label."""
        return self._grammar.run(int(self.state[row]), label)

    def before_run(self, rows: Rows) -> Flags:
        """Whether a run may follow the next token of a row."""
        return self._grammar.before_run[self.state[rows]]

    def last_token(self, row: int) -> int:
        """The id of the last token that a row took."""
        return self._grammar.token(int(self._last[row]))

    def advance(self, rows: Rows, positions: Rows, probabilities: npt.NDArray[np.floating]) -> Flags:
        """Take one token per row, at alphabet positions [n]; which rows completed an object.

        A size takes two slots, which share its probability.
        Raises ValueError, and changes nothing, if a state or bounds do not allow a token.
        """
        kinds = positions if self._size is None else np.minimum(positions, self._size)
        edge = self.state[rows] * self._classes + self._class_of[kinds]
        following, place = self._following[edge], self._place[edge]
        values = positions - self._first
        if self._size is not None:
            sizes = positions - self._size
            values = np.where(sizes >= 0, sizes // BINS, values)
        wrong = (values < self.low[rows]) | (values > self.high[rows])
        wrong &= place > 0
        wrong |= following == NO_STATE
        self._refuse(positions, wrong)
        base = self._base[rows]
        at = base + place
        self._last[rows] = positions
        self._values[at] = values
        self._probabilities[at] = probabilities
        if self._size is not None:
            second = at + (sizes >= 0)
            self._values[second] = np.where(sizes >= 0, sizes % BINS, values)
            self._probabilities[second] = probabilities
        self._enter(rows, base, following)
        complete: Flags = self._complete[edge]
        return complete

    def allowed(self, rows: Rows) -> Flags:
        """[n, A] alphabet positions that the states and bounds of rows allow."""
        grammar = self._grammar
        allowed: Flags = grammar.masks()[self.state[rows]]
        bins, coordinates = np.arange(BINS), slice(self._first, self._first + BINS)
        allowed[:, coordinates] &= (bins >= self.low[rows, None]) & (bins <= self.high[rows, None])
        return allowed

    def items(self, rows: Rows) -> list[Item]:
        """The objects that the last tokens of rows completed."""
        grammar, width = self._grammar, self._width
        values = self._numbers(rows).tolist()
        probabilities = self._probabilities.reshape(-1, width)[rows].tolist()
        self._probabilities[self._base[rows]] = 1.0
        items = []
        for kind, bins, chances in zip(grammar.task[self.state[rows]], values, probabilities, strict=True):
            task = TASKS[kind]
            arity = grammar.dialect.arity(task)
            items.append(grammar.dialect.parse(task, bins[:arity], chances[: 1 + arity]))
        return items

    def item(self, row: int) -> Item:
        """The object that the last token of a row completed."""
        return self.items(np.array([row]))[0]

    def pass_run(self, row: int) -> None:
        """Step over a run after its tokens were written."""
        rows = np.array([row])
        self._enter(rows, self._base[rows], self._grammar.after_run[self.state[rows]])

    def _numbers(self, rows: Rows) -> npt.NDArray[np.floating] | Rows:
        """[n, slots] what the open objects of rows have said of each slot."""
        return self._values.reshape(-1, self._width)[rows, 1:-1]

    def _refuse(self, positions: Rows, wrong: Flags) -> None:
        """Raises ValueError if a token is wrong."""
        if np.count_nonzero(wrong):
            token = self._grammar.token(int(positions[wrong][0]))
            raise ValueError(f"token {token} is not allowed here")

    def _enter(self, rows: Rows, base: Rows, state: Rows) -> None:
        self.state[rows] = state
        self.low[rows] = self._values[base + self._lower[state]] + 1
        self.high[rows] = self._top[state]
