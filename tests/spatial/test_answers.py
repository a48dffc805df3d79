"""The wording of an answer: clamped, never inverted, ordered, as bad as its worst phrase."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.admission.messages import Completed, Failure, Metrics, ObjectEvent
from app.inference import problem_of
from app.spatial.answers import build_answer
from app.spatial.schemas import DetectAnswer, PointAnswer

COORDINATE = st.floats(-0.5, 1.5)


def completed(
    objects: list[ObjectEvent], reasons: list[str], size: tuple[int, int] = (640, 480), notes: str = ""
) -> Completed:
    return Completed(
        model="tiny",
        width=size[0],
        height=size[1],
        objects=objects,
        finish_reasons=reasons,
        metrics=Metrics(queue_ms=1.23456, input_tokens=70),
        notes=[notes] if notes else [],
    )


def detect(objects: list[ObjectEvent], reasons: list[str], **options: str) -> DetectAnswer:
    phrases = [f"phrase {index}" for index in range(len(reasons))]
    options = {"units": "normalized"} | options
    answer = build_answer("detect", completed(objects, reasons), request_id="r", phrases=phrases, **options)  # type: ignore[arg-type]
    assert isinstance(answer, DetectAnswer)
    return answer


def test_the_document_of_detect() -> None:
    answer = detect([ObjectEvent(0, (0.1, 0.2, 0.3, 0.4), 0.98)], ["stop"])
    assert json.loads(msgspec.json.encode(answer)) == {
        "request_id": "r",
        "model": "tiny",
        "image": {"width": 640, "height": 480, "id": None},
        "objects": [
            {
                "x_min": 0.1,
                "y_min": 0.2,
                "x_max": 0.3,
                "y_max": 0.4,
                "label": "phrase 0",
                "phrase_index": 0,
                "score": 0.98,
            }
        ],
        "phrases": [{"object": "phrase 0", "finish_reason": "stop", "truncated": False}],
        "finish_reason": "stop",
        "truncated": False,
        "metrics": {
            "queue_ms": 1.235,
            "intake_ms": 0.0,
            "prefill_ms": 0.0,
            "decode_ms": 0.0,
            "ttft_ms": 0.0,
            "total_ms": 0.0,
            "input_tokens": 70,
            "output_tokens": 0,
            "cached_tokens": 0,
        },
    }


def test_the_document_of_point() -> None:
    answer = build_answer(
        "point",
        completed([ObjectEvent(1, (0.25, 1.0000005), 0.5)], ["stop", "stop"]),
        request_id="r",
        phrases=["a", "b"],
        units="pixels",
    )
    assert isinstance(answer, PointAnswer)
    assert json.loads(msgspec.json.encode(answer.points)) == [
        {"x": 160.0, "y": 480.0, "label": "b", "phrase_index": 1, "score": 0.5}
    ]


@given(st.tuples(COORDINATE, COORDINATE, COORDINATE, COORDINATE), st.sampled_from(["normalized", "pixels"]))
def test_coordinates_are_clamped_and_never_inverted(box: tuple[float, ...], units: str) -> None:
    found = detect([ObjectEvent(0, box, 1.5)], ["stop"], units=units).objects[0]
    width, height = (640, 480) if units == "pixels" else (1, 1)
    assert 0 <= found.x_min <= found.x_max <= width
    assert 0 <= found.y_min <= found.y_max <= height
    assert found.score == 1


@pytest.mark.parametrize(
    ("reasons", "worst", "truncated"),
    [
        (["stop", "stop"], "stop", False),
        (["repetition", "stop"], "repetition", False),
        (["repetition", "max_objects"], "max_objects", True),
        (["length", "max_objects"], "length", True),
        (["deadline", "length"], "deadline", True),
    ],
)
def test_the_whole_is_as_bad_as_its_worst_phrase(reasons: list[str], worst: str, truncated: bool) -> None:
    answer = detect([], reasons)
    assert (answer.finish_reason, answer.truncated) == (worst, truncated)
    assert [phrase.finish_reason for phrase in answer.phrases] == reasons


def test_failures_become_the_problem_they_name() -> None:
    problem = problem_of(Failure(problem="invalid-image", detail="half", field="image"), {})
    assert (problem.status, problem.slug, problem.field) == (422, "invalid-image", "image")
    assert problem_of(Failure(problem="cancelled", detail=""), {}).status == 503
    assert problem_of(Failure(problem="never heard of", detail=""), {}).slug == "internal"


def test_notes_are_told_where_there_are_some() -> None:
    done = completed([], ["stop"], notes="points are the centres of detected boxes")
    answer = build_answer("point", done, request_id="r", phrases=["cat"], units="normalized")
    assert json.loads(msgspec.json.encode(answer))["notes"] == ["points are the centres of detected boxes"]
    assert "notes" not in json.loads(msgspec.json.encode(detect([], ["stop"])))
