"""The engine's greedy tokens are those of `transformers.generate` under the same grammar.

Sameness: across shapes (alone, batched, generate) fp32 may differ in the last bits, so tokens are equal up to
a place whose two best masked logits differ by less than 1e-4; there is at most one such place in 1,000.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.answer import Answer
from engine.executor import Placement
from engine.loop import Mode
from engine.models.base import Model
from engine.models.registry import load_model
from engine.request import Request
from engine.trace import Trace
from grammars.types import TASKS, Task
from tests.engine.asking import (
    SCHEDULES,
    Image,
    ask_together,
    assert_at_rest,
    engine_on,
    items_of,
    picture,
    places_of,
    tokens_of,
)
from tests.models.checkpoints import EOS_ID, TINY, as_published, public_checkpoint
from tests.models.reference import CLOSE, Reference, Stock, first_difference
from training.scenes import COLOURS, HELD_OUT, SHAPES, make_query, make_scene

LIMIT, SHORT = 80, 40
PICTURES = (
    ((150, 70), "red circle"),
    ((60, 200), "every blue star"),
    ((112, 112), "star"),
    ((1, 90), "red circle"),
    ((128, 96), "shapes"),
)
"""Portrait, landscape, square and a line, height and width; and what is asked of them."""


@dataclass(frozen=True)
class Question:
    task: Task
    image: Image
    phrase: str

    @property
    def request(self) -> Request:
        """Everything that the model writes, repeats too."""
        return Request(self.task, self.image, (self.phrase,), max_objects=500, dedupe=False)


Schedule = tuple[Mode, Placement]
Pairs = list[tuple[Question, Reference]]


def questions(scenes: int) -> list[Question]:
    asked = []
    for seed in range(HELD_OUT.start, HELD_OUT.start + scenes):
        scene = make_scene(seed)
        phrase = make_query(scene, np.random.default_rng(seed), 0.3).phrase
        asked += [Question(task, scene.image, phrase) for task in TASKS]
    return asked


def referred(folder: Path, model: Model, asked: Iterable[Question], limit: int) -> Pairs:
    stock = Stock(folder, model)
    return [(q, stock.answer(q.task, q.image, q.phrase, limit)) for q in asked]


def answers(model: Model, pairs: Pairs, schedule: Schedule, together: bool, limit: int) -> list[Answer]:
    mode, placement = schedule
    with engine_on(model, mode=mode, placement=placement, max_tokens=limit) as engine:
        requests = [question.request for question, _ in pairs]
        given = ask_together(engine, requests) if together else [engine.ask(r) for r in requests]
        assert_at_rest(engine)
    return given


def assert_rare(differences: int, pairs: Pairs) -> None:
    decisions = sum(np.isfinite(gap) for _, reference in pairs for gap in reference.gaps)
    assert differences <= max(1, decisions // 1000), f"{differences} differences in {decisions} decisions"


def assert_same_tokens(model: Model, pairs: Pairs, given: list[Answer]) -> None:
    differences = 0
    for (question, reference), answer in zip(pairs, given, strict=True):
        assert answer.metrics.input_tokens == model.image_tokens + len(
            model.prompt(question.task, question.phrase)
        )
        assert answer.finish_reason in ("stop", "length")
        ours = tokens_of(model, question.task, answer)
        theirs = reference.tokens[: len(ours)] if answer.finish_reason == "length" else reference.tokens
        place = first_difference(ours, theirs)
        if place is not None:
            assert reference.gaps[place] < CLOSE, f"{question.task} {question.phrase!r} parts at {place}"
            differences += 1
        else:
            assert answer.metrics.output_tokens == len(reference.tokens)
    assert_rare(differences, pairs)


@pytest.fixture(scope="module", params=[40, pytest.param(200, marks=pytest.mark.long)], ids="{}scenes".format)
def pairs(request: pytest.FixtureRequest, tiny: Model) -> Pairs:
    found = referred(TINY, tiny, questions(request.param), LIMIT)
    assert sum(len(reference.items) for _, reference in found) > len(found) // 2, (
        "hardly an object to compare"
    )
    return found


@pytest.mark.parametrize("together", [False, True], ids=["alone", "together"])
@pytest.mark.parametrize("schedule", SCHEDULES, ids="-".join)
def test_the_default_model(tiny: Model, pairs: Pairs, schedule: Schedule, together: bool) -> None:
    assert_same_tokens(tiny, pairs, answers(tiny, pairs, schedule, together, LIMIT))


@pytest.fixture(scope="module")
def neighbours(tiny: Model) -> Pairs:
    """32 phrases about one image."""
    image = make_scene(HELD_OUT.start).image
    phrases = [*SHAPES, *COLOURS, *(f"{c} {s}" for c in COLOURS[:3] for s in SHAPES[:4])][:32]
    return referred(TINY, tiny, [Question("detect", image, phrase) for phrase in phrases], LIMIT)


@pytest.mark.parametrize("schedule", SCHEDULES, ids="-".join)
def test_31_neighbours_on_one_image(tiny: Model, neighbours: Pairs, schedule: Schedule) -> None:
    """32 phrases share the KV of one image and decode as one batch; each says what it says alone."""
    phrases = tuple(question.phrase for question, _ in neighbours)
    (mode, placement), trace = schedule, Trace()
    with engine_on(tiny, mode=mode, placement=placement, max_tokens=LIMIT, trace=trace) as engine:
        request = Request("detect", neighbours[0][0].image, phrases, max_objects=500, dedupe=False)
        answer = engine.ask(request)
        assert_at_rest(engine)
    assert (
        max(span.rows for span in trace.spans) == 32
    )  # in blocking mode, those that say nothing do not decode
    differences = 0
    for index, (question, reference) in enumerate(neighbours):
        part = [o for o in answer.objects if o.phrase_index == index]
        assert {o.label for o in part} <= {question.phrase}
        same = [(o.x_min, o.y_min, o.x_max, o.y_max) for o in part] == places_of(reference.items)
        assert same or min(reference.gaps) < CLOSE
        differences += not same
    assert_rare(differences, neighbours)
    if not differences:
        assert answer.metrics.output_tokens == sum(len(reference.tokens) for _, reference in neighbours)


def test_random_weights(random_folder: Path) -> None:
    model = load_model(str(random_folder), torch.device("cpu"))
    pairs = referred(random_folder, model, questions(5), SHORT)
    for schedule in SCHEDULES:
        assert_same_tokens(model, pairs, answers(model, pairs, schedule, True, SHORT))


def test_public_style(public_folder: Path) -> None:
    """Image and prompt see each other both ways; labels are forced, separators sampled."""
    model = load_model(str(public_folder), torch.device("cpu"))
    assert model.info.prefix == "prompt"
    assert model.grammar.dialect.name == "paligemma"
    asked = questions(1)
    asked += [
        Question(TASKS[i % 2], picture(i, *shape), phrase) for i, (shape, phrase) in enumerate(PICTURES)
    ]
    asked.append(Question("detect", asked[0].image, "a rather long label, of many words and ½ a hexagon"))
    pairs = referred(public_folder, model, asked, SHORT)
    for schedule in (s for s in SCHEDULES if s[1] == "host"):
        differences = 0
        given = answers(model, pairs, schedule, True, SHORT)
        for (question, reference), answer in zip(pairs, given, strict=True):
            same = places_of(items_of(answer)) == places_of(reference.items)
            written = answer.metrics.output_tokens
            if answer.finish_reason == "length":  # ends before a label that does not fit
                same = same and written <= len(reference.tokens)
            else:
                same = same and written == len(reference.tokens)
            assert same or min(reference.gaps) < CLOSE
            differences += not same
            assert {o.label for o in (*answer.objects, *answer.points)} <= {question.phrase}
            assert answer.notes == (
                ("points are the centres of detected boxes",) * (question.task == "point")
            )
            assert (answer.finish_reason == "stop") == (reference.tokens[-1] == EOS_ID)
        assert_rare(differences, pairs)


def test_names_of_the_public_files(tmp_path: Path) -> None:
    """Weights named as on the hub are the same model."""
    cpu = torch.device("cpu")
    ours = load_model(str(public_checkpoint(tmp_path / "ours", 0)), cpu)
    theirs = load_model(str(as_published(public_checkpoint(tmp_path / "theirs", 0))), cpu)
    assert ours.info.revision != theirs.info.revision
    request = questions(1)[0].request
    given = []
    for model in (ours, theirs):
        with engine_on(model, max_tokens=SHORT) as engine:
            given.append(places_of(items_of(engine.ask(request))))
    assert given[0] == given[1] != []
