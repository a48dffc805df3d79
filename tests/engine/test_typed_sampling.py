"""Typed values: what is chosen, among what, and with which probability."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from engine.sampling import Chance
from engine.typed_sampling import TypedSampler, make_sampler
from grammars.cursors import Cursors
from grammars.dialects.moondream import MoondreamDialect
from grammars.grammar import Grammar
from grammars.symbols import BINS, Tokens
from grammars.types import Task

VOCABULARY = 100
COORDINATES = range(VOCABULARY, VOCABULARY + BINS)
GRAMMAR = Grammar(MoondreamDialect(), Tokens(COORDINATES, (0,), size=COORDINATES.stop))
SAMPLER = make_sampler(GRAMMAR, torch.device("cpu"))
FREE = torch.zeros(1, dtype=torch.int64), torch.full((1,), BINS - 1)
STARTS: list[tuple[Task, list[int]]] = [
    ("detect", []),
    ("detect", [1]),
    ("detect", [1, 2]),
    ("detect", [1, 2, GRAMMAR.logits]),
    ("detect", [0]),
    ("point", []),
    ("point", [7]),
    ("point", [0]),
]


def state_after(task: Task, positions: list[int]) -> int:
    cursor = GRAMMAR.cursor(task)
    for position in positions:
        cursor.advance(position, 1.0)
    return cursor.state


def chance(temperature: float, top_p: float, count: int) -> Chance:
    return Chance(
        torch.tensor([temperature], dtype=torch.float64),
        torch.tensor([top_p], dtype=torch.float64),
        torch.tensor([9]),
        torch.tensor([count]),
    )


def parts(logits: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Probabilities of end and going on, then of each bin of a coordinate, a width and a height."""
    return tuple(part.softmax(0) for part in logits[0].split([2, BINS, BINS, BINS]))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("task", "before"), STARTS)
def test_the_best_of_what_is_due(task: Task, before: list[int], seed: int) -> None:
    assert isinstance(SAMPLER, TypedSampler)
    state = state_after(task, before)
    logits = 3 * torch.randn(1, GRAMMAR.logits, generator=torch.Generator().manual_seed(seed))
    position, probability = SAMPLER(logits, torch.tensor([state]), *FREE, None)
    decision, bins, wide, tall = parts(logits)
    may_end, may_go_on, sized = GRAMMAR.masks()[state][[0, 1, -1]]
    token = int(SAMPLER.tokens(position))
    if sized:
        assert token == VOCABULARY + BINS + int(wide.argmax()) * BINS + int(tall.argmax())
        assert float(probability) == pytest.approx(float(wide.max() * tall.max()))
    elif not may_go_on:
        assert (token, float(probability)) == (0, 1.0)
    elif may_end:
        assert token == (0 if decision[0] > decision[1] else VOCABULARY + int(bins.argmax()))
        assert float(probability) == pytest.approx(float(decision.max()))
    else:
        assert token == VOCABULARY + int(bins.argmax())
        assert float(probability) == pytest.approx(float(bins.max()))
    assert token == GRAMMAR.token(int(position))


def test_rows_of_all_kinds_do_not_touch_each_other() -> None:
    states = torch.tensor([state_after(*start) for start in STARTS])
    count = len(states)
    logits = torch.randn(count, GRAMMAR.logits, generator=torch.Generator().manual_seed(0))
    low, high = torch.zeros(count, dtype=torch.int64), torch.full((count,), BINS - 1)
    for warm in (None, chance(1.5, 0.9, 3)):
        many = None if warm is None else Chance(*(
            t.expand(count) for t in (warm.temperature, warm.top_p, warm.seed, warm.count)
        ))  # fmt: skip
        together = SAMPLER(logits, states, low, high, many)
        for row in range(count):
            alone = SAMPLER(logits[row : row + 1], states[row : row + 1], *FREE, warm)
            assert together[0][row] == alone[0][0]
            torch.testing.assert_close(together[1][row], alone[1][0])


def test_warm_rows_draw_by_the_models_probabilities() -> None:
    """Of few likely values each comes about as often as the model says, width and height by themselves."""
    logits = torch.full((1, GRAMMAR.logits), -50.0)
    logits[0, :2] = torch.tensor([0.0, 1.0])
    for begin, likely in ((2, (5, 900)), (2 + BINS, (0, 3)), (2 + 2 * BINS, (1022, 1023))):
        logits[0, begin + likely[0]], logits[0, begin + likely[1]] = 1.0, 0.0
    first, second = (state_after("detect", before) for before in ([], [1, 2]))
    draws = 600
    seen = {
        state: Counter(
            int(SAMPLER.tokens(SAMPLER(logits, torch.tensor([state]), *FREE, chance(1.0, 1.0, n))[0]))
            for n in range(draws)
        )
        for state in (first, second)
    }
    likelier = float(torch.tensor([1.0, 0.0]).softmax(0)[0])
    expected = {
        0: 1 - likelier,
        VOCABULARY + 5: likelier * likelier,
        VOCABULARY + 900: likelier * (1 - likelier),
    }
    assert {token: n / draws for token, n in seen[first].items()} == pytest.approx(expected, abs=0.08)
    sizes = VOCABULARY + BINS
    expected = {
        sizes + w * BINS + h: pw * ph
        for w, pw in ((0, likelier), (3, 1 - likelier))
        for h, ph in ((1022, likelier), (1023, 1 - likelier))
    }
    assert {token: n / draws for token, n in seen[second].items()} == pytest.approx(expected, abs=0.08)


def test_a_small_top_p_is_greedy() -> None:
    logits = torch.randn(1, GRAMMAR.logits, generator=torch.Generator().manual_seed(4))
    for start in STARTS:
        state = torch.tensor([state_after(*start)])
        assert (
            SAMPLER(logits, state, *FREE, chance(5.0, 1e-9, 0))[0] == SAMPLER(logits, state, *FREE, None)[0]
        )


def test_values_are_those_of_the_cursors() -> None:
    cursors = Cursors(GRAMMAR, 1)
    cursors.start(0, "detect")
    state, values = torch.tensor([GRAMMAR.initial("detect")]), torch.full((1, Cursors.width(GRAMMAR)), -1)
    for position in (5, 1024, 1025 + 1023 * BINS + 1):
        cursors.advance(np.array([0]), np.array([position]), np.ones(1))
        state, values = SAMPLER.advance(state, values, torch.tensor([position]))
    assert state.tolist() == cursors.state.tolist()
    assert values[0, 1:5].tolist() == [4, 1023, 1023, 1]
