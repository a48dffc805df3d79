"""Answers that a grammar lets a model write: whatever it picks, every object is one."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grammars.dialects.moondream import MoondreamDialect
from grammars.dialects.paligemma import PaliGemmaDialect
from grammars.dialects.pointbox import PointboxDialect
from grammars.grammar import Cursor, Grammar
from grammars.symbols import Tokens
from grammars.types import TASKS, Box, Item, Point, Task
from tests.grammars.expressions import END_IDS, FIRST, START_ID, tokens, typed_tokens

KNOWN = tokens()
GRAMMARS = {d.name: Grammar(d, KNOWN) for d in (PointboxDialect(), PaliGemmaDialect())}
GRAMMARS["moondream"] = Grammar(MoondreamDialect(), typed_tokens())
POSITION = {name: {int(t): i for i, t in enumerate(g.alphabet)} for name, g in GRAMMARS.items()}
EXTREMES = (0, 1, 2, 511, 1020, 1021, 1022, 1023)
SIZES = 1024 * 1024

every_grammar = pytest.mark.parametrize("name", GRAMMARS)
every_task = pytest.mark.parametrize("task", TASKS)
bounded = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def options(grammar: Grammar, cursor: Cursor) -> list[int]:
    """Alphabet positions that state and bounds allow, as the sampler computes them."""
    allowed = grammar.masks()[cursor.state].copy()
    low, high = cursor.bounds()
    assert 0 <= low <= high <= 1023
    bins = np.arange(1024)
    first = grammar.first_coordinate
    allowed[first : first + 1024] &= (bins >= low) & (bins <= high)
    return [int(p) for p in np.flatnonzero(allowed)]


def step(grammar: Grammar, cursor: Cursor, chance: random.Random) -> Item | None:
    """One legal token, the extremes of a coordinate oftener than not."""
    if cursor.run_due:
        cursor.pass_run()
        return None
    legal = options(grammar, cursor)
    assert legal, "a state that allows nothing"
    rare = [p for p in legal if not 0 <= p - grammar.first_coordinate < 1024]
    edges = [p for p in legal if p - grammar.first_coordinate in EXTREMES]
    pools = [pool for pool in (rare, edges, [legal[0]], [legal[-1]], legal) if pool]
    return cursor.advance(any_size(grammar, chance.choice(chance.choice(pools)), chance), chance.random())


def any_size(grammar: Grammar, position: int, chance: random.Random) -> int:
    """The position itself, or one of the sizes that it stands for."""
    if position != grammar.size:
        return position
    return position + chance.choice([0, 1023, SIZES - 1024, SIZES - 1, chance.randrange(SIZES)])


@every_grammar
@every_task
@bounded
@given(chance=st.randoms(use_true_random=False))
def test_no_walk_writes_an_empty_or_inverted_box(name: str, task: Task, chance: random.Random) -> None:
    grammar = GRAMMARS[name]
    cursor = grammar.cursor(task)
    for _ in range(80):
        if cursor.ended:
            assert not options(grammar, cursor)
            break
        item = step(grammar, cursor, chance)
        if isinstance(item, Box):
            assert task == "detect"
            assert 0 <= item.x_min < item.x_max <= 1
            assert 0 <= item.y_min < item.y_max <= 1
            assert 0 <= item.score <= 1
        elif isinstance(item, Point):
            assert task == "point"
            assert 0 <= item.x <= 1
            assert 0 <= item.y <= 1


@every_grammar
@every_task
def test_an_object_takes_no_more_tokens_than_are_reserved(name: str, task: Task) -> None:
    grammar = GRAMMARS[name]
    ends = {POSITION[name].get(token) for token in (*END_IDS, typed_tokens().end[0])}
    cursor, taken, counts = grammar.cursor(task), 0, []
    while len(counts) < 2:
        taken += 1
        if cursor.run_due:
            cursor.pass_run()
        elif cursor.advance([p for p in options(grammar, cursor) if p not in ends][-1], 1.0):
            counts.append(taken)
            taken = 0
    reserved = grammar.object_tokens(task, label=name == "paligemma")
    assert reserved - 1 <= max(counts) <= reserved


@every_grammar
@every_task
@bounded
@given(chance=st.randoms(use_true_random=False))
def test_what_is_not_allowed_raises_and_changes_nothing(name: str, task: Task, chance: random.Random) -> None:
    grammar = GRAMMARS[name]
    cursor = grammar.cursor(task)
    for _ in range(chance.randrange(25)):
        if cursor.ended:
            break
        step(grammar, cursor, chance)
    before = (cursor.state, cursor.bounds(), cursor.run_due, cursor.ended)
    forbidden = sorted(set(range(len(grammar.alphabet))) - set(options(grammar, cursor)))
    edges = [p for p in forbidden if p + 1 not in forbidden or p - 1 not in forbidden]
    if grammar.size is not None:
        edges.append(grammar.size + SIZES)
    for position in {*edges, *chance.sample(forbidden, min(5, len(forbidden)))}:
        with pytest.raises(ValueError, match="not allowed"):
            cursor.advance(position, 0.5)
    assert (cursor.state, cursor.bounds(), cursor.run_due, cursor.ended) == before


@pytest.mark.parametrize(("y", "x"), list(product((0, 1, 700, 1021, 1022), repeat=2)))
@pytest.mark.parametrize(("name", "task"), [("pointbox", "detect"), ("paligemma", "detect")])
def test_an_upper_coordinate_starts_one_past_its_lower(name: str, task: Task, y: int, x: int) -> None:
    grammar = GRAMMARS[name]
    cursor = grammar.cursor(task)
    first = grammar.first_coordinate
    if name == "pointbox":
        cursor.advance(POSITION[name][START_ID], 1.0)
        assert cursor.bounds() == (0, 1022)
    cursor.advance(first + y, 1.0)
    cursor.advance(first + x, 1.0)
    assert cursor.bounds() == (y + 1, 1023)
    cursor.advance(first + y + 1, 1.0)
    assert cursor.bounds() == (x + 1, 1023)
    box = cursor.advance(first + x + 1, 1.0)
    assert box == Box(x / 1024, y / 1024, (x + 1) / 1024, (y + 1) / 1024, 1.0)


def test_a_point_may_lie_in_the_last_bin() -> None:
    cursor = GRAMMARS["pointbox"].cursor("point")
    first = GRAMMARS["pointbox"].first_coordinate
    cursor.advance(POSITION["pointbox"][START_ID], 0.9)
    assert cursor.bounds() == (0, 1023)
    cursor.advance(first + 1023, 1.0)
    assert cursor.bounds() == (0, 1023)
    assert cursor.advance(first + 1023, 1.0) == Point(1023 / 1024, 1023 / 1024, 0.9)


def take(
    name: str, task: Task, ids: list[int | None], probabilities: list[float]
) -> tuple[Cursor, list[Item]]:
    """Follow token ids, None for the label."""
    cursor, items = GRAMMARS[name].cursor(task), []
    for token, probability in zip(ids, probabilities, strict=True):
        if token is None:
            assert cursor.run_due
            cursor.pass_run()
        else:
            item = cursor.advance(POSITION[name][token], probability)
            items += [] if item is None else [item]
    return cursor, items


def test_pointbox_scores_by_the_start_token_and_a_little_by_the_coordinates() -> None:
    box = [START_ID, FIRST + 256, FIRST + 128, FIRST + 512, FIRST + 768]
    cursor, items = take(
        "pointbox", "detect", [*box, *box, END_IDS[0]], [0.75, *[1.0] * 4, 0.5, 1, 2**-9, 2**-7, 1, 1]
    )
    assert cursor.ended
    first, second = items
    assert first == Box(0.125, 0.25, 0.75, 0.5, 0.75)
    assert replace(second, score=0.75) == first
    assert second.score == pytest.approx(0.5 * (2**-4) ** (1 / 8))  # of the geometric mean


def test_pointbox_points_are_y_then_x() -> None:
    _, items = take("pointbox", "point", [START_ID, FIRST + 256, FIRST + 512], [0.25, 1, 1])
    assert items == [Point(0.5, 0.25, 0.25)]


def test_paligemma_takes_the_label_as_a_placeholder() -> None:
    box = [FIRST + 256, FIRST + 128, FIRST + 512, FIRST + 768]
    between = [KNOWN.pieces[" "], KNOWN.pieces[";"], KNOWN.pieces[" "]]
    ids = [*box, None, *between, *box, None, END_IDS[1]]
    cursor, items = take("paligemma", "detect", ids, [0.5] * len(ids))
    assert cursor.ended
    assert items == [Box(0.125, 0.25, 0.75, 0.5, 0.5)] * 2


def test_paligemma_points_are_the_centres_of_boxes() -> None:
    box = [FIRST + 256, FIRST + 128, FIRST + 512, FIRST + 768]
    _, items = take("paligemma", "point", box, [0.5] * 4)
    assert items == [Point((0.125 + 0.75) / 2, (0.25 + 0.5) / 2, 0.5)]


def test_moondream_boxes_are_a_centre_and_a_size_at_once() -> None:
    grammar = GRAMMARS["moondream"]
    cursor, first = grammar.cursor("detect"), grammar.first_coordinate
    assert grammar.size is not None
    tall = 1023 * 9 // 10
    for number, (width, box) in enumerate(
        [(0, (0.5 - 2**-11, 0.5 + 2**-11)), (1023, (0.0, 1.0)), (614, (0.46875, 0.53125))]
    ):
        assert cursor.advance(first + 512, 0.25 * number) is None
        assert cursor.advance(first + 128, 0.9) is None
        assert options(grammar, cursor) == [grammar.size]
        item = cursor.advance(grammar.size + width * 1024 + tall, 0.5)
        assert isinstance(item, Box)
        assert (item.x_min, item.x_max) == pytest.approx(box, abs=2e-4)
        assert (item.y_min, item.y_max) == pytest.approx((0.0, 0.125 + 0.5 * 2 ** (tall / 102.3 - 10)))
        assert item.score == 0.25 * number
    assert cursor.advance(0, 1.0) is None
    assert cursor.ended


def test_moondream_points_are_x_then_y() -> None:
    _, items = take("moondream", "point", [FIRST + 256, FIRST + 1023, FIRST, FIRST], [0.25, 0.5, 1.0, 0.5])
    assert items == [Point(0.25, 1023 / 1024, 0.25), Point(0.0, 0.0, 1.0)]


def test_ids_of_typed_values_follow_each_other() -> None:
    grammar = GRAMMARS["moondream"]
    ids = [grammar.token(position) for position in (0, 1, 1024, 1025, 1026, 1024 + SIZES)]
    assert ids == [0, FIRST, FIRST + 1023, FIRST + 1024, FIRST + 1025, FIRST + 1023 + SIZES]
    assert grammar.logits == 2 + 3 * 1024
    with pytest.raises(ValueError, match="typed values"):
        Tokens(range(FIRST, FIRST + 1024), (0,), size=FIRST + 1025)


def test_no_token_stands_for_the_label() -> None:
    grammar = GRAMMARS["paligemma"]
    cursor = grammar.cursor("detect")
    for b in (1, 1, 2, 2):
        cursor.advance(grammar.first_coordinate + b, 1.0)
    assert cursor.run_due
    assert not options(grammar, cursor)
    with pytest.raises(ValueError, match="not allowed"):
        cursor.advance(POSITION["paligemma"][END_IDS[0]], 1.0)


@every_grammar
def test_states_of_all_tasks_share_one_numbering(name: str) -> None:
    grammar = GRAMMARS[name]
    sizes = [len(grammar.automata[task].slot) for task in TASKS]
    assert grammar.masks().shape == (sum(sizes), len(grammar.alphabet))
    starts = {task: grammar.cursor(task).state - grammar.automata[task].initial for task in TASKS}
    assert starts == {"detect": 0, "point": sizes[0]}
    for task in TASKS:
        rows = grammar.masks()[starts[task] : starts[task] + len(grammar.automata[task].slot)]
        assert (rows == grammar.automata[task].masks()).all()


def test_cursors_of_one_grammar_do_not_meet() -> None:
    grammar = GRAMMARS["pointbox"]
    first, second = grammar.cursor("detect"), grammar.cursor("detect")
    first.advance(POSITION["pointbox"][START_ID], 1.0)
    first.advance(grammar.first_coordinate + 9, 1.0)
    assert second.state != first.state
    assert second.bounds() == (0, 1023)
