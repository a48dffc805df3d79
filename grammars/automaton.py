"""An expression compiled over a vocabulary, as dense tables.

`compile_automaton` asks outlines_core for the Index of an expression and flattens it:

    class_of    [A]     alphabet position -> class of tokens that no state tells apart
    next_state  [S, C]  state and class -> next state, NO_STATE where the token is not allowed
    mask_bits   [S, W]  state -> one bit per alphabet position, W = ceil(A / 32)
    slot        [S]     which coordinate of an object the state expects, NO_SLOT where none
    after_label [S]     the state after a label placeholder, NO_STATE where none is due

The alphabet holds the ids that the expression can ever say, ascending; logits are computed for it alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from grammars.symbols import BINS, Tokens

NO_STATE = -1
NO_SLOT = -1

Ints = npt.NDArray[np.int32]
Transitions = dict[int, dict[int, int]]


@dataclass(frozen=True, slots=True)
class Automaton:
    """See the module's docstring for shapes."""

    alphabet: Ints
    class_of: Ints
    next_state: Ints
    mask_bits: npt.NDArray[np.uint32]
    slot: Ints
    after_label: Ints
    initial: int
    final: int
    first_coordinate: int
    """Alphabet position of bin 0; the others follow it.  Past the end where numbers are spelled out."""
    size: int | None = None
    """Alphabet position of a size, two slots at once, for models whose values are typed; the last one."""

    def advance(self, state: int, position: int) -> int:
        """The state after the token at an alphabet position, NO_STATE where it is not allowed."""
        return int(self.next_state[state, self.class_of[position]])

    def masks(self) -> npt.NDArray[np.bool_]:
        """[S, A]: which alphabet positions each state allows, coordinate bounds aside."""
        bits = np.unpackbits(self.mask_bits.view(np.uint8), axis=1, bitorder="little")
        return bits[:, : len(self.alphabet)].astype(bool)


def transitions(expression: str, tokens: Tokens) -> tuple[Transitions, int, int, int]:
    """(state -> token -> state, initial, final, label id), states numbered by outlines_core.

    Only what can end: a vocabulary that spells some of an expression may lead where no token ends it.
    """
    from outlines_core import Index, Vocabulary  # tables made by other means do not need it

    top = max(
        (*tokens.pieces.values(), *tokens.end, *tokens.coordinates, tokens.start or 0, tokens.size or 0)
    )
    label, unused_eos = top + 1, top + 2
    index = Index(expression, Vocabulary(unused_eos, tokens.spelled(label)))
    table = {
        s: {t: n for t, n in row.items() if t != unused_eos} for s, row in index.get_transitions().items()
    }
    if not (finals := index.get_final_states()):
        raise ValueError(f"these tokens spell no answer of {expression!r}")
    (final,) = finals
    if table.get(final):
        raise ValueError(f"the expression {expression!r} goes on after its end")
    ending = _ending(table, final)
    table = {s: {t: n for t, n in row.items() if n in ending} for s, row in table.items() if s in ending}
    return table, index.get_initial_state(), final, label


def _ending(table: Transitions, final: int) -> set[int]:
    """States from which the end can be reached."""
    ending: set[int] = set()
    grown = {final}
    while grown:
        ending |= grown
        grown = {s for s, row in table.items() if s not in ending and not ending.isdisjoint(row.values())}
    return ending


def alphabet_of(expressions: Sequence[str], tokens: Tokens) -> Ints:
    """Every id that any of the expressions can say, and all coordinates, ascending."""
    said = set(tokens.coordinates)
    for expression in expressions:
        table, _, _, label = transitions(expression, tokens)
        said |= {t for row in table.values() for t in row if t != label}
    return np.array(sorted(said), np.int32)


def compile_automaton(expression: str, tokens: Tokens, arity: int, alphabet: Ints) -> Automaton:
    """Flatten an expression whose objects have `arity` coordinates over a model's alphabet."""
    table, initial, final, label = transitions(expression, tokens)
    number = {state: i for i, state in enumerate(sorted({*table, final}))}
    position = {int(token): i for i, token in enumerate(alphabet)}
    dense = np.full((len(number), len(alphabet)), NO_STATE, np.int32)
    after_label = np.full(len(number), NO_STATE, np.int32)
    for state, row in table.items():
        for token, following in row.items():
            if token == label:
                after_label[number[state]] = number[following]
            else:
                dense[number[state], position[token]] = number[following]
    first = position[tokens.coordinates[0]]
    size = None if tokens.size is None else position[tokens.size]
    return _flattened(dense, after_label, number[initial], number[final], alphabet, first, arity, size)


def repeating_automaton(end: int, coordinates: range, arity: int) -> Automaton:
    """Any number of objects, nothing between them, and the end: simple enough to need no compiler.

    end: a token id below those of `coordinates`, which are one for each bin.
    """
    alphabet = np.array([end, *coordinates], np.int32)
    dense = np.full((arity + 1, len(alphabet)), NO_STATE, np.int32)
    for slot in range(arity):
        dense[slot, 1:] = (slot + 1) % arity
    dense[0, 0] = arity
    no_label = np.full(arity + 1, NO_STATE, np.int32)
    return _flattened(dense, no_label, 0, arity, alphabet, 1, arity)


def _flattened(
    dense: Ints,
    after_label: Ints,
    initial: int,
    final: int,
    alphabet: Ints,
    first: int,
    arity: int,
    size: int | None = None,
) -> Automaton:
    """dense [S, A]: state and alphabet position -> next state; first: position of bin 0."""
    slots_of = np.zeros(len(alphabet), np.int32)
    slots_of[first : first + BINS] = 1
    if size is not None:
        slots_of[size] = 2
    columns, class_of = np.unique(dense, axis=1, return_inverse=True)
    return Automaton(
        alphabet=alphabet,
        class_of=class_of.reshape(-1).astype(np.int32),
        next_state=np.ascontiguousarray(columns),
        mask_bits=packed(dense != NO_STATE),
        slot=_slots(dense, after_label, initial, slots_of, arity),
        after_label=after_label,
        initial=initial,
        final=final,
        first_coordinate=first,
        size=size,
    )


def packed(allowed: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint32]:
    """[S, A] -> one bit per alphabet position, [S, ceil(A / 32)]."""
    width = -(-allowed.shape[1] // 32) * 32
    padded = np.zeros((allowed.shape[0], width), bool)
    padded[:, : allowed.shape[1]] = allowed
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint32)


def _slots(dense: Ints, after_label: Ints, initial: int, slots_of: Ints, arity: int) -> Ints:
    """Walk from the start, counting coordinates modulo `arity`; every state has one count.

    slots_of [A]: coordinates that the token at an alphabet position is.
    """
    count = {initial: 0}
    queue = deque([initial])
    while queue:
        state = queue.popleft()
        following = {(int(n), int(slots_of[p])) for p, n in enumerate(dense[state]) if n != NO_STATE}
        if after_label[state] != NO_STATE:
            following.add((int(after_label[state]), 0))
        for other, slots in following:
            expected = (count[state] + slots) % arity
            if other not in count:
                count[other] = expected
                queue.append(other)
            elif count[other] != expected:
                raise ValueError("an object of this expression has no fixed number of coordinates")
    expects = (dense[:, slots_of > 0] != NO_STATE).any(axis=1)
    return np.array([count.get(s, 0) if expects[s] else NO_SLOT for s in range(len(dense))], np.int32)
