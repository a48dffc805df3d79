"""LoRA adapters on Moondream: rows of one batch use different ones, and answer as merged weights do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.adapters.bank import AdapterBank
from engine.answer import Answer
from engine.models.registry import load_model
from engine.request import Request
from tests.engine.asking import ask_together, assert_at_rest, engine_on, picture, said
from tests.models.adapters import Recipe, merge, write_adapter
from tests.models.moondream_checkpoints import Kind, moondream_checkpoint

CPU = torch.device("cpu")
TEXT = r"model\.text\.blocks\.\d+\.(attn|mlp)\.\w+"
RECIPES = {
    "few": Recipe(r"model\.text\.blocks\.\d+\.attn\.qkv", seed=1, called=str),
    "all": Recipe(TEXT, rank=6, seed=2, called=str, config={"use_rslora": True}),
    "sight": Recipe(rf"{TEXT}|model\.vision\.blocks\.\d+\.(attn|mlp)\.\w+", rank=3, seed=3, called=str),
}
LIMIT = 24


def asked(name: str | None) -> list[Request]:
    return [
        Request(task, picture(seed), ("red circle",), dedupe=False, adapter=name)
        for seed in (1, 2)
        for task in ("detect", "point")
    ]


def places(answers: list[Answer]) -> list[list[tuple[float, ...]]]:
    return [[tuple(round(v, 5) for v in place) for place in said(answer).places] for answer in answers]


@pytest.mark.parametrize("kind", [Kind(), Kind(kv_heads=2)], ids=["plain", "grouped"])
def test_a_mixed_batch_answers_as_merged_models_do(tmp_path: Path, kind: Kind) -> None:
    base = tmp_path / "base"
    base.mkdir()
    moondream_checkpoint(base, kind, 1)
    adapters = {name: write_adapter(tmp_path / name, base, recipe) for name, recipe in RECIPES.items()}
    folders = {
        name: merge(tmp_path / f"{name}-merged", base, adapters[name], recipe)
        for name, recipe in RECIPES.items()
    }
    wanted: dict[str | None, list[list[tuple[float, ...]]]] = {}
    for name, folder in {None: base, **folders}.items():
        with engine_on(load_model(str(folder), CPU), mode="blocking", max_tokens=LIMIT) as engine:
            wanted[name] = places([engine.ask(replace(r, adapter=None)) for r in asked(name)])
    assert len({str(w) for w in wanted.values()}) == 1 + len(RECIPES), "adapters that change nothing"
    model = load_model(str(base), CPU)
    with engine_on(model, adapters=AdapterBank(model, adapters, 8), max_tokens=LIMIT) as engine:
        requests = [request for name in wanted for request in asked(name)]
        given = places(ask_together(engine, requests))
        assert_at_rest(engine)
    count = len(asked(None))
    for number, name in enumerate(wanted):
        assert given[number * count : (number + 1) * count] == wanted[name], name
