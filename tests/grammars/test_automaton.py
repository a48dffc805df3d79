"""Compiled automata against Python's `re` and outlines_core's own Guide."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from outlines_core import Guide, Index, Vocabulary

from grammars.automaton import NO_SLOT, NO_STATE, Automaton, alphabet_of, compile_automaton
from grammars.dialects.base import Dialect
from grammars.dialects.paligemma import PaliGemmaDialect
from grammars.dialects.pointbox import PointboxDialect
from grammars.symbols import COORDINATE, END, LABEL, START, Tokens
from grammars.types import TASKS
from tests.grammars.expressions import (
    END_IDS,
    FIRST,
    LABEL_ID,
    LETTERS,
    PIECES,
    START_ID,
    Expression,
    allowed,
    compiled,
    expressions,
    members,
    reachable,
    run,
    spell,
    successors,
    tokenisations,
    tokens,
)

KNOWN = tokens()
bounded = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
DIALECTS: list[Dialect] = [PointboxDialect(), PaliGemmaDialect()]


def accepts(automaton: Automaton, ids: list[int]) -> bool:
    return run(automaton, ids) == automaton.final


@bounded
@given(expressions, st.data())
def test_every_spelling_of_a_member_is_accepted(expression: Expression, data: st.DataObject) -> None:
    automaton = compiled(expression.text, KNOWN, expression.arity)
    text = data.draw(members(expression))
    assert re.fullmatch(expression.text, text)
    ids = data.draw(tokenisations(text, KNOWN))
    assert accepts(automaton, ids)


@bounded
@given(expressions, st.data())
def test_damaged_members_are_accepted_as_re_says(expression: Expression, data: st.DataObject) -> None:
    automaton = compiled(expression.text, KNOWN, expression.arity)
    ids = data.draw(members(expression).flatmap(lambda text: tokenisations(text, KNOWN)))
    everything = [LABEL_ID, START_ID, *END_IDS, *KNOWN.pieces.values(), FIRST, FIRST + 1, FIRST + 1023]
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(ids)))
        kept = data.draw(st.integers(0, 1))
        inserted = data.draw(st.lists(st.sampled_from(everything), max_size=2))
        ids = [*ids[:place], *inserted, *ids[place + kept :]]
    assert accepts(automaton, ids) == bool(re.fullmatch(expression.text, spell(ids, KNOWN)))


@bounded
@given(expressions, st.randoms(use_true_random=False))
def test_every_walk_ends_in_a_member(expression: Expression, chance: random.Random) -> None:
    automaton = compiled(expression.text, KNOWN, expression.arity)
    state, ids = automaton.initial, []
    while state != automaton.final and len(ids) < 60:
        options = sorted(allowed(automaton, state))
        ends = [t for t in options if t in END_IDS]
        pick = chance.choice(ends) if ends and chance.random() < 0.3 else chance.choice(options)
        ids.append(pick)
        state = run(automaton, ids)
        assert state != NO_STATE
    if state == automaton.final:
        assert re.fullmatch(expression.text, spell(ids, KNOWN))


@bounded
@given(expressions, st.randoms(use_true_random=False))
def test_the_guide_allows_the_same_tokens(expression: Expression, chance: random.Random) -> None:
    automaton = compiled(expression.text, KNOWN, expression.arity)
    label, eos = 5000, 5001
    guide = Guide(Index(expression.text, Vocabulary(eos, KNOWN.spelled(label))))
    ids: list[int] = []
    for _ in range(40):
        state = run(automaton, ids)
        if state == automaton.final:
            assert guide.is_finished()
            assert set(guide.get_tokens()) <= {eos}
            return
        assert not guide.is_finished()
        options = allowed(automaton, state)
        assert {LABEL_ID if t == label else t for t in guide.get_tokens()} == options
        pick = chance.choice(sorted(options))
        guide.advance(label if pick == LABEL_ID else pick)
        ids.append(pick)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(expressions, st.sets(st.sampled_from(PIECES)))
def test_a_poor_vocabulary_leaves_no_dead_end(expression: Expression, pieces: set[str]) -> None:
    """Where the separators cannot all be spelled, what is left still ends, or there is no automaton."""
    try:
        automaton = compiled(expression.text, tokens(sorted(pieces)), expression.arity)
    except ValueError:
        return
    assert_every_state_ends(automaton)


def test_a_loop_without_an_end_is_left_out() -> None:
    """Here the space that closes an object is only spelled with the separator after it."""
    endless = f"({START}{COORDINATE} (;{START}{COORDINATE} )*)?{END}"
    automaton = compiled(endless, tokens([";", " ;"]), 1)
    assert allowed(automaton, automaton.initial) == set(END_IDS)
    with pytest.raises(ValueError, match="spell no answer"):
        compiled(f"{START}{COORDINATE} (;{START}{COORDINATE} )*{END}", tokens([";", " ;"]), 1)


def assert_every_state_ends(automaton: Automaton) -> None:
    ends = {automaton.final}
    states = reachable(automaton)
    while grown := {s for s in states - ends if successors(automaton, s) & ends}:
        ends |= grown
    assert ends == states
    assert not successors(automaton, automaton.final)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda d: d.name)
def test_every_state_of_a_dialect_ends(dialect: Dialect, task: str) -> None:
    automaton = compiled(dialect.expression(task), KNOWN, dialect.arity(task))
    assert reachable(automaton) == set(range(len(automaton.slot)))
    assert_every_state_ends(automaton)


@bounded
@given(expressions)
def test_tables_agree(expression: Expression) -> None:
    automaton = compiled(expression.text, KNOWN, expression.arity)
    states, size = len(automaton.slot), len(automaton.alphabet)
    dense = automaton.next_state[:, automaton.class_of]
    assert dense.shape == (states, size)
    assert (automaton.masks() == (dense != NO_STATE)).all()
    assert automaton.mask_bits.shape == (states, -(-size // 32))
    for state in range(states):
        for position in range(0, size, 7):
            bit = int(automaton.mask_bits[state, position // 32]) >> (position % 32) & 1
            assert bit == (dense[state, position] != NO_STATE)
    assert not np.unpackbits(automaton.mask_bits.view(np.uint8), axis=1, bitorder="little")[:, size:].any()
    assert (np.diff(automaton.alphabet) > 0).all()
    assert automaton.alphabet[automaton.first_coordinate] == FIRST
    columns = {tuple(column) for column in automaton.next_state.T}
    assert len(columns) == automaton.next_state.shape[1], "two classes that no state tells apart"


@bounded
@given(expressions, st.data())
def test_slots_count_the_coordinates_of_an_object(expression: Expression, data: st.DataObject) -> None:
    automaton = compiled(expression.text, KNOWN, expression.arity)
    ids = data.draw(members(expression).flatmap(lambda text: tokenisations(text, KNOWN)))
    seen = 0
    for i, token in enumerate(ids):
        slot = int(automaton.slot[run(automaton, ids[:i])])
        if FIRST <= token < FIRST + 1024:
            assert slot == seen % expression.arity
            seen += 1
        elif slot != NO_SLOT:
            # a state may offer a coordinate or something else; it still knows which coordinate
            assert slot == seen % expression.arity


def test_either_end_token_ends() -> None:
    automaton = compiled(f"({START}{COORDINATE}{{2}})*{END}", KNOWN, 2)
    assert [run(automaton, [end]) for end in END_IDS] == [automaton.final] * 2


@pytest.mark.parametrize(
    "separator", [[" ; "], [" ", ";", " "], [" ;", " "], [" ", "; "], [" ", ";"], [" ;"]]
)
def test_paligemma_separators_in_any_tokenisation(separator: list[str]) -> None:
    automaton = compiled(PaliGemmaDialect().expression("detect"), KNOWN, 4)
    box = [FIRST + 1, FIRST + 2, FIRST + 3, FIRST + 4, LABEL_ID]
    between = [KNOWN.pieces[piece] for piece in separator]
    assert accepts(automaton, [*box, *between, *box, *between, *box, END_IDS[0]])
    assert not accepts(automaton, [*box, *between, END_IDS[0]]), "a list does not end in a separator"
    assert not accepts(automaton, [*box, *between[:-1], *box, END_IDS[0]]) or separator[-1] == " "


def test_a_location_that_is_spelled_out_is_not_a_coordinate() -> None:
    spelled = [
        "<loc0001>",
        "<",
        "loc",
        "0001",
        ">",
        "<loc",
        "\ue001\ue002",
        "\ue001;",
        f" {LABEL}",
        f"a{END}",
    ]
    known = tokens([*PIECES, *spelled])
    for dialect in DIALECTS:
        automaton = compiled(dialect.expression("detect"), known, 4)
        said = set(automaton.alphabet.tolist())
        assert said.isdisjoint(known.pieces[piece] for piece in spelled)


def test_ordinary_pieces_are_not_in_the_default_alphabet() -> None:
    known = tokens(LETTERS)
    assert alphabet_of([PointboxDialect().expression(t) for t in TASKS], known).tolist() == sorted(
        {START_ID, *END_IDS, *range(FIRST, FIRST + 1024)}
    )


def test_an_expression_that_goes_on_after_its_end_is_refused() -> None:
    with pytest.raises(ValueError, match="after its end"):
        compiled(f"({COORDINATE}{END})+", KNOWN, 1)


def test_objects_of_different_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="fixed number"):
        compiled(f"({START}{COORDINATE}{{1,2}})*{END}", KNOWN, 2)


def test_locations_must_be_consecutive() -> None:
    with pytest.raises(ValueError, match="1024 location tokens"):
        Tokens([*range(1023), 2000], [5000])
    with pytest.raises(ValueError, match="1024 location tokens"):
        Tokens(range(10), [5000])


def test_two_expressions_share_an_alphabet() -> None:
    dialect = PaliGemmaDialect()
    shared = alphabet_of([dialect.expression("detect"), f"a{END}"], KNOWN)
    other = compile_automaton(f"a{END}", KNOWN, 1, shared)
    assert run(other, [KNOWN.pieces["a"], END_IDS[1]]) == other.final
    assert run(other, [FIRST]) == NO_STATE
