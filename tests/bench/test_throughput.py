"""The reference ways answer under the grammar, and every way answers every question."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bench.generate import FollowGrammar, Generator
from bench.throughput import MODEL, by_engine, by_generate, run
from bench.workloads import questions
from engine.device.cpu import CpuDevice
from engine.engine import Engine
from engine.models.base import Model
from engine.models.registry import CHECKPOINTS, load_model
from engine.request import Request
from grammars.types import Box
from tests.bench.models import emulated

ROWS, STEPS = 8, 30


@pytest.fixture(scope="module")
def tiny() -> Model:
    return load_model(MODEL, torch.device("cpu"))


def test_the_processor_allows_what_a_cursor_allows() -> None:
    """Random scores; each row takes its best token, and a cursor of its own takes all of them."""
    grammar, chance = emulated().grammar, torch.Generator().manual_seed(0)
    position = {int(token): i for i, token in enumerate(grammar.alphabet)}
    follow = FollowGrammar(grammar, ROWS, 2, [0])
    cursors = [grammar.cursor("detect") for _ in range(ROWS)]
    tokens, boxes = torch.zeros(ROWS, 2, dtype=torch.int64), 0
    for _ in range(STEPS):
        scores = torch.randn(ROWS, 51_200, generator=chance)
        scores[:, 1] += 3  # so that some answers hold objects
        best = follow(tokens, scores).argmax(dim=1)
        tokens = torch.cat([tokens, best[:, None]], dim=1)
        for cursor, token in zip(cursors, best.tolist(), strict=True):
            if cursor.ended:
                assert token == 0
            else:
                boxes += isinstance(cursor.advance(position[token], 1.0), Box)
    assert boxes > ROWS


def test_batches_say_what_the_engine_says(tiny: Model) -> None:
    """But for a place where two logits nearly tie, so most of them must be the same, not all."""
    asked = questions(6, seed=4)
    answers = Generator(CHECKPOINTS / MODEL, tiny, 40).answer(asked, masked=True)
    grammar = tiny.grammar
    position = {int(token): i for i, token in enumerate(grammar.alphabet)}
    same = 0
    with Engine(tiny, CpuDevice(), max_tokens=40) as engine:
        for question, tokens in zip(asked, answers, strict=True):
            cursor, boxes = grammar.cursor("detect"), []
            for token in tokens:
                if not cursor.ended and (item := cursor.advance(position[token], 1.0)) is not None:
                    assert isinstance(item, Box)
                    boxes.append((item.x_min, item.y_min, item.x_max, item.y_max))
            ours = engine.ask(Request("detect", question.image, (question.phrase,), dedupe=False))
            same += boxes == [(o.x_min, o.y_min, o.x_max, o.y_max) for o in ours.objects]
    assert same >= 4


def test_every_question_is_answered(tiny: Model) -> None:
    asked = questions(5)
    assert len(by_engine(tiny, asked, "pipelined", 2)[1]) == 5
    generator = Generator(CHECKPOINTS / MODEL, tiny, 6)
    assert len(by_generate(generator, asked, 2, False)[1]) == 5


def test_questions_about_one_picture_follow_each_other() -> None:
    asked = questions(7, seed=3, phrases=3)
    assert len(asked) == 7
    pictures = [question.image.tobytes() for question in asked]
    assert pictures[0] == pictures[1] == pictures[2] != pictures[3] == pictures[5] != pictures[6]
    assert len({question.phrase for question in asked[:3]}) == 3


def test_a_failed_request_is_no_measurement(tiny: Model) -> None:
    bad = questions(1)[0]
    with pytest.raises(Exception, match="blank"):
        by_engine(tiny, [type(bad)(np.zeros((8, 8, 3), np.uint8), " ")], "pipelined", 1)


def test_all_ways_have_a_row() -> None:
    ways = run(2, 4, 2, lambda _: None)
    assert [way.name for way in ways][:2] == ["pipelined", "blocking"]
    assert len(ways) == 6
    for way in ways:
        assert way.requests_per_s > 0
        assert 0 < way.p50_ms <= way.p99_ms
        assert set(way.as_json()) == {"name", "requests_per_s", "p50_ms", "p99_ms"}
