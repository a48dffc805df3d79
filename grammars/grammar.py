"""A model's grammar: one automaton per task over one alphabet, their tables stacked."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from grammars.automaton import NO_SLOT, NO_STATE, Automaton, Ints, alphabet_of, compile_automaton
from grammars.cursors import NO_LOWER, Cursors, Flags
from grammars.dialects.base import Dialect
from grammars.symbols import BINS, Tokens
from grammars.types import TASKS, Frame, Item, Task


class Grammar:
    """The automata of a dialect over a model's tokens; their states share one numbering.

    S states of all tasks, C classes of alphabet positions that no state tells apart:

    class_of [A], next_state [S, C], after_run [S]   as in `Automaton`
    final [S]       whether the answer has ended
    task [S]        index into TASKS
    place [S, C]    1 + slot of a coordinate token, or of the first of the two that a size is; 0 for any other
    complete [S, C] whether the token completes an object
    before_run [S]  whether a token from here leads to a run
    lower [S]       1 + slot of the lower coordinate that the expected one must exceed, NO_LOWER where none
    top [S]         highest bin that the expected coordinate may take
    """

    def __init__(self, dialect: Dialect, tokens: Tokens) -> None:
        expressions = {task: dialect.expression(task) for task in TASKS}
        alphabet = alphabet_of(list(expressions.values()), tokens)
        self._stack(
            dialect,
            {
                task: compile_automaton(expression, tokens, dialect.arity(task), alphabet)
                for task, expression in expressions.items()
            },
        )

    @classmethod
    def of(cls, dialect: Dialect, automata: dict[Task, Automaton]) -> Grammar:
        """From automata over one alphabet that were not compiled from the dialect's expressions."""
        grammar = cls.__new__(cls)
        grammar._stack(dialect, automata)
        return grammar

    @property
    def first_coordinate(self) -> int:
        """Alphabet position of coordinate bin 0."""
        return self.automata[TASKS[0]].first_coordinate

    @property
    def size(self) -> int | None:
        """Alphabet position of a size of bin 0, for models whose values are typed; the other sizes follow.

        Their alphabet is the end, the coordinates and one position that stands for all sizes.
        """
        return self.automata[TASKS[0]].size

    @property
    def logits(self) -> int:
        """Columns of the logits that a model's head gives.

        One for each position of the alphabet; where values are typed, of the end and of going on, then of
        each bin of a coordinate, of a width and of a height.
        """
        return len(self.alphabet) if self.size is None else 2 + 3 * BINS

    def token(self, position: int) -> int:
        """The id of the token at an alphabet position."""
        last = len(self.alphabet) - 1
        return int(self.alphabet[min(position, last)]) + max(0, position - last)

    @property
    def has_runs(self) -> bool:
        """Whether an answer may hold tokens that are known and not sampled."""
        return bool((self.after_run != NO_STATE).any())

    def masks(self) -> npt.NDArray[np.bool_]:
        """[S, A]: which alphabet positions each state allows, coordinate bounds aside."""
        return np.concatenate([automaton.masks() for automaton in self.automata.values()])

    def run(self, state: int, label: list[int]) -> list[int]:
        """The known tokens that follow in a state where a run is due; label: those of the row's label."""
        return label

    def object_tokens(self, task: Task, label: int) -> int:
        """Tokens of an object and of what may stand between two, its label having so many."""
        if self.size is not None:
            return 3 if task == "detect" else 2  # x, y and a size, and nothing in between
        return self.dialect.arity(task) + label + 2

    def initial(self, task: Task) -> int:
        return self.offset[task] + self.automata[task].initial

    def cursors(self, rows: int) -> Cursors:
        return Cursors(self, rows)

    def cursor(self, task: Task, frame: Frame | None = None) -> Cursor:
        return Cursor(self, task, frame)

    def _stack(self, dialect: Dialect, automata: dict[Task, Automaton]) -> None:
        self.dialect, self.automata = dialect, automata
        self.alphabet: Ints = automata[TASKS[0]].alphabet
        self.offset: dict[Task, int] = {}
        total = 0
        dense: list[Ints] = []
        after: list[Ints] = []
        for task, automaton in self.automata.items():
            self.offset[task] = total
            for table, rows in (
                (dense, automaton.next_state[:, automaton.class_of]),
                (after, automaton.after_label),
            ):
                table.append(np.where(rows == NO_STATE, NO_STATE, rows + total))
            total += len(automaton.slot)
        columns, class_of = np.unique(np.concatenate(dense), axis=1, return_inverse=True)
        self.next_state: Ints = np.ascontiguousarray(columns, np.int32)
        self.class_of: Ints = class_of.reshape(-1).astype(np.int32)
        self.after_run: Ints = np.concatenate(after).astype(np.int32)
        states = np.concatenate(dense)
        leads = (states != NO_STATE) & (self.after_run[states] != NO_STATE)
        self.before_run: Flags = leads.any(axis=1)
        self.final: Flags = np.concatenate(
            [np.arange(len(a.slot)) == a.final for a in self.automata.values()]
        )
        self.task: Ints = np.repeat(
            np.arange(len(TASKS), dtype=np.int32), [len(self.automata[t].slot) for t in TASKS]
        )
        self.slot: Ints = np.concatenate([a.slot for a in self.automata.values()])
        self._place_values()
        bounds = [self._bounds(TASKS[t], int(s)) for t, s in zip(self.task, self.slot, strict=True)]
        self.lower: Ints = np.array([lower for lower, _ in bounds], np.int32)
        self.top: Ints = np.array([top for _, top in bounds], np.int32)

    def _place_values(self) -> None:
        """Set `place` and `complete`."""
        is_coordinate = np.zeros(self.next_state.shape[1], bool)
        is_coordinate[self.class_of[self.first_coordinate : self.first_coordinate + BINS]] = True
        arity = np.array([self.dialect.arity(TASKS[t]) for t in self.task])
        is_size = np.zeros_like(is_coordinate)
        if self.size is not None:
            is_size[self.class_of[self.size]] = True
        self.place: Ints = np.where(is_coordinate | is_size, self.slot[:, None] + 1, 0).astype(np.int32)
        self.complete: Flags = is_coordinate & (self.slot == arity - 1)[:, None]
        self.complete |= is_size & (self.slot == arity - 2)[:, None]

    def _bounds(self, task: Task, slot: int) -> tuple[int, int]:
        """`lower` and `top` of a state that expects a slot."""
        if slot == NO_SLOT:
            return NO_LOWER, BINS - 1
        lower = self.dialect.lower_slot(task, slot)
        uppers = range(slot + 1, self.dialect.arity(task))
        is_lower = any(self.dialect.lower_slot(task, upper) == slot for upper in uppers)
        return NO_LOWER if lower is None else lower + 1, BINS - 2 if is_lower else BINS - 1


