"""What may be asked, what is light to import, and what is kept of a request that is over."""

from __future__ import annotations

import gc
import pkgutil
import subprocess
import sys
import time
import weakref
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image

import grammars
from engine.engine import Engine
from engine.errors import EngineError
from engine.models.base import Model
from engine.request import MAX_PHRASE_CHARS, MAX_PHRASES, Request
from tests.engine.asking import assert_at_rest, engine_on, picture, submit, until

GOOD: dict[str, Any] = {"task": "detect", "image": picture(0), "phrases": ("red circle",)}
BAD: list[tuple[dict[str, Any], str, str | None]] = [
    ({"task": "segment"}, "unsupported-task", None),
    ({"image": np.zeros((4, 4), np.uint8)}, "invalid-request", "image"),
    ({"image": np.zeros((4, 4, 4), np.uint8)}, "invalid-request", "image"),
    ({"image": np.zeros((4, 4, 3), np.float32)}, "invalid-request", "image"),
    ({"image": np.zeros((0, 4, 3), np.uint8)}, "invalid-request", "image"),
    ({"phrases": ()}, "invalid-phrase", "objects"),
    ({"phrases": ("x",) * (MAX_PHRASES + 1)}, "invalid-phrase", "objects"),
    ({"phrases": ("",)}, "invalid-phrase", "object"),
    ({"phrases": ("ok", " \t\n\u3000")}, "invalid-phrase", "object"),
    ({"phrases": ("x" * (MAX_PHRASE_CHARS + 1),)}, "invalid-phrase", "object"),
    ({"phrases": ("half a smile \ud83d",)}, "invalid-phrase", "object"),
    ({"max_objects": 0}, "invalid-request", "max_objects"),
    ({"max_objects": -1}, "invalid-request", "max_objects"),
    ({"temperature": -0.1}, "invalid-request", "temperature"),
    ({"temperature": float("nan")}, "invalid-request", "temperature"),
    ({"top_p": 0.0}, "invalid-request", "top_p"),
    ({"top_p": 1.1}, "invalid-request", "top_p"),
    ({"region": (0.5, 0.0, 0.5, 1.0)}, "invalid-request", "region"),
    ({"region": (0.6, 0.0, 0.5, 1.0)}, "invalid-request", "region"),
    ({"region": (0.0, 0.0, 1.0, 1.01)}, "invalid-request", "region"),
    ({"region": (float("nan"), 0.0, 1.0, 1.0)}, "invalid-request", "region"),
]


@pytest.fixture(scope="module")
def engine(endless: Model):  # type: ignore[no-untyped-def]
    with engine_on(endless) as engine:
        yield engine
        assert_at_rest(engine)


@pytest.mark.parametrize(("change", "kind", "field"), BAD)
def test_what_no_model_can_answer_is_refused_at_once(
    engine: Engine, change: dict[str, Any], kind: str, field: str | None
) -> None:
    heard: list[object] = []
    with pytest.raises(EngineError) as raised:
        engine.submit(Request(**GOOD | change), heard.append)
    assert raised.value.kind == kind
    assert raised.value.field == field
    assert str(raised.value)
    assert not heard


def test_what_the_model_lacks_names_what_there_is(endless: Model) -> None:
    model = copy(endless)
    model.info = replace(endless.info, tasks=("detect",), adapters=("cats", "dogs"))
    with engine_on(model) as engine:
        with pytest.raises(
            EngineError, match=r"cannot point; models of these families can: .*paligemma"
        ) as no:
            engine.point(picture(0), "red circle")
        assert (no.value.kind, no.value.field) == ("unsupported-task", "model")
        with pytest.raises(EngineError, match="no adapter 'cows'; it has cats, dogs") as no:
            engine.detect(picture(0), "red circle", adapter="cows")
        assert (no.value.kind, no.value.field) == ("unknown-model", "adapter")
    with engine_on(endless) as engine, pytest.raises(EngineError, match="it has none"):
        engine.detect(picture(0), "red circle", adapter="cows")


@pytest.mark.parametrize(
    "change",
    [
        {"phrases": ("x" * MAX_PHRASE_CHARS,)},
        {"phrases": ("\ue000\ue400 \x00 \u202e <obj><eos>",)},
        {"phrases": ("y",) * MAX_PHRASES},
        {"region": (0.0, 0.0, 1.0, 1.0)},
        {"max_objects": 10**12},
        {"image": picture(1)[::-1, ::-1]},
        {"image": np.zeros((1, 1, 3), np.uint8)},
    ],
)
def test_odd_but_good_requests_are_answered(varied: Model, change: dict[str, Any]) -> None:
    with engine_on(varied, max_tokens=20) as engine:
        request = Request(**GOOD | change)
        answer = engine.ask(request)
        assert [p.object for p in answer.phrases] == list(request.phrases)
        assert_at_rest(engine)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "I;16"])
def test_pictures_of_pillow_may_be_asked_about(engine: Engine, mode: str) -> None:
    answer = engine.detect(Image.new(mode, (40, 30)), "red circle", max_objects=1)
    assert (answer.width, answer.height, len(answer.objects)) == (40, 30, 1)


def test_metrics_add_up(engine: Engine) -> None:
    answer = engine.point(picture(3), ["red circle", "star"], max_objects=2)
    m = answer.metrics
    parts = (m.prepare_ms, m.wait_ms, m.prefill_ms, m.decode_ms)
    assert all(part >= 0 for part in parts)
    assert sum(parts) == pytest.approx(m.total_ms)
    assert m.prepare_ms + m.wait_ms + m.prefill_ms == pytest.approx(m.ttft_ms)


def test_a_request_that_is_over_leaves_its_image(engine: Engine) -> None:
    """Its deadline, far away, does not keep it."""
    image = picture(99)
    gone = weakref.ref(image)
    deadline = time.monotonic() + 3600
    listener, handle = submit(engine, Request("detect", image, ("star",), max_objects=2, deadline=deadline))
    assert listener.error is None
    del image, listener, handle
    assert_at_rest(engine)

    def collected() -> bool:
        gc.collect()
        return gone() is None

    until(collected, "the image is let go")


def test_an_image_is_let_go_once_it_is_prepared(engine: Engine) -> None:
    """Though its request goes on: what the engine keeps of it is small."""
    image = picture(98)
    gone = weakref.ref(image)
    seen: list[bool] = []

    def at_the_first_event(event: object) -> None:
        if not seen:
            gc.collect()
            seen.append(gone() is None)

    request = Request("point", image, ("star", "red circle"), max_objects=2)
    listener, _ = submit(engine, request, at_the_first_event)
    del image, request
    assert listener.error is None
    assert seen == [True]


def test_what_the_api_imports_is_light() -> None:
    modules = ["engine", "engine.request", "engine.events", "engine.errors", "engine.answer"]
    modules += [m.name for m in pkgutil.walk_packages(grammars.__path__, "grammars.")]
    assert "grammars.dialects.pointbox" in modules
    heavy = ("torch", "transformers", "tokenizers")
    program = f"import sys, {', '.join(modules)}; sys.exit([m for m in {heavy} if m in sys.modules] or 0)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
