"""Agreement with an independent implementation, where its recording lies beside this repository."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as Pictures
from safetensors import safe_open
from torch.nn import functional as F

from app.cli import main
from engine.answer import Answer
from engine.attention import KvCache, Paged
from engine.models.moondream import Moondream
from engine.models.registry import load_model
from engine.request import Request
from tests.engine.asking import SCHEDULES, Image, ask_together, assert_at_rest, engine_on, items_of, places_of
from tests.models.recording import Recording

FOLDER = Path(__file__).parents[3] / "shared" / "fixtures" / "moondream2-tiny"
pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="the recording is not here")
Case = dict[str, Any]


@cache
def expected() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
    return found


@cache
def picture(name: str) -> Image:
    return np.asarray(Pictures.open(FOLDER / name).convert("RGB"))


@pytest.fixture(scope="module")
def model() -> Moondream:
    loaded = load_model(str(FOLDER), torch.device("cpu"))
    assert isinstance(loaded, Moondream)
    return loaded


def request(case: Case) -> Request:
    return Request(
        case["task"], picture(case["image"]), (case["object"],), max_objects=case["max_objects"], dedupe=False
    )


def places(case: Case, part: str = "result") -> list[tuple[float, ...]]:
    if case["task"] == "point":
        return [(p["x"], p["y"]) for p in case[part]["points"]]
    return [(o["x_min"], o["y_min"], o["x_max"], o["y_max"]) for o in case[part]["objects"]]


def assert_agrees(answer: Answer, case: Case) -> None:
    ours = places_of(items_of(answer))
    assert len(ours) == len(places(case))
    np.testing.assert_allclose(ours, places(case), rtol=0, atol=1e-5)
    full = len(ours) == case["max_objects"]
    assert answer.finish_reason == ("max_objects" if full else "stop")


@pytest.mark.parametrize("schedule", SCHEDULES, ids="-".join)
def test_all_together(model: Moondream, schedule: tuple) -> None:
    """Different images, detect and point rows in one batch."""
    mode, placement = schedule
    cases = expected()["cases"]
    with engine_on(model, mode=mode, placement=placement, max_batch=8) as engine:
        for answer, case in zip(ask_together(engine, map(request, cases)), cases, strict=True):
            assert_agrees(answer, case)
        assert_at_rest(engine)


def test_every_bin_alone(model: Moondream, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = Recording()
    monkeypatch.setattr(model.grammar, "dialect", recording)
    with engine_on(model) as engine:
        for case in expected()["cases"]:
            recording.bins = []
            assert_agrees(engine.ask(request(case)), case)
            assert recording.bins == [b for step in case["bins"] for b in step[1:]]


@torch.inference_mode()
def test_the_numbers_on_the_way(model: Moondream) -> None:
    """Tiling, keys of the image, the last hidden state and 32 logits of the whole vocabulary."""
    with safe_open(FOLDER / "model.safetensors", framework="pt") as file:
        weight, bias = (file.get_tensor(f"model.text.lm_head.{w}").float()[:32] for w in ("weight", "bias"))
    where = torch.device("cpu")
    for row in expected()["numeric"]:
        image = model.preprocess(picture(row["image"]))
        assert list(image.grid) == row["tiling"]
        (encoded,) = model.encode_images([image])
        length = image.tokens + len(row["prompt_ids"])
        kv = model.kv
        cache = KvCache(kv.layers, 64, 16, kv.kv_heads, kv.head_dim, kv.dtype, where)
        table, index = torch.arange(1, 64)[None], torch.arange(length)[None]
        both_ways, causal = torch.tensor([image.tokens]), torch.tensor([0])
        model.forward(encoded.embeds[None], Paged(cache, index[:, : image.tokens], table, both_ways))
        prompt = model.embed(torch.tensor([row["prompt_ids"]]))
        hidden = model.forward(prompt, Paged(cache, index[:, image.tokens :], table, causal))[0, -1]
        logits = F.linear(model.network.text.post_ln(hidden), weight, bias)
        near = {"rtol": 0, "atol": 1e-3}
        np.testing.assert_allclose(hidden[:16], row["hidden_last_first_16"], **near)
        np.testing.assert_allclose(logits, row["logits_first_32"], **near)
        np.testing.assert_allclose(model.head(hidden[None])[0, :2], logits[[0, 5]], **near)
        keys = cache.keys[0][16 : 16 + image.tokens].abs().mean()
        assert float(keys) == pytest.approx(row["image_kv_layer0_k_mean_abs"], abs=1e-3)


@pytest.mark.parametrize("number", [0, 2, 14])
def test_the_command(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    case = expected()["cases"][number]
    command = [case["task"], str(FOLDER / case["image"]), case["object"], "--model", str(FOLDER)]
    with pytest.raises(SystemExit) as ended:
        main([*command, "--json", "--dedupe", "off", "--max-objects", str(case["max_objects"])])
    assert ended.value.code == 0
    answer = json.loads(capsys.readouterr().out)
    kind = "points" if case["task"] == "point" else "objects"
    given = {"task": case["task"], "result": {kind: answer[kind]}}
    np.testing.assert_allclose(places(given), places(case), rtol=0, atol=1e-5)
