"""Rows that advance as arrays say what each would say alone, and ends and labels are where the tables say."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grammars.cursors import Cursors
from grammars.grammar import Cursor, Grammar
from grammars.types import TASKS, Item
from tests.grammars.test_cursor import GRAMMARS, any_size, options

bounded = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ROWS = 5


class Pair:
    """One answer, as a row among others and by itself."""

    def __init__(self, grammar: Grammar, rows: Cursors, row: int, chance: random.Random) -> None:
        self.grammar, self.rows, self.row, self.chance = grammar, rows, row, chance
        self.begin()

    def begin(self) -> None:
        task = self.chance.choice(TASKS)
        self.rows.start(self.row, task)
        self.alone: Cursor = self.grammar.cursor(task)

    def assert_same(self) -> None:
        row = np.array([self.row])
        assert self.rows.state[self.row] == self.alone.state
        assert (self.rows.low[self.row], self.rows.high[self.row]) == self.alone.bounds()
        assert bool(self.rows.ended(row)[0]) == self.alone.ended
        assert bool(self.rows.run_due(row)[0]) == self.alone.run_due

    def pick(self) -> int:
        legal = options(self.grammar, self.alone)
        picked = self.chance.choice([legal[0], legal[-1], self.chance.choice(legal)])
        return any_size(self.grammar, picked, self.chance)


@pytest.mark.parametrize("name", GRAMMARS)
@bounded
@given(chance=st.randoms(use_true_random=False))
def test_rows_do_not_touch_each_other(name: str, chance: random.Random) -> None:
    """Any subset of the rows advances; rows end and begin anew, labels are passed."""
    grammar = GRAMMARS[name]
    rows = Cursors(grammar, ROWS + 1)
    pairs = [Pair(grammar, rows, row, chance) for row in chance.sample(range(ROWS + 1), ROWS)]
    for _ in range(30):
        for pair in pairs:
            if pair.alone.ended:
                pair.begin()
            elif pair.alone.run_due:
                pair.alone.pass_run()
                rows.pass_run(pair.row)
        going = [p for p in pairs if not p.alone.run_due and chance.random() < 0.7]
        if not going:
            continue
        positions = [p.pick() for p in going]
        probabilities = [chance.random() for _ in going]
        complete = rows.advance(
            np.array([p.row for p in going]), np.array(positions), np.array(probabilities)
        )
        for pair, position, probability, is_whole in zip(
            going, positions, probabilities, complete, strict=True
        ):
            alone: Item | None = pair.alone.advance(position, probability)
            assert bool(is_whole) == (alone is not None)
            if alone is not None:
                assert rows.item(pair.row) == alone
            assert rows.last_token(pair.row) == grammar.token(position)
        for pair in pairs:
            pair.assert_same()


@pytest.mark.parametrize("name", GRAMMARS)
def test_one_wrong_token_changes_no_row(name: str) -> None:
    grammar = GRAMMARS[name]
    rows = Cursors(grammar, 2)
    for row in range(2):
        rows.start(row, "detect")
    alone = grammar.cursor("detect")
    (good, *_), both = options(grammar, alone), np.arange(2)
    bad = next(p for p in range(len(grammar.alphabet)) if p not in options(grammar, alone))
    before = rows.state.copy(), rows.low.copy(), rows.high.copy()
    with pytest.raises(ValueError, match="not allowed"):
        rows.advance(both, np.array([good, bad]), np.ones(2))
    for now, then in zip((rows.state, rows.low, rows.high), before, strict=True):
        assert (now == then).all()


def test_labels_are_seen_one_token_ahead() -> None:
    grammar = GRAMMARS["paligemma"]
    rows = Cursors(grammar, 1)
    rows.start(0, "detect")
    row, first = np.array([0]), grammar.first_coordinate
    for count, b in enumerate((1, 1, 2, 2)):
        assert bool(rows.before_run(row)[0]) == (count == 3)
        assert not rows.run_due(row)[0]
        rows.advance(row, np.array([first + b]), np.ones(1))
    assert rows.run_due(row)[0]
    assert not GRAMMARS["pointbox"].has_runs
    assert not GRAMMARS["pointbox"].before_run.any()


@pytest.mark.parametrize("name", GRAMMARS)
def test_stacked_tables_are_those_of_the_tasks(name: str) -> None:
    grammar = GRAMMARS[name]
    for task in TASKS:
        automaton, offset = grammar.automata[task], grammar.offset[task]
        states = slice(offset, offset + len(automaton.slot))
        alone = automaton.next_state[:, automaton.class_of]
        stacked = grammar.next_state[states][:, grammar.class_of]
        assert (stacked == np.where(alone < 0, alone, alone + offset)).all()
        assert np.flatnonzero(grammar.final[states]).tolist() == [automaton.final]
        assert (grammar.place[states] <= grammar.dialect.arity(task)).all()
