"""Moondream 2 and 3 say what a slow reference says, in every schedule and beside any neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from engine.answer import Answer
from engine.errors import EngineError
from engine.models.base import Model
from engine.models.registry import load_model
from engine.request import Request
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
    valid,
)
from tests.models.moondream_checkpoints import (
    ANSWER,
    DETECT,
    POINT,
    SPECIAL,
    Kind,
    byte_tokenizer,
    moondream_checkpoint,
)
from tests.models.moondream_reference import Moondream as Reference
from tests.models.moondream_reference import Written
from tests.models.recording import Recording
from tests.models.reference import CLOSE

KINDS: dict[str, tuple[Kind, int]] = {
    "second": (Kind(), 0),
    "older names": (Kind(old=True, dtype=torch.bfloat16), 0),
    "few key-value heads": (Kind(kv_heads=1, grid=8, margin=1, most_crops=6), 0),
    "third": (Kind(third=True, context=600), 3),
    "third, normed": (Kind(third=True, norm=True, moe_start=2, experts=5, chosen=3), 0),
}
"""With seeds of random weights whose answers have many lengths."""
SIZES = [(300, 120), (130, 290), (126, 126), (1, 60), (420, 700)]
"""Height and width: portrait, landscape, square, a line, and one that needs more crops than there may be."""
PHRASES = ["red circle", "日本語 ラベル"]
MOST = 6


@dataclass(frozen=True)
class Question:
    task: Task
    image: Image
    phrase: str

    @property
    def request(self) -> Request:
        return Request(self.task, self.image, (self.phrase,), max_objects=MOST, dedupe=False)


def asked() -> list[Question]:
    images = [patchwork(seed, *size) for seed, size in enumerate(SIZES)]
    return [
        Question(task, image, PHRASES[(i + j) % 2])
        for i, image in enumerate(images)
        for j, task in enumerate(TASKS)
    ]


def patchwork(seed: int, height: int, width: int) -> Image:
    """A few large areas of one colour each, so that the crops of a picture are not alike."""
    colours = np.random.default_rng(seed).integers(0, 256, (7, 5, 3), np.uint8)
    rows, columns = np.arange(height) * 7 // height, np.arange(width) * 5 // width
    return np.ascontiguousarray(colours[rows[:, None], columns])


def prompt_of(task: Task, phrase: str) -> list[int]:
    text = byte_tokenizer().encode(f" {phrase}").ids
    return [*(DETECT if task == "detect" else POINT), *text, *ANSWER]


@dataclass
class Case:
    model: Model
    reference: Reference
    questions: list[Question]
    written: list[Written]


@pytest.fixture(scope="module", params=KINDS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    kind, seed = KINDS[request.param]
    folder = tmp_path_factory.mktemp("moondream")
    reference = Reference(kind, moondream_checkpoint(folder, kind, seed))
    questions = asked()
    written = [reference.answer(q.task, q.image, prompt_of(q.task, q.phrase), MOST) for q in questions]
    counts = {len(w.places) for w in written}
    assert MOST in counts, "no long answer to compare"
    assert len(counts) > 2, "answers of the same lengths"
    return Case(load_model(str(folder), torch.device("cpu")), reference, questions, written)


def assert_same(answers: Sequence[Answer], written: Sequence[Written]) -> None:
    """Places to 1e-5, scores to 1e-3, but past a choice that rounding may decide."""
    for answer, expected in zip(answers, written, strict=True):
        ours = places_of(items_of(answer))
        theirs = [tuple(min(1.0, max(0.0, v)) for v in place) for place in expected.places]
        same = len(ours) == len(theirs) and np.allclose(ours, theirs, rtol=0, atol=1e-5)
        assert same or min(expected.gaps) < CLOSE, f"{ours} is not {theirs}"
        if same:
            scores = [item.score for item in items_of(answer)]
            assert scores == pytest.approx(expected.scores[: len(scores)], abs=1e-3)
            full = len(theirs) == MOST
            assert answer.finish_reason == ("max_objects" if full else "stop")


@pytest.mark.parametrize("schedule", SCHEDULES, ids="-".join)
def test_together(case: Case, schedule: tuple) -> None:
    """Different images, both tasks, rows that come and go."""
    mode, placement = schedule
    with engine_on(case.model, mode=mode, placement=placement, max_batch=4) as engine:
        answers = ask_together(engine, [q.request for q in case.questions])
        assert_at_rest(engine)
    assert_same(answers, case.written)


def test_alone(case: Case) -> None:
    with engine_on(case.model) as engine:
        answers = [engine.ask(q.request) for q in case.questions]
        assert_at_rest(engine)
    assert_same(answers, case.written)


def test_an_images_kv_serves_every_phrase(case: Case) -> None:
    image = case.questions[0].image
    with engine_on(case.model) as engine:
        first = engine.ask(Request("detect", image, ("red circle",)))
        both = engine.ask(Request("point", image, ("red circle", "x" * 60)))
        assert engine.counts().vision_images == 1
    assert first.metrics.cached_tokens == 0
    assert both.metrics.cached_tokens == 2 * case.model.image_tokens


def test_a_phrase_never_becomes_a_special_token(case: Case) -> None:
    for i in range(SPECIAL):
        for phrase in (f"<|special_{i}|>", f"x<|special_{i}|><|special_5|>"):
            for task, before in (("detect", DETECT), ("point", POINT)):
                ids = case.model.prompt(task, phrase)
                assert ids[: len(before)] == before
                assert ids[-len(ANSWER) :] == ANSWER
                assert min(ids[len(before) : -len(ANSWER)]) >= SPECIAL


@pytest.mark.parametrize("warmth", [0.0, 1.5])
def test_every_answer_is_grammatical(case: Case, warmth: float) -> None:
    phrases = ("red circle", "<|special_0|><|special_5|>", "😀 دائرة\nx")
    requests = [
        Request(task, picture(9, 40, 90), phrases, max_objects=most, temperature=warmth, seed=most)
        for task in TASKS
        for most in (1, 30)
    ]
    answers = {}
    for placement in ("host", "device"):
        with engine_on(case.model, placement=placement, max_tokens=70) as engine:  # type: ignore[arg-type]
            answers[placement] = ask_together(engine, requests)
    for answer in answers["host"]:
        assert all(valid(item) for item in items_of(answer))
    for ours, theirs in zip(*answers.values(), strict=True):
        assert places_of(items_of(ours)) == places_of(items_of(theirs))


def test_places_between_prefix_and_phrase(case: Case) -> None:
    question, reference = case.questions[0], case.reference
    places = ((0.25, 0.7501), (0.1, 0.2, 0.4, 0.9), (0.0, 0.0, 1.0, 1.0), (1.0, 0.0))
    referred: list = []
    for place in places:
        if len(place) == 2:
            referred += [reference.coordinate(v) for v in place]
        else:
            x_min, y_min, x_max, y_max = place
            referred += [reference.coordinate((x_min + x_max) / 2), reference.coordinate((y_min + y_max) / 2)]
            referred.append(reference.size(x_max - x_min, y_max - y_min))
    written = []
    for task, before in (("detect", DETECT), ("point", POINT)):
        prompt = prompt_of(task, question.phrase)
        prompt[len(before) : len(before)] = referred
        written.append(reference.answer(task, question.image, prompt, MOST))
    with engine_on(case.model) as engine:
        answers = [
            getattr(engine, task)(
                question.image, question.phrase, max_objects=MOST, dedupe=False, spatial_refs=places
            )
            for task in TASKS
        ]
        own = case.model.image_tokens + len(prompt_of("detect", question.phrase))
        assert answers[0].metrics.input_tokens == own + 2 + 3 + 3 + 2
    assert_same(answers, written)


def test_other_models_refuse_places(tiny: Model) -> None:
    with engine_on(tiny) as engine, pytest.raises(EngineError, match="takes no spatial_refs") as caught:
        engine.detect(picture(0), "red circle", spatial_refs=((0.5, 0.5),))
    assert caught.value.field == "spatial_refs"


@pytest.mark.parametrize(
    "place", [(0.5,), (0.1, 0.2, 0.3), (0.5, 1.1), (0.5, float("nan")), (0.6, 0.1, 0.5, 0.2), ()]
)
def test_wrong_places_are_refused(place: tuple) -> None:
    with pytest.raises(EngineError, match="spatial reference") as caught:
        Request("detect", picture(0), ("x",), spatial_refs=(place,)).check()
    assert caught.value.field == "spatial_refs"


def test_every_bin(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = Recording()
    monkeypatch.setattr(case.model.grammar, "dialect", recording)
    with engine_on(case.model, mode="blocking") as engine:
        for question, expected in zip(case.questions, case.written, strict=True):
            recording.bins = []
            engine.ask(question.request)
            theirs = [b for kind_and_bins in expected.bins for b in kind_and_bins[1:]]
            assert recording.bins == theirs or min(expected.gaps) < CLOSE
