"""Lists whose numbers are spelled digit by digit, between runs of text that are known.

A list is written by marks, which are sampled, and by runs that follow some of them, which are not:

    nothing                                        an answer without objects
    first run NUMBERS close LABEL                  the first object
    another run NUMBERS close LABEL                every further one
    last                                           the end of the list

NUMBERS are digits and separators.  A digit is allowed if a number within the bounds can still be completed
after it, the end of a number if it is within them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from grammars.automaton import NO_SLOT, NO_STATE, Automaton, Ints, packed
from grammars.cursors import Cursors, Flags, Rows
from grammars.dialects.base import Dialect
from grammars.grammar import Grammar
from grammars.symbols import BINS
from grammars.types import TASKS, Frame, Task

DIGITS = 5
"""Of a number at most."""
LARGEST = 10**DIGITS - 1
BEGIN, FIRST_RUN, ANOTHER_RUN, LABEL_RUN, GOING_ON, ENDED, NUMBERS = range(7)
"""States of one task; from NUMBERS on, those with 0..DIGITS digits of the first number, then of the next."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Token ids of one task: those that are sampled, and the runs after `first` and `another`."""

    digits: Sequence[int]
    separator: int
    close: int
    first: int
    another: int
    nothing: int
    last: int
    after_first: Sequence[int]
    after_another: Sequence[int]

    @property
    def sampled(self) -> list[int]:
        return [*self.digits, self.separator, self.close, self.first, self.another, self.nothing, self.last]


class SpelledGrammar(Grammar):
    """S states, A alphabet positions, C classes as in `Grammar`; and of numbers:

    worth [A]        what a digit adds
    scale [S, C]     what it multiplies the number begun by: 0 begins one, 1 ends it
    left [S, C]      digits that may follow the token
    """

    def __init__(self, dialect: Dialect, marks: dict[Task, Marks]) -> None:
        self._marks = marks
        sampled = {token for mark in marks.values() for token in mark.sampled}
        alphabet = np.array(sorted(sampled), np.int32)
        self._stack(dialect, {task: _automaton(marks[task], dialect.arity(task), alphabet) for task in TASKS})

    def cursors(self, rows: int) -> SpelledCursors:
        return SpelledCursors(self, rows)

    def run(self, state: int, label: list[int]) -> list[int]:
        task = TASKS[self.task[state]]
        mark = self._marks[task]
        runs = {LABEL_RUN: label, FIRST_RUN: mark.after_first, ANOTHER_RUN: mark.after_another}
        return list(runs[state - self.offset[task]])

    def object_tokens(self, task: Task, label: int) -> int:
        mark = self._marks[task]
        opening = 1 + max(len(mark.after_first), len(mark.after_another))
        return opening + self.dialect.arity(task) * (DIGITS + 1) + label

    def _place_values(self) -> None:
        shape = len(self.slot), len(self.alphabet)
        place, scale, left = (np.zeros(shape, np.int32) for _ in range(3))
        complete = np.zeros(shape, bool)
        self.worth: Ints = np.zeros(len(self.alphabet), np.int32)
        for state in np.flatnonzero(self.slot != NO_SLOT):
            task = TASKS[self.task[state]]
            digits = _digits(int(state) - self.offset[task])
            ids, ends = _numeric(self._marks[task], self.alphabet)
            self.worth[ids] = np.arange(10)
            place[state, [*ids, *ends]] = self.slot[state] + 1
            scale[state, ids] = 10 if digits else 0
            scale[state, ends] = 1
            left[state, ids] = max(0, DIGITS - 1 - digits)
            if digits == 0:
                left[state, ids[0]] = 0  # a number that begins with 0 is 0
            complete[state, ends[1]] = self.slot[state] == self.dialect.arity(task) - 1
        _, one = np.unique(self.class_of, return_index=True)
        self.place, self.complete = place[:, one], complete[:, one]
        self.scale: Ints = scale[:, one]
        self.left: Ints = left[:, one]


