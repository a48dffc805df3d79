"""The automaton written by hand says what the compiled one says."""

from __future__ import annotations

import numpy as np
import pytest

from grammars.automaton import NO_STATE, Automaton, compile_automaton, repeating_automaton
from grammars.symbols import BINS, COORDINATE, END, Tokens

FIRST = 40


def mapping(ours: Automaton, theirs: Automaton) -> dict[int, int]:
    """Which states stand for each other, walking both from the start; fails where they part."""
    same, todo = {ours.initial: theirs.initial}, [ours.initial]
    while todo:
        state = todo.pop()
        for position in range(len(ours.alphabet)):
            a, b = ours.advance(state, position), theirs.advance(same[state], position)
            assert (a == NO_STATE) == (b == NO_STATE)
            if a != NO_STATE and a not in same:
                same[a] = b
                todo.append(a)
            assert a == NO_STATE or same[a] == b
    return same


@pytest.mark.parametrize("arity", [2, 4])
def test_it_equals_the_compiled_one(arity: int) -> None:
    coordinates = range(FIRST, FIRST + BINS)
    ours = repeating_automaton(0, coordinates, arity)
    tokens = Tokens(list(coordinates), [0])
    theirs = compile_automaton(f"({COORDINATE}{{{arity}}})*{END}", tokens, arity, ours.alphabet)
    same = mapping(ours, theirs)
    assert same[ours.final] == theirs.final
    assert ours.first_coordinate == theirs.first_coordinate
    for state, other in same.items():
        assert ours.slot[state] == theirs.slot[other]
        assert np.array_equal(ours.masks()[state], theirs.masks()[other])
