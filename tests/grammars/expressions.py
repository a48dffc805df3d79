"""Small vocabularies, and expressions of the kind that dialects write, with members to try on them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from grammars.automaton import NO_STATE, Automaton, alphabet_of, compile_automaton
from grammars.symbols import COORDINATE, END, LABEL, START, Tokens

FIRST = 40
END_IDS = (7, 9)
START_ID = 5
LABEL_ID = -1  # stands for the placeholder in token lists
LETTERS = (" ", ";", ",", "a")
PIECES = (*LETTERS, " ;", "; ", " ; ", ";;", ", ", "a,", " a", "aa")


def tokens(pieces: Sequence[str] = PIECES, start: bool = True) -> Tokens:
    return Tokens(
        range(FIRST, FIRST + 1024),
        END_IDS,
        start=START_ID if start else None,
        pieces={piece: 11 + i for i, piece in enumerate(pieces)},
    )


def typed_tokens() -> Tokens:
    """As Moondream has them: every value has an id beyond the vocabulary, which here has 40 tokens."""
    return Tokens(range(FIRST, FIRST + 1024), (0,), size=FIRST + 1024)


@dataclass(frozen=True)
class Expression:
    """(object (separator object)*)?END or (object)*END; `text` is what Python's `re` reads too."""

    opening: str
    arity: int
    label: bool
    closing: str
    separators: tuple[str, ...]
    most: int | None

    @property
    def object(self) -> str:
        return f"{self.opening}{COORDINATE}{{{self.arity}}}{LABEL if self.label else ''}{self.closing}"

    @property
    def text(self) -> str:
        many = "*" if self.most is None else f"{{0,{self.most}}}"
        if not self.separators:
            return f"({self.object}){many}{END}"
        between = "|".join(re.escape(s) for s in sorted(self.separators, key=len, reverse=True))
        return f"({self.object}(({between}){self.object}){many})?{END}"


words = st.text(st.sampled_from(LETTERS), max_size=3)
expressions = st.builds(
    Expression,
    opening=st.one_of(st.just(START), words),
    arity=st.integers(1, 4),
    label=st.booleans(),
    closing=words,
    separators=st.lists(words.filter(bool), unique=True, max_size=3).map(tuple),
    most=st.one_of(st.none(), st.integers(1, 3)),
)


@st.composite
def members(draw: st.DrawFn, expression: Expression) -> str:
    """A string that the expression matches."""

    def written() -> str:
        bins = draw(st.lists(st.integers(0, 1023), min_size=expression.arity, max_size=expression.arity))
        coordinates = "".join(chr(0xE000 + b) for b in bins)
        return f"{expression.opening}{coordinates}{LABEL if expression.label else ''}{expression.closing}"

    count = draw(st.integers(0, 3 if expression.most is None else expression.most))
    if not expression.separators:
        return "".join(written() for _ in range(count)) + END
    if count == 0:
        return END
    text = written()
    for _ in range(count - 1):
        text += draw(st.sampled_from(expression.separators)) + written()
    return text + END


@st.composite
def tokenisations(draw: st.DrawFn, text: str, known: Tokens) -> list[int]:
    """One of the ways to write a string with these tokens."""
    spelled = known.spelled(LABEL_ID)
    written: list[int] = []
    while text:
        candidates = [piece for piece in spelled if text.startswith(piece)]
        piece = draw(st.sampled_from(sorted(candidates)))
        written.append(draw(st.sampled_from(spelled[piece])))
        text = text[len(piece) :]
    return written


def spell(ids: Sequence[int], known: Tokens) -> str:
    text = {i: piece for piece, ids_ in known.spelled(LABEL_ID).items() for i in ids_}
    return "".join(text[i] for i in ids)


def compiled(expression: str, known: Tokens, arity: int) -> Automaton:
    return compile_automaton(expression, known, arity, alphabet_of([expression], known))


def run(automaton: Automaton, ids: Sequence[int]) -> int:
    """The state after these tokens from the start, NO_STATE if one of them is not allowed."""
    position = {int(t): i for i, t in enumerate(automaton.alphabet)}
    state = automaton.initial
    for token in ids:
        if token == LABEL_ID:
            state = int(automaton.after_label[state])
        else:
            state = automaton.advance(state, position[token]) if token in position else NO_STATE
        if state == NO_STATE:
            return NO_STATE
    return state


def successors(automaton: Automaton, state: int) -> set[int]:
    following = {int(s) for s in automaton.next_state[state]} | {int(automaton.after_label[state])}
    return following - {NO_STATE}


def reachable(automaton: Automaton) -> set[int]:
    seen, fresh = {automaton.initial}, [automaton.initial]
    while fresh:
        for state in successors(automaton, fresh.pop()) - seen:
            seen.add(state)
            fresh.append(state)
    return seen


def allowed(automaton: Automaton, state: int) -> set[int]:
    """Token ids that a state allows, LABEL_ID for the placeholder."""
    positions = np.flatnonzero(automaton.masks()[state])
    label = {LABEL_ID} if automaton.after_label[state] != NO_STATE else set()
    return {int(automaton.alphabet[p]) for p in positions} | label
