"""Weights that were never trained: grammatical answers, and lists that end for the right reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from engine.engine import Engine
from engine.models.registry import load_model
from engine.request import Request
from grammars.types import TASKS, Box, Point, Task
from tests.engine.asking import (
    ask_together,
    assert_at_rest,
    engine_on,
    items_of,
    picture,
    places_of,
    valid,
)

PHRASES = ("red circle", "<obj><loc0001>", "😀 ; دائرة\nx")
ENOUGH = 10_000
"""More objects than any answer here has."""


def test_every_answer_is_grammatical(random_folder: Path) -> None:
    assert_grammatical(random_folder)


def test_every_public_style_answer_is_grammatical(public_folder: Path) -> None:
    assert_grammatical(public_folder)


def assert_grammatical(folder: Path) -> None:
    model = load_model(str(folder), torch.device("cpu"))
    requests = [
        Request(task, picture(seed), PHRASES, max_objects=most, dedupe=dedupe)
        for seed in range(2)
        for task in TASKS
        for dedupe in (True, False)
        for most in (1, 4)
    ]
    seen = set()
    with engine_on(model, max_tokens=50) as engine:
        for request, answer in zip(requests, ask_together(engine, requests), strict=True):
            kind = Box if request.task == "detect" else Point
            assert all(isinstance(item, kind) and valid(item) for item in items_of(answer))
            assert [p.object for p in answer.phrases] == list(PHRASES)
            for index, phrase in enumerate(answer.phrases):
                count = sum(o.phrase_index == index for o in (*answer.objects, *answer.points))
                assert count <= request.max_objects
                assert (phrase.finish_reason == "max_objects") == (count == request.max_objects)
                assert phrase.truncated == (phrase.finish_reason in ("max_objects", "length"))
                assert request.dedupe or phrase.finish_reason != "repetition"
                seen.add(phrase.finish_reason)
        assert_at_rest(engine)
    assert seen <= {"stop", "max_objects", "length", "repetition"}
    assert "max_objects" in seen


@pytest.fixture(scope="module")
def stubborn(stubborn_folder: Path) -> Iterator[Engine]:
    """On a model that says the same box for ever."""
    with engine_on(load_model(str(stubborn_folder), torch.device("cpu"))) as engine:
        yield engine
        assert_at_rest(engine)


@pytest.mark.parametrize("task", TASKS)
def test_three_repeats_in_a_row_end_the_list(stubborn: Engine, task: Task) -> None:
    answer = stubborn.ask(Request(task, picture(0), ("red circle",)))
    assert answer.finish_reason == "repetition"
    assert not answer.truncated
    assert len(items_of(answer)) == 1
    assert answer.metrics.output_tokens == 4 * (5 if task == "detect" else 3)


def test_repeats_are_answered_when_asked_for(stubborn: Engine) -> None:
    answer = stubborn.ask(Request("detect", picture(0), ("red circle",), max_objects=7, dedupe=False))
    assert answer.finish_reason == "max_objects"
    assert answer.truncated
    assert len(set(places_of(items_of(answer)))) == 1
    assert len(answer.objects) == 7
    assert answer.metrics.output_tokens == 35


def test_one_object_at_most(stubborn: Engine) -> None:
    answer = stubborn.ask(Request("detect", picture(0), ("red circle",), max_objects=1))
    assert (answer.finish_reason, len(answer.objects)) == ("max_objects", 1)


def test_the_token_limit_keeps_the_whole_objects(stubborn_folder: Path) -> None:
    model = load_model(str(stubborn_folder), torch.device("cpu"))
    for limit in (1, 4, 5, 6, 9, 10, 13):
        with engine_on(model, max_tokens=limit) as engine:
            request = Request("detect", picture(0), ("red circle",), max_objects=ENOUGH, dedupe=False)
            answer = engine.ask(request)
            assert answer.finish_reason == "length"
            assert answer.truncated
            assert len(answer.objects) == limit // 5
            assert answer.metrics.output_tokens == limit
            assert_at_rest(engine)


def test_the_context_is_a_limit_too(stubborn: Engine) -> None:
    request = Request("detect", picture(0), ("red circle",), max_objects=ENOUGH, dedupe=False)
    answer = stubborn.ask(request)
    assert answer.finish_reason == "length"
    assert answer.metrics.input_tokens + answer.metrics.output_tokens == 1024
    assert all(valid(item) for item in items_of(answer))


def test_what_is_filtered_still_counts_as_said(stubborn: Engine) -> None:
    """Repeats of a box outside the region, or below the score, end the list as well."""
    (box,) = stubborn.ask(Request("detect", picture(0), ("red circle",))).objects
    left = (0.0, 0.0, box.x_max - 1 / 2048, 1.0)
    outside = stubborn.ask(Request("detect", picture(0), ("red circle",), region=left))
    assert (outside.finish_reason, outside.objects) == ("repetition", ())
    around = (box.x_min, box.y_min, box.x_max, box.y_max)
    assert len(stubborn.ask(Request("detect", picture(0), ("red circle",), region=around)).objects) == 1
    certain = stubborn.ask(Request("detect", picture(0), ("red circle",), min_score=1.01))
    assert (certain.finish_reason, certain.objects) == ("repetition", ())


def test_the_worst_phrase_speaks_for_the_answer(stubborn: Engine) -> None:
    answer = stubborn.ask(Request("detect", picture(0), ("red circle", "blue star"), max_objects=1))
    assert [p.finish_reason for p in answer.phrases] == ["max_objects"] * 2
    assert [o.label for o in answer.objects] == ["red circle", "blue star"]
    assert [o.phrase_index for o in answer.objects] == [0, 1]
    assert answer.truncated