class Cursor:
    """Where one answer stands: `Cursors` with a single row."""

    __slots__ = ("_cursors",)
    _ROW = np.zeros(1, np.int64)

    def __init__(self, grammar: Grammar, task: Task, frame: Frame | None = None) -> None:
        self._cursors = grammar.cursors(1)
        self._cursors.start(0, task, frame)

    @property
    def state(self) -> int:
        """Row of `Grammar.masks`."""
        return int(self._cursors.state[0])

    @property
    def ended(self) -> bool:
        return bool(self._cursors.ended(self._ROW)[0])

    @property
    def run_due(self) -> bool:
        """Whether the next tokens are a run, which is not sampled."""
        return bool(self._cursors.run_due(self._ROW)[0])

    def bounds(self) -> tuple[int, int]:
        """Lowest and highest coordinate bin that the next token may take."""
        return int(self._cursors.low[0]), int(self._cursors.high[0])

    def run(self, label: list[int]) -> list[int]:
        """The tokens of the run that is due."""
        return self._cursors.run(0, label)

    def allowed(self) -> Flags:
        """[A] alphabet positions that state and bounds allow."""
        flags: Flags = self._cursors.allowed(self._ROW)[0]
        return flags

    def advance(self, position: int, probability: float) -> Item | None:
        """Take the token at an alphabet position; the object that it completes, if any.

        Raises ValueError for a token that the state or the bounds do not allow.
        """
        complete = self._cursors.advance(self._ROW, np.array([position]), np.array([probability]))
        return self._cursors.item(0) if complete[0] else None

    def pass_run(self) -> None:
        """Step over a run after its tokens were written."""
        self._cursors.pass_run(0)
