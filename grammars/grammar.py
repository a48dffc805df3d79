"""A model's grammar: one automaton per task over one alphabet, and a cursor per answer."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from grammars.automaton import NO_SLOT, NO_STATE, Automaton, Ints, alphabet_of, compile_automaton
from grammars.dialects.base import Dialect
from grammars.symbols import BINS, Tokens
from grammars.types import TASKS, Item, Task


class Grammar:
    """The automata of a dialect over a model's tokens; their states share one numbering."""

    def __init__(self, dialect: Dialect, tokens: Tokens) -> None:
        self.dialect = dialect
        expressions = {task: dialect.expression(task) for task in TASKS}
        self.alphabet: Ints = alphabet_of(list(expressions.values()), tokens)
        self.automata: dict[Task, Automaton] = {
            task: compile_automaton(expression, tokens, dialect.arity(task), self.alphabet)
            for task, expression in expressions.items()
        }
        self.offset: dict[Task, int] = {}
        total = 0
        for task, automaton in self.automata.items():
            self.offset[task] = total
            total += len(automaton.slot)

    @property
    def first_coordinate(self) -> int:
        """Alphabet position of coordinate bin 0."""
        return next(iter(self.automata.values())).first_coordinate

    def masks(self) -> npt.NDArray[np.bool_]:
        """[states of all tasks, A], in the numbering of `Cursor.state`."""
        return np.concatenate([automaton.masks() for automaton in self.automata.values()])

    def cursor(self, task: Task) -> Cursor:
        return Cursor(self, task)


class Cursor:
    """Where one answer stands in its automaton: state, coordinates of the open object, bounds.

    A lower coordinate stops one bin short of the end and an upper one starts one past its lower, so every
    state allows at least one token and no box is empty or inverted.
    """

    __slots__ = ("_automaton", "_bins", "_dialect", "_offset", "_probabilities", "_state", "_task")

    def __init__(self, grammar: Grammar, task: Task) -> None:
        self._automaton = grammar.automata[task]
        self._dialect = grammar.dialect
        self._offset = grammar.offset[task]
        self._task = task
        self._state = self._automaton.initial
        self._bins: list[int] = []
        self._probabilities: list[float] = []

    @property
    def state(self) -> int:
        """Row of `Grammar.masks`."""
        return self._state + self._offset

    @property
    def ended(self) -> bool:
        return self._state == self._automaton.final

    @property
    def label_due(self) -> bool:
        """Whether the next tokens are those of the label, which are not sampled."""
        return bool(self._automaton.after_label[self._state] != NO_STATE)

    def bounds(self) -> tuple[int, int]:
        """Lowest and highest coordinate bin that the next token may take."""
        slot = int(self._automaton.slot[self._state])
        if slot == NO_SLOT:
            return 0, BINS - 1
        lower = self._dialect.lower_slot(self._task, slot)
        if lower is not None:
            return self._bins[lower] + 1, BINS - 1
        is_lower = any(
            self._dialect.lower_slot(self._task, upper) == slot
            for upper in range(slot + 1, self._dialect.arity(self._task))
        )
        return 0, BINS - 2 if is_lower else BINS - 1

    def advance(self, position: int, probability: float) -> Item | None:
        """Take the token at an alphabet position; the object that it completes, if any.

        Raises ValueError for a token that the state or the bounds do not allow.
        """
        following = self._automaton.advance(self._state, position)
        slot = int(self._automaton.slot[self._state])
        value = position - self._automaton.first_coordinate
        is_coordinate = slot != NO_SLOT and 0 <= value < BINS
        low, high = self.bounds()
        if following == NO_STATE or (is_coordinate and not low <= value <= high):
            raise ValueError(f"token {int(self._automaton.alphabet[position])} is not allowed here")
        self._state = following
        if not is_coordinate:
            self._probabilities = [probability] if not self._bins else [*self._probabilities, probability]
            return None
        self._bins.append(value)
        self._probabilities.append(probability)
        if len(self._bins) < self._dialect.arity(self._task):
            return None
        item = self._dialect.parse(self._task, self._bins, self._probabilities)
        self._bins, self._probabilities = [], []
        return item

    def pass_label(self) -> None:
        """Step over the label placeholder after its tokens were written."""
        self._state = int(self._automaton.after_label[self._state])