class SpelledCursors(Cursors):
    """Rows that spell numbers; low and high bound the whole number, of which `prefix` is written."""

    def __init__(self, grammar: SpelledGrammar, rows: int) -> None:
        super().__init__(grammar, rows)
        self._tables, self._masks = grammar, grammar.masks()
        self._scale = grammar.scale.ravel().astype(np.int64)
        self._left = grammar.left.ravel().astype(np.int64)
        self._limits = np.full((rows, 2), LARGEST, np.int64)
        """Of x and y."""

    def start(self, row: int, task: Task, frame: Frame | None = None) -> None:
        if frame is None:
            raise ValueError("numbers that are spelled out need the frame that they lie in")
        self._limits[row] = np.minimum(frame, LARGEST)
        super().start(row, task)
        self._bound(np.array([row]))

    def bounds(self, rows: Rows) -> tuple[Rows, Rows]:
        """The alphabet is small: `low` has a bit for each position that a row allows, the first if none."""
        allowed = self.allowed(rows)
        bits: Rows = (allowed.astype(np.int64) << np.arange(allowed.shape[1])).sum(axis=1)
        return bits | (bits == 0), self.high[rows]

    def allowed(self, rows: Rows) -> Flags:
        tables, state = self._tables, self.state[rows]
        prefix = self._values[self._base[rows] + np.maximum(0, tables.slot[state] + 1)]
        scale, left, place = (
            table[state][:, tables.class_of] for table in (tables.scale, tables.left, tables.place)
        )
        values = prefix[:, None] * scale + tables.worth
        fits = completable(values, left, self.low[rows, None], self.high[rows, None])
        allowed: Flags = self._masks[state] & (fits | (place == 0))
        return allowed

    def advance(self, rows: Rows, positions: Rows, probabilities: npt.NDArray[np.floating]) -> Flags:
        edge = self.state[rows] * self._classes + self._class_of[positions]
        following, place = self._following[edge], self._place[edge]
        base = self._base[rows]
        at = base + place
        scale = self._scale[edge]
        values = self._values[at] * scale + self._tables.worth[positions]
        wrong = ~completable(values, self._left[edge], self.low[rows], self.high[rows])
        self._refuse(positions, (wrong & (place > 0)) | (following == NO_STATE))
        self._last[rows] = positions
        self._values[at] = values
        self._probabilities[at] = np.where(scale > 0, self._probabilities[at], 1.0) * probabilities
        self._enter(rows, base, following)
        complete: Flags = self._complete[edge]
        return complete

    def _numbers(self, rows: Rows) -> npt.NDArray[np.floating]:
        """As fractions of the frame."""
        numbers = super()._numbers(rows)
        return numbers / np.tile(self._limits[rows], numbers.shape[1] // 2)

    def _enter(self, rows: Rows, base: Rows, state: Rows) -> None:
        super()._enter(rows, base, state)
        self._bound(rows)

    def _bound(self, rows: Rows) -> None:
        """The highest value is that of the row's frame."""
        state = self.state[rows]
        short = BINS - 1 - self._top[state]
        self.high[rows] = self._limits[rows, self._tables.slot[state] % 2] - short


def completable(
    values: npt.NDArray[np.integer],
    left: npt.NDArray[np.integer],
    low: npt.NDArray[np.integer],
    high: npt.NDArray[np.integer],
) -> Flags:
    """Whether a number in low..high begins with the digits of a value and has at most `left` more."""
    fits: Flags = np.zeros(np.broadcast(values, low).shape, bool)
    for more in range(DIGITS):
        size = 10**more
        fits |= (left >= more) & (values * size <= high) & (values * size + size - 1 >= low)
    return fits


def _numeric(mark: Marks, alphabet: Ints) -> tuple[Ints, Ints]:
    """Alphabet positions of the ten digits, and of what ends a number: separator and close."""
    ids = np.searchsorted(alphabet, [*mark.digits])
    return ids.astype(np.int32), np.searchsorted(alphabet, [mark.separator, mark.close]).astype(np.int32)


def _digits(state: int) -> int:
    """Of the number begun in one of the states of a task."""
    return (state - NUMBERS) % (DIGITS + 1)


def _automaton(mark: Marks, arity: int, alphabet: Ints) -> Automaton:
    position = {int(token): i for i, token in enumerate(alphabet)}
    states = NUMBERS + arity * (DIGITS + 1)
    dense = np.full((states, len(alphabet)), NO_STATE, np.int32)
    after = np.full(states, NO_STATE, np.int32)
    dense[BEGIN, position[mark.first]], dense[BEGIN, position[mark.nothing]] = FIRST_RUN, ENDED
    dense[GOING_ON, position[mark.another]], dense[GOING_ON, position[mark.last]] = ANOTHER_RUN, ENDED
    after[FIRST_RUN] = after[ANOTHER_RUN] = NUMBERS
    after[LABEL_RUN] = GOING_ON
    digits, (separator, close) = _numeric(mark, alphabet)
    for slot in range(arity):
        begun = NUMBERS + slot * (DIGITS + 1)
        whole = begun + DIGITS
        dense[begun:whole, digits] = np.arange(begun + 1, whole + 1)[:, None]
        dense[begun, digits[0]] = whole
        if slot < arity - 1:
            dense[begun + 1 : whole + 1, separator] = whole + 1
        else:
            dense[begun + 1 : whole + 1, close] = LABEL_RUN
    columns, class_of = np.unique(dense, axis=1, return_inverse=True)
    slots = np.full(states, NO_SLOT, np.int32)
    slots[NUMBERS:] = np.repeat(np.arange(arity), DIGITS + 1)
    return Automaton(
        alphabet=alphabet,
        class_of=class_of.reshape(-1).astype(np.int32),
        next_state=np.ascontiguousarray(columns),
        mask_bits=packed(dense != NO_STATE),
        slot=slots,
        after_label=after,
        initial=BEGIN,
        final=ENDED,
        first_coordinate=len(alphabet),
    )
